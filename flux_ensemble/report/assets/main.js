// Brings the page to life: decodes the columns, and draws each ensemble when it comes into view.

/** Draw one ensemble. */
function drawRun(article, run) {
  const boxes = {};
  for (const box of article.querySelectorAll("[data-chart]")) boxes[box.dataset.chart] = box;
  if (boxes.timeline) new Timeline(boxes.timeline, run);
  if (run.jobs.rows) drawCourse(run, boxes);
  if (boxes.histogram) new Histogram(boxes.histogram, run);
  if (boxes.parallel) {
    const parallel = new Parallel(boxes.parallel, run);
    const best = article.querySelector("[data-best]");
    if (best) drawBest(best, run, parallel);
  }
  const jobs = article.querySelector("[data-jobs]");
  if (jobs) new JobsTable(jobs, run);
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
    draw(chosen);
    if (target && target !== chosen) target.scrollIntoView();
  };
  window.addEventListener("hashchange", choose);
  choose();
}

async function main() {
  const holder = document.getElementById("data");
  const { about, tables } = await unpack(holder.textContent);
  holder.remove();
  const runs = new Map(about.map((one) => [one.key, {
    about: one,
    jobs: tables[`${one.key}.jobs`],
    firings: tables[`${one.key}.firings`],
    simulated: tables[`${one.key}.simulated`] || null,
    label: one.f58 ? f58 : (id) => `${id}`,
  }]));
  const drawn = new Set();
  const draw = (article) => {
    if (drawn.has(article)) return;
    drawn.add(article);
    drawRun(article, runs.get(article.dataset.run));
  };
  chooseOne([...document.querySelectorAll("article.ensemble")], draw);
  let width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (width === document.documentElement.clientWidth) return;
    width = document.documentElement.clientWidth;
    redraw();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.ready = Math.round(performance.now());
}

main().catch((error) => {
  const trouble = document.getElementById("trouble");
  trouble.hidden = false;
  trouble.textContent = typeof DecompressionStream === "undefined"
    ? "This browser is too old to draw the charts (it has no DecompressionStream); the tables are complete without them."
    : `The charts cannot be drawn: ${error.message}`;
  console.error(error);
});
