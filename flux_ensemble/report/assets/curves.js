// Curves over time, and distributions, drawn by uPlot.

const POINTS = 600;

/** Between the marks of an axis that counts jobs. */
const COUNT_STEPS = Array.from({ length: 30 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));

/** The most spans at once in each of some equal bins; NO_TIME is none. */
function occupancy(begins, ends, bins, width) {
  const isSpan = (_, row) => begins[row] !== NO_TIME && ends[row] !== NO_TIME;
  const starts = Float64Array.from(begins.filter(isSpan)).sort();
  const stops = Float64Array.from(ends.filter(isSpan)).sort();
  const found = new Float64Array(bins);
  for (let bin = 0, open = 0, from = 0, to = 0; bin < bins; bin++) {
    const limit = bin === bins - 1 ? Infinity : (bin + 1) * width;
    let most = open;
    for (; from < starts.length && starts[from] < limit; from++) {
      // What ends when another begins is over by then.
      for (; to < stops.length && stops[to] <= starts[from]; to++) open--;
      most = Math.max(most, ++open);
    }
    for (; to < stops.length && stops[to] <= limit; to++) open--;
    found[bin] = most;
  }
  return found;
}

/** The value at a place among the values in order, which are mixed (Hoare's selection). */
function nth(values, place) {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const pivot = values[(low + high) >> 1];
    let a = low;
    let b = high;
    while (a <= b) {
      while (values[a] < pivot) a++;
      while (values[b] > pivot) b--;
      if (a > b) break;
      [values[a], values[b]] = [values[b], values[a]];
      a++;
      b--;
    }
    if (place <= b) high = b;
    else if (place >= a) low = a;
    else break;
  }
  return values[place];
}

/** How many rows have come to their time by the end of each bin; `wanted` chooses rows. */
function cumulated(times, bins, width, wanted) {
  const found = new Float64Array(bins);
  for (let row = 0; row < times.length; row++) {
    if (times[row] !== NO_TIME && wanted(row)) found[Math.min(bins - 1, Math.floor(times[row] / width))]++;
  }
  for (let bin = 1; bin < bins; bin++) found[bin] += found[bin - 1];
  return found;
}

/** Times of a run in bins, of which the simulated one may have more than the other. */
class Course {
  constructor(table, span, bins, length) {
    const { t_submit: submit, t_run: begin, t_end: end, outcome, replaced } = table.columns;
    const step = submit.step;
    const width = length / step;
    const last = Math.round(span / step);
    const open = (times, from) => times.map((t, row) => (t === NO_TIME && from[row] !== NO_TIME ? last : t));
    const ends = open(end.array, begin.array);
    // A job that never ran waited until it was gone.
    const left = begin.array.map((t, row) => (t === NO_TIME ? (end.array[row] === NO_TIME ? last : end.array[row]) : t));
    const code = (name) => outcome.values.indexOf(name);
    const bad = new Set([code("failed"), code("timeout")]);
    this.running = occupancy(begin.array, ends, bins, width);
    this.waiting = occupancy(submit.array, left, bins, width);
    // An attempt that was interrupted, or that a user had run again, is not the end of its job.
    const isOver = (row) => outcome.array[row] !== 0 && !(replaced && replaced.array[row]);
    this.ended = cumulated(end.array, bins, width, isOver);
    this.failed = cumulated(end.array, bins, width, (row) => isOver(row) && bad.has(outcome.array[row]));
  }
}

class Curves {
  constructor(box, make) {
    this.box = box;
    this.make = make;
    redraws.add(() => this.draw());
    this.draw();
  }

  draw() {
    if (this.plot) this.plot.destroy();
    const { data, series, axes, bars } = this.make();
    const line = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
    const shown = series.map((one) => ({
      label: one.label,
      stroke: colour(one.colour),
      fill: one.fill ? `${colour(one.colour)}${one.fill}` : undefined,
      width: one.width || 2,
      dash: one.dash,
      paths: bars ? uPlot.paths.bars({ size: [1, Infinity], align: 1, gap: 1 }) : undefined,
      points: { show: false },
      value: (_, value) => (value === null || value === undefined ? "" : `${+value.toPrecision(4)}`),
    }));
    this.plot = new uPlot(
      {
        width: Math.max(200, this.box.clientWidth),
        height: 220,
        // Heights are counts, which compare only from zero on.
        scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(1, (high || 0) * 1.05)] } },
        cursor: { drag: { x: true, y: false } },
        legend: { live: true },
        series: [{ label: axes.xName, value: (_, value) => (value === null ? "" : axes.x(value)) }, ...shown],
        axes: [
          { ...line, space: 80, values: (_, values) => values.map(axes.x), incrs: axes.incrs, size: 34 },
          { ...line, size: 68, incrs: COUNT_STEPS, values: (_, values) => values.map((value) => value.toLocaleString("en", value >= 1e6 ? { notation: "compact" } : {})) },
        ],
      },
      data,
      this.box,
    );
    this.plot.root.setAttribute("aria-hidden", "true");
  }
}

/** The curves of jobs that run and wait, and of those that have ended. */
function drawCourse(run, boxes) {
  const { span, simulatedSpan } = run.about;
  const whole = Math.max(span, simulatedSpan || 0) || 1;
  const length = whole / POINTS;
  const actual = new Course(run.jobs, span, POINTS, length);
  const other = run.simulated ? new Course(run.simulated, simulatedSpan, POINTS, length) : null;
  const middles = Float64Array.from({ length: POINTS }, (_, bin) => (bin + 0.5) * length);
  // Nothing is drawn behind the end of a run.
  const cut = (values, until) => Array.from(values, (value, bin) => (bin * length > until ? null : value));
  const axes = { x: seconds, xName: "time", incrs: [0.001, 0.01, 0.1, 0.2, 0.5, ...TIME_STEPS, 172800, 432000, 864000] };
  const dash = [6, 4];
  const both = (box, wanted) => {
    if (!box) return;
    new Curves(box, () => {
      const data = [middles];
      const series = [];
      for (const { key, ...about } of wanted) {
        data.push(cut(actual[key], span));
        series.push(about);
        if (!other) continue;
        data.push(cut(other[key], simulatedSpan));
        series.push({ ...about, label: `${about.label}, simulated`, dash, fill: undefined });
      }
      return { data, series, axes };
    });
  };
  both(boxes.running, [
    { key: "running", label: "running", colour: "o-success", fill: "33" },
    { key: "waiting", label: "waiting", colour: "o-active" },
  ]);
  both(boxes.progress, [
    { key: "ended", label: "ended", colour: "accent", fill: "22" },
    { key: "failed", label: "failed or timed out", colour: "o-failed" },
  ]);
}

/** The distribution of durations or of what jobs have published, by group. */
class Histogram {
  constructor(box, run) {
    this.run = run;
    const { group } = run.jobs.columns;
    this.groups = group.values.filter((value) => value !== null);
    // The statistics are of the jobs that succeeded, too.
    const runtimes = [["runtime", "runtime of jobs that succeeded"], ["ran", "runtime of all jobs"]];
    if (!run.jobs.columns.outcome.values.includes("success")) runtimes.reverse();
    this.what = runtimes[0][0];
    this.group = "";
    const whats = [...runtimes, ["pending", "time in the queue"], ...run.about.memo.map((key) => [`memo.${key}`, labelOf(run, key)])];
    const tools = element("div", { class: "tools" });
    tools.append(
      choice("What", whats, (value) => { this.what = value; this.plot.draw(); }).box,
      choice("Group", [["", "all groups"], ...this.groups.map((one) => [one, one])], (value) => { this.group = value; this.plot.draw(); }).box,
      (this.said = element("span", { class: "quiet", role: "status" })),
    );
    box.append(tools);
    this.plot = new Curves(box, () => this.bins());
  }

  values() {
    const { t_submit: submit, t_run: begin, t_end: end, group, outcome } = this.run.jobs.columns;
    const only = this.what === "runtime" ? outcome.values.indexOf("success") : null;
    const wanted = this.group === "" ? -1 : group.values.indexOf(this.group);
    const found = new Float64Array(this.run.jobs.rows);
    let count = 0;
    const memo = this.run.jobs.columns[this.what];
    for (let row = 0; row < this.run.jobs.rows; row++) {
      if (wanted >= 0 && group.array[row] !== wanted) continue;
      if (only !== null && outcome.array[row] !== only) continue;
      let value = NaN;
      if (memo) value = memo.number(row);
      else if (this.what === "pending") value = begin.number(row) - submit.number(row);
      else value = end.number(row) - begin.number(row);
      if (!Number.isNaN(value)) found[count++] = value;
    }
    return found.subarray(0, count);
  }

  bins() {
    const values = this.values();
    const time = !this.what.startsWith("memo.");
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    const count = values.length ? Math.max(1, Math.min(60, Math.ceil(Math.sqrt(values.length)))) : 1;
    const width = (high - low || Math.abs(high) / 10 || 1) / count;
    const bins = new Array(count + 1).fill(0);
    for (const value of values) bins[Math.min(count - 1, Math.floor((value - low) / width))]++;
    bins[count] = null;
    const x = time ? seconds : shownValue;
    this.said.textContent = values.length
      ? `${counted(values.length, "job")}: ${x(low)} to ${x(high)}, median ${x(nth(values, values.length >> 1))}`
      : "no values";
    const edges = Array.from({ length: count + 1 }, (_, at) => (values.length ? low : 0) + at * width);
    return {
      data: [edges, bins],
      series: [{ label: "jobs", colour: "accent", fill: "99", width: 1 }],
      axes: { x, xName: "from" },
      bars: true,
    };
  }
}
