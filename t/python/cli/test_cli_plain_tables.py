"""Tables where there is no Flux."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flux_ensemble.cli.display.plain_tables import fsd, print_rows

HEADINGS = {"name": "NAME", "t": "TIME", "why": "WHY"}


def show(capsys: pytest.CaptureFixture[str], text: str, *rows: dict[str, Any]) -> list[str]:
    print_rows(text, HEADINGS, rows)
    return capsys.readouterr().out.splitlines()


def test_columns_grow_and_are_left_out_as_in_flux(capsys: pytest.CaptureFixture[str]) -> None:
    text = "+:{name:<4} {t!F:>6h} ?:{why}"
    rows: list[dict[str, Any]] = [
        {"name": "longer", "t": 1.5, "why": ""},
        {"name": "b", "t": "", "why": ""},
    ]
    assert show(capsys, text, *rows) == ["NAME     TIME", "longer 1.500s", "b           -"]
    assert show(capsys, "{name} ?+:{why:<4}", *rows)[1] == "longer"
    rows[0]["why"] = "because"
    assert show(capsys, "{name} ?+:{why:<4}|", *rows)[1:] == ["longer because|", "b        |"]
    assert show(capsys, text, *rows)[:2] == ["NAME     TIME WHY", "longer 1.500s because"]


@pytest.mark.parametrize("text", ["{nme}", "{name!X}"])
def test_what_is_no_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Unknown"):
        print_rows(text, HEADINGS, [])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (1e-9, "0s"), (0.0001, "0.100ms"), (1.5, "1.500s"), (42.0, "42s"), (90, "1.5m"),
     (5400, "1.5h"), (129600, "1.5d"), (math.inf, "inf")],
)  # fmt: skip
def test_durations_are_printed_in_the_units_of_rfc_23(seconds: float, text: str) -> None:
    assert fsd(seconds) == text


def test_numbers_are_written_as_the_format_says_below_a_heading_that_is_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows: list[dict[str, Any]] = [
        {"name": "a", "t": 0.25, "why": ""},
        {"name": "b", "t": "", "why": ""},
    ]
    assert show(capsys, "{name} {t:>8.3f}|", *rows) == [
        "NAME     TIME|",
        "a    0.250|",
        "b         |",
    ]
    assert show(capsys, "{t:8.1e}|", *rows)[1] == " 2.5e-01|"
