// Columns of jobs and firings, as report/columns.py packs them.

const TYPES = {
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array,
  f32: Float32Array, f64: Float64Array, i64: BigInt64Array,
};
const NO_TIME = 0xffffffff;

/** One column: `array` has numbers; of codes `values` has what they stand for. */
class Column {
  constructor(buffer, start, rows, about) {
    this.values = about.values || null;
    this.step = about.step || 0;
    this.array = Column.read(buffer, start + about.offset, rows, about);
  }

  static read(buffer, offset, rows, about) {
    const Type = TYPES[about.type];
    const size = Type.BYTES_PER_ELEMENT;
    const planes = new Uint8Array(buffer, offset, rows * size);
    if (size === 1) return planes.slice();
    const bytes = new Uint8Array(rows * size);
    for (let plane = 0; plane < size; plane++) {
      const from = plane * rows;
      for (let row = 0, to = plane; row < rows; row++, to += size) bytes[to] = planes[from + row];
    }
    const array = new Type(bytes.buffer);
    if (about.delta) for (let row = 1; row < rows; row++) array[row] += array[row - 1];
    return array;
  }

  /** The value of a row; null where there is none. */
  get(row) {
    const value = this.array[row];
    if (this.values) return this.values[value];
    if (this.step) return value === NO_TIME ? null : value * this.step;
    return Number.isNaN(value) ? null : value;
  }

  /** The value of a row as a number; NaN where it is none. */
  number(row) {
    const value = this.get(row);
    return typeof value === "number" ? value : NaN;
  }

  /** All values as numbers. */
  numbers() {
    const found = new Float64Array(this.array.length);
    for (let row = 0; row < found.length; row++) found[row] = this.number(row);
    return found;
  }
}

/** Base64 as bytes. */
function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Up to so many bytes are unpacked at once: what prints a page as it opens waits for no stream. */
const SMALL = 1 << 20;

/** How long repetitions are, and how far back, with how many more bits each code has (RFC 1951, 3.2.5). */
const LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_BITS = LENGTHS.map((_, code) => (code < 8 || code === 28 ? 0 : (code >> 2) - 1));
const DISTANCE_BITS = Array.from({ length: 30 }, (_, code) => Math.max(0, (code >> 1) - 1));
const DISTANCES = DISTANCE_BITS.map((bits, code) => 1 + (code < 2 ? code : (2 + (code & 1)) << bits));
const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/** A Huffman code by the lengths of its words: how many there are of each, and the symbols in order. */
function codeOf(lengths) {
  const count = new Uint16Array(16);
  const next = new Uint16Array(17);
  const symbols = new Uint16Array(lengths.length);
  for (const length of lengths) count[length]++;
  count[0] = 0;
  for (let length = 1; length < 16; length++) next[length + 1] = next[length] + count[length];
  lengths.forEach((length, symbol) => { if (length) symbols[next[length]++] = symbol; });
  return { count, symbols };
}

/** The contents of a gzip file that is one of ours, without a name (RFC 1951 and 1952). */
function gunzip(data) {
  const found = new Uint8Array(new DataView(data.buffer, data.byteOffset).getUint32(data.length - 4, true));
  let from = 10;
  let to = 0;
  let held = 0;
  let bits = 0;
  const take = (count) => {
    for (; held < count; held += 8) bits |= data[from++] << held;
    const value = bits & ((1 << count) - 1);
    bits >>>= count;
    held -= count;
    return value;
  };
  const decode = ({ count, symbols }) => {
    for (let length = 1, word = 0, first = 0, index = 0; length < 16; length++) {
      word |= take(1);
      if (word - count[length] < first) return symbols[index + word - first];
      index += count[length];
      first = (first + count[length]) << 1;
      word <<= 1;
    }
    throw new Error("its data is damaged");
  };
  const codes = (kind) => {
    if (kind === 1) {
      const fixed = Array.from({ length: 288 }, (_, at) => (at < 144 ? 8 : at < 256 ? 9 : at < 280 ? 7 : 8));
      return [codeOf(fixed), codeOf(new Array(30).fill(5))];
    }
    const [literals, distances, words] = [take(5) + 257, take(5) + 1, take(4) + 4];
    const short = new Array(19).fill(0);
    for (let at = 0; at < words; at++) short[ORDER[at]] = take(3);
    const code = codeOf(short);
    const lengths = [];
    while (lengths.length < literals + distances) {
      const symbol = decode(code);
      if (symbol < 16) lengths.push(symbol);
      else if (symbol === 16) lengths.push(...new Array(3 + take(2)).fill(lengths[lengths.length - 1]));
      else lengths.push(...new Array(symbol === 17 ? 3 + take(3) : 11 + take(7)).fill(0));
    }
    return [codeOf(lengths.slice(0, literals)), codeOf(lengths.slice(literals))];
  };
  for (let last = 0; !last;) {
    last = take(1);
    const kind = take(2);
    if (kind === 0) {
      held = bits = 0;
      const size = data[from] | (data[from + 1] << 8);
      found.set(data.subarray(from + 4, from + 4 + size), to);
      from += 4 + size;
      to += size;
      continue;
    }
    const [literal, distance] = codes(kind);
    for (let symbol = decode(literal); symbol !== 256; symbol = decode(literal)) {
      if (symbol < 256) {
        found[to++] = symbol;
        continue;
      }
      let length = LENGTHS[symbol - 257] + take(LENGTH_BITS[symbol - 257]);
      const far = decode(distance);
      const back = DISTANCES[far] + take(DISTANCE_BITS[far]);
      for (; length; length--, to++) found[to] = found[to - back];
    }
  }
  return found.buffer;
}

/** The tables of a page, and what there is to say about them. */
async function unpack(text) {
  const packed = bytesOf(text);
  const stream = () => new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = packed.length <= SMALL ? gunzip(packed) : await new Response(stream()).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const tables = {};
  for (const [name, table] of Object.entries(header.tables)) {
    const columns = Object.create(null);
    for (const [key, about] of Object.entries(table.columns)) {
      columns[key] = new Column(buffer, 4 + size, table.rows, about);
    }
    tables[name] = { rows: table.rows, columns };
  }
  return { about: header.about, tables };
}
