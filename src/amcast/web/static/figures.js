// Charts of a run: throughput and latency over time, the distribution of latency, and its percentiles.

import { Chart, amount } from "./chart.js";
import { SERIES } from "./diagram.js";
import { element } from "./screen.js";
import { duration, percentile } from "./trace.js";

const MOST_BINS = 80, MESSAGES_PER_BIN = 8;

export class Figures {
  constructor(parent) {
    this.table = element("div", { class: "scroll" });
    const charts = element("div", { class: "charts" });
    parent.replaceChildren(element("h2", {}, "Latency and throughput"), this.table, charts);
    const time = { xText: (x) => duration(x), empty: "nothing was multicast and delivered" };
    this.throughput = new Chart(charts, "Messages delivered by all their groups, per second", { ...time, yText: amount });
    this.latency = new Chart(charts, "Latency over time (by the time of the multicast)", { ...time, yText: (y) => duration(y), spreads: "y" });
    this.groups = new Chart(charts, "Deliveries per second, by group (each message once)", { ...time, yText: amount });
    this.spread = new Chart(charts, "Share of messages that took at most so long", { ...time, yText: (y) => `${Math.round(y * 100)} %`, top: 1, spreads: "x" });
    this.legend = element("p", { class: "muted" });
    charts.before(this.legend);
  }

  show(trace) {
    const rows = trace.latencies();
    if (trace.steps) {
      this.table.replaceChildren(element("p", { class: "muted" }, "This trace has no times: there is nothing to measure."));
      for (const chart of [this.throughput, this.latency, this.groups, this.spread]) chart.show([]);
      this.legend.textContent = "";
      return;
    }
    this.#showTable(rows);
    const bins = Math.max(5, Math.min(MOST_BINS, Math.floor(rows.length / MESSAGES_PER_BIN)));
    const span = trace.end - trace.start || 1, width = span / bins;
    const done = new Float64Array(bins), sent = Array.from({ length: bins }, () => []);
    for (const { sent: at, latency } of rows) {
      done[Math.min(bins - 1, Math.floor((at + latency - trace.start) / width))]++;
      sent[Math.min(bins - 1, Math.floor((at - trace.start) / width))].push(latency);
    }
    const middle = (bin) => trace.start + (bin + 0.5) * width;
    const tokens = { crash: "bad", leader: "unsure" }, domain = [trace.start, trace.end];
    const changes = trace.rare.filter((i) => trace.kindName(i) in tokens && trace.time[i] > trace.start).map((i) => ({ x: trace.time[i], colour: tokens[trace.kindName(i)] }));
    this.legend.textContent = changes.length ? "Red lines are crashes, yellow ones new leaders." : "";
    this.throughput.show(rows.length ? [{ name: "messages/s", colour: "series-0", points: [...done].map((count, bin) => [middle(bin), count / width * 1e9]) }] : [], changes, domain);
    const counts = trace.groups.map(() => new Float64Array(bins));
    for (const { event, group } of trace.firstDeliveries()) counts[group][Math.min(bins - 1, Math.floor((trace.time[event] - trace.start) / width))]++;
    this.groups.show(trace.groups.slice(0, SERIES).map((name, group) => ({
      name, colour: `series-${group}`, points: [...counts[group]].map((count, bin) => [middle(bin), count / width * 1e9]),
    })), changes, domain);
    const sorted = sent.map((values) => values.sort((a, b) => a - b));
    const line = (share) => sorted.map((values, bin) => [middle(bin), values.length ? percentile(values, share) : null]);
    this.latency.show(rows.length ? [
      { name: "99th percentile", colour: "series-1", points: line(0.99) },
      { name: "median", colour: "series-0", points: line(0.5) },
    ] : [], changes, domain);
    const byGroups = Map.groupBy ? Map.groupBy(rows, (row) => row.groups) : new Map([[0, rows]]);
    this.spread.show([...byGroups].sort(([a], [b]) => a - b).slice(0, SERIES).map(([groups, of], place) => {
      const values = of.map((row) => row.latency).sort((a, b) => a - b);
      const step = Math.max(1, Math.floor(values.length / 200));
      const points = values.filter((_, n) => n % step === 0).map((value, n) => [value, (n * step + 1) / values.length]);
      points.push([values.at(-1), 1]);
      return { name: `${groups} group${groups === 1 ? "" : "s"}`, colour: `series-${place}`, points };
    }));
  }

  #showTable(rows) {
    const byGroups = new Map([["all", rows]]);
    for (const row of rows) {
      if (!byGroups.has(row.groups)) byGroups.set(row.groups, []);
      byGroups.get(row.groups).push(row);
    }
    if (byGroups.size === 2) byGroups.delete("all");
    const body = [...byGroups].sort(([a], [b]) => (a === "all") - (b === "all") || a - b).map(([groups, of]) => {
      const sorted = of.map((row) => row.latency).sort((a, b) => a - b);
      return element("tr", {}, element("td", {}, String(groups)), element("td", { class: "number" }, of.length.toLocaleString("en")),
        ...[0.5, 0.95, 0.99, 1].map((share) => element("td", { class: "number" }, duration(percentile(sorted, share)))));
    });
    this.table.replaceChildren(element("table", {}, element("thead", {}, element("tr", {},
      ...["to groups", "messages", "median", "95 %", "99 %", "longest"].map((text, n) => element("th", { scope: "col", class: n ? "number" : "" }, text)))),
    element("tbody", {}, ...body)), element("p", { class: "muted" }, "From the multicast to the first delivery in every destination group."));
  }
}
