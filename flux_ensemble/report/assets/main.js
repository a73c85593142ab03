// Brings the page to life: decodes the columns, and draws each ensemble when it comes into view.

/** Draw one ensemble, from top to bottom; between two charts the page answers its reader. */
async function drawRun(article, run) {
  const boxes = {};
  for (const box of article.querySelectorAll("[data-chart]")) boxes[box.dataset.chart] = box;
  const steps = [
    () => boxes.timeline && new Timeline(boxes.timeline, run),
    () => run.jobs.rows && drawCourse(run, boxes),
    () => boxes.parallel && drawSweep(article, boxes.parallel, run),
    () => boxes.histogram && new Histogram(boxes.histogram, run),
    () => article.querySelector("[data-jobs]") && new JobsTable(article.querySelector("[data-jobs]"), run),
  ];
  for (const step of steps) {
    step();
    await new Promise((done) => setTimeout(done));
  }
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
    about: one,
    jobs: tables[`${one.key}.jobs`],
    firings: tables[`${one.key}.firings`],
    simulated: tables[`${one.key}.simulated`] || null,
    label: one.f58 ? f58 : (id) => `${id}`,
  }]));
  const drawn = new Set();
  const draw = async (article) => {
    if (drawn.has(article)) return;
    drawn.add(article);
    await drawRun(article, runs.get(article.dataset.run));
  };
  await chooseOne([...document.querySelectorAll("article.ensemble")], draw);
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
