// The whole run in a strip under the diagram: how much was delivered when, outages, new leaders, and the window of the
// diagram, which can be dragged.

import { readPalette } from "./diagram.js";
import { fitted } from "./screen.js";

const BINS = 300;

export class Overview {
  constructor(canvas, diagram) {
    Object.assign(this, { canvas, diagram });
    let grip = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const time = this.#timeAt(event);
      grip = time >= diagram.from && time <= diagram.until ? time - (diagram.from + diagram.until) / 2 : 0;
      this.#move(time - grip);
    });
    canvas.addEventListener("pointermove", (event) => { if (grip !== null) this.#move(this.#timeAt(event) - grip); });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { grip = null; });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  show(trace) {
    this.trace = trace;
    this.bins = new Uint32Array(BINS);
    const { deliver } = trace.kindNumber, span = trace.end - trace.start || 1;
    for (let i = 0; i < trace.size; i++) {
      if (trace.kind[i] === deliver) this.bins[Math.min(BINS - 1, (trace.time[i] - trace.start) / span * BINS | 0)]++;
    }
    this.draw();
  }

  #move(middle) {
    const half = this.diagram.span / 2;
    this.diagram.look(middle - half, middle + half);
  }

  #timeAt(event) {
    const box = this.canvas.getBoundingClientRect(), [from, until] = this.diagram.whole(), left = this.diagram.left ?? 0;
    return from + (event.clientX - box.left - left) / (box.width - left) * (until - from);
  }

  draw() {
    if (!this.trace) return;
    const { context, width, height } = fitted(this.canvas), palette = readPalette(), { trace, diagram } = this;
    const left = diagram.left ?? 0, [first, last] = diagram.whole(), x = (time) => left + (time - first) / (last - first) * (width - left);
    context.fillStyle = palette.raised;
    context.fillRect(0, 0, width, height);
    Object.assign(context, { font: "11px system-ui, sans-serif", textBaseline: "middle", fillStyle: palette.muted });
    context.fillText("whole run", 8, height / 2, left - 12);
    const most = Math.max(1, ...this.bins);
    context.fillStyle = palette.counted;
    this.bins.forEach((count, bin) => {
      const high = count / most * (height - 14), span = (trace.end - trace.start) / BINS;
      const from = Math.round(x(trace.start + bin * span));
      context.fillRect(from, height - 5 - high, Math.max(1, Math.round(x(trace.start + (bin + 1) * span)) - from), high);
    });
    context.fillStyle = palette.bad;
    for (const [, from, until] of trace.outages()) context.fillRect(x(from), height - 4, Math.max(1, x(until) - x(from)), 3);
    for (const i of trace.rare) {
      const kind = trace.kindName(i);
      if (kind !== "crash" && kind !== "leader") continue;
      context.fillStyle = kind === "crash" ? palette.bad : palette.unsure;
      context.fillRect(x(trace.time[i]) - 1, 0, 2, kind === "crash" ? height : 7);
    }
    context.fillStyle = palette.bad;
    for (const i of diagram.marks) context.fillRect(x(trace.time[i]) - 1.5, 0, 3, 10);
    const from = Math.max(left, x(diagram.from)), until = Math.min(width, Math.max(x(diagram.until), from + 3));
    context.fillStyle = palette.focus;
    context.globalAlpha = 0.1;
    context.fillRect(from, 0, until - from, height);
    context.globalAlpha = 1;
    Object.assign(context, { strokeStyle: palette.focus, lineWidth: 1.5 });
    context.strokeRect(from + 0.75, 0.75, Math.max(1.5, until - from - 1.5), height - 1.5);
  }
}
