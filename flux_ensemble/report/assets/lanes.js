// Where jobs are drawn: each node has as many lanes as jobs ran on it at once.

/** More nodes than these are drawn together. */
const MOST_PLACES = 256;

/** So few rows are put in order by comparing them. */
const FEW_ROWS = 20000;

/** The rows in the order of whole numbers, which are below 2 ** 32; of equal ones as they are. */
function order(keys) {
  let rows = new Uint32Array(keys.length);
  for (let i = 0; i < rows.length; i++) rows[i] = i;
  if (keys.every((key, row) => row === 0 || keys[row - 1] <= key)) return rows;
  if (rows.length < FEW_ROWS) return rows.sort((a, b) => keys[a] - keys[b] || a - b);
  let other = new Uint32Array(keys.length);
  for (const shift of [0, 16]) {
    const starts = new Uint32Array(65537);
    for (let i = 0; i < keys.length; i++) starts[((keys[i] >>> shift) & 0xffff) + 1]++;
    for (let i = 0; i < 65536; i++) starts[i + 1] += starts[i];
    for (let i = 0; i < rows.length; i++) other[starts[(keys[rows[i]] >>> shift) & 0xffff]++] = rows[i];
    [rows, other] = [other, rows];
  }
  return rows;
}

/** Whole numbers in the order of the given ones (to seven digits); what is none is the last. */
function sortable(numbers) {
  const rounded = Float32Array.from(numbers);
  const words = new Uint32Array(rounded.buffer);
  for (let row = 0; row < words.length; row++) {
    const word = words[row];
    // The bits of a float are in order but for their sign; both zeros are one.
    if (Number.isNaN(rounded[row])) words[row] = 0xffffffff;
    else words[row] = word === 0x80000000 ? word : word >>> 31 ? ~word : word | 0x80000000;
  }
  return words;
}

/** The numbers of an idset such as "0-3,7". */
function idset(text) {
  const found = [];
  for (const part of text.split(",")) {
    const [first, last = first] = part.split("-").map(Number);
    for (let id = first; id <= last; id++) found.push(id);
  }
  return found;
}

/**
 * The nodes of places such as "0-3", or "pool.1:0-3" where there are members, as numbers; with
 * members `names` has what the numbers stand for, else it is null.
 */
function numbered(values) {
  const parts = values.map((value) => {
    if (value === null) return { member: "", ids: [0] };
    const at = value.lastIndexOf(":");
    return { member: value.slice(0, Math.max(at, 0)), ids: idset(value.slice(at + 1)) };
  });
  if (parts.every(({ member }) => member === "")) return { nodes: parts.map(({ ids }) => ids), names: null };
  const sizes = new Map();
  for (const { member, ids } of parts) {
    if (member !== "") sizes.set(member, ids.reduce((a, b) => Math.max(a, b + 1), sizes.get(member) || 0));
  }
  const names = [];
  const first = new Map();
  const { compare } = new Intl.Collator("en", { numeric: true });
  for (const member of [...sizes.keys()].sort(compare)) {
    first.set(member, names.length);
    const size = sizes.get(member);
    for (let rank = 0; rank < size; rank++) names.push(size === 1 ? member : `${member}:${rank}`);
  }
  return { nodes: parts.map(({ member, ids }) => ids.map((id) => id + (first.get(member) || 0))), names };
}

/**
 * The lanes of jobs: `of[at]` for `at` from `starts[row]` to `starts[row + 1]` are those of a row;
 * `places` says which lanes a node, or some nodes, have.
 */
function makeLanes(begins, ends, ranks) {
  const { nodes, names } = numbered(ranks.values);
  const known = ranks.values.length > 1;
  const most = nodes.reduce((high, some) => some.reduce((a, b) => Math.max(a, b), high), 0) + 1;
  const bunch = Math.ceil(most / MOST_PLACES);
  const count = Math.ceil(most / bunch);
  const placesOf = nodes.map((some) => [...new Set(some.map((id) => Math.floor(id / bunch)))]);
  const rows = begins.length;
  const starts = new Uint32Array(rows + 1);
  for (let row = 0; row < rows; row++) {
    const ran = begins[row] !== NO_TIME;
    starts[row + 1] = starts[row] + (ran ? placesOf[ranks.array[row]].length : 0);
  }
  const of = new Uint32Array(starts[rows]);
  const free = Array.from({ length: count }, () => []);
  const used = new Uint32Array(count);
  const byEnd = order(ends);
  let next = 0;
  const release = (row) => {
    for (let at = starts[row]; at < starts[row + 1]; at++) {
      const place = placesOf[ranks.array[row]][at - starts[row]];
      free[place].push(of[at]);
    }
  };
  for (const row of order(begins)) {
    if (begins[row] === NO_TIME) break;
    // Those that are over by then; what takes no time is let go at once.
    for (; next < rows && ends[byEnd[next]] <= begins[row]; next++) {
      const gone = byEnd[next];
      if (begins[gone] < ends[gone]) release(gone);
    }
    for (let at = starts[row]; at < starts[row + 1]; at++) {
      const place = placesOf[ranks.array[row]][at - starts[row]];
      of[at] = free[place].length ? free[place].pop() : used[place]++;
    }
    if (ends[row] <= begins[row]) release(row);
  }
  const places = [];
  let first = 0;
  for (let place = 0; place < count; place++) {
    const low = place * bunch;
    const high = Math.min(most, low + bunch) - 1;
    const called = (node) => (names ? names[node] : `${node}`);
    const name = !known ? "" : low === high ? called(low) : `${called(low)}–${called(high)}`;
    places.push({ name, first, lanes: used[place] });
    first += used[place];
  }
  for (let row = 0; row < rows; row++) {
    for (let at = starts[row]; at < starts[row + 1]; at++) {
      of[at] += places[placesOf[ranks.array[row]][at - starts[row]]].first;
    }
  }
  const members = names !== null;
  return { of, starts, places: places.filter((place) => place.lanes), total: first, bunch, known, members };
}
