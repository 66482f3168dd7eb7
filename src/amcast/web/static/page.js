// The page about a trace: everything put together.

import { swatch } from "./chart.js";
import { Details } from "./details.js";
import { Diagram, tickLabel } from "./diagram.js";
import { Figures } from "./figures.js";
import { Overview } from "./overview.js";
import { element, onTheme, themeButton } from "./screen.js";
import { NONE, Trace, duration, moment } from "./trace.js";

const SMALL = 300; // events that are shown all together
const at = (id) => document.getElementById(id);
let trace = null, matches = null, place = -1, verdictTurn = -1, chartsDrawn = null;

const diagram = new Diagram(at("diagram"), { onPick: pick, onView: () => showStatus(), onHover: hover });
const overview = new Overview(at("overview"), diagram);
const details = new Details(at("details"), diagram, { choose, go, blame, letGo, showWholeLife });
const figures = new Figures(at("charts-view"));

// ---------------------------------------------------------------- loading

async function fetched(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

async function start() {
  const { trace: name, runs } = await (await fetched("runs")).json();
  document.title = `${name.split("/").at(-1)} – amcast view`;
  at("title").textContent = name.split("/").at(-1);
  at("title").title = name;
  at("run").replaceChildren(...runs.map((run) => element("option", { value: run.name }, `${run.name} (${run.events.toLocaleString("en")})`)));
  at("run-choice").hidden = runs.length < 2;
  await open(runs[0].name);
}

async function open(run) {
  const query = `?run=${encodeURIComponent(run)}`;
  trace = new Trace(await (await fetched(`data${query}`)).arrayBuffer());
  [matches, place, verdictTurn, chartsDrawn] = [null, -1, -1, null];
  diagram.hiddenGroups.clear();
  diagram.hiddenTypes.clear();
  diagram.show(trace);
  overview.show(trace);
  details.verdicts = null;
  details.showRun();
  fillFilters();
  at("subtitle").textContent = `run ${trace.run}: ${trace.size.toLocaleString("en")} events of ${trace.processes.length} processes`;
  showStatus();
  if (!at("charts-view").hidden) showCharts();
  at("diagram").addEventListener("drawn", () => performance.mark("first picture"), { once: true });
  document.documentElement.dataset.ready = run;
  const verdicts = await (await fetched(`verdicts${query}`)).json();
  if (trace.run !== run) return;
  details.verdicts = verdicts;
  document.documentElement.dataset.judged = run;
  if (verdicts.some((verdict) => verdict.counterexample?.length) && diagram.selected === null) nextViolation();
  else if (diagram.selected === null && diagram.cursor === null) details.showRun();
}

function complain(problem) {
  at("problem").textContent = problem.message;
  at("problem").hidden = false;
}

// ---------------------------------------------------------------- choosing

function pick(found) {
  if (!found) { letGo(); return; }
  diagram.cursor = found.event;
  const about = trace.aboutOf(found.event);
  if (about.length === 1) choose(about[0]);
  else if (about.length && diagram.selected !== null && about.includes(diagram.selected)) details.current(found.event);
  else { diagram.selected = null; details.showEvent(found.event); }
  diagram.invalidate();
}

function choose(message, target) {
  diagram.selected = message;
  diagram.path = [];
  diagram.marks = [];
  details.showMessage(message, target);
  if (at("only-selected").checked) filterMessages();
  const life = [...trace.lifeOf(message)];
  if (diagram.summarised || life.every((i) => trace.time[i] < diagram.from || trace.time[i] > diagram.until)) diagram.reveal(life);
  diagram.invalidate();
  overview.draw();
}

function go(event) {
  diagram.cursor = event;
  diagram.center(event);
  details.current(event);
  diagram.invalidate();
  showStatus();
}

function showWholeLife() {
  if (diagram.selected !== null) diagram.reveal([...trace.lifeOf(diagram.selected)]);
}

function letGo() {
  Object.assign(diagram, { selected: null, path: [], marks: [], cursor: null });
  if (at("only-selected").checked) filterMessages();
  details.showRun();
  diagram.invalidate();
  overview.draw();
}

function blame(verdict) {
  const events = verdict.counterexample.map((row) => trace.eventAt(row.process, row.seq, row.kind)).filter((i) => i !== undefined);
  Object.assign(diagram, { selected: null, path: [], marks: events, cursor: null });
  details.showVerdict(verdict, events);
  if (trace.size <= SMALL) diagram.fit();
  else if (events.length) diagram.reveal(events);
  diagram.invalidate();
  overview.draw();
}

function nextViolation() {
  const found = (details.verdicts ?? []).filter((verdict) => verdict.counterexample?.length);
  if (!found.length) return;
  verdictTurn = (verdictTurn + 1) % found.length;
  blame(found[verdictTurn]);
}

// The next event: of the chosen message, else of the search, else of all that are shown.
function step(direction) {
  const list = diagram.selected !== null ? trace.lifeOf(diagram.selected) : matches;
  if (!list) {
    let i = diagram.cursor ?? trace.firstEventFrom(diagram.from) - (direction > 0 ? 1 : 0);
    do i += direction; while (i >= 0 && i < trace.size && (!diagram.isShown(i) || trace.kindName(i) === "start"));
    if (i >= 0 && i < trace.size) { go(i); details.showEvent(i); }
    return;
  }
  const now = diagram.cursor ?? (direction > 0 ? -1 : trace.size);
  const next = direction > 0 ? list.find((i) => i > now) : list.findLast((i) => i < now);
  if (next !== undefined) go(next);
}

function stepMessage(direction) {
  const count = trace.messages.length;
  if (count) choose(((diagram.selected ?? (direction > 0 ? -1 : 0)) + direction + count) % count);
}

// ---------------------------------------------------------------- search

function search(direction) {
  const text = at("query").value.trim();
  if (!text) { matches = null; at("found").textContent = ""; return; }
  if (search.text !== text) {
    search.text = text;
    matches = find(text);
    place = direction > 0 ? -1 : 0;
    if (trace.number.has(text)) choose(trace.number.get(text));
    else if (diagram.selected !== null) letGo();
  }
  if (!matches.length) { at("found").textContent = "nothing found"; return; }
  place = (place + direction + matches.length) % matches.length;
  at("found").textContent = `${(place + 1).toLocaleString("en")} of ${matches.length.toLocaleString("en")}`;
  go(matches[place]);
  if (diagram.selected === null) details.showEvent(matches[place]);
}

// Events of a message, process, type or kind: those that have exactly this name, else those whose name contains it.
function find(text) {
  for (const fits of [(name) => name === text, (name) => name.toLowerCase().includes(text.toLowerCase())]) {
    const flags = (names) => names.map(fits);
    const [messages, processes, types, kinds] = [trace.messages, trace.processes, trace.types, trace.kinds].map(flags);
    const found = [];
    for (let i = 0; i < trace.size; i++) {
      if (processes[trace.process[i]] || kinds[trace.kind[i]] || (trace.type[i] !== NONE && types[trace.type[i]]) ||
        trace.aboutOf(i).some((m) => messages[m])) found.push(i);
    }
    if (found.length) return found;
  }
  return [];
}

// ---------------------------------------------------------------- filters

function fillFilters() {
  const count = new Map();
  for (const group of trace.groupOf) count.set(group, (count.get(group) ?? 0) + 1);
  at("groups").replaceChildren(...[...count].map(([group, processes]) => box(group === NONE ? "clients" : trace.groups[group], processes, null, (on) => {
    if (on) diagram.hiddenGroups.delete(group); else diagram.hiddenGroups.add(group);
    diagram.layOut();
  })));
  const types = [...trace.arrowTypes.keys()].filter((type) => trace.typeCount[type]).sort((a, b) => trace.typeCount[b] - trace.typeCount[a]);
  at("types").replaceChildren(...types.map((type) => box(trace.arrowTypes[type], trace.typeCount[type], `series-${diagram.typeColour[type]}`, (on) => {
    if (on) diagram.hiddenTypes.delete(type); else diagram.hiddenTypes.add(type);
    diagram.invalidate();
  })));
  at("message-filter").value = "";
  at("only-selected").checked = false;
}

function box(name, count, token, change) {
  const input = element("input", { type: "checkbox", checked: true, onchange: (event) => change(event.target.checked) });
  return element("label", {}, input, token ? swatch(token) : null, element("span", {}, name), element("span", {}, count.toLocaleString("en")));
}

function filterMessages() {
  const text = at("message-filter").value.trim().toLowerCase();
  const only = at("only-selected").checked && diagram.selected !== null;
  diagram.allowed = !text && !only ? null : Uint8Array.from(trace.messages, (name, m) =>
    (!only || m === diagram.selected) && (!text || name.toLowerCase().includes(text)));
  diagram.layOut();
  showStatus();
}

function toggleFilters() {
  const hidden = at("filters").hidden = !at("filters").hidden;
  at("filters-button").setAttribute("aria-expanded", String(!hidden));
}

// ---------------------------------------------------------------- what is shown

function showCharts() {
  if (chartsDrawn !== trace) figures.show(trace);
  chartsDrawn = trace;
}

function tab(name) {
  for (const each of ["diagram", "charts"]) {
    at(`${each}-view`).hidden = each !== name;
    at(`tab-${each}`).setAttribute("aria-selected", String(each === name));
  }
  at("details").hidden = name === "charts";
  if (name === "charts") showCharts(); else diagram.invalidate();
}

function showStatus() {
  if (!trace) return;
  const [from, until] = [Math.max(diagram.from, trace.start), Math.min(diagram.until, trace.end)];
  const parts = [`${tickLabel(from, diagram.span / 100, trace.steps)} to ${tickLabel(until, diagram.span / 100, trace.steps)}`];
  if (diagram.visible !== undefined) parts.push(`${diagram.visible.toLocaleString("en")} events in view`);
  if (diagram.summarised) parts.push("zoom in for single events and arrows");
  if (diagram.sampled > 1) parts.push(`1 of ${diagram.sampled} arrows drawn: zoom in for all`);
  if (diagram.allowed) parts.push("filtered by message");
  if (diagram.cursor !== null) parts.push(`${moment(trace.time[diagram.cursor], trace.steps)}: ${trace.describe(diagram.cursor)}`);
  at("status").textContent = parts.join(" · ");
}

function hover(found, x, y) {
  const tip = at("tip");
  tip.hidden = !found;
  if (!found) return;
  if (found.text) { tip.textContent = found.text; placeTip(tip, x, y); return; }
  const to = found.arrow === undefined ? NONE : trace.arrow_to[found.arrow];
  const took = found.arrow === undefined ? "" : to === NONE ? ", never received" : `, takes ${duration(trace.time[to] - trace.time[found.event], trace.steps)}`;
  tip.textContent = `${moment(trace.time[found.event], trace.steps)}: ${trace.describe(found.event)}${took}`;
  placeTip(tip, x, y);
}

function placeTip(tip, x, y) {
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + tip.offsetHeight + 24 > innerHeight ? y - tip.offsetHeight - 10 : y + 16}px`;
}

// ---------------------------------------------------------------- keys

const KEYS = {
  "+": () => diagram.zoom(0.6), "=": () => diagram.zoom(0.6), "-": () => diagram.zoom(1 / 0.6), "0": () => diagram.fit(), "Home": () => diagram.fit(),
  "n": () => step(1), "p": () => step(-1), "]": () => stepMessage(1), "[": () => stepMessage(-1),
  "v": nextViolation, "z": showWholeLife, "g": () => diagram.foldAll(), "f": toggleFilters, "t": () => at("theme").click(), "?": () => at("help").showModal(),
  "c": () => tab(at("charts-view").hidden ? "charts" : "diagram"),
  "/": () => at("query").focus(), "Escape": letGo,
};
const DIAGRAM_KEYS = {
  "ArrowLeft": (event) => diagram.pan(event.shiftKey ? -0.9 : -0.15), "ArrowRight": (event) => diagram.pan(event.shiftKey ? 0.9 : 0.15),
  "ArrowUp": () => diagram.scrollBy(-60), "ArrowDown": () => diagram.scrollBy(60),
  "Enter": () => { if (diagram.cursor !== null && trace.aboutOf(diagram.cursor).length) choose(trace.aboutOf(diagram.cursor)[0]); },
};

document.addEventListener("keydown", (event) => {
  if (!trace || event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
  const typing = event.target.matches("input:not([type=checkbox]), select");
  if (typing) {
    if (event.key === "Escape") { event.preventDefault(); at("diagram").focus(); }
    return;
  }
  const inDiagram = event.target === at("diagram") || event.target === document.body;
  const action = KEYS[event.key] ?? (inDiagram ? DIAGRAM_KEYS[event.key] : undefined);
  if (!action) return;
  event.preventDefault();
  action(event);
});

// ---------------------------------------------------------------- wiring

at("search").addEventListener("submit", (event) => { event.preventDefault(); if (trace) search(1); });
at("query").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.shiftKey && trace) { event.preventDefault(); search(-1); }
});
at("query").addEventListener("input", () => { if (!at("query").value) { matches = search.text = null; at("found").textContent = ""; } });
at("run").addEventListener("change", () => open(at("run").value).catch(complain));
at("tab-diagram").addEventListener("click", () => tab("diagram"));
at("tab-charts").addEventListener("click", () => tab("charts"));
at("filters-button").addEventListener("click", toggleFilters);
at("filters-reset").addEventListener("click", () => {
  diagram.hiddenGroups.clear();
  diagram.hiddenTypes.clear();
  diagram.allowed = null;
  fillFilters();
  diagram.layOut();
});
at("message-filter").addEventListener("input", filterMessages);
at("only-selected").addEventListener("change", filterMessages);
at("help-button").addEventListener("click", () => at("help").showModal());
at("zoom-in").addEventListener("click", () => diagram.zoom(0.5));
at("zoom-out").addEventListener("click", () => diagram.zoom(2));
at("zoom-fit").addEventListener("click", () => diagram.fit());
at("diagram").addEventListener("drawn", () => { overview.draw(); showStatus(); });
onTheme((isPrinting) => { if (isPrinting && trace) diagram.draw(); else diagram.invalidate(); overview.draw(); });
themeButton(at("theme"));
window.amcastView = { diagram, get trace() { return trace; } }; // for the browser's console and for tests
start().catch(complain);
