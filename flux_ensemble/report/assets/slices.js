// Slices: what jobs published over each parameter, a small chart for each.

/** The least and the most width of such a chart, and its height. */
const NARROW = 185;
const BROAD = 420;
const TALL = 190;

/** The column of some rows, with those values only that they have; texts stay texts, all else is numbers. */
function picked(column, rows) {
  const codes = column.values && rows.map((row) => column.array[row]);
  const used = codes && [...new Set(codes)];
  if (!used || used.every((code) => Number.isFinite(numberOf(column.values[code])))) {
    return { values: null, number: (at) => numberOf(column.get(rows[at])) };
  }
  const place = new Map(used.map((code, at) => [code, at]));
  return { values: used.map((code) => column.values[code]), array: codes.map((code) => place.get(code)) };
}

/** As much of the beginning of a text as fits. */
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let size = text.length;
  while (size > 1 && context.measureText(`${text.slice(0, size)}…`).width > room) size--;
  return `${text.slice(0, size)}…`;
}

class Slices {
  constructor(box, run, { group, key, label, mode, params }) {
    const { columns, rows } = run.jobs;
    const memo = columns[`memo.${key}`];
    const found = [];
    for (let row = 0; row < rows; row++) {
      if (columns.outcome.get(row) === "success" && columns.group.get(row) === group && !Number.isNaN(memo.number(row))) found.push(row);
    }
    const chosen = Uint32Array.from(found);
    this.value = new Axis(label, picked(memo, chosen), chosen.length);
    this.infeasible = found.map((row) => isInfeasible(run, row, key));
    this.best = mode ? this.bestOf(chosen.length, mode) : -1;
    this.panels = params.map((name) => {
      const axis = new Axis(name, picked(columns[`params.${name}`], chosen), chosen.length, run.about.logarithmic.get(name));
      return { name, marks: axis.marks, discrete: axis.discrete, best: this.best < 0 ? null : this.at(axis, this.best), ...this.points(axis, chosen.length) };
    });
    const frame = element("div", { class: "drawing" });
    box.append(frame);
    this.surface = new Surface(frame, TALL);
    redraws.add(() => this.draw());
    this.draw();
  }

  /** The first of the feasible points with the best value; -1 if there is none. */
  bestOf(count, mode) {
    const sign = mode === "max" ? 1 : -1;
    let best = -1;
    for (let at = 0; at < count; at++) {
      if (!this.infeasible[at] && (best < 0 || sign * this.value.place(at) > sign * this.value.place(best))) best = at;
    }
    return best;
  }

  /** The place of a point in a chart. */
  at(axis, point) {
    return [axis.place(point), this.value.place(point)];
  }

  /** The points of a chart; of many jobs cells, as strong as there are points in them. */
  points(axis, count) {
    if (count <= MOST_LINES) return { points: Array.from({ length: count }, (_, point) => this.at(axis, point)), cells: null };
    const [cells, grey] = [0, 0].map(() => new Uint32Array((LEVELS + 1) ** 2));
    for (let point = 0; point < count; point++) {
      const [x, y] = this.at(axis, point);
      const of = this.infeasible[point] ? grey : cells;
      if (!Number.isNaN(x)) of[Math.round(x * LEVELS) * (LEVELS + 1) + Math.round(y * LEVELS)]++;
    }
    return { points: null, cells, grey };
  }

  draw() {
    const room = Math.max(200, this.surface.box.clientWidth);
    const across = Math.min(this.panels.length, 4, Math.max(1, Math.floor(room / NARROW)));
    const context = this.surface.begin(Math.ceil(this.panels.length / across) * TALL);
    const width = Math.min(BROAD, this.surface.width / across);
    this.panels.forEach((panel, at) => this.panel(context, panel, (at % across) * width, Math.floor(at / across) * TALL, width));
  }

  panel(context, panel, left, top, width) {
    const [from, to, high, low] = [left + 46, left + width - 12, top + 24, top + TALL - 44];
    const x = (place) => from + 8 + place * (to - from - 16);
    const y = (place) => low - 8 - place * (low - high - 16);
    context.strokeStyle = colour("muted");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(from, high);
    context.lineTo(from, low);
    context.lineTo(to, low);
    context.stroke();
    // Infeasible trials are below the others.
    for (const infeasible of [true, false]) {
      context.fillStyle = colour(infeasible ? "line-far" : "accent");
      if (panel.cells) this.cells(context, infeasible ? panel.grey : panel.cells, x, y);
      else this.dots(context, panel.points.filter((_, point) => this.infeasible[point] === infeasible), x, y);
    }
    context.globalAlpha = 1;
    if (panel.best) this.ring(context, x(panel.best[0]), y(panel.best[1]));
    context.fillStyle = colour("text");
    context.textAlign = "left";
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(fitted(context, this.value.name, width - 12), left + 2, top + 10);
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillText(fitted(context, panel.name, to - from), (from + to) / 2, top + TALL - 14);
    context.textAlign = "right";
    for (const [place, text] of this.value.marks) context.fillText(text, from - 5, y(place), 40);
    context.textAlign = "center";
    this.marks(context, panel, [left, left + width - 4], x, low + 12);
  }

  dots(context, points, x, y) {
    context.globalAlpha = points.length > 200 ? 0.45 : 0.7;
    for (const point of points) {
      context.beginPath();
      context.arc(x(point[0]), y(point[1]), 3, 0, 2 * Math.PI);
      context.fill();
    }
  }

  cells(context, cells, x, y) {
    const most = cells.reduce((one, other) => Math.max(one, other));
    if (!most) return;
    const [wide, tall] = [x(1 / LEVELS) - x(0), y(0) - y(1 / LEVELS)];
    cells.forEach((many, cell) => {
      if (!many) return;
      context.globalAlpha = 0.2 + 0.8 * Math.sqrt(many / most);
      const [column, row] = [Math.floor(cell / (LEVELS + 1)), cell % (LEVELS + 1)];
      context.fillRect(x(column / LEVELS) - wide / 2, y(row / LEVELS) - tall / 2, wide, tall);
    });
  }

  ring(context, x, y) {
    context.strokeStyle = colour("text");
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, 6, 0, 2 * Math.PI);
    context.stroke();
  }

  /** The marks below a chart that have room beside each other. */
  marks(context, panel, [from, to], x, y) {
    const room = panel.discrete ? Math.max(40, (x(1) - x(0)) / Math.max(1, panel.marks.length - 1) - 6) : to - from;
    let free = from;
    for (const [place, mark] of panel.marks) {
      const text = fitted(context, mark, room);
      const half = context.measureText(text).width / 2;
      const middle = Math.min(Math.max(x(place), from + half), to - half);
      if (middle - half < free) continue;
      context.fillText(text, middle, y);
      free = middle + half + 6;
    }
  }
}
