"""Warns of job groups that are valid, and certainly not what was meant: texts, files, equal jobs.

A text of a job is passed on as it is but for parameters: a brace that is none, and what only a
shell knows, reach the program. What may well be meant so has no warning: code, quotes, a shell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

from flux_ensemble.document.feature import sections
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.jobspec import NO_FILE
from flux_ensemble.document.keys.members import TASKS
from flux_ensemble.document.keys.overrides import GIVEN
from flux_ensemble.document.model import Action, Spec
from flux_ensemble.document.problems import Path
from flux_ensemble.document.templates import has_braces
from flux_ensemble.document.texts import (
    ATTEMPT,
    ATTEMPTS,
    COUNTERS,
    INDEX,
    INDICES,
    NUMBER,
    NUMBERS,
    has_numbers,
    placeholders,
    quoted_words,
    split_command,
    texts_in,
)
from flux_ensemble.document.values import FileColumn, Steps
from flux_ensemble.metrics.by_value import ByValue
from flux_ensemble.metrics.families import FAMILIES
from flux_ensemble.scalars import as_text
from flux_ensemble.texts import MAX_NAMES, listed, shown

#: Names that Flux fills in in `{{name}}`, in the paths of output files; in a command the first two
#: can hardly be anything else.
_FLUX_NAMES = ("id", "jobid", "name", "nnodes", "size", "ntasks", "taskid")
_FLUX_IDS = _FLUX_NAMES[:2]

#: How near a name must be to a parameter's, and how long, to be taken for it.
_NEAR = 0.75
_LONG = 3

#: Jobs of a submission whose files are compared.
_COMPARED = 1000


class Finding(NamedTuple):
    """A warning, or a note, about the value at a path."""

    path: Path
    message: str
    note: bool = False


def lint_jobs(spec: Spec, value: Mapping[str, Any]) -> Iterator[Finding]:
    """Find what is certainly not meant in the job groups of a document without errors.

    Args:
        spec: the checked document.
        value: its values.

    >>> from flux_ensemble.document.loading import load_text
    >>> text = "jobs: [{name: a, command: 'run {T} *.txt', params: {t: [1]}}]"
    >>> spec = load_text(text, name="demo")
    >>> value = {"jobs": [{"name": "a", "command": "run {T} *.txt", "params": {"t": [1]}}]}
    >>> [finding.path for finding in lint_jobs(spec, value)]
    [('jobs', 0, 'command'), ('jobs', 0, 'command')]
    """
    given = given_values(spec)
    for index, entry in enumerate(value.get("jobs", ())):
        at: Path = ("jobs", index)
        declared = {**_varied(value, entry.get("name")), **entry.get("params", {})}
        yield from _placeholders(entry, declared, at)
        yield from _elsewhere(entry, declared, at)
        yield from _unshelled(entry.get("command"), declared, (*at, "command"))
        yield from _as_command(entry.get("command"), (*at, "command"))
        yield from _values(entry.get("params", {}), (*at, "params"))
        yield from _repeated(entry, (*at, "params"))
        yield from _unread(entry, at)
        yield from _equal_jobs(entry, given, at)
    yield from _empty_cells(spec, value)
    yield from _one_stream(spec)
    yield from _equal_submissions(spec, value)
    yield from _shared_by_members(spec, value)
    yield from _apart(spec, value)
    yield from _shared_files(spec, value)


def _varied(value: Mapping[str, Any], group: Any) -> Mapping[str, Any]:
    """The parameters that features give to jobs of a group."""
    given = [section.varied(value, group) for section in sections()]
    return {name: varied for one in given for name, varied in one.items()}


# -- sheets -------------------------------------------------------------------------


def _empty_cells(spec: Spec, value: Mapping[str, Any]) -> Iterator[Finding]:
    """Parameters that are empty in some rows of a sheet."""
    seen: set[tuple[str, str]] = set()
    for index, entry in enumerate(value.get("jobs") or ()):
        for name, given in (entry.get("params") or {}).items():
            if not isinstance(given, Mapping) or (entry["name"], name) in seen:
                continue
            seen.add((entry["name"], name))
            for jobset in spec.groups[entry["name"]].sets:
                column = (jobset.sweep.params or {}).get(name)
                if isinstance(column, FileColumn) and column.empty:
                    many = f"{column.empty} cells" if column.empty > 1 else "a cell"
                    first = f"{column.file}:{column.first_empty[0]}"
                    yield Finding(
                        ("jobs", index, "params", name),
                        f"{many} of the column {name!r} {'are' if column.empty > 1 else 'is'} "
                        f"empty, the first in {first}; these jobs get an empty text "
                        '(write "" in quotes if that is meant)',
                    )
                    break


def _one_stream(spec: Spec) -> Iterator[Finding]:
    """Values of a parameter that differ as texts, and share their statistics as one number."""
    for by in spec.by:
        for name in by.params:
            alone = ByValue(by.group, by.variable, (name,))
            known: dict[str, str] = {}
            for jobset in spec.groups[by.group].sets:
                values = (jobset.sweep.params or {}).get(name, ())
                for value in () if isinstance(values, (range, Steps)) else values[:_COMPARED]:
                    text = as_text(value)
                    first = known.setdefault(alone.suffix({name: value}), text)
                    if first != text:
                        yield Finding(
                            ("metrics",),
                            f"{shown(first)} and {shown(text)}, values of the parameter {name!r}, "
                            f"are one number, so their jobs share the statistics {by.form} (in "
                            "quotes they are two texts)",
                        )
                        return


# -- braces -------------------------------------------------------------------------

#: A word, or a path, and no code of a shell or another language.
_PLAIN = re.compile(r"[^\s;()\"'$|&<>\\`]*")

#: What is more than a name in braces: {x:.2f}, {params.x}, {x + 1}.
_INVOLVED = re.compile(r"(?<![{$])\{\s*([A-Za-z_][\w.-]*)\s*([^\w{}.-][^{}]*)?\}(?!\})")

#: A name after a brace that nothing closes.
_UNCLOSED = re.compile(r"(?<![{$])\{([A-Za-z_]\w*)(?![^{]*\})", re.ASCII)

#: Keys of the value of a parameter that is a column of a sheet.
_OF_SHEETS = frozenset(("file", "where", "limit"))

_COMPUTE = "nothing is computed here: write '{{{}}}', and compute with it in the program"

#: Programs whose arguments are code in which braces stand.
_CODE = ("awk", "gawk", "mawk", "sed", "jq", "perl", "xargs", "parallel")

#: Options whose argument is code.
_CODE_OPTIONS = ("-c", "-e", "-E", "--eval", "--command")


def _placeholders(
    entry: Mapping[str, Any], declared: Mapping[str, Any], at: Path
) -> Iterator[Finding]:
    params = list(declared)[:MAX_NAMES]
    for path, text, of_file, code in _texts(entry):
        for name in sorted(placeholders(text) - declared.keys() - COUNTERS):
            meant = _meant(name, text, params, of_file)
            if meant is not None:
                yield Finding(
                    (*at, *path), f"'{{{name}}}' is left as it is (did you mean {meant}?)"
                )
            elif not code and _PLAIN.fullmatch(text):
                yield Finding(
                    (*at, *path),
                    f"'{{{name}}}' is left as it is: no parameter is called so "
                    f"(parameters: {listed(params)}){_of_sheet(name, declared)}",
                )
        for match in _UNCLOSED.finditer(text):
            if match[1] in declared:
                # Unless quotes keep them together, words of a command are looked at one by one.
                command = str(entry.get("command"))
                split = re.search(rf"{re.escape(match[0])}\b[^{{}}]*\}}", command)
                write = f"its brace is not closed: write '{{{match[1]}}}'"
                if split is not None:
                    write = _COMPUTE.format(match[1])
                found = match[0] if split is None else split[0]
                yield Finding((*at, *path), f"{shown(found)} is left as it is ({write})")
        for match in _INVOLVED.finditer(text):
            remedy = _remedy(match, declared, code)
            if remedy is not None:
                yield Finding((*at, *path), f"{shown(match[0])} is left as it is ({remedy})")


def _of_sheet(name: str, declared: Mapping[str, Any]) -> str:
    """Return a remedy if the keys of a sheet stand where the names of parameters do, or "".

    >>> _of_sheet("x", {"file": "s.csv", "where": "x > 1"})
    '; a sheet is the value of a parameter: params: {x: {file: s.csv, where: x > 1}}'
    """
    if "file" not in declared or not declared.keys() <= _OF_SHEETS:
        return ""
    keys = ", ".join(f"{key}: {value}" for key, value in declared.items())
    return f"; a sheet is the value of a parameter: params: {{{name}: {{{keys}}}}}"


def _remedy(match: re.Match[str], declared: Mapping[str, Any], code: bool) -> str | None:
    """Return advice about braces that hold more than a name; None if they may be meant so."""
    whole, rest = match[1], (match[2] or "").strip()
    inside = match[0][1:-1]
    if (spaced := "_".join(inside.split())) in declared and spaced != inside and not code:
        return f"write '{{{spaced}}}'"
    head, _, name = whole.rpartition(".")
    if head in ("params", "job.params") and name in declared and not rest:
        return f"write '{{{name}}}'"
    if whole == "job.index":
        return f"write {INDICES!r}"
    if whole == "job.attempt":
        return f"write {ATTEMPTS!r}"
    if whole == INDEX and INDEX not in declared and rest:
        return f"nothing is computed here: write {INDICES!r}, and compute with it in the program"
    if whole in declared and rest and not code:
        if rest[0] in ":!":
            return f"there are no formats here: write '{{{whole}}}', which is as it is in 'params'"
        return _COMPUTE.format(whole)
    if head.partition(".")[0] in ("job", "count", "best", *FAMILIES) and not code:
        return "expressions in braces are for actions of rules"
    return None


#: How other tools write a parameter: shells, GitHub and Argo, Snakemake, Python, Windows, CMake.
_ELSEWHERE = re.compile(
    r"\$?\{\{\s*(?:[\w-]+\.)*([A-Za-z_][\w-]*)\s*\}\}|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)"
    r"|\{(?:wildcards|inputs?)\.([A-Za-z_]\w*)\}|%\(([A-Za-z_]\w*)\)[sdfg]"
    r"|%([A-Za-z_]\w*)%|@([A-Za-z_]\w*)@|<([A-Za-z_]\w*)>",
    re.ASCII,
)

#: A parameter of GNU parallel and of xargs.
_UNNAMED = re.compile(r"(?<![^\s'\"=/])\{(?:\d?|[.+#/%])\}")

#: The number of a job within its array, in Slurm and others.
_ARRAYS = (
    "SLURM_ARRAY_TASK_ID", "PBS_ARRAYID", "PBS_ARRAY_INDEX", "SGE_TASK_ID", "LSB_JOBINDEX",
    "FLUX_JOB_CC", "PARALLEL_SEQ", "HQ_TASK_ID",
)  # fmt: skip

#: What Slurm fills in in the names of output files.
_SLURM_IDS = re.compile(r"%\d*([Aaj])(?![A-Za-z0-9])")


def _elsewhere(
    entry: Mapping[str, Any], declared: Mapping[str, Any], at: Path
) -> Iterator[Finding]:
    """Parameters as other tools write them."""
    filled = False
    unnamed = None
    for path, text, of_file, code in _whole_texts(entry):
        filled = filled or not placeholders(text).isdisjoint(declared)
        for match in _ELSEWHERE.finditer(text):
            name = next(group for group in match.groups() if group)
            if of_file and match[0].startswith("{{") and name in _FLUX_NAMES:
                continue
            if path[0] == "environment" and match[0][0] == "$":
                # The program may expand its own variables.
                continue
            if name in declared and not (code and _is_own(name, match[0], text, entry)):
                what = "a variable of the shell, and empty" if code else "left as it is"
                yield Finding((*at, *path), f"{shown(match[0])} is {what} (write '{{{name}}}')")
        if of_file and (slurm := _SLURM_IDS.search(text)) is not None:
            write = INDICES if slurm[1] == "a" else "{{id}}"
            yield Finding(
                (*at, *path), f"{shown(slurm[0])} of Slurm is left as it is (write {write!r})"
            )
        if unnamed is None and not code and path == ("command",):
            unnamed = _UNNAMED.search(text)
    if unnamed is not None and entry.get("params") and not filled:
        name = next(iter(entry["params"]))
        yield Finding(
            (*at, "command"), f"{shown(unnamed[0])} is left as it is (write '{{{name}}}')"
        )


def _whole_texts(entry: Mapping[str, Any]) -> Iterator[tuple[Path, str, bool, bool]]:
    """The texts of a job group as `_texts`, with a command without code as one text."""
    texts = list(_texts(entry))
    command = entry.get("command")
    if isinstance(command, str) and not any(code for *_, code in texts):
        texts = [(("command",), command, False, False)] + [
            one for one in texts if one[0] != ("command",)
        ]
    yield from texts


def _is_own(name: str, written: str, text: str, entry: Mapping[str, Any]) -> bool:
    """Return True if code has a variable of its own, or from its environment, of this name."""
    command = entry.get("command")
    program = str(command[0] if isinstance(command, list) else str(command).split()[0])
    if written[0] != "$" or program.rpartition("/")[2] not in _SHELLS:
        return True
    assigned = re.search(rf"(?<![\w${{-]){re.escape(name)}(?![\w-])", text, re.ASCII)
    return assigned is not None or name in entry.get("environment", {})


def _texts(entry: Mapping[str, Any]) -> Iterator[tuple[Path, str, bool, bool]]:
    """The texts of a job group.

    Yields:
        Where, the text, whether it is the path of an output file, and whether it is code.
    """
    command = entry.get("command", ())
    with suppress(ValueError):
        words = split_command(command) if isinstance(command, str) else command
        coded = any(str(word).rpartition("/")[2] in _CODE for word in words)
        for before, word in zip(("", *words), words, strict=False):
            if isinstance(word, str):
                yield ("command",), word, False, coded or before in _CODE_OPTIONS
    for name, setting in entry.get("environment", {}).items():
        if isinstance(setting, str):
            yield ("environment", name), setting, False, False
    for key in ("workdir", "output", "error", "queue", "bank"):
        if key in entry:
            yield (key,), entry[key], key in ("output", "error"), False
    for index, path in enumerate(entry.get("inputs", ())):
        yield ("inputs", index), path, False, False
    for text in texts_in(entry.get("attributes", {})):
        yield ("attributes",), text, False, False


def _meant(name: str, text: str, params: Sequence[str], of_file: bool) -> str | None:
    """Return the placeholder that was probably meant, quoted; None if this one may be meant."""
    if name in (_FLUX_NAMES if of_file else _FLUX_IDS) and not re.search(r"\s", text):
        return f"'{{{{{name}}}}}', which Flux fills in"
    near = get_close_matches(name, params, 1, _NEAR) if len(name) >= _LONG else []
    near = near or [param for param in params if param.lower() == name.lower()]
    # A name that a script has elsewhere is one of its own.
    own = re.findall(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    return f"'{{{near[0]}}}'" if near and len(own) == text.count(f"{{{name}}}") else None


#: Values that are text, and that were meant as several.
_SEVERAL = re.compile(r"(?:np\.|numpy\.)?(?:range|linspace|logspace|arange)\(.*\)|-?\d+\.\.-?\d+")

#: Numbers with commas and blanks, as in a list without its brackets.
_LISTED = re.compile(r"-?[\d.]+(?:,\s+-?[\d.]+)+")


#: An expression, as actions have it.
_HEADS = "|".join(("job", "count", "params", "best", *FAMILIES))
_EXPRESSION = re.compile(rf"(?<![{{$])\{{\s*(?:{_HEADS})\.[^{{}}]*\}}")


#: What a shell expands and nothing else: variables of the environment, and home directories.
_UNREAD = re.compile(r"\$\{?[A-Z_][A-Z0-9_]*\b\}?|(?<![\w/.~-])~(?=/|$)")

#: A variable that the dynamic linker itself replaces.
_LINKER = ("$ORIGIN", "${ORIGIN}", "$LIB", "${LIB}", "$PLATFORM", "${PLATFORM}")


def _unread(entry: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    """Texts outside of the command that a shell would expand."""
    for path, text, _, _ in _texts(entry):
        if path[0] not in ("environment", "workdir", "inputs", "output", "error"):
            continue
        for match in _UNREAD.finditer(text):
            if match[0] not in _LINKER:
                yield Finding(
                    (*at, *path),
                    f"{shown(match[0])} is left as it is: no shell reads this (write the value, "
                    "or set it in the command: [sh, -c, '...'])",
                )
                break


def _values(params: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    """Values of parameters that were meant to be computed."""
    for name, values in params.items():
        for text in islice(texts_in(values), _COMPARED):
            message = None
            if text in ("...", "\u2026"):
                message = "is a value like the others: for steps write {range: [0, 5]}"
            elif _LISTED.fullmatch(text.strip()):
                message = f"is one value, a text: for several write [{text.strip()}]"
            elif _SEVERAL.fullmatch(text.strip()):
                message = (
                    "is one value, a text: for several write {range: [0, 5]} or "
                    "{linspace: [0, 1, 5]}"
                )
            elif _EXPRESSION.search(text) or placeholders(text) & params.keys():
                message = (
                    f"is left as it is: of braces only {INDICES!r} and {NUMBERS!r}, the number of "
                    "each job in its submission and in its group, are filled into a value"
                )
            if message is not None:
                yield Finding((*at, name), f"{shown(text)} {message}")
                break


def _repeated(entry: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    """Lists that were meant side by side: as long as each other, and with repeated values."""
    if entry.get("sweep", "product") != "product":
        return
    lists = {
        name: values
        for name, values in entry.get("params", {}).items()
        if isinstance(values, list) and len(values) > 1
    }
    if len(lists) < 2 or len(set(map(len, lists.values()))) > 1:
        return
    for name, values in lists.items():
        texts = list(map(repr, values[:_COMPARED]))
        ((text, most),) = Counter(texts).most_common(1)
        if most > 1:
            value, times = values[texts.index(text)], "twice" if most == 2 else f"{most} times"
            yield Finding(
                (*at, name),
                f"{shown(value)} is there {times}, each time with all values of the other "
                "parameters: 'sweep: zip' takes the lists side by side",
            )
            return


# -- commands for a shell ------------------------------------------------------------

#: Programs that take such words themselves.
_TAKERS = (
    "sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "fish", "expr", "test", "[", "eval",
    "find", "ssh", "parallel", "xargs",
)  # fmt: skip

#: What a shell expands outside of quotes and in double quotes: variables and commands.
_EXPANDED = re.compile(r"\$(\w*[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|\()|`")

#: Words that a shell takes where nothing of them is quoted: operators, redirections, patterns of
#: files, home directories, and lists in braces.
_OPERATORS = re.compile(
    r"(\||\|\||&&|&|<|;)$|(\d?|&)>>?[^>]*$|<[\w./-]+$|[^;]+;$"
    r"|(?!-)(?=.*[*?])(?=.*[./]|\*$)[\w./*?{}-]+$"
    r"|([\w-]+=)?~(/|$)"
    r"|[\w./-]*\{([\w.-]+(,[\w.-]+)+|\d+\.\.\d+)\}"
)

#: What only a shell runs, and how a variable of the environment is set in one.
_BUILTINS = (
    "cd", "source", ".", "export", "ulimit", "module", "set", "unset", "exit", "exec", "if", "for",
    "while", "alias", "umask",
)  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def _unshelled(command: Any, declared: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    # Who writes a list of words quotes each of them.
    if not isinstance(command, str):
        return
    words = quoted_words(command)
    bare = ["".join(text for _, text in parts) for parts in words]
    if any(word.rpartition("/")[2] in _TAKERS for word in bare):
        return
    found = []
    for number, (word, parts) in enumerate(zip(bare, words, strict=True)):
        plain = all(kind == "plain" for kind, _ in parts)
        if (
            any(
                kind in ("plain", "double") and _is_expanded(text, declared) for kind, text in parts
            )
            or (plain and _OPERATORS.match(word))
            or (plain and not number and (word in _BUILTINS or _ASSIGNMENT.match(word)))
        ):
            found.append(word)
    if found:
        what = "is left as it is" if len(found) == 1 else "are left as they are"
        array = any(one.strip("${}") in _ARRAYS for one in found)
        remedy = "for one write [sh, -c, '...']"
        if array:
            remedy = f"there are no arrays, and {INDICES!r} is the number of each job"
        elif any(one in (">", ">>", "&>") for one in found):
            remedy = f"write 'output: FILE' for a file, or {remedy.removeprefix('for one write ')}"
        yield Finding(
            at,
            f"{', '.join(map(shown, dict.fromkeys(found)))} {what}: no shell runs the command; "
            f"{remedy}",
        )


def _is_expanded(text: str, declared: Mapping[str, Any]) -> bool:
    """Return True if a shell would expand something; what names a parameter is found elsewhere."""
    return any(
        match[1] is None or match[1].strip("{}") not in declared
        for match in _EXPANDED.finditer(text)
    )


#: Programs that run their argument after -c as a script.
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")

#: Commands of Flux that submit a job.
_SUBMITS = ("run", "submit", "batch", "bulksubmit", "alloc")


def _as_command(command: Any, at: Path) -> Iterator[Finding]:
    """Commands whose words are not what their writer took them for."""
    several = isinstance(command, list)
    try:
        words = list(map(as_text, command)) if several else split_command(command or "")
    except ValueError:
        return
    first = words[0] if words else ""
    program = first.rpartition("/")[2]
    if several and re.search(r"\s[^/]*$", first) and not first.startswith("/"):
        whole = first if len(words) == 1 else f"{first}; {words[1]}"
        remedy = f"write a text, command: {first}"
        if len(words) > 1 and (" " in words[1] or first.split()[0] in _BUILTINS):
            remedy = f"for several commands write [sh, -c, {shown(whole)}]"
        yield Finding(
            at, f"{shown(first)} is the name of a program: each word is an item ({remedy})"
        )
    elif first.startswith("-"):
        yield Finding(
            at,
            f"{shown(first)} is no program: options of a job are keys of its group, such as "
            "'tasks', 'nodes', 'cores' and 'duration'",
        )
    elif program == "flux" and len(words) > 1 and words[1] in _SUBMITS:
        yield Finding(
            at,
            f"'flux {words[1]}' submits another job, and this one only waits for it, or ends at "
            "once: write the program alone, and its size as 'tasks', 'nodes' and 'cores'",
        )
    elif program in _SHELLS and (words[1:2] == ["-c"] or words[1:2] == ["-lc"]):
        # sh -c 'echo $1' a b has arguments, and sh -c echo a does not run echo with one.
        script, rest = (words[2], words[3:]) if len(words) > 2 else ("", [])
        if rest and not re.search(r"\$\{?[\d@*#]", script):
            yield Finding(
                at,
                f"the script of {program} is {shown(script)} alone, without {shown(rest[0])}: put "
                "all of it in quotes",
            )
    elif not several and "\n" in (command or "").strip():
        for line in command.strip().splitlines()[1:]:
            word = (line.split() or [""])[0]
            if word in _BUILTINS or word.startswith("./") or word == first:
                yield Finding(
                    at,
                    f"{shown(word)} is an argument of {shown(first)}: the lines are one command; "
                    "for several write [sh, -c, '...'], or call a script",
                )
                return


def given_values(spec: Spec) -> set[tuple[str, str]]:
    """The parameters that actions and retries give values: the group and the name of each.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text('''
    ... jobs: [{name: a, command: "x {t}", params: {t: 1}}]
    ... rules: [{trigger: start, action: {name: submit, label: a, params: {t: 2}}}]
    ... ''', name="demo")
    >>> given_values(spec)
    {('a', 't')}
    """
    given: set[tuple[str, str]] = set()
    for rule in spec.rules:
        for action in rule.actions:
            label = action.label or ""
            computed = (action.expressions or {}).get("params", {})
            if isinstance(computed, str):
                computed = spec.groups[label].params if label in spec.groups else ()
            given.update((label, name) for name in (*(action.params or ()), *computed))
    for group in spec.groups.values():
        for job_set in group.sets:
            again = (job_set.retries.overrides or {}).get(GIVEN, ())
            given.update((group.name, name) for name in again)
    return given


# -- equal jobs ---------------------------------------------------------------------

#: Names of parameters that are to differ from job to job.
_OWN = re.compile(r"(.*[_-])?(seed|index|idx|replica|rep|replicate|sample|trial|run|i|n)([_-]?id)?")

_HERE = f"'{INDICES}' is the number of each job in its submission"


def _has_number(value: Any) -> bool:
    return any(map(has_numbers, texts_in(value)))


def _equal_jobs(
    entry: Mapping[str, Any], given: Collection[tuple[str, str]], at: Path
) -> Iterator[Finding]:
    """A group whose jobs are equal in the parameter that is there to tell them apart."""
    count, params = entry.get("count", 1), entry.get("params", {})
    if count < 2 or _has_number(entry) or not {INDEX, NUMBER}.isdisjoint(params):
        return
    for name in params:
        if _OWN.fullmatch(name.lower()) and (entry["name"], name) not in given:
            yield Finding(
                (*at, "count"),
                f"{count} jobs have the same {name!r} each time; {_HERE}: "
                f"'params: {{{name}: \"{INDICES}\"}}'",
            )
            return


def _equal_submissions(spec: Spec, value: Mapping[str, Any]) -> Iterator[Finding]:
    """Actions that give the value that an expression has at the moment to several jobs."""
    numbered = {entry.get("name") for entry in value.get("jobs", ()) if _has_number(entry)}
    for index, rule in enumerate(spec.rules):
        for number, action in enumerate(rule.actions):
            computed = (action.expressions or {}).get("params")
            if action.name != "submit" or not isinstance(computed, Mapping):
                continue
            count = _count(spec, action)
            name = next((name for name, value in computed.items() if _counts(value)), None)
            if action.label in numbered or _has_number(computed):
                continue
            if count > 1 and name is not None:
                many = bool(rule.more_actions)
                at: Path = ("actions", number) if many else ("action",)
                yield Finding(
                    ("rules", index, *at, "params"),
                    f"all {count} jobs of a submission have the same {name!r}: an expression has "
                    f"one value when the rule fires; {_HERE}",
                )


def _count(spec: Spec, action: Action) -> int:
    """Return the number of jobs of a submission that differ only in their parameters."""
    if type(action.count) is int:
        return action.count
    sets = spec.groups[action.label or ""].sets
    return max(each.count for each in sets)


def _counts(value: Any) -> bool:
    """Return True if a value has an expression that counts jobs."""
    return has_braces(value) and any(
        re.search(r"\{[^{}]*\bcount\b", text) for text in texts_in(value)
    )


# -- files --------------------------------------------------------------------------

#: What Flux makes of a path differs from job to job.
_BY_ID = re.compile(r"\{\{(job)?id\b")


def _shared_by_members(spec: Spec, value: Mapping[str, Any]) -> Iterator[Finding]:
    """Output files that two jobs on two members can have, whose ids are the same now and then."""
    if sum(pool.high for pool in spec.members) < 2:
        return
    for index, entry in enumerate(value.get("jobs", ())):
        declared = {**_varied(value, entry.get("name")), **entry.get("params", {})}
        for path, text, of_file, _ in _texts(entry):
            if of_file and _BY_ID.search(text) and not declared.keys() & placeholders(text):
                yield Finding(
                    ("jobs", index, *path),
                    "jobs on two members can have the same id, and then they have the same file: "
                    "put a parameter into its name",
                    note=True,
                )


def _apart(spec: Spec, value: Mapping[str, Any]) -> Iterator[Finding]:
    """Jobs of several processes on workers, where an MPI program would run several times."""
    for index, entry in enumerate(value.get("jobs", ())):
        pools = [pool for pool in spec.members if pool.runs == TASKS]
        if "member" in entry:
            pools = [pool for pool in pools if pool.has(entry["member"])]
        if pools and entry.get("tasks", 1) != 1:
            yield Finding(
                ("jobs", index, "tasks"),
                "on a worker these are processes that know nothing of each other: an MPI program "
                "would run once in each (for one program, start it with mpirun in 'command', and "
                "give the job 'cores')",
                note=True,
            )


def _shared_files(spec: Spec, value: Mapping[str, Any]) -> Iterator[Finding]:
    """Output files that several jobs write, or several attempts of one: the last one's is left."""
    numbers: Counter[str] = Counter()
    fixed: dict[str, int] = {}
    for index, entry in enumerate(value.get("jobs", ())):
        sets = spec.groups[entry["name"]].sets
        job_set = sets[min(numbers[entry["name"]], len(sets) - 1)]
        numbers[entry["name"]] += 1
        for key in ("output", "error"):
            path = entry.get(key)
            if path is None or path in NO_FILE or _BY_ID.search(path):
                continue
            if not path.startswith("/"):
                path = f"{entry.get('workdir', '.')}/{path}"
            jobs = _writers(job_set, path)
            other = None
            if "{" not in path:
                other = fixed.setdefault(path, index)
            message = None
            if jobs > 1:
                message = (
                    f"{jobs} jobs write to this file, and each begins it anew: put '{{{{id}}}}', "
                    f"{INDICES!r} or a parameter into its name"
                )
            elif other not in (None, index):
                message = f"jobs[{other}] writes to the same file, and each job begins it anew"
            elif job_set.retries.times and not _of_attempt(job_set, path):
                message = (
                    "each attempt of a job begins the file of the one before anew: put "
                    f"{ATTEMPTS!r} or '{{{{id}}}}' into its name to keep them all"
                )
            if message is not None:
                yield Finding(("jobs", index, key), message)


def _of_attempt(job_set: JobSet, path: str) -> bool:
    """Return whether each attempt of a job has its own file."""
    given = (job_set.retries.overrides or {}).get(GIVEN, {})
    own = ATTEMPTS in path and ATTEMPT not in job_set.sweep.names
    return own or not placeholders(path).isdisjoint(given)


def _writers(job_set: JobSet, path: str) -> int:
    """Return the most jobs of one submission that write to one file, among the first ones."""
    own = {INDEX, NUMBER} - set(job_set.sweep.names)
    if own & placeholders(path) or placeholders(path) & set(job_set.sweep.numbered):
        return 1
    fill = placeholders(path) & set(job_set.sweep.names)
    seen: dict[tuple[Any, ...], int] = {}
    for number in range(min(len(job_set.sweep), _COMPARED)):
        params = job_set.sweep[number]
        key = tuple(as_text(params[name]) for name in sorted(fill))
        seen[key] = seen.get(key, 0) + 1
    most = max(seen.values(), default=1)
    if not fill:
        most = len(job_set.sweep)
    return most * job_set.count
