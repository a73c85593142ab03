"""The properties of a field of jobs."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from flux_ensemble.metrics.operations import Value


class Known(IntEnum):
    """The time from which on rules on a job know a field of it."""

    SUBMISSION = 0
    #: The job has started, or an exception was raised on it.
    START = 1
    END = 2
    NEVER = 3


class Column(NamedTuple):
    """The properties of a field, besides its type.

    Args:
        about: the meaning, for the reference.
        heading: the heading of the column in tables; None for the name in capitals.
        guests: users who do not own the instance may see the field.
        known: the time from which on expressions of rules have the field as `job.NAME`.
        in_rules: the meaning in rules, if it differs from `about`.
        check: checks a literal that the field is compared with; None for the check of its type.
        filtered: filters and `--sort` may name the field.
        is_time: the field is a time, in epoch seconds.
        is_signed: the field is an integer that may be negative.
        needs: the feature without which the field is empty; empty itself where there is none.
        empty: the sentence about a field that is empty for this reason.
    """

    about: str
    heading: str | None = None
    guests: bool = False
    known: Known = Known.NEVER
    in_rules: str | None = None
    check: Callable[[str, Value], Value] | None = None
    filtered: bool = True
    is_time: bool = False
    is_signed: bool = False
    needs: str = ""
    empty: str = ""
