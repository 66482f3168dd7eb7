// Line charts with one pair of axes, a legend, and a readout under the pointer.

import { colour, element, fitted, onTheme } from "./screen.js";

const LEFT = 58, BOTTOM = 24, TOP = 10, RIGHT = 12;

export class Chart {
  // series: [{name, colour, points: [[x, y], …]}] with y null for a hole; marks: [{x, colour}]. `top` is that of the
  // scale, where it does not depend on the values; `spreads` names the axis ("x" or "y") that is logarithmic where its
  // values differ much.
  constructor(parent, title, { xText, yText, empty, top, spreads }) {
    Object.assign(this, { xText, yText, empty, top, spreads, series: [], marks: [] });
    this.canvas = element("canvas", { class: "chart", role: "img", "aria-label": title });
    this.legend = element("p", { class: "legend" });
    this.readout = element("p", { class: "readout", "aria-hidden": "true" });
    parent.append(element("figure", {}, element("figcaption", {}, title), this.legend, element("div", { class: "plot" }, this.canvas), this.readout));
    this.canvas.addEventListener("pointermove", (event) => {
      this.pointer = event.clientX - this.canvas.getBoundingClientRect().left;
      this.invalidate();
    });
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; this.invalidate(); });
    new ResizeObserver(() => this.invalidate()).observe(this.canvas);
    onTheme((isPrinting) => { if (isPrinting) this.draw(); else this.invalidate(); });
  }

  // `domain`: the first and the last x, where they are not those of the points.
  show(series, marks = [], domain = null) {
    Object.assign(this, { series, marks, domain });
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
    const logarithmic = (axis, values) => this.spreads === axis && differMuch(values);
    const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
    const [x0, x1] = this.domain ?? [smallest(xs), largest(xs)];
    const across = logarithmic("x", xs) ? new Logarithmic(x0, x1) : new Linear(x0, x1, Math.max(2, (width - LEFT) / 65));
    const up = logarithmic("y", ys) ? new Logarithmic(smallest(ys), largest(ys)) : new Linear(0, this.top ?? (largest(ys) || 1) * 1.02, Math.max(3, height / 60), true);
    const px = (x) => LEFT + across.share(x) * (width - LEFT - RIGHT);
    const py = (y) => height - BOTTOM - up.share(y) * (height - BOTTOM - TOP);
    this.#axes(context, { width, height, across, up, px, py });
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
    this.#read(context, { px, py, width, height });
  }

  #axes(context, { width, height, across, up, px, py }) {
    Object.assign(context, { strokeStyle: colour("line"), lineWidth: 1, textAlign: "right", textBaseline: "middle" });
    context.beginPath();
    for (const y of up.ticks) {
      const at = Math.round(py(y)) + 0.5;
      context.moveTo(LEFT, at);
      context.lineTo(width - RIGHT, at);
      context.fillText(this.yText(y), LEFT - 6, at);
    }
    context.stroke();
    context.textBaseline = "top";
    for (const x of across.ticks) {
      context.textAlign = px(x) > width - 40 ? "right" : "center";
      context.fillText(this.xText(x), Math.min(px(x), width - 2), height - BOTTOM + 7);
    }
  }

  #read(context, { px, py, width, height }) {
    if (this.pointer === null || this.pointer === undefined) { this.readout.textContent = ""; return; }
    const parts = [];
    let at = null;
    for (const { name, points, colour: token } of this.series) {
      const near = nearest(points, (point) => Math.abs(px(point[0]) - this.pointer));
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

function nearest(points, distance) {
  let best = null;
  for (const point of points) if (!best || distance(point) < distance(best)) best = point;
  return best;
}

const smallest = (values) => values.reduce((least, value) => Math.min(least, value), Infinity);
const largest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);

// Whether a few values would press all others flat.
function differMuch(values) {
  const sorted = values.filter((value) => value > 0).sort((a, b) => a - b);
  return sorted.length > 0 && sorted.at(-1) > 5 * sorted[sorted.length >> 1];
}

class Linear {
  constructor(from, until, wanted, isRounded = false) {
    const step = niceStep(until - from || 1, wanted);
    this.from = from;
    this.until = isRounded ? Math.ceil(until / step - 1e-9) * step : until > from ? until : from + 1;
    this.ticks = [];
    for (let n = Math.ceil(from / step); n * step <= this.until + step * 1e-6; n++) this.ticks.push(n * step);
  }

  share(value) { return (value - this.from) / (this.until - this.from); }
}

class Logarithmic {
  constructor(least, most) {
    const nice = [1, 2, 5, 10].map((factor) => (value) => factor * 10 ** Math.floor(Math.log10(value)));
    const from = nice.map((round) => round(least)).findLast((value) => value <= least * 1.001);
    const until = nice.map((round) => round(most)).find((value) => value >= most * 0.999);
    Object.assign(this, { from: Math.log(from), until: Math.log(until), ticks: [] });
    for (let power = Math.floor(Math.log10(from)); 10 ** power <= until; power++) {
      for (const factor of [1, 2, 5]) if (factor * 10 ** power >= from * 0.999 && factor * 10 ** power <= until * 1.001) this.ticks.push(factor * 10 ** power);
    }
  }

  share(value) { return Math.max(0, (Math.log(Math.max(value, 1e-9)) - this.from) / (this.until - this.from)); }
}

// A number of things, short: 1,234 or 56.7 k.
export function amount(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  if (number >= 1e6) return `${+(number / 1e6).toPrecision(3)} M`;
  if (number >= 1e4) return `${+(number / 1e3).toPrecision(3)} k`;
  return number >= 100 || Number.isInteger(number) ? Math.round(number).toLocaleString("en") : String(+number.toPrecision(3));
}
