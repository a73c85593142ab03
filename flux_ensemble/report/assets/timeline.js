// The time line: firings, failures, and the jobs of each node, put together by pixel.

const GUTTER = 64;
const STRIP = 22;
const AXIS = 24;
const RANK = { success: 1, active: 2, interrupted: 3, canceled: 4, timeout: 5, failed: 6 };

class Timeline {
  constructor(box, run) {
    this.run = run;
    const { t_run: begins, t_end: ends, ranks, outcome } = run.jobs.columns;
    this.step = begins.step;
    const last = Math.round(run.about.span / this.step);
    this.begins = begins.array;
    // Those that have not ended go on to the end.
    this.ends = ends.array.map((end, row) => (end === NO_TIME && this.begins[row] !== NO_TIME ? last : end));
    this.outcome = outcome;
    this.kinds = outcome.values.map((value) => value || "active");
    this.lanes = makeLanes(this.begins, this.ends, ranks);
    this.low = 0;
    this.high = this.full = Math.max(run.about.span, this.step);
    this.build(box);
    redraws.add(() => this.draw());
    this.draw();
  }

  build(box) {
    const press = (text, label, act) =>
      button(text, { "aria-label": label, title: label, onclick: () => act() });
    const tools = element(
      "div", { class: "tools" },
      press("+", "Zoom in", () => this.zoom(0.5)),
      press("−", "Zoom out", () => this.zoom(2)),
      press("◀", "Earlier", () => this.move(-0.25)),
      press("▶", "Later", () => this.move(0.25)),
      press("All", "Show the whole time", () => this.show(0, this.full)),
      (this.where = element("span", { class: "quiet", role: "status" })),
    );
    this.frame = element("div", {
      class: "drawing", tabindex: "0", role: "group",
      "aria-label": `${box.dataset.title}. Keys: plus and minus zoom, the arrows move, 0 shows all.`,
      "aria-describedby": box.getAttribute("aria-describedby"),
    });
    box.append(legend(outcomesOf(this.run)), tools, this.frame);
    this.surface = new Surface(this.frame, 200);
    this.frame.addEventListener("keydown", (event) => this.key(event));
    const canvas = this.surface.canvas;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => tip.hide());
  }

  // -- what is shown --------------------------------------------------------------

  show(low, high) {
    const width = Math.min(this.full, Math.max(high - low, 10 * this.step));
    this.low = Math.max(0, Math.min(low, this.full - width));
    this.high = this.low + width;
    this.draw();
    const all = width >= this.full * 0.999;
    this.where.textContent = all ? "" : `from ${seconds(this.low)} to ${seconds(this.high)}`;
  }

  zoom(factor, at = (this.low + this.high) / 2) {
    this.show(at - (at - this.low) * factor, at + (this.high - at) * factor);
  }

  move(share) {
    const by = share * (this.high - this.low);
    this.show(this.low + by, this.high + by);
  }

  key(event) {
    const acts = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      ArrowLeft: () => this.move(-0.25), ArrowRight: () => this.move(0.25),
      0: () => this.show(0, this.full), Home: () => this.move(-1e9), End: () => this.move(1e9),
    };
    if (acts[event.key] && !event.ctrlKey && !event.metaKey) {
      acts[event.key]();
      event.preventDefault();
    }
  }

  down(event) {
    this.pressed = event.offsetX;
    event.target.setPointerCapture(event.pointerId);
  }

  up(event) {
    const from = this.pressed;
    this.pressed = null;
    if (from === null || from === undefined || Math.abs(event.offsetX - from) < 6) return this.draw();
    const [low, high] = [from, event.offsetX].sort((a, b) => a - b).map((x) => this.timeAt(x));
    this.show(low, high);
  }

  hover(event) {
    if (this.pressed !== null && this.pressed !== undefined && event.buttons) {
      this.draw();
      const context = this.surface.canvas.getContext("2d");
      context.fillStyle = colour("selection");
      context.fillRect(this.pressed, 0, event.offsetX - this.pressed, this.surface.height - AXIS);
      return;
    }
    const text = this.textAt(event.offsetX, event.offsetY);
    if (text) tip.show(text, event.pageX, event.pageY);
    else tip.hide();
  }

  timeAt(x) {
    const inside = Math.max(0, Math.min(1, (x - GUTTER) / (this.surface.width - GUTTER)));
    return this.low + inside * (this.high - this.low);
  }

  textAt(x, y) {
    const { ratio } = this.surface;
    const column = Math.floor((x - GUTTER) * ratio);
    if (column < 0 || column >= this.columns) return "";
    if (y < STRIP) return this.fired[column] ? `${counted(this.fired[column], "firing")}: ${this.firedRule(column)}` : "";
    if (y < 2 * STRIP) return this.failed[column] ? `${counted(this.failed[column], "job")} failed or ran out of time` : "";
    const row = this.hits[Math.floor((y - 2 * STRIP) * ratio) * this.columns + column] - 1;
    return row >= 0 ? describeJob(this.run, row) : "";
  }

  firedRule(column) {
    const { rule } = this.run.firings.columns;
    return rule.get(this.firing[column]);
  }

  // -- drawing -----------------------------------------------------------------------

  draw() {
    const lanes = Math.max(1, this.lanes.total);
    const height = Math.round(Math.max(60, Math.min(340, lanes * 14)));
    const context = this.surface.begin(2 * STRIP + height + AXIS);
    const { ratio, width } = this.surface;
    this.columns = Math.max(1, Math.floor((width - GUTTER) * ratio));
    this.lines = Math.max(1, Math.floor(height * ratio));
    this.count();
    this.strip(context, 0, this.fired, "firings", colour("firing"));
    this.strip(context, STRIP, this.failed, "failures", colour("o-failed"));
    const image = this.paint(context);
    context.putImageData(image, Math.ceil(GUTTER * ratio), Math.round(2 * STRIP * ratio));
    this.labels(context, height);
    this.axis(context, 2 * STRIP + height);
  }

  /** Firings and failures of each column of pixels. */
  count() {
    this.fired = new Uint32Array(this.columns);
    this.firing = new Uint32Array(this.columns);
    this.failed = new Uint32Array(this.columns);
    const scale = this.columns / (this.high - this.low);
    const { t } = this.run.firings.columns;
    for (let row = 0; row < t.array.length; row++) {
      const at = Math.floor((t.array[row] * t.step - this.low) * scale);
      const column = at === this.columns ? at - 1 : at;
      if (column < 0 || column >= this.columns) continue;
      this.fired[column]++;
      this.firing[column] = row;
    }
    const bad = this.kinds.map((kind) => kind === "failed" || kind === "timeout");
    for (let row = 0; row < this.ends.length; row++) {
      if (!bad[this.outcome.array[row]] || this.ends[row] === NO_TIME) continue;
      const at = Math.floor((this.ends[row] * this.step - this.low) * scale);
      const column = at === this.columns ? at - 1 : at;
      if (column >= 0 && column < this.columns) this.failed[column]++;
    }
  }

  strip(context, y, counts, name, fill) {
    context.fillStyle = colour("muted");
    context.textAlign = "right";
    context.fillText(name, GUTTER - 8, y + STRIP / 2);
    context.fillStyle = fill;
    const most = counts.reduce((a, b) => Math.max(a, b), 1);
    const wide = 1.5;
    for (let column = 0; column < counts.length; column++) {
      if (!counts[column]) continue;
      const tall = Math.max(5, (STRIP - 5) * Math.sqrt(counts[column] / most));
      context.fillRect(GUTTER + column / this.surface.ratio - wide / 2 + 0.5, y + STRIP - 2 - tall, wide, tall);
    }
  }

  /** The jobs, as pixels: the more of the jobs there failed, the more of that colour. */
  paint(context) {
    const { columns, lines } = this;
    const size = columns * lines;
    const all = new Uint16Array(size);
    const bad = new Uint16Array(size);
    const worst = new Uint8Array(size);
    this.hits = new Int32Array(size);
    const { of, starts, total } = this.lanes;
    const scale = (this.step * columns) / (this.high - this.low);
    const from = this.low / this.step;
    const tall = lines / Math.max(1, total);
    const gap = tall >= 4 ? Math.max(1, Math.round(tall / 8)) : 0;
    const ranks = this.kinds.map((kind) => RANK[kind]);
    for (let row = 0; row < this.begins.length; row++) {
      if (starts[row] === starts[row + 1]) continue;
      let x0 = Math.floor((this.begins[row] - from) * scale);
      let x1 = Math.max(x0 + 1, Math.floor((this.ends[row] - from) * scale) - (gap ? 1 : 0));
      if (x1 <= 0 || x0 >= columns) continue;
      x0 = Math.max(0, x0);
      x1 = Math.min(columns, x1);
      const rank = ranks[this.outcome.array[row]];
      for (let at = starts[row]; at < starts[row + 1]; at++) {
        const y0 = Math.floor(of[at] * tall);
        const y1 = Math.max(y0 + 1, Math.floor((of[at] + 1) * tall) - gap);
        for (let y = y0; y < y1; y++) {
          for (let cell = y * columns + x0; cell < y * columns + x1; cell++) {
            if (all[cell] < 65535) all[cell]++;
            if (rank >= 3 && bad[cell] < 65535) bad[cell]++;
            if (rank > worst[cell]) {
              worst[cell] = rank;
              this.hits[cell] = row + 1;
            }
          }
        }
      }
    }
    return this.coloured(context, all, bad, worst);
  }

  coloured(context, all, bad, worst) {
    const image = context.createImageData(this.columns, this.lines);
    const pixels = new Uint32Array(image.data.buffer);
    const colours = [null];
    for (const [kind, rank] of Object.entries(RANK)) colours[rank] = parts(colour(`o-${kind}`));
    const ground = parts(colour("lane"));
    const word = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    const words = colours.map((one) => (one ? word(one) : word(ground)));
    // What failed among much else is to be seen, and yet in its proportion.
    const blends = colours.map((one) =>
      one ? Array.from({ length: 17 }, (_, at) => word(mixed(colours[RANK.success], one, 0.65 + (0.35 * at) / 16))) : null,
    );
    for (let cell = 0; cell < pixels.length; cell++) {
      const rank = worst[cell];
      if (rank < 3 || bad[cell] === all[cell]) pixels[cell] = words[rank];
      else pixels[cell] = blends[rank][Math.floor((16 * bad[cell]) / all[cell])];
    }
    return image;
  }

  labels(context, height) {
    context.fillStyle = colour("muted");
    context.textAlign = "right";
    const tall = height / Math.max(1, this.lanes.total);
    let free = -1;
    for (const place of this.lanes.places) {
      const top = 2 * STRIP + place.first * tall;
      if (this.lanes.places.length > 1 && place.lanes * tall >= 6) {
        context.fillStyle = colour("ground");
        context.fillRect(GUTTER, top - 0.5, this.surface.width, 1);
        context.fillStyle = colour("muted");
      }
      const y = top + (place.lanes * tall) / 2;
      if (y - 7 < free) continue;
      const plain = place.name !== "" && this.lanes.bunch === 1 && !this.lanes.members;
      const name = place.name === "" ? "jobs" : plain ? `node ${place.name}` : place.name;
      context.fillText(name, GUTTER - 8, y, GUTTER - 10);
      free = y + 7;
    }
  }

  axis(context, y) {
    context.fillStyle = colour("muted");
    context.strokeStyle = colour("line");
    const room = this.surface.width - GUTTER;
    for (const t of timeTicks(this.low, this.high, Math.max(2, room / 90))) {
      const x = GUTTER + ((t - this.low) / (this.high - this.low)) * room;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x, y + 5);
      context.stroke();
      context.textAlign = x > this.surface.width - 24 ? "right" : x < GUTTER + 12 ? "left" : "center";
      context.fillText(seconds(t), x, y + 14);
    }
  }
}

/** The outcomes that there are among the jobs of a run. */
function outcomesOf(run) {
  const { values, array } = run.jobs.columns.outcome;
  const seen = new Uint8Array(values.length);
  for (let row = 0; row < array.length; row++) seen[array[row]] = 1;
  return values.filter((_, code) => seen[code]).map((value) => value || "active");
}

/** What the colours of jobs are. */
function legend(kinds) {
  const list = element("ul", { class: "legend" });
  for (const kind of OUTCOMES.filter((one) => kinds.includes(one))) {
    list.append(element("li", {}, element("span", { class: `swatch o-${kind}` }), WORDS[kind]));
  }
  return list;
}

/** A job in a few lines. */
function describeJob(run, row) {
  const { group, outcome, state, returncode, t_run: begins, t_end: ends, exception } = run.jobs.columns;
  const begin = begins.get(row);
  const end = ends.get(row);
  const lines = [
    `${jobName(run, row)} ${group.get(row)}`,
    outcome.get(row) ? WORDS[outcome.get(row)] : state.get(row),
  ];
  const code = returncode.get(row);
  if (code) lines.push(code < 0 ? `signal ${-code}` : `exit code ${code}`);
  if (exception.get(row)) lines.push(`exception ${exception.get(row)}`);
  if (begin !== null) lines.push(`from ${seconds(begin)}${end === null ? "" : `, for ${seconds(end - begin)}`}`);
  for (const kind of ["params", "memo"]) {
    for (const name of run.about[kind].slice(0, 8)) {
      const value = run.jobs.columns[`${kind}.${name}`].get(row);
      if (value !== null) lines.push(`${name} = ${shownValue(value)}`);
    }
  }
  return lines.join("\n");
}
