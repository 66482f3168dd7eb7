// Line charts with one pair of axes, a legend, and a readout under the pointer.

import { colour, element, fitted, onTheme } from "./screen.js";

const LEFT = 58, BOTTOM = 24, TOP = 10, RIGHT = 12;

export class Chart {
  // series: [{name, colour, points: [[x, y], …]}] with y null for a hole; marks: [{x, colour}].
  constructor(parent, title, { xText, yText, empty, top }) {
    Object.assign(this, { xText, yText, empty, series: [], marks: [] });
    this.top = top; // of the scale, where it does not depend on the values
    this.canvas = element("canvas", { class: "chart", role: "img", "aria-label": title });
    this.legend = element("p", { class: "legend" });
    this.readout = element("p", { class: "readout", "aria-hidden": "true" });
    parent.append(element("figure", {}, element("figcaption", {}, title), this.legend, this.canvas, this.readout));
    this.canvas.addEventListener("pointermove", (event) => {
      this.pointer = event.clientX - this.canvas.getBoundingClientRect().left;
      this.invalidate();
    });
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; this.invalidate(); });
    new ResizeObserver(() => this.invalidate()).observe(this.canvas);
    onTheme(() => this.invalidate());
  }

  show(series, marks = []) {
    Object.assign(this, { series, marks });
    this.legend.replaceChildren(...(series.length > 1 ? series.map(({ name, colour: token }) =>
      element("span", {}, swatch(token), name)) : []));
    this.invalidate();
  }

  invalidate() {
    this.pending ??= requestAnimationFrame(() => { this.pending = null; this.draw(); });
  }

  draw() {
    const { context, width, height } = fitted(this.canvas);
    if (!width) return;
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    const points = this.series.flatMap(({ points: all }) => all).filter(([, y]) => y !== null);
    context.fillStyle = colour("muted");
    if (!points.length) {
      context.textAlign = "center";
      context.fillText(this.empty, width / 2, height / 2);
      this.readout.textContent = "";
      return;
    }
    let x0 = Infinity, x1 = -Infinity, y1 = 0;
    for (const [x, y] of points) { x0 = Math.min(x0, x); x1 = Math.max(x1, x); y1 = Math.max(y1, y); }
    if (x1 === x0) x1 = x0 + 1;
    const step = niceStep(this.top ?? (y1 || 1) * 1.05, 4);
    const top = this.top ?? Math.ceil((y1 || 1) * 1.02 / step) * step;
    const px = (x) => LEFT + (x - x0) / (x1 - x0) * (width - LEFT - RIGHT);
    const py = (y) => height - BOTTOM - y / top * (height - BOTTOM - TOP);
    this.#axes(context, { width, height, x0, x1, top, step, px, py });
    for (const { x, colour: token } of this.marks) {
      context.fillStyle = colour(token);
      context.fillRect(px(x) - 0.75, TOP, 1.5, height - BOTTOM - TOP);
    }
    Object.assign(context, { lineWidth: 1.75, lineJoin: "round" });
    for (const { points: all, colour: token } of this.series) {
      context.strokeStyle = colour(token);
      context.beginPath();
      let pen = false;
      const alone = []; // points without a neighbour
      all.forEach(([x, y], n) => {
        if (y === null) { pen = false; return; }
        if (pen) context.lineTo(px(x), py(y)); else context.moveTo(px(x), py(y));
        if (!pen && (n + 1 === all.length || all[n + 1][1] === null)) alone.push([px(x), py(y)]);
        pen = true;
      });
      context.stroke();
      context.fillStyle = colour(token);
      for (const [x, y] of alone) context.fillRect(x - 2, y - 2, 4, 4);
    }
    this.#read(context, { x0, x1, px, py, width, height });
  }

  #axes(context, { width, height, x0, x1, top, step, px, py }) {
    Object.assign(context, { strokeStyle: colour("line"), lineWidth: 1, textAlign: "right", textBaseline: "middle" });
    context.beginPath();
    for (let y = 0; y <= top * 1.0001; y += step) {
      const at = Math.round(py(y)) + 0.5;
      context.moveTo(LEFT, at);
      context.lineTo(width - RIGHT, at);
      context.fillText(this.yText(y), LEFT - 6, at);
    }
    context.stroke();
    context.textBaseline = "top";
    const every = niceStep(x1 - x0, Math.max(2, width / 130));
    for (let x = Math.ceil(x0 / every) * every; x <= x1; x += every) {
      context.textAlign = px(x) > width - 40 ? "right" : "center";
      context.fillText(this.xText(x), Math.min(px(x), width - 2), height - BOTTOM + 7);
    }
  }

  #read(context, { x0, x1, px, py, width, height }) {
    if (this.pointer === null || this.pointer === undefined) { this.readout.textContent = ""; return; }
    const x = x0 + (this.pointer - LEFT) / (width - LEFT - RIGHT) * (x1 - x0);
    const parts = [];
    let at = null;
    for (const { name, points, colour: token } of this.series) {
      const near = nearest(points, x);
      if (!near || near[1] === null) continue;
      at = near[0];
      parts.push(`${name} ${this.yText(near[1])}`);
      context.fillStyle = colour(token);
      context.beginPath();
      context.arc(px(near[0]), py(near[1]), 3.5, 0, 7);
      context.fill();
    }
    this.readout.textContent = at === null ? "" : `${this.xText(at)}: ${parts.join(", ")}`;
    if (at !== null) {
      context.fillStyle = colour("muted");
      context.fillRect(px(at), TOP, 1, height - BOTTOM - TOP);
    }
  }
}

export function swatch(token) {
  const made = element("span", { class: "swatch" });
  made.style.background = `var(--${token})`;
  return made;
}

export function niceStep(span, wanted) {
  const rough = span / wanted, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
}

function nearest(points, x) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
  return best;
}

// A number of things, short: 1,234 or 56.7 k.
export function amount(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  if (number >= 1e6) return `${+(number / 1e6).toPrecision(3)} M`;
  if (number >= 1e4) return `${+(number / 1e3).toPrecision(3)} k`;
  return number >= 100 || Number.isInteger(number) ? Math.round(number).toLocaleString("en") : String(+number.toPrecision(3));
}
