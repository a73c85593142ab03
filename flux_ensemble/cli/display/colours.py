"""Colours: on a terminal, unless the user decides otherwise.

`--color` decides, then the environment: `NO_COLOR`, `FORCE_COLOR`. In a table a colour is a field
without a width (`color_state` ... `color_off`), which is empty without colours.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: ANSI codes of the styles that tables use.
ANSI = {"action": "\033[36m", "good": "\033[32m", "warn": "\033[33m", "bad": "\033[31m"}
ANSI_OFF = "\033[0m"

#: Values of `--color`.
WHEN = ("auto", "always", "never")
_chosen = {"when": "auto"}


def choose_colour(when: str) -> None:
    """Use colours always, never, or depending on environment and terminal ("auto")."""
    _chosen["when"] = when


def colour(style: str) -> str:
    """Return the ANSI code that begins a style; empty if standard output has no colours."""
    return ANSI.get(style, "") if use_colour() else ""


def use_colour() -> bool:
    """Return True if standard output has colours."""
    if _chosen["when"] != "auto":
        return _chosen["when"] == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def make_console(*, soft_wrap: bool = True) -> Console:
    """Return Rich's console for standard output, with colours or without."""
    from rich.console import Console

    wanted = use_colour()
    forced = wanted and not sys.stdout.isatty()
    return Console(
        highlight=False,
        soft_wrap=soft_wrap,
        no_color=not wanted,
        force_terminal=True if forced else None,
        color_system="standard" if forced else "auto",
    )


def colour_off() -> str:
    """Return the ANSI code that ends a style."""
    return ANSI_OFF if use_colour() else ""
