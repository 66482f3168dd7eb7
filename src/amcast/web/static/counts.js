// How much happened when: numbers of events per row and bin of time. The bins lie at multiples of their width wherever
// the window is, so that a picture does not flicker while it moves.

const MOST_CELLS = 2_000_000; // of a level that is kept for the whole run
const LEVELS_KEPT = 6;

export class Counts {
  // The times of the events in their order, and the row of each; -1 for none.
  constructor(times, rows, height) {
    Object.assign(this, { times, rows, height, levels: new Map() });
  }

  // The counts of bins that cover the window: {cells, first, columns, width, most}, where most is the highest count of
  // a row, and cells[row * columns + column] is bin first + column.
  between(from, until, width) {
    const { times } = this, last = times.length ? times[times.length - 1] : 0;
    const whole = times.length ? Math.floor(last / width) - Math.floor(times[0] / width) + 1 : 1;
    if (whole * this.height > MOST_CELLS) return this.#count(from, until, width);
    if (!this.levels.has(width)) {
      if (this.levels.size >= LEVELS_KEPT) this.levels.delete(this.levels.keys().next().value);
      this.levels.set(width, this.#count(times[0] ?? 0, last, width));
    }
    return this.levels.get(width);
  }

  #count(from, until, width) {
    const { times, rows, height } = this, first = Math.floor(from / width), columns = Math.floor(until / width) - first + 1;
    const cells = new Uint32Array(columns * height), most = new Uint32Array(height), end = (first + columns) * width;
    for (let i = firstFrom(times, first * width); i < times.length && times[i] < end; i++) {
      if (rows[i] < 0) continue;
      const count = ++cells[rows[i] * columns + Math.floor(times[i] / width) - first];
      if (count > most[rows[i]]) most[rows[i]] = count;
    }
    return { cells, first, columns, width, most };
  }
}

// The place of the first of the sorted times that is not before this one.
export function firstFrom(times, time) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
}

// A width of bins so that a window has at most so many; a power of two of nanoseconds or steps.
export function binWidth(span, columns) { return 2 ** Math.max(0, Math.ceil(Math.log2(span / Math.max(1, columns)))); }
