"""Colours of tables and findings, on a terminal only.

In a table a colour is a field without a width (`color_state` ... `color_off`), which is empty where
standard output is no terminal.
"""

from __future__ import annotations

import os
import sys

#: ANSI codes of the styles that tables use.
ANSI = {"action": "\033[36m", "good": "\033[32m", "warn": "\033[33m", "bad": "\033[31m"}
ANSI_OFF = "\033[0m"


def colour(style: str) -> str:
    """The ANSI code that begins a style; empty where standard output has no colours."""
    return ANSI.get(style, "") if use_colour() else ""


def use_colour() -> bool:
    """Whether standard output is a terminal whose user did not ask for no colours."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def colour_off() -> str:
    """The ANSI code that ends a style."""
    return ANSI_OFF if use_colour() else ""
