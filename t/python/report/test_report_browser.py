"""The page as a browser shows it: nothing is loaded, nothing of others runs, all can use it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from browser import Browser, browsing
from reports import EVIL, SWEEP, job, many, simulated, source, write
from selenium.webdriver.common.keys import Keys

from flux_ensemble.report.page import page as render
from flux_ensemble.results.report import describe

#: Most elements of a page.
MOST_ELEMENTS = 2000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("report") / "study.html", simulated(SWEEP))


@pytest.mark.parametrize("width", [1280, 400])
def test_it_asks_for_nothing_says_nothing_and_is_as_wide_as_the_screen(
    browser: Browser, study: Path, width: int
) -> None:
    page = browser.open(study, width=width)
    assert page.requests() == [study.as_uri()]
    assert page.complaints() == []
    assert page.count("*") < MOST_ELEMENTS
    root = "document.documentElement"
    assert page.run(f"return {root}.scrollWidth - {root}.clientWidth") == 0
    for chart in page.run("return [...document.querySelectorAll('canvas')].map(c => c.width)"):
        assert 0 < chart <= 2 * width


def test_totals_of_the_script_are_those_of_the_status(browser: Browser, study: Path) -> None:
    status = simulated(SWEEP).status
    page = browser.open(study)
    total = status["jobs"]["total"]
    assert f"1 to 20 of {total} jobs" in page.text("[data-jobs] [role=status]")
    for value, key in (("failed", "failed"), ("timeout", "timeout"), ("success", "success")):
        page.run(
            "const select = document.querySelectorAll('[data-jobs] select')[1];"
            "select.value = arguments[0]; select.dispatchEvent(new Event('change'));",
            value,
        )
        count = sum(group[key] for group in status["groups"].values())
        said = page.text("[data-jobs] [role=status]")
        assert f"of {count} job" in said, said


#: What a page has been drawn of: charts with an empty canvas, or none, and how many there are.
DRAWN = """
  window.drawn = () => {
    const charts = [...document.querySelectorAll("[data-chart]")];
    const pixels = (canvas) => canvas.getContext("2d")
      .getImageData(0, 0, canvas.width, canvas.height).data;
    const isBlank = (canvas) => !canvas || !canvas.width || !canvas.height
      || !pixels(canvas).some((one) => one);
    const blank = charts.filter((chart) => isBlank(chart.querySelector("canvas")));
    return [charts.length, blank.map((chart) => chart.dataset.chart)];
  };
"""

#: The widest page that fits onto A4 and letter, in pixels.
PAPER = 718


def test_each_chart_is_drawn_when_the_page_is_loaded(browser: Browser, study: Path) -> None:
    added = browser.before(f"{DRAWN} addEventListener('load', () => (window.then = drawn()));")
    try:
        # Who takes a picture of the page scrolls nowhere, and waits for nothing else.
        assert browser.open(study).run("return window.then") == [6, []]
    finally:
        browser.after(added)


def test_of_many_jobs_each_chart_is_drawn_before_the_page_is_printed(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [job(number, params={"t": number % 9}, memo={"fom": 1}) for number in range(20_100)]
    file = write(tmp_path / "many.html", source(jobs))
    begin = (
        "dispatchEvent(new Event('beforeprint')); queueMicrotask(() => (window.then = drawn()));"
    )
    added = browser.before(f"{DRAWN} addEventListener('DOMContentLoaded', () => {{ {begin} }});")
    try:
        assert browser.open(file).run("return window.then") == [5, []]
    finally:
        browser.after(added)


def test_a_printed_report_has_all_ensembles_with_each_chart_in_the_width_of_the_paper(
    browser: Browser, tmp_path: Path
) -> None:
    wide = {
        **SWEEP,
        "name": "wide",
        "jobs": [
            {**one, "params": {f"parameter_{number}": [1, 2] if number == 0 else 0.123456789
                               for number in range(8)}, "count": 1, "command": "sim"}
            for one in SWEEP["jobs"]
        ],
    }  # fmt: skip
    file = write(tmp_path / "two.html", simulated(SWEEP), simulated(wide))
    page = browser.open(file)
    page.run(DRAWN)
    assert page.run("return drawn()")[1] != []
    page.run("""
        addEventListener("afterprint", () => (window.printed = drawn()));
        addEventListener("beforeprint", () => {
          window.widths = [...document.querySelectorAll("canvas")].map((one) => one.clientWidth);
        });
    """)
    document = page.print()
    assert document.startswith(b"%PDF")
    assert page.wait("window.printed") == [11, []]
    assert 0 < max(page.run("return window.widths")) <= PAPER
    # One ensemble is shown again.
    assert page.count("article.ensemble[hidden]") == 1
    assert page.count(".paper") == 0


def test_no_table_is_cut_at_the_edge_of_the_paper_or_of_a_picture(
    browser: Browser, study: Path
) -> None:
    cut = """return [...document.querySelectorAll(".wide")]
        .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"""
    page = browser.open(study, width=1000)
    assert page.run(cut) == []
    page = browser.open(study, width=PAPER)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.run(cut) == []
        assert (
            page.run("return getComputedStyle(document.querySelector('.tools')).display") == "none"
        )
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


#: The words of tables that are broken, such as "Submitte" and "d".
BROKEN = """
  return [...document.querySelectorAll(".wide th, .wide td")]
    .filter((cell) => {
      const word = cell.querySelector("button") || cell;
      const range = document.createRange();
      if (!word.firstChild || word.innerText.split(/[\\s=_-]/).length > 1) return false;
      range.selectNodeContents(word);
      // What is in one line overlaps, also a bar and the number beside it.
      const parts = [...range.getClientRects()].filter((one) => one.height);
      const bottom = Math.min(...parts.map((one) => one.bottom));
      return parts.some((one) => one.top >= bottom);
    })
    .map((cell) => cell.innerText);
"""


def test_on_paper_words_are_whole_colours_have_their_names_and_what_is_left_out_is_said(
    browser: Browser, study: Path
) -> None:
    page = browser.open(study, width=PAPER)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.run(BROKEN) == []
        colours = page.run("""
            return [...document.querySelectorAll(".swatch, .u-marker")]
              .map((one) => getComputedStyle(one).printColorAdjust)""")
        assert set(colours) == {"exact"}
        jobs = simulated(SWEEP).status["jobs"]["total"]
        assert page.text("[data-jobs] caption").endswith(f"; 1 to 20 of {jobs} jobs are shown")
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert "are shown" not in page.text("[data-jobs] caption")


def test_the_words_above_a_table_are_on_a_small_screen_and_above_a_narrow_table_on_one_line(
    browser: Browser, study: Path
) -> None:
    page = browser.open(study, width=420)
    ends = page.run("""
        return [...document.querySelectorAll("caption > span")]
          .map((one) => one.getBoundingClientRect().right)""")
    assert len(ends) > 3
    assert max(ends) <= 420
    page = browser.open(study)
    heights = page.run("""
        return [...document.querySelectorAll("caption > span")]
          .map((one) => one.getBoundingClientRect().height)""")
    assert max(heights) == min(heights)


def test_jobs_that_run_are_counted_in_whole_jobs_at_marks_of_whole_jobs(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [
        job(number, t_submit=number / 7, t_run=number / 7, t_end=number / 7 + 0.01)
        for number in range(20)
    ]
    file = write(tmp_path / "short.html", source(jobs))
    begin = """
      window.marks = [];
      const fill = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
        window.marks.push(text);
        return fill.call(this, text, ...where);
      };"""
    added = browser.before(begin)
    try:
        page = browser.open(file)
        marks = page.run("return window.marks")
    finally:
        browser.after(added)
    assert {"0", "1"} <= set(marks)
    assert [mark for mark in marks if mark.startswith("0.")] == []
    spans = "[0, 1, 1, 9, 30], [2, 3, 1.5, 10, 30], 8, 2"
    assert page.run(f"return [...occupancy(...[{spans}])]") == [3, 1, 0, 0, 1, 0, 0, 0]
    some = "[0, NO_TIME, 4], [4, 9, NO_TIME], 4, 2"
    assert page.run(f"return [...occupancy(...[{some}])]") == [1, 1, 0, 0]


def test_no_pixel_hides_a_failure(browser: Browser, tmp_path: Path) -> None:
    jobs = [job(number, t_run=12.0, t_end=12.5, ranks=str(number)) for number in range(5000)]
    jobs[777].update(outcome="failed", returncode=1)
    page = browser.open(write(tmp_path / "a.html", source(jobs)))
    # The colour of what failed is in the picture, though 5,000 jobs share some columns of it.
    found = page.run("""
        const canvas = document.querySelector("[data-chart=timeline] canvas");
        const context = canvas.getContext("2d");
        const pixels = context.getImageData(0, 44, canvas.width, canvas.height - 70).data;
        let red = 0, green = 0;
        for (let at = 0; at < pixels.length; at += 4) {
          if (pixels[at] > pixels[at + 1] && pixels[at] > pixels[at + 2] + 20) red++;
          if (pixels[at + 1] > pixels[at] + 80) green++;
        }
        return [red, green];
    """)
    assert found[0] > 0
    assert found[1] > 100 * found[0]


def test_interrupted_jobs_have_their_own_colour_in_the_time_line(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [job(number, ranks=str(number), t_end=14.0) for number in range(4)]
    for one in jobs[2:]:
        one.update(outcome="interrupted", returncode=None)
    page = browser.open(write(tmp_path / "a.html", source(jobs)))
    assert page.text("[data-chart=timeline] .legend").split() == ["succeeded", "interrupted"]
    grey = page.run("""
        const wanted = parts(colour("o-interrupted")).join();
        const canvas = document.querySelector("[data-chart=timeline] canvas");
        const pixels = canvas.getContext("2d").getImageData(0, 44, canvas.width, 60).data;
        let found = 0;
        for (let at = 0; at < pixels.length; at += 4) {
          if (pixels.slice(at, at + 3).join() === wanted) found++;
        }
        return found;
    """)
    assert grey > 0


#: The distribution of four jobs, of which one failed at once.
HISTOGRAM = """
  const numbers = (...array) => ({ array, number: (row) => array[row] });
  const codes = (values, ...array) => ({ values, array });
  const columns = {
    t_submit: numbers(0, 0, 0, 0), t_run: numbers(0, 0, 0, 0), t_end: numbers(0.25, 4, 5, 6),
    group: codes(["a"], 0, 0, 0, 0), outcome: codes([null, OUTCOMES], 2, 1, 1, 1),
  };
  const box = document.querySelector("[data-chart=histogram]");
  box.replaceChildren();
  const made = new Histogram(box, { jobs: { rows: 4, columns }, about: { memo: [] } });
  const look = () => {
    const { min, max } = made.plot.plot.scales.y;
    const { left, top, width, height } = made.plot.plot.bbox;
    const pixels = made.plot.plot.ctx.getImageData(left, top + height - 4, width, 1).data;
    let bare = 0;
    for (let at = 3; at < pixels.length; at += 4) bare += pixels[at] === 0;
    return [made.said.textContent, min, max >= made.plot.plot.data[1][0], bare / width];
  };
  const frame = requestAnimationFrame;
  return new Promise((done) => frame(() => frame(() => done(look()))));
"""


def test_bars_of_a_distribution_begin_at_zero_fill_their_bins_and_are_of_what_succeeded(
    browser: Browser, study: Path
) -> None:
    page = browser.open(study)
    ran = HISTOGRAM.replace("OUTCOMES", '"success", "failed"')
    said, least, fits, bare = page.run(ran)
    assert said == "3 jobs: 4s to 6s, median 5s"
    assert (least, fits) == (0, True)
    assert bare < 0.05
    said, *_ = page.run(HISTOGRAM.replace("OUTCOMES", '"canceled", "failed"'))
    assert said.startswith("4 jobs: 250ms to 6s, ")


#: Keeps the texts that are drawn, as `texts`.
TEXTS = """
  window.texts = [];
  const fill = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
    window.texts.push(text);
    return fill.call(this, text, ...where);
  };"""


@pytest.mark.parametrize(("params", "whole"), [(5, True), (40, False)])
def test_on_paper_many_columns_of_jobs_have_whole_words_and_too_many_are_not_cut(
    browser: Browser, tmp_path: Path, params: int, whole: bool
) -> None:
    names = ["momentum", "layers", *(f"p{number}" for number in range(params - 2))]
    jobs = [
        job(
            number, params=dict.fromkeys(names, 0.123456 + number), memo={"loss": 0.5},
            output=str(tmp_path / f"case-{number}-0.123456.out"),
        )
        for number in range(5)
    ]  # fmt: skip
    page = browser.open(write(tmp_path / "a.html", source(jobs)), width=PAPER)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    try:
        cells = page.run(BROKEN)
        cut = page.run("""return [...document.querySelectorAll(".wide")]
            .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)""")
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert cut == []
    assert (cells == []) is whole


def test_axes_of_ranges_are_of_numbers_and_attempts_that_ran_again_have_no_line(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [
        job(
            number, params={"momentum": [None, 0.1, 0.2, 0.9][number % 4], "x": number % 3},
            memo={"loss": float(number)}, **({"replaced": 1} if number == 9 else {}),
        )
        for number in range(10)
    ]  # fmt: skip
    variables = {"momentum": {"low": 0, "high": 1, "when": "x > 0"}}
    loaded = json.dumps({"name": "made", "search": [{"id": "s", "variables": variables}]})
    entry = {"timestamp": 10.0, "name": "load", "context": {"document": loaded}}
    page = browser.open(write(tmp_path / "a.html", source(jobs, entries=[entry])))
    page.run("""
        const { draw } = Parallel.prototype;
        Parallel.prototype.draw = function () { window.parallel = this; return draw.call(this); };
        redraws.forEach((one) => one());
    """)
    axes = page.run("return parallel.params.map((one) => [one.name, !!one.discrete])")
    assert axes == [["momentum", False], ["x", True]]
    place = page.run("return parallel.params[0].place(2)")
    assert place == pytest.approx(0.125)
    assert page.run("return Number.isNaN(parallel.good[9]) && parallel.isReplaced(9)")
    assert page.complaints() == []


def test_numbers_of_many_magnitudes_are_on_logarithmic_axes(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [
        job(
            number, params={"wide": 1e-7 * 1.5**number, "rate": 0.02 + number / 100, "x": number},
            memo={"loss": 10.0 ** (number % 9 - 9)},
        )
        for number in range(40)
    ]  # fmt: skip
    variables = {"rate": {"low": 0.02, "high": 0.41, "log": True}}
    loaded = json.dumps({"name": "made", "search": [{"id": "s", "variables": variables}]})
    entry = {"timestamp": 10.0, "name": "load", "context": {"document": loaded}}
    file = write(tmp_path / "a.html", source(jobs, entries=[entry]))
    added = browser.before(TEXTS)
    try:
        page = browser.open(file)
    finally:
        browser.after(added)
    texts = set(page.run("return window.texts"))
    assert {"1e-7", "1e-5", "0.001"} <= texts
    # Of less than two powers of ten the ends are marked.
    assert {"0.02", "0.41"} <= texts
    assert {"1e-9", "1e-5"} <= texts
    assert page.complaints() == []


@pytest.mark.parametrize("count", [60, 2400])
def test_slices_have_the_axes_by_which_parameters_were_chosen_and_mark_the_best(
    browser: Browser, tmp_path: Path, count: int
) -> None:
    jobs = [
        job(
            number,
            params={
                "even": 1e-6 + number % 20 / 19, "rate": [0.01, 0.02, 0.04][number % 3],
                "word": ["a", "b"][number % 2], "layers": 1 + number % 4,
            },
            memo={"loss": number % 20 + number % 3 / 10 + 1},
            outcome="success" if number else "failed",
        )
        for number in range(count)
    ]  # fmt: skip
    jobs.append(job(count, group="other", params={"word": "c"}, memo={"loss": -1}))
    variables = {"even": {"low": 1e-6, "high": 2}, "rate": {"low": 0.01, "high": 1, "log": True}}
    loaded = json.dumps({"name": "made", "search": [{"id": "s", "variables": variables}]})
    entry = {"timestamp": 10.0, "name": "load", "context": {"document": loaded}}
    best = {
        "name": "top", "of": "loss", "group": "sim", "mode": "max", "value": 20.2, "job": "59",
        "params": {}, "running": False,
    }  # fmt: skip
    file = write(tmp_path / "a.html", source(jobs, entries=[entry], status={"best": [best]}))
    made = file.read_text(encoding="utf-8")
    assert f"one of the {count - 1:,} jobs that succeeded" in made
    assert "around the one with the highest loss. The most important parameter is" in made
    page = browser.open(file)
    page.run("""
        const { draw } = Slices.prototype;
        Slices.prototype.draw = function () {
          window.slices = this;
          return draw.call(this);
        };
        redraws.forEach((one) => one());
    """)
    found = page.run("""return slices.panels.map((one) =>
        [one.name, one.marks.map(([, text]) => text), one.best.map((place) => +place.toFixed(3))]);
    """)
    marks = {name: texts for name, texts, _ in found}
    assert next(iter(marks)) == "even"
    assert marks["even"][-1] == "1"
    assert "0.8" in marks["even"]
    assert marks["rate"] == ["0.01", "0.04"]
    assert marks["word"] == ["a", "b"]
    assert marks["layers"] == ["1", "2", "3", "4"]
    # The best of the group: the last value, of the greatest rate.
    assert {name: place for name, _, place in found}["rate"] == [1, 1]
    assert page.run("return slices.panels.map((one) => !!one.cells)") == [count > 2000] * 4
    assert page.complaints() == []


def test_an_infeasible_trial_is_grey_and_never_the_best_whatever_its_value(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [
        job(
            number, params={"x": number % 10}, memo={"loss": float(number), "mass": 9.0 - number},
            trial=number, trial_state="infeasible" if number < 6 else "complete",
        )
        for number in range(30)
    ]  # fmt: skip
    search = {
        "id": "s", "group": "sim", "state": "done", "reason": "trials", "sampler": "random",
        "objective": "loss", "direction": "minimize", "trials": 30, "complete": 24, "failed": 0,
        "infeasible": 6, "subject_to": ["mass <= 3"], "trouble": None, "ask_seconds": None,
        "idle_seconds": 0.0, "best": [{"trial": 6, "value": 6.0, "params": {"x": 6}}],
        "importances": {"loss": [{"name": "x", "share": 0.9, "trials": 30}]},
    }  # fmt: skip
    file = write(tmp_path / "a.html", source(jobs, status={"searches": [search]}))
    made = file.read_text(encoding="utf-8")
    assert "around the feasible one with the lowest loss. Grey points are infeasible" in made
    assert "Compared by loss, infeasible trials are pale." in made
    first = made.partition("Jobs of feasible trials with the lowest loss")[2]
    assert re.findall(r'<td class="number">([^<]*)</td>', first)[0] == "6"
    page = browser.open(file)
    page.run("""
        for (const kind of [Slices, Parallel]) {
          const { draw } = kind.prototype;
          kind.prototype.draw = function () { window[kind.name] = this; return draw.call(this); };
        }
        redraws.forEach((one) => one());
    """)
    drawn = page.run("return [window.Slices.best, window.Slices.infeasible.filter(Boolean).length]")
    assert drawn == [6, 6]
    assert page.run("return window.Parallel.first(2)") == [6, 7]
    assert page.run("return [window.Parallel.good[0], window.Parallel.good[6]]") == [0, 1]
    # By another value an infeasible one may be the first.
    page.run("const it = window.Parallel; it.what = 'memo.mass'; it.mode = 'max'; it.changed();")
    assert page.run("return window.Parallel.first(1)") == [0]
    assert page.complaints() == []


def test_a_line_is_broken_at_a_parameter_that_its_job_does_not_have(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [job(number, params={"a": number, "n": number, "z": number}) for number in range(3)]
    jobs.append(job(3, group="other", params={"a": 1, "z": 2}))
    page = browser.open(write(tmp_path / "a.html", source(jobs)))
    page.run("""
        window.lines = [];
        const { draw } = Parallel.prototype;
        Parallel.prototype.draw = function () {
          this.rows = 4;
          const { x } = this;
          const context = this.surface.begin();
          for (const name of ["moveTo", "lineTo"]) {
            context[name] = (at, down) => window.lines.push([name, Math.round(at)]);
          }
          [this.left, this.top, this.tall, this.gap] = [0, 0, 100, 100];
          this.good.fill(NaN);
          this.good[3] = 1;
          this.each(context, [...this.params, this.axis]);
          for (const name of ["moveTo", "lineTo"]) delete context[name];
        };
        redraws.forEach((one) => one());
    """)
    # The axis of n is the second, at 100; the first is left without a neighbour.
    assert page.run("return window.lines") == [
        ["moveTo", 0], ["moveTo", -4], ["lineTo", 4], ["moveTo", 200], ["lineTo", 300],
    ]  # fmt: skip
    assert page.complaints() == []


def test_the_caption_of_the_parameters_follows_what_jobs_are_compared_by(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [job(number, params={"t": number}, memo={"fom": number}) for number in range(5)]
    page = browser.open(write(tmp_path / "a.html", source(jobs)))
    caption = "figure:has([data-chart=parallel]) figcaption"
    assert "that succeeded with the lowest fom. Dashed" in page.text(caption)
    choose = """
        const select = document.querySelectorAll("[data-chart=parallel] select")[arguments[0]];
        select.value = arguments[1];
        select.dispatchEvent(new Event("change"));"""
    page.run(choose, 0, "runtime")
    page.run(choose, 1, "max")
    assert "that succeeded with the highest runtime. Dashed" in page.text(caption)


def test_axes_and_headings_have_the_units_of_what_jobs_published(
    browser: Browser, tmp_path: Path
) -> None:
    jobs = [job(number, params={"t": number % 5}, memo={"fom": number % 5}) for number in range(20)]
    file = write(tmp_path / "a.html", source(jobs, status={"units": {"fom": "eV"}}))
    written = """
        window.written = [];
        const { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
          written.push(text);
          return fillText.call(this, text, ...more);
        };"""
    added = browser.before(written)
    try:
        page = browser.open(file)
    finally:
        browser.after(added)
    # The axes of parallel coordinates, and that of the slices.
    assert page.run("return written.filter((text) => text === 'fom [eV]').length") >= 2
    texts = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
    for chart in ("parallel", "histogram"):
        assert "fom [eV]" in page.run(texts, f"[data-chart={chart}] option")
    assert "lowest fom [eV]. Dashed" in page.text("figure:has([data-chart=parallel]) figcaption")
    assert "fom [eV]" in page.run(texts, "[data-jobs] th")
    assert "Slices: fom [eV] over each parameter" in page.run(texts, "h4.charted")
    assert page.complaints() == []


def test_what_others_wrote_is_text_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    exception = {"type": EVIL, "note": EVIL}
    jobs = [
        job(
            number, group=EVIL, name=EVIL, rule=EVIL, ranks="0", outcome="failed", returncode=1,
            params={EVIL: EVIL, "__proto__": number}, memo={EVIL: number, "constructor": 1},
            exception=exception,
        )
        for number in range(5)
    ]  # fmt: skip
    context = {"rule": EVIL, "firing": 0, "trigger": EVIL, "action": {"name": EVIL, "label": EVIL}}
    entries = [
        {"timestamp": 10.0, "name": "load", "context": {"document": f"name: {EVIL!r}"}},
        {"timestamp": 10.0, "name": "fire", "context": {**context, "cause": {}}},
    ]
    rule = {
        "id": EVIL, "trigger": EVIL, "action": EVIL, "label": EVIL, "enabled": True, "fired": 1,
        "actions": [EVIL],
        "repetitions": 1, "error": EVIL,
    }  # fmt: skip
    metrics = {"count": {EVIL: {}}, EVIL: {f"{EVIL}-duration": 1.0}}
    status = {"name": EVIL, "reason": EVIL, "rules": [rule], "errors": [EVIL]}
    made = source(
        jobs, entries=entries, metrics=metrics, facts={EVIL: EVIL}, tail=lambda _: [EVIL],
        label=lambda _: EVIL, status=status,
    )  # fmt: skip
    file = write(tmp_path / "evil.html", made)
    assert not set("\x1b\u202e") & set(file.read_text())
    page = browser.open(file)
    assert page.run("return window.pwned") is None
    assert page.count("img") == 0
    assert page.count("script") == 1
    assert "\\x1b" in page.text()
    assert "onerror" in page.text()
    assert page.complaints() == []
    assert page.requests() == [file.as_uri()]


def test_tables_are_there_without_scripts(browser: Browser, study: Path) -> None:
    page = browser.open(study, scripts=False)
    # What a browser reads is asked of itself, since no script runs.
    from selenium.webdriver.common.by import By

    text = page.driver.find_element(By.TAG_NAME, "body").text
    for part in (
        "need JavaScript",
        "Jobs of each group",
        "Jobs that succeeded with",
        "What each rule did",
    ):
        assert part in text
    assert "sim" in text
    assert "exit 1" in text
    # Nothing that the jobs share which failed is there but by chance.
    assert "Lift" not in text


def test_output_of_jobs_opens_from_the_tables_of_the_script(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "out 1.txt").write_text("what job 1 wrote")
    jobs = [
        job(1, params={"t": 1}, memo={"fom": 2}, output=str(tmp_path / "out 1.txt")),
        job(2, params={"t": 2}, memo={"fom": 1}, output="/elsewhere/gone.txt"),
    ]
    best = {
        "name": "top", "of": "fom", "group": "sim", "mode": "max", "value": 2, "job": "1",
        "params": {}, "running": False,
    }  # fmt: skip
    file = tmp_path / "linked.html"
    made = source(jobs, status={"best": [best]})
    content = describe(made, path=file, environment=False)
    file.write_text(render([content], 0.0), encoding="utf-8")
    page = browser.open(file)
    for table in ("[data-jobs]", "[data-first]"):
        links = page.run(
            "return [...document.querySelectorAll(arguments[0] + ' td a')]"
            ".map((link) => [link.href, link.text])",
            table,
        )
        assert links == [[(tmp_path / "out 1.txt").as_uri(), "out 1.txt"]]
        assert "gone.txt" in page.text(table)
    page.click("[data-jobs] td a")
    assert page.wait("document.body.innerText") == "what job 1 wrote"


@pytest.mark.skipif(find_spec("axe_selenium_python") is None, reason="no axe-selenium-python")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_has_nothing_serious_to_say(browser: Browser, study: Path, dark: bool) -> None:
    spec = find_spec("axe_selenium_python")
    assert spec is not None
    assert spec.origin is not None
    axe = Path(spec.origin).parent / "node_modules" / "axe-core" / "axe.min.js"
    page = browser.open(study, dark=dark)
    page.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.run(axe.read_text(encoding="utf-8"))
    found = page.driver.execute_async_script("axe.run().then(arguments[0])")
    serious = [
        (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert len(found["passes"]) > 20


def test_the_keyboard_is_enough(browser: Browser, study: Path) -> None:
    page = browser.open(study)
    page.run("document.querySelector('[data-chart=timeline] [tabindex]').focus()")
    page.keys("+", "+", Keys.ARROW_RIGHT)
    said = page.text("[data-chart=timeline] [role=status]")
    assert said.startswith("from ")
    page.keys("0")
    assert page.text("[data-chart=timeline] [role=status]") == ""
    page.run("document.querySelector('[data-jobs] input').focus()")
    page.keys(*"t=280")
    page.wait(
        "document.querySelector('[data-jobs] [role=status]').innerText.includes('of 10 jobs')"
    )
    page.run("document.querySelectorAll('[data-jobs] .sort')[4].focus()")
    page.keys(Keys.ENTER)
    assert page.count("[aria-sort=ascending]") == 1
    page.keys(Keys.ENTER)
    assert page.count("[aria-sort=descending]") == 1


def test_several_ensembles_are_shown_one_at_a_time(browser: Browser, tmp_path: Path) -> None:
    other = {**SWEEP, "name": "other", "seed": 8}
    file = write(tmp_path / "both.html", simulated(SWEEP), simulated(other))
    page = browser.open(file)
    assert page.text("h1") == "study"
    assert page.count("article.ensemble:not([hidden])") == 1
    page.click('.menu a[href="#e1"]')
    page.wait("!document.getElementById('e1').hidden")
    assert page.count("article.ensemble:not([hidden])") == 1
    assert "other" in page.text("#e1 h1")
    page.wait("document.querySelectorAll('#e1 canvas').length > 3")
    assert page.count("*") < MOST_ELEMENTS
    assert page.complaints() == []


def test_a_simulation_is_laid_over_what_happened(browser: Browser, tmp_path: Path) -> None:

    content = describe(simulated(SWEEP), simulated(SWEEP, nodes=2), environment=False)
    file = tmp_path / "over.html"
    file.write_text(render([content], 0.0))
    page = browser.open(file)
    assert "What was, and what the simulation said" in page.text()
    legend = page.text("[data-chart=running] .u-legend")
    assert "running" in legend
    assert "running, simulated" in legend


def test_as_many_jobs_as_you_like_are_no_more_elements(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(write(tmp_path / "many.html", simulated(many(3000), nodes=32, cores=8)))
    assert page.count("*") < MOST_ELEMENTS
    assert page.complaints() == []
    data = page.run("return document.getElementById('data')")
    assert data is None
    drawn = json.loads(page.run("return JSON.stringify(tip.box === null)"))
    assert drawn is True
