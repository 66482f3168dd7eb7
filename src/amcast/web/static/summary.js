// What the diagram shows at every zoom: deliveries per group, who led when and who was down; and where there is too much
// to draw one by one, how much happened at each process.

import { amount } from "./chart.js";
import { Counts, binWidth } from "./counts.js";
import { NONE, duration, moment } from "./trace.js";

const PIXELS = 3; // a bin is at least so wide
const RIBBON = 15; // height of the line that says who leads

export class Summary {
  constructor(diagram) { this.diagram = diagram; }

  // Counts the events that are not filtered out, for the lines that there are.
  layOut() {
    const { trace, bands, rowOf, allowed } = this.diagram, { multicast } = trace.kindNumber;
    const isAllowed = (i) => !allowed || trace.aboutOf(i).some((m) => allowed[m]);
    const rows = Int32Array.from(trace.process, (process, i) => isAllowed(i) ? rowOf[process] : -1);
    this.activity = new Counts(trace.time, rows, rowOf.length);
    const bandOf = new Map(bands.map(({ group }, place) => [group, place])), found = [];
    for (const { event, group } of trace.firstDeliveries()) found.push([event, bandOf.get(group)]);
    if (bandOf.has(NONE)) {
      for (let i = 0; i < trace.size; i++) if (trace.kind[i] === multicast && trace.groupOf[trace.process[i]] === NONE) found.push([i, bandOf.get(NONE)]);
      found.sort(([a], [b]) => a - b);
    }
    const shown = found.filter(([i, band]) => band !== undefined && isAllowed(i));
    this.messages = new Counts(Float64Array.from(shown, ([i]) => trace.time[i]), Int32Array.from(shown, ([, band]) => band), bands.length);
    this.outages = trace.outages();
  }

  #bins(counts) {
    const { from, until, span, width, left } = this.diagram;
    return counts.between(from, until, binWidth(span, (width - left) / PIXELS));
  }

  // The visible columns of a row as steps: visit(x, x of the next one, count).
  #steps({ cells, first, columns, width }, row, visit) {
    const { diagram } = this;
    const begin = Math.max(0, Math.floor(diagram.from / width) - first), end = Math.min(columns, Math.floor(diagram.until / width) - first + 1);
    for (let column = begin; column < end; column++) {
      const count = cells[row * columns + column];
      if (count) visit(Math.round(diagram.x((first + column) * width)), Math.round(diagram.x((first + column + 1) * width)), count);
    }
  }

  drawBands(context) {
    const { bands, palette, left, width, height, axis, trace, summarised, isCounted } = this.diagram, bins = this.#bins(this.messages);
    bands.forEach((band, place) => {
      if (band.top + band.head < axis || band.top > height) return;
      if (!isCounted) { this.#drawReigns(context, band); return; }
      const ribbon = this.#reigns(band).length ? RIBBON : 3, bottom = band.top + band.head - 1, tall = band.head - ribbon - 3;
      context.fillStyle = place % 2 === 0 ? palette.band : palette.page; // arrows pass behind it
      context.globalAlpha = 0.85;
      context.fillRect(left, band.top, width - left, band.head);
      context.globalAlpha = 1;
      context.fillStyle = band.group === NONE ? palette.lane : palette.counted;
      let most = 1;
      this.#steps(bins, place, (x, next, count) => { most = Math.max(most, count); });
      this.#steps(bins, place, (x, next, count) => {
        const high = Math.max(1, count / most * tall);
        context.fillRect(x, bottom - high, next - x, high);
      });
      band.scale = summarised && !trace.steps ? `max ${amount(most / bins.width * 1e9)}/s` : `max ${most}`;
      this.#drawReigns(context, band);
    });
  }

  #reigns(band) { return band.group === NONE ? [] : this.diagram.trace.reigns[band.group]; }

  // One line per group: who leads it, and red while nobody does.
  #drawReigns(context, band) {
    const { palette, trace } = this.diagram, reigns = this.#reigns(band);
    Object.assign(context, { font: "10px system-ui, sans-serif", textAlign: "left", textBaseline: "middle" });
    let before = null;
    for (const { process, from, until } of reigns) {
      if (before !== null && from > before) this.#span(context, before, from, band.top + 1, RIBBON - 3, palette.bad, 0.3, `nobody leads, ${duration(from - before, trace.steps)}`);
      this.#span(context, from, until, band.top + 1, RIBBON - 3, palette.unsure, 0.4, `${trace.processes[process]} leads`);
      before = until;
    }
    if (before !== null && before < trace.end) this.#span(context, before, trace.end, band.top + 1, RIBBON - 3, palette.bad, 0.3, "nobody leads");
  }

  // A coloured stretch of time, with what it is where there is room.
  #span(context, from, until, y, height, fill, alpha, text) {
    const { diagram } = this;
    const x0 = Math.max(diagram.left, diagram.x(from)), x1 = Math.min(diagram.width, Math.max(diagram.x(until), diagram.x(from) + 1));
    if (x1 <= x0) return;
    Object.assign(context, { fillStyle: fill, globalAlpha: alpha });
    context.fillRect(x0, y, x1 - x0, height);
    context.globalAlpha = 1;
    context.fillStyle = diagram.palette.ink;
    if (text && context.measureText(text).width + 8 < x1 - x0) context.fillText(text, x0 + 4, y + height / 2 + 0.5);
  }

  // Under the lines of the processes: who leads, and who is down.
  drawStates(context) {
    const { bands, y, lane, axis, height, palette, trace } = this.diagram, high = Math.min(lane - 2, 22);
    const isSeen = (process) => y[process] > axis - lane && y[process] < height + lane;
    for (const band of bands) {
      if (band.folded || band.bottom < axis || band.top > height) continue;
      for (const { process, from, until } of this.#reigns(band)) {
        if (isSeen(process)) this.#span(context, from, until, y[process] - high / 2, high, palette.unsure, 0.2);
      }
    }
    Object.assign(context, { font: "10px system-ui, sans-serif", textAlign: "left", textBaseline: "middle" });
    for (const [process, from, until] of this.outages) {
      const said = until === trace.end ? "down" : `down ${duration(until - from, trace.steps)}`;
      if (isSeen(process)) this.#span(context, from, until, y[process] - high / 2, high, palette.bad, 0.16, `    ${said}`);
    }
  }

  drawDensity(context) {
    const { rowOf, lanes, y, lane, axis, height, palette } = this.diagram, bins = this.#bins(this.activity), drawn = new Set();
    const most = bins.most.reduce((high, one) => Math.max(high, one), 1), tall = Math.min(lane * 0.75, 20);
    context.fillStyle = palette.activity;
    for (const process of lanes) {
      if (drawn.has(rowOf[process]) || y[process] < axis - lane || y[process] > height + lane) continue;
      drawn.add(rowOf[process]);
      this.#steps(bins, rowOf[process], (x, next, count) => {
        const high = Math.max(1.5, tall * Math.sqrt(count / most));
        context.fillRect(x, y[process] - high / 2, next - x, high);
      });
    }
  }

  // What is drawn at a place of the diagram, in words; empty for nothing.
  textAt(x, y) {
    const { diagram } = this, { trace, bands, lanes, rowOf, lane } = diagram, time = diagram.timeAt(x);
    if (time < trace.start || time > trace.end) return "";
    const place = bands.findIndex((each) => y >= each.top && y < each.top + each.head), when = moment(time, trace.steps);
    if (place >= 0 && diagram.isCounted) {
      const band = bands[place], { count, width } = this.#countAt(this.messages, place, time);
      const rate = trace.steps ? `${count} in ${width} steps` : `${amount(count / width * 1e9)}/s`;
      const verb = band.group === NONE ? "multicasts" : "deliveries", reigns = this.#reigns(band);
      const reign = reigns.findLast((each) => each.from <= time && time <= each.until);
      const leads = !reigns.length ? "" : reign ? `; ${trace.processes[reign.process]} leads since ${moment(reign.from, trace.steps)}` : "; nobody leads";
      return `${when}: ${diagram.bandName(band)}, ${rate} ${verb}${leads}`;
    }
    const process = lanes.find((each) => Math.abs(diagram.y[each] - y) <= lane / 2);
    if (process === undefined) return "";
    const down = this.outages.find(([who, from, until]) => who === process && from <= time && time <= until);
    if (down) return `${when}: ${trace.processes[process]} is down since ${moment(down[1], trace.steps)}`;
    if (!diagram.summarised) return "";
    const { count, width } = this.#countAt(this.activity, rowOf[process], time), band = bands.find((each) => each.lanes.includes(process));
    return `${when}: ${band.folded ? diagram.bandName(band) : trace.processes[process]}, ${count.toLocaleString("en")} events in ${duration(width, trace.steps)}${trace.steps ? " steps" : ""}`;
  }

  #countAt(counts, row, time) {
    const { cells, first, columns, width } = this.#bins(counts), column = Math.floor(time / width) - first;
    return { count: column >= 0 && column < columns ? cells[row * columns + column] : 0, width };
  }
}
