"""Remedies for expressions that cannot be parsed: the form that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from flux_ensemble.metrics.names import FAMILY_KEYS
from flux_ensemble.texts import shortened, shown

#: Text with the form of a duration: 30min, 1.5 h, 1h30m; and as on clocks and in Slurm: 1:30:00.
_UNIT = r"(ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)"
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*{_UNIT}(?![a-z_])", re.IGNORECASE)
# As many parts as there are units; more would take memory for each.
_DURATION = re.compile(rf"(?<![\w.])(?:\d+(?:\.\d+)?\s*{_UNIT}\s*){{1,5}}(?![\w.])", re.IGNORECASE)
_CLOCK = re.compile(r"(?<![\w.:-])(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}))?(?![\w.:])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")

#: What metrics begin with, and is no text that somebody left without quotes.
_FAMILIES = ("count", "rate", "best", *FAMILY_KEYS, "job", "params", "memo")

_ASCII = {"≥": ">=", "≤": "<=", "≠": "!="}

#: Comparisons as in test(1) and in Perl.
_WORDS = {"eq": "==", "ne": "!=", "gt": ">", "lt": "<", "ge": ">=", "le": "<="}

#: Sizes and large numbers with a prefix -> the number that it stands for.
_SIZE = r"(?<![\w.])(\d+(?:\.\d+)?)\s*([kKMGT])(i?)[bB]?(?![\w(])"
_PREFIXES = "kMGT"

#: Pattern of a foreign notation -> the remedy.
_OTHERWISE: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"&&?", lambda match: f"write 'and' for {match[0]!r}"),
    (r"\|\|?", lambda match: f"write 'or' for {match[0]!r}"),
    (r"===|!==", lambda match: f"write {match[0][:2]!r} for {match[0]!r}"),
    (r"=~|~", lambda match: "there are no patterns: 'in' looks for a text, such as 'x' in y"),
    (
        r"([\w.]+)\s+between\s+(\S+)\s+and\s+(\S+)",
        lambda match: f"write {match[2]} <= {match[1]} <= {match[3]}",
    ),
    (
        r"\s-?(eq|ne|gt|lt|ge|le)\s",
        lambda match: f"write {_WORDS[match[1]]!r} for {match[0].strip()!r}",
    ),
    ("[\u2018\u2019\u201c\u201d]", lambda match: f"write ' for {match[0]!r}"),
    (r"<>", lambda match: "write '!=' for '<>'"),
    (r"=>", lambda match: "write '>=' for '=>'"),
    (r"=<", lambda match: "write '<=' for '=<'"),
    (r"≥|≤|≠", lambda match: f"write {_ASCII[match[0]]!r} for {match[0]!r}"),
    (r"(?<![=<>!])=(?![=<>])", lambda match: "write '==' to compare"),
    (r"!(?!=)", lambda match: "write 'not' for '!'"),
    (
        r"(?<![\w.])(\d+(?:\.\d+)?)\s*%\s*of\b",
        lambda match: f"write {float(match[1]) / 100:g} * for {match[0]!r}",
    ),
    (
        r"(?<![\w.])(\d+(?:\.\d+)?)\s*%(?!\s*[\w.(])",
        lambda match: f"write {float(match[1]) / 100:g} for {match[0]!r}",
    ),
    (
        r"((?:params|memo))\.(\w+ ?\[[^\]'\"]+\]|\d\w*)",
        lambda match: f'write {match[1]}["{match[2]}"] for {match[0]!r}',
    ),
    (r"\^", lambda match: "a power is written as x ** 2"),
    (r"\$\{?(\w+)\}?", lambda match: f"write job.params.{match[1]} for {match[0]!r}"),
    (r"^f['\"]", lambda match: "an expression has no f-strings: write the name without quotes"),
    (r"\{\s*([^{}]*?)\s*\}", lambda match: f"an expression has no braces: write {match[1]}"),
    (r"\b(AND|OR|NOT)\b", lambda match: f"write {match[0].lower()!r} for {match[0]!r}"),
    (
        r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w.,])",
        lambda match: f"write {match[0].replace(',', '')} for {match[0]!r}",
    ),
    (r"^[^(\[]*?(?<![\w.])(\d+),(\d+)(?![\w.])", lambda match: _decimal(match[1], match[2])),
    (_SIZE, lambda match: f"write {_number(match)} for {match[0]!r}"),
    (
        r"[<>=][^;,()\[\]]*([;,])[^;,]*[<>=]",
        lambda match: f"write 'and' for {match[1]!r}",
    ),
    (r"\bif\b.*\belse\b", lambda match: "a condition is true or false by itself"),
    (r"\bis\s+not\b", lambda match: "write '!=' for 'is not'"),
    (r"\bis\b", lambda match: "write '==' for 'is'"),
    (r"^\s*(if|when)\b", lambda match: f"leave out {match[1]!r}"),
)


def _decimal(whole: str, part: str) -> str:
    return f"write {whole}.{part} for '{whole},{part}'"


def _number(match: re.Match[str]) -> str:
    base = 1024 if match[3] else 1000
    power = _PREFIXES.index(match[2].replace("K", "k")) + 1
    return f"{int(float(match[1]) * base**power)}"


#: A parameter or a key of a memo with characters that names in expressions do not have.
_ODD_NAME = re.compile(
    r"(?<![\w.])((?:job\.)?(?:params|memo))\.(\w+(?:[^\w\s()\[\],=<>!'\"{}]+\w+)+)"
)


def bracketed(text: str, keys: Sequence[str], is_known: Callable[[list[str]], bool]) -> str:
    """Return how a name is written that was read as several ones; "" if there is none.

    Args:
        text: the expression.
        keys: of the name in it that is unknown.
        is_known: returns whether an expression here can have a name, of which it gets the keys.

    >>> print(bracketed("memo.p-value > 1", ["value"], lambda keys: True))
    write memo["p-value"] for 'memo.p-value', a name with other characters than letters, ...
    >>> print(bracketed("params.p-0 > 1", ["params", "p"], lambda keys: keys[0] == "job"))
    write job.params["p-0"] for 'params.p-0', a name with other characters than letters, ...
    >>> bracketed("memo.loss-1 > 0 and colour == 1", ["colour"], lambda keys: True)
    ''
    """
    name = ".".join(keys)
    for owner, odd in _ODD_NAME.findall(text):
        first, *more = re.split(r"\W+", odd)
        if name not in (f"{owner}.{odd}", f"{owner}.{first}", *more):
            continue
        for family in (owner, f"job.{owner}"):
            if is_known([*family.split("."), odd]):
                return (
                    f'write {family}["{odd}"] for {shown(f"{owner}.{odd}")}, a name with other '
                    "characters than letters, digits and '_'"
                )
    return ""


def remedy(text: str) -> str:
    """Return a remedy for an expression that cannot be parsed, in brackets; "" if unknown.

    >>> remedy("count.a.success > 3 && job.runtime > 60")
    " (write 'and' for '&&')"
    >>> remedy("job.runtime > 30min"), remedy("job.id ? 3")
    (" (write 1800 for '30min', in seconds)", '')
    """
    bare = _QUOTED.sub("''", shortened(text, 1000))
    duration = in_seconds(bare)
    if duration is not None:
        written, seconds = duration
        return f" (write {seconds:g} for {written!r}, in seconds)"
    for pattern, said in _OTHERWISE:
        match = re.search(pattern, bare)
        if match is not None:
            return f" ({said(match)})"
    missing = bare.count("(") - bare.count(")")
    if missing:
        return f" (a {')' if missing > 0 else '('!r} is missing)"
    return ""


def in_seconds(text: str) -> tuple[str, float] | None:
    """Return the first duration in a text, as written and in seconds; None if there is none.

    >>> in_seconds("90 minutes"), in_seconds("1-00:00:30"), in_seconds("soon")
    (('90 minutes', 5400.0), ('1-00:00:30', 86430.0), None)
    >>> in_seconds("1h30m")
    ('1h30m', 5400.0)
    """
    match = _CLOCK.search(text)
    if match is not None:
        days, first, second, third = match.groups()
        # As in Slurm: minutes and seconds; hours come first if there are three numbers, or days.
        large = 3600 if third or days else 60
        clock = int(first) * large + int(second) * (large // 60) + int(third or 0)
        return match[0], float(clock + 86400 * int(days or 0))
    match = _DURATION.search(text)
    if match is None:
        return None
    seconds = 0.0
    for number, unit in _PART.findall(match[0].lower()):
        seconds += float(number) * _SECONDS["ms" if unit == "ms" else unit[0]]
    return match[0].strip(), seconds


def meant(
    name: str, job: Collection[str], params: Collection[str], *, compared: bool = False
) -> str:
    """Return the probable meaning of an unknown name, in brackets; "" if there is none.

    Args:
        name: the name as written.
        job: the fields of the triggering job; empty if no job triggers the rule.
        params: the parameters of that job.
        compared: the expression compares, so that the name may be a text without quotes.

    >>> meant("t", ["params", "runtime"], ["t"]), meant("params.t", ["params"], ["t"])
    (" (did you mean 'job.params.t'?)", " (did you mean 'job.params.t'?)")
    """
    param = name.removeprefix("params.")
    if param in params:
        dotted = re.fullmatch(r"[A-Za-z_]\w*", param)
        return f" (did you mean 'job.params{f'.{param}' if dotted else f'[{param!r}]'}'?)"
    if name in job or (name.startswith("memo.") and "memo" in job):
        return f" (did you mean 'job.{name}'?)"
    if name in ("true", "false", "yes", "no"):
        return f" (write {name in ('true', 'yes')})"
    if name in ("null", "None", "nil", "NULL", "nan", "NaN", "inf"):
        return " (there is none: a comparison with a value that is missing is false)"
    outcome = name in ("success", "failed", "canceled", "timeout") and "outcome" in job
    bare = compared and name.isidentifier() and name not in _FAMILIES
    return f" (text is written in quotes: {name!r})" if outcome or bare else ""
