// A run of a trace: the columns that the server sent, indexes over them, and what can be computed from them.

import { firstFrom } from "./counts.js";

export const NONE = 0xFFFFFFFF;
const BLOCK = 256; // arrows per entry of the index
const VIEWS = { f8: Float64Array, u4: Uint32Array, u1: Uint8Array };

export class Trace {
  constructor(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    for (const column of head.columns) {
      this[column.name] = new VIEWS[column.type](buffer, 4 + length + column.offset, column.count);
    }
    Object.assign(this, head);
    this.groupOf = head.group_of;
    this.base = BigInt(head.base);
    this.size = this.time.length;
    this.end = this.size ? this.time[this.size - 1] : 0;
    this.start = this.size ? this.time[0] : 0;
    this.kindNumber = Object.fromEntries(this.kinds.map((name, number) => [name, number]));
    this.#indexMessages();
    this.#indexArrows();
    this.#indexRare();
  }

  // ------------------------------------------------------------ indexes

  #indexMessages() {
    // Which events are about a message: life[lifeStart[m] .. lifeStart[m + 1]], in the order of time.
    const start = new Uint32Array(this.messages.length + 1);
    for (const m of this.about) start[m + 1]++;
    for (let m = 0; m < this.messages.length; m++) start[m + 1] += start[m];
    const next = start.slice();
    const life = new Uint32Array(this.about.length);
    for (let i = 0; i < this.size; i++) {
      for (let a = this.about_start[i]; a < this.about_start[i + 1]; a++) life[next[this.about[a]]++] = i;
    }
    Object.assign(this, { life, lifeStart: start });
    this.number = new Map(this.messages.map((name, number) => [name, number]));
  }

  #indexArrows() {
    // Arrows are in the order of their start; per block, when the last of them ends.
    const count = this.arrow_from.length;
    this.arrowType = new Uint32Array(count);
    this.arrowOfSend = new Map();
    this.arrowOfReceive = new Map();
    this.blockEnd = new Float64Array(Math.ceil(count / BLOCK));
    for (let a = 0; a < count; a++) {
      const from = this.arrow_from[a], to = this.arrow_to[a];
      this.arrowType[a] = this.abstract ? this.types.length : this.type[from];
      if (!this.abstract) this.arrowOfSend.set(from, a);
      if (to !== NONE) this.arrowOfReceive.set(to, a);
      const end = to === NONE ? this.time[from] : this.time[to];
      const block = Math.floor(a / BLOCK);
      this.blockEnd[block] = Math.max(this.blockEnd[block], end, this.time[from]);
    }
    this.arrowTypes = this.abstract ? [...this.types, "multicast to delivery"] : this.types;
    this.typeCount = new Uint32Array(this.arrowTypes.length);
    for (const type of this.arrowType) this.typeCount[type]++;
  }

  #indexRare() {
    // Crashes and the like are drawn at every zoom.
    const rare = new Set(["crash", "restart", "suspect", "trust", "leader", "reconfigure"]
      .map((name) => this.kindNumber[name]));
    this.rare = [];
    this.downs = this.processes.map(() => []); // times at which a process crashed or came back, by turns
    for (let i = 0; i < this.size; i++) {
      if (!rare.has(this.kind[i])) continue;
      this.rare.push(i);
      const down = this.downs[this.process[i]];
      if (this.kindName(i) === "crash" && down.length % 2 === 0) down.push(this.time[i]);
      if (this.kindName(i) === "restart" && down.length % 2 === 1) down.push(this.time[i]);
    }
    this.#indexReigns();
  }

  // Who led a group when: a reign ends with the next one of the group, or when the leader crashes.
  #indexReigns() {
    const reigning = new Map();
    this.reigns = this.groups.map(() => []);
    const end = (group, time) => {
      if (reigning.has(group)) reigning.get(group).until = time;
      reigning.delete(group);
    };
    for (const i of this.rare) {
      const process = this.process[i], group = this.groupOf[process], kind = this.kindName(i);
      if (group === NONE || (kind === "crash" && reigning.get(group)?.process !== process)) continue;
      if (kind !== "crash" && kind !== "leader") continue;
      end(group, this.time[i]);
      if (kind === "crash") continue;
      const reign = { process, from: this.time[i], until: this.end };
      this.reigns[group].push(reign);
      reigning.set(group, reign);
    }
  }

  // From crash to restart: [[process, from, until]], until the end of the trace for those that did not come back.
  outages() {
    return this.downs.flatMap((times, process) => times.flatMap((from, turn) =>
      turn % 2 ? [] : [[process, from, times[turn + 1] ?? this.end]]));
  }

  // The first delivery of each message in each of its groups, in the order of time: [{event, group}].
  firstDeliveries() {
    if (this.first) return this.first;
    const seen = new Set(), { deliver } = this.kindNumber;
    this.first = [];
    for (let i = 0; i < this.size; i++) {
      if (this.kind[i] !== deliver) continue;
      const group = this.groupOf[this.process[i]], key = this.about[this.about_start[i]] * this.groups.length + group;
      if (group === NONE || seen.has(key)) continue;
      seen.add(key);
      this.first.push({ event: i, group });
    }
    return this.first;
  }

  // ------------------------------------------------------------ windows

  firstEventFrom(time) { return firstFrom(this.time, time); }

  // Calls visit(arrow) for every arrow of which a part may lie between two times.
  arrowsBetween(from, until, visit) {
    const count = this.arrow_from.length;
    for (let block = 0; block < this.blockEnd.length; block++) {
      if (this.blockEnd[block] < from) continue;
      const first = block * BLOCK, last = Math.min(count, first + BLOCK);
      if (this.time[this.arrow_from[first]] > until) break;
      for (let a = first; a < last; a++) visit(a);
    }
  }

  // ------------------------------------------------------------ names

  kindName(i) { return this.kinds[this.kind[i]]; }
  processName(i) { return this.processes[this.process[i]]; }
  typeName(i) { return this.type[i] === NONE ? "" : this.types[this.type[i]]; }
  peerName(i) { return this.peer[i] === NONE ? "" : this.processes[this.peer[i]]; }
  aboutOf(i) { return this.about.subarray(this.about_start[i], this.about_start[i + 1]); }
  destOf(m) { return this.dest.subarray(this.dest_start[m], this.dest_start[m + 1]); }
  lifeOf(m) { return this.life.subarray(this.lifeStart[m], this.lifeStart[m + 1]); }

  describe(i) {
    const about = this.aboutOf(i), kind = this.kindName(i);
    const names = about.length ? " " + [...about.subarray(0, 3)].map((m) => this.messages[m]).join(", ") +
      (about.length > 3 ? ` and ${about.length - 3} more` : "") : "";
    if (kind === "send") return `${this.processName(i)} sends ${this.typeName(i)} to ${this.peerName(i)}${names && ", about" + names}`;
    if (kind === "receive") return `${this.processName(i)} receives ${this.typeName(i)} from ${this.peerName(i)}${names && ", about" + names}`;
    const verb = { multicast: "multicasts", deliver: "delivers", optdeliver: "delivers optimistically", crash: "crashes",
      restart: "comes back", leader: "leads", suspect: "suspects", trust: "trusts", start: "starts" }[kind] ?? kind;
    return `${this.processName(i)} ${verb}${names}`;
  }

  eventAt(process, seq, kind) {
    this.places ??= new Map(Array.from({ length: this.size }, (_, i) => [`${this.process[i]} ${this.seq[i]} ${this.kind[i]}`, i]));
    return this.places.get(`${this.processes.indexOf(process)} ${seq} ${this.kindNumber[kind]}`);
  }

  // ------------------------------------------------------------ the life of a message

  multicastOf(m) {
    return this.lifeOf(m).find((i) => this.kind[i] === this.kindNumber.multicast);
  }

  // The first and last delivery in each destination group: [{group, first, last, count}].
  deliveriesOf(m) {
    const found = new Map();
    for (const i of this.lifeOf(m)) {
      if (this.kind[i] !== this.kindNumber.deliver) continue;
      const group = this.groupOf[this.process[i]];
      const row = found.get(group);
      if (row) { row.last = i; row.count++; } else found.set(group, { group, first: i, last: i, count: 1 });
    }
    return [...found.values()].sort((a, b) => a.group - b.group);
  }

  // How a delivery came about: back from it to the multicast, each time over the last protocol message about it that
  // had arrived. Steps, first to last: {kind: "wait" | "message", from, to} as events.
  pathTo(m, delivery) {
    const life = this.lifeOf(m), steps = [], origin = this.multicastOf(m);
    const seen = new Set();
    let at = delivery;
    while (at !== origin && !seen.has(at)) {
      seen.add(at);
      let received = null;
      for (const i of life) {
        if (i !== at && this.process[i] === this.process[at] && this.seq[i] < this.seq[at] &&
          (this.kind[i] === this.kindNumber.receive || i === origin) &&
          (received === null || this.seq[i] > this.seq[received])) received = i;
      }
      if (received === null) break;
      if (this.time[at] > this.time[received]) steps.unshift({ kind: "wait", from: received, to: at });
      at = received;
      const arrow = this.arrowOfReceive.get(at);
      if (at === origin || arrow === undefined) break;
      steps.unshift({ kind: "message", from: this.arrow_from[arrow], to: at });
      at = this.arrow_from[arrow];
    }
    if (at !== origin && origin !== undefined) steps.unshift({ kind: "wait", from: origin, to: at });
    return steps;
  }

  // What ended a wait: the message that had to be delivered first, or else the last thing that the process received or
  // became. {message, event}, both undefined where nothing tells.
  causeOf({ from, to }) {
    const { deliver, receive, leader } = this.kindNumber, [before] = this.aboutOf(to);
    let turn;
    for (let i = to - 1; i > from; i--) {
      if (this.process[i] !== this.process[to]) continue;
      const about = this.aboutOf(i);
      if (this.kind[i] === deliver && this.kind[to] === deliver && about[0] !== before) turn ??= i;
      if (this.kind[i] !== receive && this.kind[i] !== leader) continue;
      return turn === undefined ? { event: i, message: about[0] } : { event: turn, message: this.aboutOf(turn)[0] };
    }
    return turn === undefined ? {} : { event: turn, message: this.aboutOf(turn)[0] };
  }

  // ------------------------------------------------------------ figures

  // Per message that was multicast and delivered: when, and how long until the first delivery in every group.
  latencies() {
    if (this.latency) return this.latency;
    const arrived = new Map(), rows = []; // message -> in how many groups, and when in the last of them
    for (const { event } of this.firstDeliveries()) {
      const m = this.about[this.about_start[event]];
      arrived.set(m, { groups: (arrived.get(m)?.groups ?? 0) + 1, last: this.time[event] });
    }
    for (let i = 0; i < this.size; i++) {
      if (this.kind[i] !== this.kindNumber.multicast) continue;
      const m = this.about[this.about_start[i]], found = arrived.get(m), wanted = this.destOf(m).length;
      if (found && found.groups >= wanted) rows.push({ message: m, sent: this.time[i], latency: found.last - this.time[i], groups: wanted });
    }
    return this.latency = rows.sort((a, b) => a.sent - b.sent);
  }
}

// The value below which a share of the sorted numbers lies.
export function percentile(sorted, share) {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : NaN;
}

// A point in time as nanoseconds since the run began: the same unit and as many digits everywhere.
export function moment(ns, steps = false) {
  return steps ? `step ${Math.round(ns)}` : `${(ns / 1e6).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} ms`;
}

// Nanoseconds as a person reads them, or steps where a trace has no times.
export function duration(ns, steps = false) {
  if (Number.isNaN(ns)) return "–";
  if (steps) return `${Math.round(ns)}`;
  const size = Math.abs(ns);
  if (!size) return "0 s";
  const [unit, scale] = size >= 1e9 ? ["s", 1e9] : size >= 1e6 ? ["ms", 1e6] : size >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  const value = ns / scale;
  return `${+value.toPrecision(Math.abs(value) >= 1000 ? 5 : 4)} ${unit}`;
}
