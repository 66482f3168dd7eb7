// The panel beside the diagram: verdicts, the life of a message and where its time went, or one event.

import { swatch } from "./chart.js";
import { element } from "./screen.js";
import { NONE, duration, moment } from "./trace.js";

const MOST_EVENTS = 400;

export class Details {
  constructor(panel, diagram, actions) {
    this.panel = panel;
    this.diagram = diagram;
    this.actions = actions; // choose(message), go(event), blame(verdict), letGo(), showWholeLife()
    this.verdicts = null;
  }

  // Nothing is chosen: what was found about the run.
  showRun() {
    const { trace } = this.diagram;
    const parts = [element("h2", {}, "This run"), facts([
      ["events", trace.size.toLocaleString("en")],
      ["processes", trace.processes.length.toLocaleString("en")],
      ["messages", trace.messages.length.toLocaleString("en")],
      ["lasts", trace.steps ? `${trace.end} steps (no times)` : duration(trace.end - trace.start)],
    ])];
    if (trace.abstract) parts.push(element("p", { class: "muted" },
      "Protocol messages were not recorded: arrows lead from a multicast to its deliveries. (amcast sim --trace full records them.)"));
    parts.push(element("h3", {}, "Verdicts"), this.#verdictList());
    parts.push(element("p", { class: "muted" }, "Click an event or an arrow to follow a message."));
    this.panel.replaceChildren(...parts);
  }

  #verdictList() {
    if (this.verdicts === null) return element("p", { class: "muted" }, "being judged…");
    if (!this.verdicts.length) return element("p", { class: "muted" }, "Not judged: only a part of the trace is open.");
    return element("ul", { class: "verdicts" }, ...this.verdicts.map((verdict) => {
      const status = element("span", { class: `status ${verdict.status}` }, verdict.status);
      if (!verdict.counterexample?.length) {
        return element("li", {}, status, ` ${verdict.property}: ${verdict.reason || verdict.rests_on}`);
      }
      return element("li", {}, element("button", { onclick: () => this.actions.blame(verdict) },
        status, ` ${verdict.property}: ${verdict.reason}`));
    }));
  }

  showVerdict(verdict, events) {
    const { trace } = this.diagram;
    this.panel.replaceChildren(
      this.#back("All verdicts"),
      element("h2", {}, element("span", { class: "status violated" }, "violated"), ` ${verdict.property}`),
      element("p", {}, verdict.reason),
      element("h3", {}, "The rows that show it"),
      element("ol", { class: "events" }, ...events.map((i, place) =>
        element("li", {}, element("button", { onclick: () => this.actions.go(i) },
          element("span", {}, `${place + 1}.`),
          element("span", { class: "what" }, trace.describe(i)),
          element("span", { class: "time" }, moment(trace.time[i], trace.steps)))))),
      element("h3", {}, "Messages"),
      element("p", {}, ...this.#messageButtons([...new Set(events.flatMap((i) => [...trace.aboutOf(i)]))])),
    );
  }

  #messageButtons(messages) {
    return messages.slice(0, 30).flatMap((m) =>
      [element("button", { onclick: () => this.actions.choose(m) }, this.diagram.trace.messages[m]), " "]);
  }

  #back(text) {
    return element("p", {}, element("button", { onclick: () => this.actions.letGo() }, `← ${text}`));
  }

  showEvent(i) {
    const { trace } = this.diagram;
    const about = [...trace.aboutOf(i)];
    this.panel.replaceChildren(
      this.#back("This run"),
      element("h2", {}, trace.describe(i)),
      this.#facts(i),
      ...(about.length ? [element("h3", {}, "About"), element("p", {}, ...this.#messageButtons(about))] : []),
    );
  }

  #facts(i) {
    const { trace } = this.diagram;
    const rows = [["time", moment(trace.time[i], trace.steps)], ["process", trace.processName(i)], ["kind", trace.kindName(i)], ["seq", String(trace.seq[i])]];
    if (trace.type[i] !== NONE) rows.push(["type", trace.typeName(i)], ["bytes", String(trace.bytes[i])]);
    if (trace.tie[i] !== NONE) rows.push(["timestamp", `${trace.ts[i]}, ${trace.ties[trace.tie[i]]}`]);
    if (trace.details[i]) rows.push(["detail", trace.details[i]]);
    return facts(rows.filter(([, value]) => value !== ""));
  }

  // The whole life of a message. `target` is the delivery whose path is shown.
  showMessage(m, target) {
    const t = this.diagram.trace;
    const life = [...t.lifeOf(m)], sent = t.multicastOf(m), groups = t.deliveriesOf(m);
    const origin = sent === undefined ? t.time[life[0]] : t.time[sent];
    const to = [...t.destOf(m)].map((group) => t.groups[group]).join(", ");
    const since = (i) => `+${duration(t.time[i] - origin, t.steps)}`;
    const parts = [this.#back("This run"), element("h2", {}, `Message ${t.messages[m]}`),
      element("p", { class: "muted" }, sent === undefined ? "never multicast in this trace" : `from ${t.processName(sent)} to ${to} at ${moment(t.time[sent], t.steps)}`)];
    const missing = [...t.destOf(m)].filter((group) => !groups.some((row) => row.group === group));
    if (missing.length) parts.push(element("p", { class: "status bad" }, `not delivered in ${missing.map((group) => t.groups[group]).join(", ")}`));
    if (groups.length) parts.push(element("table", {},
      element("thead", {}, element("tr", {}, ...["group", "first delivery", "last", "by"].map((text, n) => element("th", { scope: "col", class: n ? "number" : "" }, text)))),
      element("tbody", {}, ...groups.map((row) => element("tr", {},
        element("td", {}, t.groups[row.group] ?? "–"), element("td", { class: "number" }, since(row.first)),
        element("td", { class: "number" }, since(row.last)), element("td", { class: "number" }, String(row.count)))))));
    if (groups.length && sent !== undefined) parts.push(...this.#breakdown(m, groups, target, origin));
    parts.push(element("p", {}, element("button", { id: "whole-life", onclick: () => this.actions.showWholeLife() }, "Show its whole life")));
    parts.push(element("h3", {}, `All ${life.length.toLocaleString("en")} events about it`),
      element("p", { class: "muted" }, sent === undefined ? "In the time of the run." : "In the time of the run, and after the multicast."),
      element("ul", { class: "events", id: "life" }, ...life.slice(0, MOST_EVENTS).map((i) =>
        element("li", {}, element("button", { "data-event": i, onclick: () => this.actions.go(i) },
          element("span", { class: "time" }, moment(t.time[i], t.steps)), element("span", { class: "time" }, sent === undefined ? "" : since(i)),
          element("span", { class: "what" }, t.describe(i).replace(/, about .*/, "")))))));
    if (life.length > MOST_EVENTS) parts.push(element("p", { class: "muted" }, `and ${(life.length - MOST_EVENTS).toLocaleString("en")} more`));
    this.panel.replaceChildren(...parts);
    this.panel.scrollTop = 0;
  }

  #breakdown(m, groups, target, origin) {
    const t = this.diagram.trace;
    const wanted = target ?? groups.reduce((late, row) => t.time[row.first] > t.time[late] ? row.first : late, groups[0].first);
    const steps = t.pathTo(m, wanted);
    this.diagram.path = steps;
    const total = t.time[wanted] - origin || 1;
    const choice = element("select", { "aria-label": "Which delivery", onchange: (event) => this.actions.choose(m, Number(event.target.value)) },
      ...groups.flatMap((row) => row.first === row.last ? [row.first] : [row.first, row.last])
        .map((i) => element("option", { value: i, selected: i === wanted }, `${t.processName(i)}, after ${duration(t.time[i] - origin, t.steps)}`)));
    const bar = element("div", { class: "bar", "aria-hidden": "true" });
    for (const step of steps) {
      const share = (t.time[step.to] - t.time[step.from]) / total, piece = element("span", { title: this.#stepText(step) });
      piece.style.flex = `${Math.max(share, 0.002)} 0 0`;
      piece.style.background = `var(--${step.kind === "wait" ? "lane" : this.#token(step)})`;
      bar.append(piece);
    }
    return [element("h3", {}, "Where the time went, until delivery at"), choice, element("p"), bar,
      element("ol", { class: "steps" }, ...steps.map((step) => {
        const waitsFor = step.kind === "wait" ? t.causeOf(step).message : undefined;
        return element("li", {}, element("button", { onclick: () => this.actions.go(step.to) },
          step.kind === "wait" ? swatch("lane") : swatch(this.#token(step)),
          element("span", { class: "what" }, this.#stepText(step)),
          element("span", { class: "time" }, duration(t.time[step.to] - t.time[step.from], t.steps))),
        waitsFor === undefined || waitsFor === m ? null : element("button", { class: "other", onclick: () => this.actions.choose(waitsFor) }, `Show ${t.messages[waitsFor]}`));
      }))];
  }

  #token(step) {
    const t = this.diagram.trace, arrow = t.arrowOfReceive.get(step.to);
    return `series-${arrow === undefined ? 0 : this.diagram.typeColour[t.arrowType[arrow]]}`;
  }

  #stepText(step) {
    const t = this.diagram.trace;
    if (step.kind === "message") return `${t.abstract ? "multicast" : t.typeName(step.from)} ${t.processName(step.from)} → ${t.processName(step.to)}`;
    if (t.process[step.from] !== t.process[step.to]) return `from ${t.processName(step.from)} to ${t.processName(step.to)}: not recorded how`;
    const { event, message } = t.causeOf(step), where = `waits at ${t.processName(step.to)}`;
    if (event === undefined) return `${where}: nothing came in, it goes on by its own clock`;
    const kind = t.kindName(event);
    if (kind === "leader") return `${where} until it leads`;
    if (kind === "deliver") return `${where} for ${t.messages[message]}, delivered before it`;
    return `${where} for ${message === undefined ? "" : `${t.messages[message]}: `}${t.typeName(event)} from ${t.peerName(event)}`;
  }

  current(i) {
    for (const button of this.panel.querySelectorAll("[data-event]")) {
      if (Number(button.dataset.event) === i) { button.setAttribute("aria-current", "true"); button.scrollIntoView({ block: "nearest" }); } else button.removeAttribute("aria-current");
    }
  }
}

function facts(rows) {
  return element("table", {}, element("tbody", {}, ...rows.map(([name, value]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)))));
}
