// The whole run in a strip: how much was delivered when, crashes, and the window of the diagram, which can be dragged.

import { readPalette } from "./diagram.js";
import { fitted } from "./screen.js";

const BINS = 600;

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
    const box = this.canvas.getBoundingClientRect(), { start, end } = this.trace;
    return start + (event.clientX - box.left) / box.width * (end - start);
  }

  draw() {
    if (!this.trace) return;
    const { context, width, height } = fitted(this.canvas), palette = readPalette(), { trace, diagram } = this;
    const x = (time) => (time - trace.start) / (trace.end - trace.start || 1) * width;
    context.fillStyle = palette.raised;
    context.fillRect(0, 0, width, height);
    const most = Math.max(1, ...this.bins);
    context.fillStyle = palette.lane;
    this.bins.forEach((count, bin) => {
      const high = count / most * (height - 6);
      context.fillRect(bin / BINS * width, height - high, Math.max(1, width / BINS - 0.3), high);
    });
    context.fillStyle = palette.bad;
    for (const i of trace.rare) if (trace.kindName(i) === "crash") context.fillRect(x(trace.time[i]) - 1, 0, 2, height);
    for (const i of diagram.marks) context.fillRect(x(trace.time[i]) - 1.5, 0, 3, 10);
    const from = Math.max(0, x(diagram.from)), until = Math.min(width, Math.max(x(diagram.until), from + 3));
    context.fillStyle = palette.focus;
    context.globalAlpha = 0.16;
    context.fillRect(from, 0, until - from, height);
    context.globalAlpha = 1;
    Object.assign(context, { strokeStyle: palette.focus, lineWidth: 1.5 });
    context.strokeRect(from + 0.75, 0.75, Math.max(1.5, until - from - 1.5), height - 1.5);
  }
}
