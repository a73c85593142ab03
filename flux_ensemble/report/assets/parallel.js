// A sweep as parallel coordinates: an axis for each parameter, and one for what is looked at.

const MOST_AXES = 8;
/** Up to so many jobs each has a line of its own; of more those that are alike are put together. */
const MOST_LINES = 2000;
const LEVELS = 48;
/** Numbers whose largest is more than so many times the smallest are on a logarithmic axis, unless the document says how they were chosen. */
const LOG = 1000;

/** The number of a value, which may be a text such as "1e-3"; NaN where it is none. */
function numberOf(value) {
  return typeof value === "number" ? value : typeof value === "string" && value.trim() !== "" ? Number(value) : NaN;
}

/** The marks of a logarithmic axis: powers of ten, or its ends if it has less than two of them. */
function decades(low, high) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 1) return [low, high];
  const every = Math.ceil((last - first + 1) / 6);
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, at) => 10 ** (first + at * every));
}

/** Whether numbers are evenly spaced, or their logarithms are. */
function isEven(numbers, isLog) {
  const places = numbers.map((value) => (isLog ? Math.log(value) : value)).sort((a, b) => a - b);
  const step = (places[places.length - 1] - places[0]) / (places.length - 1);
  return places.every((place, at) => at === 0 || Math.abs(place - places[at - 1] - step) <= 1e-6 * step);
}

/** A mark of a logarithmic axis. */
function decade(value) {
  const short = +value.toPrecision(3);
  return short < 1e-3 || short >= 1e5 ? short.toExponential().replace("+", "") : `${short}`;
}

/** The places of values on an axis, from 0 at the bottom to 1 at the top. */
class Axis {
  constructor(name, column, rows, isLog = null) {
    this.name = name;
    this.column = column;
    const values = column.values ? column.values.filter((value) => value !== null) : null;
    // Of a range of which a search has tried few values, these are no steps.
    const few = values !== null && values.length <= 12 && (isLog === null || isEven(values.map(numberOf), isLog));
    this.discrete = values !== null && (few || values.some((value) => !Number.isFinite(numberOf(value))));
    if (this.discrete) {
      const sorted = values.sort((a, b) => (numberOf(a) - numberOf(b)) || (`${a}` < `${b}` ? -1 : 1));
      const of = new Map(sorted.map((value, at) => [value, sorted.length > 1 ? at / (sorted.length - 1) : 0.5]));
      const places = column.values.map((value) => (value === null ? NaN : of.get(value)));
      this.place = (row) => places[column.array[row]];
      this.count = sorted.length;
      const every = Math.ceil(sorted.length / 12);
      this.marks = sorted.map((value) => [of.get(value), shownValue(value)]).filter((_, at) => at % every === 0);
      return;
    }
    const at = column.values ? (row) => numberOf(column.get(row)) : (row) => column.number(row);
    let low = Infinity;
    let high = -Infinity;
    let whole = true;
    for (let row = 0; row < rows; row++) {
      const value = at(row);
      whole &&= Number.isNaN(value) || Number.isInteger(value);
      if (value < low) low = value;
      if (value > high) high = value;
    }
    this.count = high > low ? 3 : 1;
    this.isLog = low > 0 && high > low && (isLog ?? high / low > LOG);
    if (this.isLog) {
      const place = (value) => Math.log(value / low) / Math.log(high / low);
      this.place = (row) => place(at(row));
      this.marks = decades(low, high).map((value) => [place(value), decade(value)]);
      return;
    }
    const span = high - low || 1;
    this.place = (row) => (at(row) - low) / span;
    const steps = high > low ? ticks(low, high, 5).filter((step) => !whole || Number.isInteger(+step.toPrecision(6))) : [];
    this.marks = high > low ? steps.map((value) => [(value - low) / span, shownValue(+value.toPrecision(6))]) : [[0.5, shownValue(low)]];
  }
}

/** Whether a job is an infeasible trial of a search whose objective is a key of memos. */
function isInfeasible(run, row, key) {
  const { infeasible, group } = run.jobs.columns;
  return Boolean(infeasible && infeasible.array[row]) && (run.about.objectives[group.get(row)] || "").split(", ").includes(key);
}

class Parallel {
  constructor(box, run) {
    this.run = run;
    const { rows, columns } = run.jobs;
    this.rows = rows;
    const axes = run.about.params.map((name) => new Axis(name, columns[`params.${name}`], rows, run.about.logarithmic.get(name)));
    const varied = axes.filter((axis) => axis.count > 1);
    const wanted = varied.length ? varied : axes;
    this.params = wanted.slice(0, MOST_AXES);
    this.outcomes = columns.outcome.values.map((value) => value || "active");
    const whats = [...run.about.memo.map((key) => [`memo.${key}`, labelOf(run, key)]), ["runtime", "runtime"]];
    const { figure } = run.about;
    this.what = figure ? `memo.${figure.key}` : whats[0][0];
    this.mode = figure ? figure.mode : "min";
    this.groups = columns.group;
    const tools = element("div", { class: "tools" });
    const what = choice("Compare by", whats, (value) => { this.what = value; this.changed(); });
    what.select.value = this.what;
    const mode = choice("First the", [["max", "highest"], ["min", "lowest"]], (value) => { this.mode = value; this.changed(); });
    mode.select.value = this.mode;
    tools.append(what.box, mode.box);
    if (axes.length > this.params.length) {
      const alike = axes.length - varied.length;
      const more = varied.length - this.params.length;
      const texts = [alike > 0 && varied.length ? `${alike} with one value` : "", more > 0 ? `${more} more` : ""].filter(Boolean);
      if (texts.length) tools.append(element("span", { class: "quiet" }, `not shown: ${texts.join(", ")}`));
    }
    box.append(tools);
    this.frame = element("div", { class: "drawing" });
    box.append(this.frame);
    this.compared = document.querySelector(`#${CSS.escape(box.getAttribute("aria-describedby"))} .compared`);
    this.surface = new Surface(this.frame, 300);
    this.listeners = [];
    redraws.add(() => this.draw());
    this.changed();
  }

  /** The name of what jobs are compared by, with its unit. */
  get label() {
    const { figure } = this.run.about;
    if (this.what === "runtime") return this.what;
    const key = this.what.replace(/^memo\./, "");
    // Only jobs of the group of the figure are compared by it.
    return figure && key === figure.key ? figure.label : labelOf(this.run, key);
  }

  /** By what jobs are compared, in words. */
  get words() {
    return `${this.mode === "max" ? "highest" : "lowest"} ${this.label}`;
  }

  changed() {
    this.compared.textContent = this.words;
    const { columns } = this.run.jobs;
    const runtime = { values: null, array: columns.t_end.array, number: (row) => columns.t_end.number(row) - columns.t_run.number(row) };
    const column = this.what === "runtime" ? runtime : columns[this.what];
    this.figure = column;
    this.axis = new Axis(this.label, { ...column, values: null, number: (row) => column.number(row) }, this.rows);
    this.rank();
    this.draw();
    this.listeners.forEach((listener) => listener());
  }

  /** Whether a job is compared: it has succeeded, and where the document says whose jobs are, is of that group. */
  compares(row) {
    const { figure } = this.run.about;
    const outcome = this.outcomes[this.run.jobs.columns.outcome.array[row]];
    const other = figure && this.what === `memo.${figure.key}` && this.groups.get(row) !== figure.group;
    return outcome === "success" && !other && !this.isReplaced(row) && !isInfeasible(this.run, row, this.what.replace(/^memo\./, ""));
  }

  /** Whether it is an attempt of a job that ran again. */
  isReplaced(row) {
    const { replaced } = this.run.jobs.columns;
    return Boolean(replaced && replaced.array[row]);
  }

  /** How good each job is among those that are compared and have a value: 1 the best, 0 the worst, and those that are not compared. */
  rank() {
    this.values = new Float64Array(this.rows);
    let count = 0;
    for (let row = 0; row < this.rows; row++) {
      this.values[row] = this.compares(row) ? this.figure.number(row) : NaN;
      if (!Number.isNaN(this.values[row])) count++;
    }
    const keys = sortable(this.values);
    const rows = order(keys);
    this.good = new Float32Array(this.rows).fill(NaN);
    const last = Math.max(1, count - 1);
    for (let from = 0, to = 0; from < count; from = to) {
      // Of equal values all are as good as the best of them.
      while (to < count && keys[rows[to]] === keys[rows[from]]) to++;
      const good = this.mode === "max" ? (to - 1) / last : 1 - from / last;
      for (let at = from; at < to; at++) this.good[rows[at]] = good;
    }
    for (let row = 0; row < this.rows; row++) {
      if (Number.isNaN(this.good[row]) && !Number.isNaN(this.figure.number(row)) && !this.isReplaced(row)) this.good[row] = 0;
    }
  }

  /** The rows of the first jobs. */
  first(most) {
    const sign = this.mode === "max" ? 1 : -1;
    const found = [];
    for (let row = 0; row < this.rows; row++) {
      const value = sign * this.values[row];
      if (Number.isNaN(value) || (found.length === most && value <= sign * this.values[found[most - 1]])) continue;
      let at = found.length;
      while (at > 0 && value > sign * this.values[found[at - 1]]) at--;
      found.splice(at, 0, row);
      if (found.length > most) found.pop();
    }
    return found;
  }

  isBad(row) {
    const kind = this.outcomes[this.run.jobs.columns.outcome.array[row]];
    return kind === "failed" || kind === "timeout";
  }

  draw() {
    const context = this.surface.begin();
    const { width, height } = this.surface;
    const axes = [...this.params, this.axis];
    this.left = 48;
    this.top = 34;
    this.tall = height - this.top - 16;
    this.gap = axes.length > 1 ? (width - 2 * this.left) / (axes.length - 1) : 0;
    context.lineJoin = "round";
    if (this.rows <= MOST_LINES) this.each(context, axes);
    else this.together(context, axes);
    this.marks(context, axes);
  }

  x(at) {
    return this.left + at * this.gap;
  }

  y(place) {
    return this.top + (1 - place) * this.tall;
  }

  /** The colour of a job: the better, the darker; the best stand out. */
  shade(good) {
    const [from, to] = [parts(colour("line-far")), parts(colour("accent"))];
    return mixed(from, to, good ** 3);
  }

  each(context, axes) {
    const rows = Array.from({ length: this.rows }, (_, row) => row);
    rows.sort((a, b) => (this.good[a] || 0) - (this.good[b] || 0));
    const bad = parts(colour("o-failed"));
    for (const row of rows) {
      const failed = this.isBad(row);
      const good = this.good[row];
      if (this.isReplaced(row) || (Number.isNaN(good) && !failed)) continue;
      context.setLineDash(failed ? [4, 4] : []);
      context.lineWidth = !failed && good > 0.98 ? 2.5 : 1;
      const [red, green, blue] = failed ? bad : this.shade(good);
      context.strokeStyle = `rgba(${red},${green},${blue},${failed ? 0.55 : 0.35 + 0.65 * good ** 3})`;
      context.beginPath();
      const places = axes.map((axis) => axis.place(row));
      places.forEach((place, at) => {
        // The line is broken at a parameter that the job does not have.
        if (Number.isNaN(place)) return;
        const [x, y] = [this.x(at), this.y(place)];
        const [before, after] = [places[at - 1] ?? NaN, places[at + 1] ?? NaN];
        if (!Number.isNaN(before)) context.lineTo(x, y);
        else context.moveTo(x, y);
        if (Number.isNaN(before) && Number.isNaN(after)) {
          context.moveTo(x - 4, y);
          context.lineTo(x + 4, y);
        }
      });
      context.stroke();
    }
    context.setLineDash([]);
  }

  /** Jobs that are alike are one line, as strong as they are many; the ten best have their own. */
  together(context, axes) {
    const cells = (LEVELS + 1) ** 2;
    for (let at = 0; at + 1 < axes.length; at++) {
      const all = new Uint32Array(cells);
      const bad = new Uint32Array(cells);
      const good = new Float64Array(cells);
      const most = { all: 1 };
      for (let row = 0; row < this.rows; row++) {
        if (this.isReplaced(row)) continue;
        const from = axes[at].place(row);
        const to = axes[at + 1].place(row);
        if (Number.isNaN(from) || Number.isNaN(to)) continue;
        const cell = Math.round(from * LEVELS) * (LEVELS + 1) + Math.round(to * LEVELS);
        all[cell]++;
        if (this.isBad(row)) bad[cell]++;
        good[cell] += this.good[row] || 0;
        if (all[cell] > most.all) most.all = all[cell];
      }
      const cellsByGood = [...all.keys()].filter((cell) => all[cell]).sort((a, b) => good[a] / all[a] - good[b] / all[b]);
      for (const cell of cellsByGood) {
        const [red, green, blue] = this.shade(good[cell] / all[cell]);
        const strength = 0.15 + 0.6 * Math.sqrt(all[cell] / most.all);
        const ends = [Math.floor(cell / (LEVELS + 1)) / LEVELS, (cell % (LEVELS + 1)) / LEVELS];
        this.line(context, at, ends, `rgba(${red},${green},${blue},${strength})`, 1, []);
        if (bad[cell] * 2 > all[cell]) this.line(context, at, ends, colour("o-failed"), 1, [4, 4]);
      }
    }
    const [red, green, blue] = parts(colour("accent"));
    for (const row of this.first(10)) {
      for (let at = 0; at + 1 < axes.length; at++) {
        const ends = [axes[at].place(row), axes[at + 1].place(row)];
        if (!ends.some(Number.isNaN)) this.line(context, at, ends, `rgb(${red},${green},${blue})`, 2, []);
      }
    }
  }

  line(context, at, [from, to], style, width, dash) {
    context.setLineDash(dash);
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    context.moveTo(this.x(at), this.y(from));
    context.lineTo(this.x(at + 1), this.y(to));
    context.stroke();
    context.setLineDash([]);
  }

  marks(context, axes) {
    const ground = colour("ground");
    axes.forEach((axis, at) => {
      const x = this.x(at);
      context.strokeStyle = colour("muted");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, this.top);
      context.lineTo(x, this.top + this.tall);
      context.stroke();
      const last = at === axes.length - 1;
      context.textAlign = at === 0 ? "left" : last ? "right" : "center";
      context.font = `${last ? "600 " : ""}12px system-ui, sans-serif`;
      context.fillStyle = colour("text");
      const room = Math.max(40, this.gap - 6);
      context.fillText(axis.name, at === 0 ? 4 : last ? this.surface.width - 4 : x, 12, room);
      context.font = "12px system-ui, sans-serif";
      context.textAlign = at === 0 ? "right" : "left";
      context.lineWidth = 3;
      context.strokeStyle = ground;
      for (const [place, text] of axis.marks) {
        const to = at === 0 ? x - 6 : x + 6;
        context.strokeText(text, to, this.y(place), 44);
        context.fillText(text, to, this.y(place), 44);
      }
    });
  }
}
