// Brings the page to life: decodes the columns, and draws each ensemble when it is shown or printed.

/** Of so many jobs all charts are drawn at once, so that a picture of the page has them. */
const AT_ONCE = 20000;

/** The charts and tables of one ensemble, from top to bottom. */
class Drawing {
  constructor(article, run) {
    const boxes = {};
    for (const box of article.querySelectorAll("[data-chart]")) boxes[box.dataset.chart] = box;
    this.rows = run.jobs.rows;
    this.steps = [
      () => boxes.timeline && new Timeline(boxes.timeline, run),
      () => run.jobs.rows && drawCourse(run, boxes),
      () => boxes.parallel && drawSweep(article, boxes.parallel, run),
      () => article.querySelectorAll("[data-chart=slices]").forEach((box) => new Slices(box, run, run.about.slices[box.dataset.slices])),
      () => boxes.histogram && new Histogram(boxes.histogram, run),
      () => article.querySelector("[data-jobs]") && new JobsTable(article.querySelector("[data-jobs]"), run),
    ];
  }

  /** Draw what is left; of many jobs the page answers its reader between two charts. */
  async draw() {
    while (this.steps.length) {
      this.steps.shift()();
      if (this.rows > AT_ONCE) await new Promise((done) => setTimeout(done));
    }
  }

  /** Draw what is left at once. */
  finish() {
    while (this.steps.length) this.steps.shift()();
  }
}

/** On paper all ensembles are shown, with all their charts, in its width. */
function printAll(articles, drawings) {
  let hidden = [];
  window.addEventListener("beforeprint", () => {
    hidden = articles.filter((article) => article.hidden);
    for (const article of articles) article.hidden = false;
    document.documentElement.classList.add("paper");
    for (const article of articles) drawings.get(article).finish();
    redraws.forEach((draw) => draw());
    for (const table of document.querySelectorAll("[data-jobs] .wide")) {
      table.classList.remove("tight");
      table.classList.toggle("tight", table.scrollWidth > table.clientWidth);
    }
  });
  window.addEventListener("afterprint", () => {
    for (const article of hidden) article.hidden = true;
    document.documentElement.classList.remove("paper");
    redraw();
  });
}

function drawSweep(article, box, run) {
  const parallel = new Parallel(box, run);
  const first = article.querySelector("[data-first]");
  if (first) drawFirst(first, run, parallel);
}

/** With several ensembles one is shown at a time: that of the address. */
function chooseOne(articles, draw) {
  const links = document.querySelectorAll(".menu a");
  const choose = () => {
    const named = decodeURIComponent(location.hash.slice(1));
    const target = named && document.getElementById(named);
    const chosen = (target && target.closest("article.ensemble")) || articles[0];
    for (const article of articles) article.hidden = article !== chosen;
    links.forEach((link) => {
      if (link.hash === `#${chosen.id}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
    if (target && target !== chosen) target.scrollIntoView();
    return draw(chosen);
  };
  window.addEventListener("hashchange", () => choose().catch(complain));
  return choose();
}

async function main() {
  const holder = document.getElementById("data");
  const { about, tables } = await unpack(holder.textContent);
  holder.remove();
  const runs = new Map(about.map((one) => [one.key, {
    about: { ...one, logarithmic: new Map(one.logarithmic) },
    jobs: tables[`${one.key}.jobs`],
    firings: tables[`${one.key}.firings`],
    simulated: tables[`${one.key}.simulated`] || null,
    label: one.f58 ? f58 : (id) => `${id}`,
  }]));
  const articles = [...document.querySelectorAll("article.ensemble")];
  const drawings = new Map(articles.map((article) => [article, new Drawing(article, runs.get(article.dataset.run))]));
  printAll(articles, drawings);
  await chooseOne(articles, (article) => drawings.get(article).draw());
  let width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (width === document.documentElement.clientWidth) return;
    width = document.documentElement.clientWidth;
    redraw();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.ready = Math.round(performance.now());
}

/** Say why something is not drawn. */
function complain(error) {
  const trouble = document.getElementById("trouble");
  trouble.hidden = false;
  trouble.textContent = typeof DecompressionStream === "undefined"
    ? "This browser is too old to draw the charts (it has no DecompressionStream); the tables are complete without them."
    : `The charts cannot be drawn: ${error.message}`;
  console.error(error);
}

main().catch(complain);
