"""The examples: each is a valid document, and each is run by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flux_ensemble.document.loading import load_text

ROOT = Path(__file__).parents[3]
# There may be bytecode of a generator besides.
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_file())
DOCUMENTS = [path for path in EXAMPLES if path.suffix == ".yaml"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_the_example_is_valid_and_called_after_its_file(path: Path) -> None:
    spec = load_text(path.read_text(), file=path.name, directory=str(path.parent))
    assert spec.name == path.stem
    assert spec.rules


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_is_run_by_a_test_on_flux(path: Path) -> None:
    name = path.stem if path.suffix == ".yaml" else path.name
    # Those for a member that can change its size have a test of their own.
    tests = "".join(path.read_text() for path in sorted((ROOT / "t").glob("*.t")))
    # What t2002-parity.t runs stands in a list there.
    begin = rf"(?:test_expect_success (?:FLUX )?'|\t){re.escape(name)}\b"
    assert re.search(f"^{begin}", tests, re.MULTILINE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_is_listed(path: Path) -> None:
    assert f"(../examples/{path.name})" in (ROOT / "docs" / "examples.md").read_text()
