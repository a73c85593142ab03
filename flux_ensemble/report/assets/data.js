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

/** The tables of a page, and what there is to say about them. */
async function unpack(text) {
  const packed = new Blob([bytesOf(text)]).stream();
  const buffer = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
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
