"""The site that is made of docs/: without a warning, without the network, with every page."""

from __future__ import annotations

import html
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import urlencode

import pytest
from browser import Browser, Page, browsing

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

#: What a browser fetches by itself, from another host.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//"
    r"|<link\b[^>]*\bhref=\"(?:https?:)?//"
    r"|(?:url\(|@import )[\"']?(?:https?:)?//"
)


def module(path: Path) -> ModuleType:
    """A Python file of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, made anew; a warning fails."""
    pytest.importorskip("sphinx")
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", f"{out}/doctrees"]
    done = subprocess.run([*words, DOCS, out / "html"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / "html"


LINKS = "[...document.querySelectorAll('#search-results li > a')]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as started:
        yield started


def searched(site: Path, browser: Browser, words: str) -> Page:
    """The page of what a search finds, when it has ended."""
    ended = "/finished|did not match/.test(document.querySelector('.search-summary')?.innerText)"
    return browser.open(site / "search.html", query=urlencode({"q": words}), ready=ended)


def test_every_page_is_in_the_contents(site: Path) -> None:
    contents = re.findall(r'reference internal" href="([^"#]+)"', (site / "index.html").read_text())
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert pages - {Path("index.html")} <= {Path(link) for link in contents}


def test_every_page_has_its_own_text_and_none_is_one_of_sphinx(site: Path) -> None:
    for path in set(DOCS.rglob("*.md")) - set(DOCS.glob("site/*.md")):
        title = re.search(r"^# (.+)$", path.read_text(), re.MULTILINE)
        assert title is not None, path
        page = (site / path.relative_to(DOCS).with_suffix(".html")).read_text()
        words = re.sub(r"[`*_]", "", title[1])
        heading = re.search(r"<h1>(.*?)<a class=\"headerlink\"", page, re.DOTALL)
        assert heading is not None, path
        assert html.unescape(re.sub(r"<[^>]+>", "", heading[1])) == words, path


def test_every_link_within_the_site_leads_to_something(site: Path) -> None:
    assert module(DOCS / "links.py").dead_links(site) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = '<h1 id="here"></h1><a href="#here">1</a><a class="x" href="b.html#gone">2</a>'
    (tmp_path / "a.html").write_text(f'{page}<a href="c.html">3</a><img src="d.png">')
    (tmp_path / "b.html").write_text('<a href="a.html?q=1#here">4</a><a href="https://x/#y">5</a>')
    assert module(DOCS / "links.py").dead_links(tmp_path) == [
        "a.html: b.html#gone",
        "a.html: c.html",
        "a.html: d.png",
    ]


#: Pages in which things are looked up, and pages whose text is elsewhere.
REFERENCES = {"keys.md", "man/flux-ensemble.1.md", "benchmarks.md", "rpc.md"}
ELSEWHERE = {f"site/{name}.md" for name in ("changelog", "contributing", "etc", "readme")}


def test_no_page_is_too_long_to_be_read_but_references() -> None:
    words = {
        str(path.relative_to(DOCS)): len(path.read_text().split()) for path in DOCS.rglob("*.md")
    }
    assert {name: count for name, count in words.items() if count > 4000}.keys() <= REFERENCES
    assert words["document.md"] <= 2600


def test_each_page_says_first_for_whom_it_is() -> None:
    silent = {
        str(path.relative_to(DOCS))
        for path in DOCS.rglob("*.md")
        if not re.match(
            r"# .+\n\nThis (page|guide|tutorial) is (a reference )?for ", path.read_text()
        )
    }
    assert silent - {"index.md", "local.md", "man/flux-ensemble.1.md", "keys.md"} == ELSEWHERE


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not FETCHED.search(path.read_text()), path


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("retries", "retries.html"),
        ("longest first", "howto/longest-first.html"),
        ("avoid-nodes", "retries.html"),
    ],
)
def test_a_search_finds_first_what_is_about_the_words(
    site: Path, browser: Browser, words: str, page: str
) -> None:
    """Also in files without a server, which a browser does not let read each other."""
    found = searched(site, browser, words)
    assert found.run(f"return {LINKS}.map(link => link.getAttribute('href'))")[0] == page
    assert not found.complaints()


def test_a_search_says_that_it_finds_nothing(site: Path, browser: Browser) -> None:
    assert "did not match" in searched(site, browser, "xyzzy").text(".search-summary")


def test_links_to_examples_lead_to_their_text(site: Path) -> None:
    assert 'href="../examples.html#hello-world-yaml"' not in (site / "index.html").read_text()
    page = (site / "site" / "readme.html").read_text()
    assert 'href="../examples.html#hello-world-yaml"' in page
    assert 'id="hello-world-yaml"' in (site / "examples.html").read_text()


def test_pages_outside_of_docs_are_on_the_site(site: Path) -> None:
    for name, words in {
        "changelog": "semantic versioning", "contributing": "Add a trigger", "etc": "The keeper",
        "readme": "See it run",
    }.items():  # fmt: skip
        assert words in (site / "site" / f"{name}.html").read_text()


def test_a_page_that_the_index_does_not_list_joins_the_part_of_its_folder() -> None:
    pytest.importorskip("sphinx")
    text = (
        "# a\n\n## Tutorials\n\n- [b](b.md)\n- [first](site/readme.md)\n\n"
        "## How-to guides\n\n## Reference\n\n- [c](c.md)\n"
    )
    contents = module(DOCS / "conf.py").contents(
        text, ["index", "b", "c", "d", "howto/e", "site/readme"]
    )
    parts = re.findall(r":caption: (.*)\n\n((?:.+\n)+?)```", contents)
    assert parts == [
        ("Tutorials", "b\nfirst <site/readme>\n"),
        ("How-to guides", "howto/e\n"),
        ("Reference", "c\nd\n"),
    ]


def test_a_picture_is_the_one_that_its_source_draws() -> None:
    pytest.importorskip("schemdraw")
    for name, picture in module(DOCS / "images" / "draw.py").PICTURES.items():
        assert (DOCS / "images" / name).read_bytes() == picture()


def test_the_glossary_is_in_order_and_has_each_word_once() -> None:
    rows = re.findall(r"^\| (.*?) \| .* \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)[1:]
    assert rows == sorted(rows, key=str.lower)
    words = [word for row in rows for word in row.split(", ")]
    assert len(words) == len({word.lower() for word in words})


def test_the_pictures_are_small_and_each_is_shown_somewhere() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    shown = {
        (page.parent / link).resolve()
        for page in pages
        for link in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text())
    }
    pictures = {path.resolve() for kind in ("png", "svg") for path in DOCS.rglob(f"*.{kind}")}
    assert pictures <= shown
    assert all(path.stat().st_size < 200_000 for path in pictures)
