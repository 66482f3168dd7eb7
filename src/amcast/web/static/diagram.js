// The space-time diagram: one line per process, time from left to right, drawn for the visible window only.

import { niceStep } from "./chart.js";
import { colour, fitted, onTheme } from "./screen.js";
import { Summary } from "./summary.js";
import { NONE } from "./trace.js";

const AXIS = 26, LOWEST = 16, HIGHEST = 90;
const HEAD = 46, LOW_HEAD = 34, NAME = 18; // of a band, above its lines; where the diagram is low; where nothing is counted
const FEW_EVENTS = 3000; // that need not be counted: every one is seen, and nothing may hide an arrow
const FEW_CLIENTS = 8, MANY_PROCESSES = 60; // that have a line each until somebody folds them
const ARROWS_STILL = 9000, ARROWS_MOVING = 2500; // drawn at most; above that a sample that does not depend on the window
const PER_PIXEL = 8; // events drawn one by one at most; above that as density, without arrows
const SETTLE = 140; // milliseconds after the last movement until everything is drawn
export const SERIES = 8; // colours of message types

export class Diagram {
  constructor(canvas, { onPick, onView, onHover }) {
    Object.assign(this, { canvas, onPick, onView, onHover });
    this.trace = null;
    this.selected = null; // a message
    this.path = []; // steps of its life that are emphasised
    this.marks = []; // events of a counter-example
    this.cursor = null; // an event
    this.hiddenGroups = new Set();
    this.hiddenTypes = new Set();
    this.allowed = null; // per message, or null for all
    this.folded = new Set(); // groups that have one line
    this.axis = AXIS;
    this.summary = new Summary(this);
    this.moved = 0;
    this.#listen();
    new ResizeObserver(() => this.invalidate()).observe(canvas);
  }

  show(trace) {
    Object.assign(this, { trace, selected: null, path: [], marks: [], cursor: null, allowed: null, scroll: 0 });
    this.typeColour = new Uint8Array(trace.arrowTypes.length); // the most frequent types get the first colours
    [...trace.arrowTypes.keys()].sort((a, b) => trace.typeCount[b] - trace.typeCount[a])
      .forEach((type, place) => { this.typeColour[type] = place % SERIES; });
    const clients = trace.groupOf.filter((group) => group === NONE).length;
    this.folded = new Set(trace.processes.length - clients > MANY_PROCESSES ? trace.groupOf : []);
    if (clients > FEW_CLIENTS) this.folded.add(NONE); else this.folded.delete(NONE);
    this.layOut();
    this.fit();
  }

  // Which processes have a line: those of a folded group share one.
  layOut() {
    const trace = this.trace;
    this.lanes = [...trace.processes.keys()].filter((p) => !this.hiddenGroups.has(trace.groupOf[p]));
    this.bands = [];
    this.rowOf = new Int32Array(trace.processes.length).fill(-1);
    let rows = 0;
    for (const p of this.lanes) {
      let band = this.bands.at(-1);
      if (band?.group !== trace.groupOf[p]) {
        const group = trace.groupOf[p];
        this.bands.push(band = { group, lanes: [], folded: this.folded.has(group) });
      }
      if (!band.folded || !band.lanes.length) rows++;
      band.lanes.push(p);
      this.rowOf[p] = rows - 1;
    }
    this.rows = rows;
    this.summary.layOut();
    this.onHover(null);
    this.invalidate();
  }

  fold(groups, folded) {
    for (const group of groups) if (folded) this.folded.add(group); else this.folded.delete(group);
    this.layOut();
  }

  // Fold everything that can be, or unfold if all of it is.
  foldAll() {
    const groups = this.bands.filter((band) => band.lanes.length > 1);
    this.fold(groups.map((band) => band.group), !groups.every((band) => band.folded));
  }

  #measure(context, width, height) {
    context.font = "12px system-ui, sans-serif";
    const longest = Math.max(20, ...this.lanes.slice(0, 400).map((p) => context.measureText(this.trace.processes[p]).width));
    context.font = "600 11px system-ui, sans-serif";
    const widest = Math.max(...this.bands.slice(0, 200).map((band) => context.measureText(`▸ ${this.bandName(band)}`).width), 0);
    this.left = Math.min(Math.max(longest, widest) + 16, Math.max(64, width * 0.25));
    this.isCounted = !this.trace.steps && this.trace.size > FEW_EVENTS;
    const head = !this.isCounted ? NAME : height < 500 ? LOW_HEAD : HEAD, room = height - AXIS - head * this.bands.length - 8;
    this.lane = Math.max(LOWEST, Math.min(HIGHEST, room / Math.max(1, this.rows)));
    this.total = this.lane * this.rows + head * this.bands.length + 8;
    this.scroll = Math.max(0, Math.min(this.scroll, this.total - (height - AXIS)));
    Object.assign(this, { width, height });
    this.y = new Float64Array(this.trace.processes.length).fill(NaN);
    let y = AXIS - this.scroll;
    for (const band of this.bands) {
      Object.assign(band, { top: y, head });
      y += head + (band.folded ? this.lane : 0);
      for (const p of band.lanes) {
        this.y[p] = band.folded ? y - this.lane / 2 : y + this.lane / 2;
        if (!band.folded) y += this.lane;
      }
      band.bottom = y;
    }
  }

  bandName(band) {
    if (band.group === NONE) return band.lanes.length === 1 ? "client" : band.folded ? `${band.lanes.length} clients` : "clients";
    return `group ${this.trace.groups[band.group]}`;
  }

  // ------------------------------------------------------------ the window

  get span() { return this.until - this.from; }
  x(time) { return this.left + (time - this.from) / this.span * (this.width - this.left); }
  timeAt(x) { return this.from + (x - this.left) / (this.width - this.left) * this.span; }

  fit() { this.look(...this.whole()); }

  // The window that shows all, with a margin.
  whole() {
    const { start, end } = this.trace, margin = Math.max((end - start) * 0.03, this.trace.steps ? 0.6 : 1000);
    return [start - margin, end + margin];
  }

  look(from, until) {
    const { start, end } = this.trace, whole = Math.max(end - start, 1), least = this.trace.steps ? 0.5 : 50;
    const span = Math.min(Math.max(until - from, least), whole * 1.1 + (this.trace.steps ? 2 : 4000));
    const margin = span * 0.1, middle = (from + until) / 2;
    if (span >= whole + margin) this.from = (start + end - span) / 2;
    else this.from = Math.min(Math.max(middle - span / 2, start - margin), end + margin - span);
    this.until = this.from + span;
    this.moved = performance.now();
    this.onHover(null);
    this.invalidate();
    this.onView();
  }

  pan(share) { this.look(this.from + share * this.span, this.until + share * this.span); }

  zoom(factor, x = (this.left + this.width) / 2) {
    const at = this.timeAt(x), share = (at - this.from) / this.span, span = this.span * factor;
    this.look(at - share * span, at + (1 - share) * span);
  }

  scrollBy(pixels) { this.scroll += pixels; this.moved = performance.now(); this.onHover(null); this.invalidate(); }

  // Bring events into view, with some room around them.
  reveal(events) {
    const times = events.map((i) => this.trace.time[i]);
    const first = Math.min(...times), last = Math.max(...times);
    const room = Math.max((last - first) * 0.2, this.trace.steps ? 1 : (last > first ? 0 : this.span * 0.1), 500 * !this.trace.steps);
    this.look(first - room, last + room);
    this.#scrollTo(events);
  }

  // Move as little as needed to see one event.
  center(i) {
    const time = this.trace.time[i];
    if (time < this.from + this.span * 0.05 || time > this.until - this.span * 0.05) {
      this.look(time - this.span / 2, time + this.span / 2);
    }
    this.#scrollTo([i]);
  }

  #scrollTo(events) {
    const ys = events.map((i) => this.y?.[this.trace.process[i]]).filter((y) => !Number.isNaN(y) && y !== undefined);
    if (!ys.length) return;
    const top = Math.min(...ys), bottom = Math.max(...ys);
    if (top < AXIS + this.lane || bottom > this.height - this.lane) {
      this.scroll += (top + bottom) / 2 - (this.height + AXIS) / 2;
      this.invalidate();
    }
  }

  invalidate() {
    if (this.pending || !this.trace) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  // ------------------------------------------------------------ drawing

  draw() {
    const { context, width, height } = fitted(this.canvas);
    if (!width || !height) return;
    const began = performance.now();
    const moving = began - this.moved < SETTLE;
    this.palette = readPalette();
    this.#measure(context, width, height);
    context.fillStyle = this.palette.page;
    context.fillRect(0, 0, width, height);
    this.#drawLanes(context);
    context.save();
    context.beginPath();
    context.rect(this.left, AXIS, width - this.left, height - AXIS);
    context.clip();
    const first = Math.max(0, this.trace.firstEventFrom(this.from)), last = this.trace.firstEventFrom(this.until);
    this.visible = last - first;
    this.summarised = this.visible > PER_PIXEL * (width - this.left);
    this.sampled = 1;
    this.summary.drawStates(context);
    if (this.summarised) this.summary.drawDensity(context);
    else {
      this.#drawArrows(context, moving ? ARROWS_MOVING : ARROWS_STILL);
      this.#drawEvents(context, first, last);
    }
    this.summary.drawBands(context);
    this.#drawRare(context);
    this.#drawEmphasis(context);
    context.restore();
    this.#drawNames(context);
    this.#drawAxis(context);
    this.#drawScroll(context);
    this.drawTime = performance.now() - began;
    this.drawn = (this.drawn ?? 0) + 1;
    clearTimeout(this.settling);
    if (moving) this.settling = setTimeout(() => this.invalidate(), SETTLE + 20); else this.#hoverAgain();
    this.canvas.dispatchEvent(new Event("drawn"));
  }

  #drawLanes(context) {
    this.bands.forEach((band, place) => {
      if (band.bottom < AXIS || band.top > this.height) return;
      if (place % 2 === 0) {
        context.fillStyle = this.palette.band;
        context.fillRect(0, band.top, this.width, band.bottom - band.top);
      }
      for (const p of band.folded ? [] : band.lanes) this.#drawLane(context, p);
      if (band.folded) this.#drawLine(context, this.y[band.lanes[0]], []);
    });
  }

  #drawLane(context, p) { this.#drawLine(context, this.y[p], this.trace.downs[p]); }

  // A line that is dotted between the first of these times and the second, the third and the fourth, …
  #drawLine(context, at, downs) {
    const y = Math.round(at) + 0.5;
    if (y < AXIS || y > this.height) return;
    const line = (from, until, dashed) => {
      context.setLineDash(dashed ? [2, 4] : []);
      context.beginPath();
      context.moveTo(Math.max(this.left, from), y);
      context.lineTo(Math.min(this.width, until), y);
      context.stroke();
    };
    Object.assign(context, { strokeStyle: this.palette.lane, lineWidth: 1 });
    let from = this.left;
    downs.forEach((time, turn) => { const x = this.x(time); line(from, x, turn % 2 === 1); from = x; });
    line(from, this.width, downs.length % 2 === 1);
    context.setLineDash([]);
  }

  isShown(i) {
    return !Number.isNaN(this.y[this.trace.process[i]]) && this.#isAllowed(i);
  }

  #isAllowed(i) {
    if (!this.allowed) return true;
    const { about, about_start: start } = this.trace;
    for (let a = start[i]; a < start[i + 1]; a++) if (this.allowed[about[a]]) return true;
    return false;
  }

  // Whether an arrow can be seen in the window: its ends as [x0, y0, x1, y1], or null.
  #ends(a) {
    const trace = this.trace, from = trace.arrow_from[a], to = trace.arrow_to[a];
    if (this.hiddenTypes.has(trace.arrowType[a]) || !this.#isAllowed(from)) return null;
    const y0 = this.y[trace.process[from]], t0 = trace.time[from];
    if (t0 > this.until) return null;
    if (to === NONE) {
      const peer = trace.peer[from];
      const y1 = peer === NONE ? NaN : this.y[peer];
      if (t0 < this.from || Number.isNaN(y0) || Number.isNaN(y1) || y0 === y1) return null;
      const x0 = this.x(t0);
      return [x0, y0, x0 + 7, y0 + Math.sign(y1 - y0) * Math.min(16, Math.abs(y1 - y0) * 0.6), true];
    }
    const t1 = trace.time[to], y1 = this.y[trace.process[to]];
    if (t1 < this.from || Number.isNaN(y0) || Number.isNaN(y1) || y0 === y1) return null;
    if ((y0 < AXIS && y1 < AXIS) || (y0 > this.height && y1 > this.height)) return null;
    return [this.x(t0), y0, this.x(t1), y1, false];
  }

  #drawArrows(context, budget) {
    const trace = this.trace, dimmed = this.selected !== null || this.marks.length > 0;
    let candidates = 0;
    trace.arrowsBetween(this.from, this.until, () => { candidates++; });
    let shift = 32; // one arrow in 2 ** (32 - shift) is drawn
    while (candidates / 2 ** (32 - shift) > budget) shift--;
    this.sampled = 2 ** (32 - shift);
    const heads = candidates <= (dimmed ? 200 : 2500);
    const lines = Array.from({ length: SERIES }, () => new Path2D());
    const tips = Array.from({ length: SERIES }, () => new Path2D());
    trace.arrowsBetween(this.from, this.until, (a) => {
      if (shift < 32 && Math.imul(a + 1, 0x9E3779B1) >>> shift !== 0) return;
      const ends = this.#ends(a);
      if (!ends || (ends[4] && this.sampled > 1)) return;
      const series = this.typeColour[trace.arrowType[a]];
      addLine(lines[series], ends);
      if (heads) addHead(tips[series], ends);
    });
    context.lineWidth = candidates > 600 ? 0.8 : 1.2;
    context.globalAlpha = dimmed ? (candidates < 200 ? 0.45 : 0.16) : Math.max(0.45, Math.min(0.9, this.width / candidates));
    if (trace.abstract && candidates < 600) context.setLineDash([5, 4]);
    for (let series = 0; series < SERIES; series++) {
      context.strokeStyle = context.fillStyle = this.palette.series[series];
      context.stroke(lines[series]);
      if (heads) context.fill(tips[series]);
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  #drawEvents(context, first, last) {
    const trace = this.trace, { deliver, multicast, optdeliver, send, receive } = trace.kindNumber;
    const delivered = new Path2D(), called = new Path2D(), early = new Path2D(), dots = new Path2D();
    const every = this.visible < 1500, taken = new Uint8Array(Math.ceil(this.width + 1) * this.lanes.length);
    const rowOf = new Map(this.lanes.map((p, place) => [p, place]));
    const size = this.lane > 24 ? 4.5 : 3.5;
    const labels = [];
    for (let i = first; i < last; i++) {
      const kind = trace.kind[i];
      if (kind !== deliver && kind !== multicast && kind !== optdeliver && !(every && (kind === send || kind === receive))) continue;
      if (!this.isShown(i)) continue;
      const x = this.x(trace.time[i]), y = this.y[trace.process[i]];
      if (y < AXIS - 8 || y > this.height + 8) continue;
      if (kind === send || kind === receive) { dots.rect(x - 1.2, y - 1.2, 2.4, 2.4); continue; }
      const place = rowOf.get(trace.process[i]) * Math.ceil(this.width + 1) + Math.max(0, x | 0);
      if (!every && taken[place]) continue;
      taken[place] = 1;
      if (kind === deliver) addDiamond(delivered, x, y, size);
      else if (kind === optdeliver) addDiamond(early, x, y, size);
      else { called.moveTo(x + size, y); called.arc(x, y, size, 0, 7); }
      if (labels.length < 400 && !this.marks.includes(i)) labels.push([x, y, i]);
    }
    context.fillStyle = this.palette.muted;
    context.fill(dots);
    context.globalAlpha = this.selected !== null || this.marks.length ? 0.35 : 1;
    context.fillStyle = this.palette.deliver;
    context.fill(delivered);
    Object.assign(context, { strokeStyle: this.palette.deliver, lineWidth: 1.4 });
    context.stroke(early);
    Object.assign(context, { fillStyle: this.palette.page, strokeStyle: this.palette.ink });
    context.fill(called);
    context.stroke(called);
    if (labels.length < 400 && this.lane >= 22) this.#drawLabels(context, labels);
    context.globalAlpha = 1;
  }

  // Names of messages above their marks, where there is room.
  #drawLabels(context, labels) {
    const free = new Map();
    Object.assign(context, { font: "11px system-ui, sans-serif", textAlign: "center", textBaseline: "alphabetic", fillStyle: this.palette.ink });
    for (const [x, y, i] of labels) {
      const text = this.trace.messages[this.trace.aboutOf(i)[0]];
      const half = context.measureText(text).width / 2 + 3;
      if (x - half < (free.get(y) ?? this.left)) continue;
      context.fillText(text, x, y - 8);
      free.set(y, x + half);
    }
  }

  #drawRare(context) {
    const trace = this.trace, { palette } = this;
    for (const i of trace.rare) {
      const time = trace.time[i], y = this.y[trace.process[i]];
      if (time < this.from || time > this.until || Number.isNaN(y)) continue;
      const x = this.x(time), kind = trace.kindName(i);
      context.lineWidth = 2.5;
      context.beginPath();
      if (kind === "crash") {
        context.strokeStyle = palette.bad;
        addCross(context, x, y, 6);
        context.stroke();
      } else if (kind === "restart") {
        context.strokeStyle = palette.good;
        context.arc(x, y, 6, 0, 7);
        context.stroke();
      } else if (kind === "leader") {
        context.fillStyle = palette.unsure;
        context.moveTo(x, y - 3); context.lineTo(x - 5, y - 12); context.lineTo(x + 5, y - 12);
        context.fill();
      } else {
        Object.assign(context, { font: "bold 12px system-ui, sans-serif", textAlign: "center", textBaseline: "middle", fillStyle: palette.muted });
        context.fillText({ suspect: "?", trust: "✓" }[kind] ?? "◆", x, y - 9);
      }
    }
  }

  #drawEmphasis(context) {
    const trace = this.trace, { palette } = this;
    if (this.selected !== null) this.#drawLife(context);
    const ring = (i, style, size, wide) => {
      const y = this.y[trace.process[i]];
      if (Number.isNaN(y)) return;
      Object.assign(context, { strokeStyle: style, lineWidth: wide });
      context.beginPath();
      context.arc(this.x(trace.time[i]), y, size, 0, 7);
      context.stroke();
    };
    const labels = new Map(); // those of one moment and process share a line of text
    this.marks.forEach((i, place) => {
      if (Number.isNaN(this.y[trace.process[i]])) return;
      const x = this.x(trace.time[i]), y = this.y[trace.process[i]];
      if (trace.kindName(i) === "deliver") {
        const shape = new Path2D();
        addDiamond(shape, x, y, 6);
        context.fillStyle = palette.bad;
        context.fill(shape);
      }
      ring(i, palette.bad, 10, 2.5);
      const message = trace.aboutOf(i).length ? ` ${trace.messages[trace.aboutOf(i)[0]]}` : "";
      const here = `${y} ${trace.time[i]}`;
      labels.set(here, { x, y, text: [...(labels.get(here)?.text ?? []), `${place + 1}.${message}`] });
    });
    Object.assign(context, { font: "bold 12px system-ui, sans-serif", textBaseline: "middle", fillStyle: palette.bad });
    for (const { x, y, text } of labels.values()) {
      const line = text.join(", "), right = x + 13 + context.measureText(line).width < this.width;
      context.textAlign = right ? "left" : "right";
      context.fillText(line, right ? x + 13 : x - 13, y - 9);
    }
    if (this.cursor !== null) ring(this.cursor, palette.focus, 13, 2);
  }

  #drawLife(context) {
    const trace = this.trace, life = trace.lifeOf(this.selected);
    const onPath = new Set(this.path.filter((step) => step.kind === "message").map((step) => step.from));
    const { deliver, multicast } = trace.kindNumber;
    for (const i of life) {
      const a = (trace.abstract ? trace.arrowOfReceive : trace.arrowOfSend).get(i);
      const ends = a === undefined ? null : this.#ends(a);
      if (!ends) continue;
      const line = new Path2D(), tip = new Path2D();
      addLine(line, ends);
      addHead(tip, ends, 7);
      context.strokeStyle = context.fillStyle = this.palette.series[this.typeColour[trace.arrowType[a]]];
      context.lineWidth = onPath.has(i) ? 3 : 1.4;
      context.stroke(line);
      context.fill(tip);
    }
    Object.assign(context, { strokeStyle: this.palette.activity, lineWidth: 4 });
    for (const { kind, from, to } of this.path) {
      const y = this.y[trace.process[to]];
      if (kind !== "wait" || y !== this.y[trace.process[from]]) continue; // NaN where it is hidden
      context.beginPath();
      context.moveTo(this.x(trace.time[from]), y);
      context.lineTo(this.x(trace.time[to]), y);
      context.stroke();
    }
    for (const i of life) {
      if (trace.kind[i] !== deliver && trace.kind[i] !== multicast) continue;
      const y = this.y[trace.process[i]];
      if (Number.isNaN(y)) continue;
      const shape = new Path2D();
      if (trace.kind[i] === deliver) addDiamond(shape, this.x(trace.time[i]), y, 6.5);
      else shape.arc(this.x(trace.time[i]), y, 6, 0, 7);
      context.fillStyle = trace.kind[i] === deliver ? this.palette.deliver : this.palette.ink;
      context.fill(shape);
      Object.assign(context, { font: "bold 11px system-ui, sans-serif", textAlign: "center", textBaseline: "alphabetic", fillStyle: this.palette.ink });
      context.fillText(trace.messages[this.selected], this.x(trace.time[i]), y - 10);
    }
  }

  #drawNames(context) {
    const { palette } = this;
    context.save();
    context.beginPath();
    context.rect(0, AXIS, this.width, this.height - AXIS);
    context.clip();
    Object.assign(context, { textBaseline: "middle", textAlign: "left" });
    this.bands.forEach((band, place) => {
      if (band.bottom < AXIS || band.top > this.height) return;
      context.fillStyle = place % 2 === 0 ? palette.band : palette.page;
      context.fillRect(0, band.top, this.left, band.bottom - band.top);
      Object.assign(context, { font: "600 11px system-ui, sans-serif", fillStyle: palette.muted });
      const sign = band.lanes.length < 2 ? "" : band.folded ? "▸ " : "▾ ";
      context.fillText(sign + this.bandName(band), 8, band.top + (this.isCounted ? band.head / 2 - 6 : 10), this.left - 12);
      context.font = "10px system-ui, sans-serif";
      if (this.isCounted) context.fillText(band.scale ?? "", 8, band.top + band.head / 2 + 8, this.left - 12);
      Object.assign(context, { font: "12px system-ui, sans-serif", fillStyle: palette.ink });
      for (const p of band.folded ? [] : band.lanes) context.fillText(this.trace.processes[p], 8, this.y[p], this.left - 12);
    });
    context.restore();
    context.fillStyle = palette.line;
    context.fillRect(Math.round(this.left) - 1, AXIS, 1, this.height - AXIS);
  }

  // How far down we are, where not all lines fit.
  #drawScroll(context) {
    const room = this.height - AXIS;
    if (this.total <= room) return;
    context.fillStyle = this.palette.muted;
    context.globalAlpha = 0.6;
    context.fillRect(this.width - 7, AXIS + this.scroll / this.total * room, 5, room / this.total * room);
    context.globalAlpha = 1;
  }

  #drawAxis(context) {
    const { palette } = this;
    context.fillStyle = palette.raised;
    context.fillRect(0, 0, this.width, AXIS);
    Object.assign(context, { font: "11px system-ui, sans-serif", textBaseline: "middle", textAlign: "center", fillStyle: palette.muted });
    Object.assign(context, { strokeStyle: palette.line, lineWidth: 1 });
    const nice = niceStep(this.span, Math.max(2, (this.width - this.left) / 75));
    const step = this.trace.steps ? Math.max(1, Math.round(nice)) : nice;
    context.beginPath();
    for (let tick = Math.ceil(this.from / step) * step; tick <= this.until; tick += step) {
      const x = Math.round(this.x(tick)) + 0.5;
      if (x < this.left + 18) continue;
      context.moveTo(x, AXIS - 5);
      context.lineTo(x, AXIS);
      context.fillText(tickLabel(tick, step, this.trace.steps), x, AXIS / 2 - 1);
    }
    context.stroke();
    context.textAlign = "left";
    context.fillText(this.trace.steps ? "step" : "time", 8, AXIS / 2 - 1);
  }

  // ------------------------------------------------------------ what is under the pointer

  at(x, y) {
    if (x < this.left || y < AXIS) return null;
    const trace = this.trace, reach = 10, { send, receive } = trace.kindNumber;
    const first = trace.firstEventFrom(this.timeAt(x - reach)), last = trace.firstEventFrom(this.timeAt(x + reach));
    let best = null, least = reach;
    const candidates = this.summarised ? trace.rare : Array.from({ length: Math.min(last - first, 20000) }, (_, n) => first + n);
    for (const i of candidates) {
      const distance = Math.hypot(this.x(trace.time[i]) - x, this.y[trace.process[i]] - y);
      const minor = trace.kind[i] === send || trace.kind[i] === receive;
      if (distance + 4 * minor <= least && this.isShown(i) && !(minor && this.visible > 1500)) { best = i; least = distance + 4 * minor; }
    }
    if (best !== null) return { event: best };
    let arrow = null, near = 5;
    if (!this.summarised) trace.arrowsBetween(this.timeAt(x), this.timeAt(x), (a) => {
      const ends = this.#ends(a);
      const distance = ends ? distanceTo(ends, x, y) : near;
      if (distance < near) { near = distance; arrow = a; }
    });
    return arrow === null ? null : { arrow, event: trace.arrow_from[arrow] };
  }

  // The band whose name is at this place, if it can be folded.
  #bandNamed(x, y) {
    return x < this.left && y > AXIS ? this.bands.find((band) => y >= band.top && y < band.top + band.head && band.lanes.length > 1) : undefined;
  }

  #listen() {
    const { canvas } = this, pointers = new Map();
    let travelled = 0, pinch = 0;
    const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      travelled = pointers.size > 1 ? 100 : 0;
      pinch = spread(pointers);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event), before = pointers.get(event.pointerId);
      if (!before) { this.#hover(x, y, event); return; }
      pointers.set(event.pointerId, [x, y]);
      travelled += Math.abs(x - before[0]) + Math.abs(y - before[1]);
      if (pointers.size === 2) {
        const now = spread(pointers), middle = [...pointers.values()].reduce((sum, [px]) => sum + px / 2, 0);
        if (pinch > 0 && now > 0) this.zoom(pinch / now, middle);
        pinch = now;
      } else if (travelled > 4) {
        this.onHover(null);
        canvas.classList.add("dragging");
        const shift = (before[0] - x) / (this.width - this.left) * this.span;
        this.scroll += before[1] - y;
        this.look(this.from + shift, this.until + shift);
      }
    });
    const release = (event) => {
      if (!pointers.delete(event.pointerId)) return;
      canvas.classList.remove("dragging");
      if (event.type !== "pointerup" || travelled > 4) return;
      const band = this.#bandNamed(...place(event));
      if (band) this.fold([band.group], !band.folded); else this.onPick(this.at(...place(event)));
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => { this.pointer = null; this.onHover(null); });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, place(event)[0]));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const size = event.deltaMode === 1 ? 16 : 1;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        this.pan((event.deltaX || event.deltaY) * size / (this.width - this.left));
      } else if (event.altKey) this.scrollBy(event.deltaY * size);
      else this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * size)) * 0.008), Math.max(this.left, place(event)[0]));
    }, { passive: false });
  }

  #hover(x, y, { clientX, clientY }) {
    this.pointer = { x, y, clientX, clientY };
    if (!this.trace || this.hovering) return;
    this.hovering = requestAnimationFrame(() => {
      this.hovering = 0;
      this.#hoverAgain();
    });
  }

  // What is under the pointer may be another thing when the picture has moved.
  #hoverAgain() {
    if (!this.pointer || this.canvas.classList.contains("dragging")) return;
    const { x, y, clientX, clientY } = this.pointer, found = this.at(x, y);
    this.canvas.classList.toggle("pointing", found !== null || this.#bandNamed(x, y) !== undefined);
    const text = found || x < this.left || y < AXIS ? "" : this.summary.textAt(x, y);
    this.onHover(found ?? (text ? { text } : null), clientX, clientY);
  }
}

function spread(pointers) {
  if (pointers.size !== 2) return 0;
  const [[ax, ay], [bx, by]] = [...pointers.values()];
  return Math.hypot(ax - bx, ay - by);
}

function addLine(path, [x0, y0, x1, y1, lost]) {
  path.moveTo(x0, y0);
  path.lineTo(x1, y1);
  if (lost) addCross(path, x1, y1, 3);
}

function addCross(path, x, y, size) {
  path.moveTo(x - size, y - size); path.lineTo(x + size, y + size);
  path.moveTo(x + size, y - size); path.lineTo(x - size, y + size);
}

function addHead(path, [x0, y0, x1, y1, lost], size = 5.5) {
  const length = Math.hypot(x1 - x0, y1 - y0);
  if (lost || length < 8) return;
  const ux = (x1 - x0) / length, uy = (y1 - y0) / length;
  path.moveTo(x1, y1);
  path.lineTo(x1 - size * ux - size * 0.45 * uy, y1 - size * uy + size * 0.45 * ux);
  path.lineTo(x1 - size * ux + size * 0.45 * uy, y1 - size * uy - size * 0.45 * ux);
  path.closePath();
}

function addDiamond(path, x, y, size) {
  path.moveTo(x, y - size); path.lineTo(x + size, y); path.lineTo(x, y + size); path.lineTo(x - size, y);
  path.closePath();
}

function distanceTo([x0, y0, x1, y1], x, y) {
  const dx = x1 - x0, dy = y1 - y0;
  const share = Math.max(0, Math.min(1, ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x0 + share * dx - x, y0 + share * dy - y);
}

// A time with as many digits as tell it from the next one that is a step away.
export function tickLabel(tick, step, steps) {
  if (steps) return String(Math.round(tick));
  const [unit, scale] = step >= 1e8 ? ["s", 1e9] : step >= 1e5 ? ["ms", 1e6] : step >= 100 ? ["µs", 1e3] : ["ns", 1];
  return `${(tick / scale).toFixed(Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9)))} ${unit}`;
}

let palette = null;
onTheme(() => { palette = null; });

export function readPalette() {
  if (palette) return palette;
  palette = { series: Array.from({ length: SERIES }, (_, n) => colour(`series-${n}`)) };
  for (const name of ["page", "band", "raised", "line", "lane", "ink", "muted", "good", "bad", "unsure", "deliver", "counted", "activity", "focus"]) {
    palette[name] = colour(name);
  }
  return palette;
}
