// The page about a running cluster: asks our server once a second, which asks the nodes.

import { Chart, amount } from "./chart.js";
import { element, themeButton } from "./screen.js";

const at = (id) => document.getElementById(id);
const EVERY = 1000;
const ago = (seconds) => seconds > -0.5 ? "now" : seconds > -120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
const seconds = (value) => value === null || value === undefined ? "–" : value >= 1 ? `${+value.toPrecision(3)} s` : `${+(value * 1000).toPrecision(3)} ms`;

const rates = new Chart(at("charts"), "Deliveries per second, by group", { xText: ago, yText: amount, empty: "no rate yet" });
const lags = new Chart(at("charts"), "Messages that the slowest replica is behind, by group", { xText: ago, yText: amount, empty: "nothing yet" });
const waits = new Chart(at("charts"), "How long commands and multicasts take for clients", { xText: ago, yText: seconds, empty: "no client tells: see below", spreads: "y" });
let paused = false, token = "";

async function look() {
  if (!paused) {
    try {
      const answer = await fetch("live");
      if (!answer.ok) throw new Error(await answer.text());
      show(await answer.json());
      at("problem").hidden = true;
    } catch (problem) {
      at("problem").textContent = problem instanceof TypeError ? "amcast view has ended: this is the last that it saw" : problem.message;
      at("problem").hidden = false;
    }
  }
  setTimeout(look, EVERY);
}

function show(seen) {
  const ready = seen.nodes.filter((node) => node.state === "ready").length;
  document.title = `${seen.cluster}: ${ready} of ${seen.nodes.length} ready`;
  at("title").textContent = seen.cluster;
  at("subtitle").textContent = `${seen.protocol}, ${seen.app}, ${seen.durable ? "on disk" : "in memory"}: ${ready} of ${seen.nodes.length} replicas ready`;
  at("groups").replaceChildren(...seen.groups.map((group) => card(group, seen.nodes)));
  token = seen.token;
  at("reigns").replaceChildren(...seen.groups.map((group) => reigns(group, seen)));
  const line = (group, place, name) => ({ name: group.name, colour: `series-${place % 8}`, points: group[name].map((y, n) => [seen.times[n] - seen.now, y]) });
  const shown = seen.groups.slice(0, 8);
  const changes = seen.news.filter((item) => item.tone === "leader" && item.time > seen.times[0]).map((item) => ({ x: item.time - seen.now, colour: "unsure" }));
  const domain = [seen.times[0] - seen.now, seen.times.at(-1) - seen.now];
  rates.show(shown.map((group, place) => line(group, place, "rate")), changes, domain);
  lags.show(shown.map((group, place) => line(group, place, "lag")), changes, domain);
  waits.show(seen.clients.slice(0, 4).flatMap(({ id, at: where, p50, p99 }, place) => [["99 %", p99], ["median", p50]].map(([what, values], half) =>
    ({ name: `${id} at ${where}, ${what}`, colour: `series-${2 * place + half}`, points: values.map((y, n) => [seen.times[n] - seen.now, y]) }))), changes, domain);
  at("replicas").replaceChildren(heading(COLUMNS), element("tbody", {}, ...seen.nodes.map(row)));
  at("clients").hidden = !(at("no-clients").hidden = seen.clients.length > 0);
  at("clients").replaceChildren(heading(OF_CLIENTS), element("tbody", {}, ...seen.clients.map((client) => element("tr", {}, ...[client.id, client.at,
    client.answers ? "answers" : "no answer", ...["command", "multicast"].flatMap((what) => [amount(client[`${what}s`]), seconds(client[`${what}_p50`]), seconds(client[`${what}_p99`])])]
    .map((value, place) => element("td", { class: OF_CLIENTS[place][1] ? "number" : place === 2 ? (client.answers ? "good" : "bad") : "" }, value))))));
  at("news").replaceChildren(...(seen.news.length ? seen.news.map((item) => element("li", { class: item.tone },
    `${new Date(item.time * 1000).toLocaleTimeString("en-GB")}  ${item.text}`)) : [element("li", { class: "muted" }, "nothing since this page was opened")]));
  document.documentElement.dataset.ready = String(seen.times.length);
}

function card(group, nodes) {
  const members = nodes.filter((node) => node.group === group.name), up = members.filter((node) => node.state === "ready").length;
  const majority = up * 2 > members.length;
  return element("div", { class: "card" },
    element("div", { class: "muted" }, `group ${group.name}`),
    element("strong", {}, group.leader ? `${group.leader} leads` : "no leader known"),
    element("div", {}, group.leader ? `ballot ${group.ballot}, ` : "", element("span", { class: up === members.length ? "good" : majority ? "unknown" : "bad" }, `${up} of ${members.length} ready`)),
    element("div", {}, `${amount(group.rate.at(-1))} deliveries/s`),
    agreement(group.agreement),
    ...Object.entries(group.guests).map(([name, position]) => element("div", { class: "leader" },
      `${name} learns${position < 0 ? "" : `: at ${position.toLocaleString("en")}`}`)));
}

function agreement(found) {
  if (!found) return element("div", { class: "muted" }, "hashes not compared");
  const where = `up to ${found.position.toLocaleString("en")}`;
  return found.differ.length ? element("div", { class: "status bad" }, `hashes differ: ${found.differ.join(", ")}, ${where}`)
    : element("div", { class: "good" }, `hashes of ${found.agree} agree ${where}`);
}

// One line per group: stretches of time, each with who led.
function reigns(group, seen) {
  const bar = element("div", { class: "reigns" }), stretches = [];
  group.led.forEach((who, n) => {
    if (stretches.at(-1)?.who !== who) stretches.push({ who, from: seen.times[n] });
    stretches.at(-1).until = seen.times[n + 1] ?? seen.now;
  });
  for (const { who, from, until } of stretches) {
    const rank = Number(who?.split("/")[1] ?? 0), said = who === null ? "nobody" : who;
    const piece = element("span", { class: who === null ? "nobody" : "", title: `${said} led for ${seconds(until - from)}, from ${ago(from - seen.now)}` }, said);
    piece.style.flexGrow = until - from;
    if (who !== null) piece.style.setProperty("--of", `var(--series-${rank % 8})`);
    bar.append(piece);
  }
  return element("div", { class: "reign" }, element("span", { class: "muted" }, `group ${group.name}`), bar);
}

async function compareStates() {
  at("compare").disabled = true;
  at("states").textContent = "being hashed…";
  try {
    const answer = await fetch(`states?token=${token}`);
    if (!answer.ok) throw new Error(await answer.text());
    at("states").replaceChildren(...(await answer.json()).map(({ group, agree, of, differ, position }) => {
      const [tone, said] = differ?.length ? ["bad", `${differ.join(", ")} differ at ${position}`]
        : agree ? [agree === of ? "good" : "unknown", `${agree} of ${of} have the same state at ${position.toLocaleString("en")}`]
          : ["unknown", "not compared (no states, or no answers in time)"];
      return element("span", { class: `status ${tone}` }, `${group}: ${said}. `);
    }));
  } catch (problem) { at("states").textContent = problem.message; }
  at("compare").disabled = false;
}

const COLUMNS = [["replica"], ["state"], ["role"], ["ballot", 1], ["position", 1], ["behind", 1], ["deliveries/s", 1], ["requests/s", 1],
  ["commit median", 1], ["commit 99 %", 1], ["peers", 1], ["clients", 1], ["up for", 1]];

const OF_CLIENTS = [["client"], ["at"], ["state"], ["commands/s", 1], ["median", 1], ["99 %", 1], ["multicasts/s", 1], ["median", 1], ["99 %", 1]];

function heading(columns) {
  return element("thead", {}, element("tr", {}, ...columns.map(([text, number]) => element("th", { scope: "col", class: number ? "number" : "" }, text))));
}

function row(node) {
  const text = (value) => value === null || value === undefined ? "–" : String(value);
  const cells = [node.id, node.state, text(node.role), text(node.ballot), node.position === undefined ? "–" : node.position.toLocaleString("en"),
    amount(node.lag), amount(node.deliveries), amount(node.requests), seconds(node.commit_p50), seconds(node.commit_p99),
    node.peers ? node.peers.join("/") : "–", text(node.clients), uptime(node.uptime)];
  return element("tr", { class: node.state === "ready" ? "" : "down" }, ...cells.map((value, place) => {
    const cell = element("td", { class: COLUMNS[place][1] ? "number" : "" }, value);
    if (place === 1) cell.classList.add(node.state === "ready" ? "good" : "bad");
    if (place === 2 && value === "leader") cell.classList.add("status", "leader");
    return cell;
  }));
}

function uptime(value) {
  if (value === null || value === undefined) return "–";
  const whole = Math.floor(value), two = (number) => String(number).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  at("pause").textContent = paused ? "Go on" : "Pause";
});
at("compare").addEventListener("click", compareStates);
themeButton(at("theme"));
look();
