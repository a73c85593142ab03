"""The manual page: what man(1) shows of docs/man."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flux_ensemble import __version__

MANUAL = Path(__file__).parents[3] / "docs" / "man"
SOURCE = MANUAL / "flux-ensemble.1.md"


@pytest.fixture(scope="module", params=["kept", "made"])
def roff(request: pytest.FixtureRequest) -> str:
    """The page in roff: the one under version control, and what `make manual` makes now."""
    if request.param == "kept":
        return SOURCE.with_suffix("").read_text()
    pytest.importorskip("myst_parser")
    spec = importlib.util.spec_from_file_location("docs_roff", MANUAL / "roff.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return str(made.to_roff(SOURCE.read_text(), __version__))


def test_the_page_is_made_of_its_source(roff: str) -> None:
    assert hashlib.sha256(SOURCE.read_bytes()).hexdigest() in roff, "run `make manual`"


def test_the_page_has_a_title_and_all_sections(roff: str) -> None:
    title = f'.TH "FLUX-ENSEMBLE" "1" "" "flux-ensemble {__version__}"'
    assert title in roff, "run `make manual`"
    sections = re.findall(r"^## (.*)$", SOURCE.read_text(), re.MULTILINE)
    assert re.findall(r"^\.SH (.*)$", roff, re.MULTILINE) == sections


def test_the_page_is_shown_without_a_complaint(roff: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not on PATH")
    done = subprocess.run(
        ["groff", "-t", "-man", "-ww", "-Tutf8", "-Kutf8"],
        input=roff,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
    assert "--fail-on-job-failure" in shown
    assert "](" not in shown


def test_man_finds_the_page_in_the_environment_of_the_package() -> None:
    if shutil.which("man") is None:
        pytest.skip("man is not on PATH")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {key: value for key, value in os.environ.items() if key != "MANPATH"}
    done = subprocess.run(
        ["man", "-w", "flux-ensemble"], env={**kept, "PATH": path}, capture_output=True, text=True
    )
    assert done.stdout.strip() == f"{sys.prefix}/share/man/man1/flux-ensemble.1", done.stderr
