// The table of jobs, with a search, and that of the first ones by what they published.

const PAGE = 20;
const SHOWN_FIRST = 10;

class JobsTable {
  constructor(box, run) {
    this.run = run;
    this.box = box;
    this.page = 0;
    this.sort = null;
    this.group = this.outcome = this.text = "";
    const { group } = run.jobs.columns;
    const groups = group.values.filter((value) => value !== null);
    const outcomes = outcomesOf(run);
    const present = OUTCOMES.filter((one) => outcomes.includes(one)).reverse();
    const search = element("input", { type: "search", size: "18", oninput: () => this.choose({ text: search.value }) });
    this.groups = choice("Group", [["", "all"], ...groups.map((one) => [one, one])], (value) => this.choose({ group: value }));
    this.outcomes = choice("Outcome", [["", "all"], ...present.map((one) => [one, WORDS[one]])], (value) => this.choose({ outcome: value }));
    this.said = element("span", { class: "quiet", role: "status" });
    this.back = button("Back", { onclick: () => this.turn(-1) });
    this.on = button("Next", { onclick: () => this.turn(1) });
    const tools = element(
      "div", { class: "tools" }, this.groups.box, this.outcomes.box,
      element("label", { class: "choice" }, "Search ", search), this.back, this.on, this.said,
    );
    box.prepend(tools);
    this.columns = this.makeColumns();
    const table = box.querySelector("table");
    this.caption = table.querySelector("caption > span");
    this.body = table.querySelector("tbody");
    this.head(table.querySelector("thead"));
    this.choose({});
  }

  makeColumns() {
    const { jobs, about } = this.run;
    const { id, group, outcome, state, t_submit: submit, t_run: begin, t_end: end, returncode, ranks, exception } = jobs.columns;
    const runtime = (row) => end.number(row) - begin.number(row);
    const found = [
      { name: "Job", text: (row) => jobName(this.run, row), key: (row) => Number(id.array[row]) },
      { name: "Group", text: (row) => group.get(row), key: (row) => group.get(row) },
      { name: "Outcome", text: (row) => outcome.get(row) || state.get(row), key: (row) => outcome.get(row) || "" },
      { name: "Submitted", number: true, text: (row) => seconds(submit.get(row)), key: (row) => submit.number(row) },
      { name: "Runtime", number: true, text: (row) => seconds(runtime(row)), key: runtime },
      { name: "Exit code", number: true, text: (row) => shownValue(returncode.get(row)), key: (row) => returncode.number(row) },
      { name: "Ranks", text: (row) => ranks.get(row) || "", key: (row) => ranks.get(row) || "" },
    ];
    if (exception.values.length > 1) {
      found.push({ name: "Exception", text: (row) => exception.get(row) || "", key: (row) => exception.get(row) || "" });
    }
    for (const kind of ["params", "memo"]) {
      for (const name of about[kind].slice(0, 8)) {
        const column = jobs.columns[`${kind}.${name}`];
        found.push({ name: kind === "memo" ? labelOf(this.run, name) : name, number: true, text: (row) => shownValue(column.get(row)), key: (row) => column.get(row) });
      }
    }
    const { output } = jobs.columns;
    if (output) found.push({ name: "Output", text: (row) => fileOf(output.get(row)), key: (row) => output.get(row) || "" });
    return found;
  }

  head(head) {
    head.replaceChildren(element("tr", {}, ...this.columns.map((column) => {
      column.head = element("th", { scope: "col", class: column.number ? "number" : null });
      column.head.append(button(column.name, { class: "sort", onclick: () => this.sortBy(column) }));
      return column.head;
    })));
  }

  sortBy(column) {
    const down = this.sort === column && !this.down;
    this.sort = column;
    this.down = down;
    this.columns.forEach((one) => one.head.removeAttribute("aria-sort"));
    column.head.setAttribute("aria-sort", down ? "descending" : "ascending");
    this.choose({});
  }

  /** Show the jobs of a group, of an outcome, or with a text; those are kept that are not given. */
  choose(wanted) {
    Object.assign(this, wanted);
    this.groups.select.value = this.group;
    this.outcomes.select.value = this.outcome;
    const { rows, columns } = this.run.jobs;
    const group = this.group === "" ? -1 : columns.group.values.indexOf(this.group);
    const outcome = this.outcome === "" ? -1 : columns.outcome.values.indexOf(this.outcome === "active" ? null : this.outcome);
    const matches = this.matcher();
    const found = [];
    for (let row = 0; row < rows; row++) {
      if (group >= 0 && columns.group.array[row] !== group) continue;
      if (outcome >= 0 && columns.outcome.array[row] !== outcome) continue;
      if (matches(row)) found.push(row);
    }
    if (this.sort) this.order(found);
    this.rows = found;
    this.page = 0;
    this.show();
  }

  /** Whether a row has the text; each value is looked at once, however many rows have it. */
  matcher() {
    const text = this.text.trim().toLowerCase();
    if (!text) return () => true;
    const { columns } = this.run.jobs;
    const sets = [];
    for (const [name, column] of Object.entries(columns)) {
      if (!column.values) continue;
      const label = name.replace(/^(params|memo)\./, "");
      const hits = column.values.map((value) => value !== null && `${label}=${shownValue(value)}`.toLowerCase().includes(text));
      if (hits.some(Boolean)) sets.push([column.array, hits]);
    }
    const isId = /^[ƒ\w.:-]{4,}$/i.test(this.text.trim()) || /^\d+$/.test(text);
    return (row) => sets.some(([array, hits]) => hits[array[row]]) || (isId && jobName(this.run, row).toLowerCase().includes(text));
  }

  order(rows) {
    const sign = this.down ? -1 : 1;
    const { key } = this.sort;
    const keys = new Array(this.run.jobs.rows);
    for (const row of rows) keys[row] = key(row);
    const missing = (value) => value === null || value === undefined || value === "" || Number.isNaN(value);
    rows.sort((one, other) => {
      const a = keys[one];
      const b = keys[other];
      if (missing(a) || missing(b)) return missing(a) - missing(b) || one - other;
      return (a < b ? -sign : a > b ? sign : 0) || one - other;
    });
  }

  turn(by) {
    this.page += by;
    this.show();
  }

  /** How many jobs are chosen, and how many earlier attempts beside them. */
  numbers() {
    const { replaced } = this.run.jobs.columns;
    const again = replaced ? this.rows.filter((row) => replaced.array[row]).length : 0;
    const jobs = counted(this.rows.length - again, this.run.about.noun);
    return again ? `${jobs} and ${counted(again, "earlier attempt")}` : jobs;
  }

  show() {
    const pages = Math.max(1, Math.ceil(this.rows.length / PAGE));
    this.page = Math.max(0, Math.min(pages - 1, this.page));
    const first = this.page * PAGE;
    const rows = this.rows.slice(first, first + PAGE);
    this.body.replaceChildren(...rows.map((row) => this.line(row)));
    this.back.disabled = this.page === 0;
    this.on.disabled = this.page >= pages - 1;
    this.said.textContent = this.rows.length
      ? `${(first + 1).toLocaleString("en")} to ${(first + rows.length).toLocaleString("en")} of ${this.numbers()}`
      : "no such job";
    // The tools are not on paper, and which jobs are in the table is.
    const part = rows.length < this.run.jobs.rows ? [element("span", { class: "on-paper" }, `; ${this.said.textContent} are shown`)] : [];
    this.caption.replaceChildren(this.run.about.summary, ...part);
  }

  line(row) {
    const [first, ...rest] = this.columns;
    return element(
      "tr", {}, element("th", { scope: "row" }, first.text(row)),
      ...rest.map((column) => element("td", { class: column.number ? "number" : null }, column.text(row))),
    );
  }
}

/** The first jobs, as the chart above compares them. */
function drawFirst(box, run, parallel) {
  const table = box.querySelector("table");
  const { group } = run.jobs.columns;
  const columns = (name) => run.jobs.columns[`params.${name}`];
  const draw = () => {
    const rows = parallel.first(SHOWN_FIRST);
    // Other groups may have parameters that these jobs do not have.
    const names = run.about.params.filter((name) => rows.some((row) => columns(name).get(row) !== null)).slice(0, 8);
    const value = parallel.what === "runtime" ? seconds : shownValue;
    table.querySelector("caption > span").textContent = `Jobs that succeeded with the ${parallel.words}`;
    const { output } = run.jobs.columns;
    const files = output && rows.some((row) => output.get(row)) ? ["Output"] : [];
    const head = ["Job", "Group", parallel.label, ...names];
    table.tHead.replaceChildren(element("tr", {}, ...head.map((name, at) => element("th", { scope: "col", class: at > 1 ? "number" : null }, name)), ...files.map((name) => element("th", { scope: "col" }, name))));
    table.tBodies[0].replaceChildren(...rows.map((row) => element(
      "tr", {}, element("th", { scope: "row" }, jobName(run, row)), element("td", {}, group.get(row)),
      element("td", { class: "number" }, value(parallel.values[row])),
      ...names.map((name) => element("td", { class: "number" }, shownValue(columns(name).get(row)))),
      ...files.map(() => element("td", {}, fileOf(output.get(row)))),
    )));
  };
  parallel.listeners.push(draw);
  draw();
}
