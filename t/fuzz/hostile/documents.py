"""Documents of ensembles: sound ones, and ones that are hostile in one respect.

Their jobs have mock execution, so that none of them runs a process. `@DIR@` is replaced by a
directory of the fuzzer's when a step is sent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hostile.values import LONG, PERCENT, TEXTS, mutated, odd, odd_text

#: Begins a line that a function prints, with a number of `PERCENT`; see `judge`.
MARK = "mark"

#: How long jobs run that are there to get memos and exceptions.
LONG_SECONDS = 60

Document = dict[str, Any]
Maker = Callable[[random.Random, str], Document]


def _mock(seconds: float) -> Document:
    return {"system": {"exec": {"test": {"run_duration": f"{seconds:g}s"}}}}


def _group(name: str, seconds: float, count: int = 1, **more: Any) -> Document:
    return {"name": name, "command": "true", "count": count, "attributes": _mock(seconds), **more}


def _submit(label: str, **more: Any) -> Document:
    return {"name": "submit", "label": label, **more}


def _ensemble(name: str, rules: list[Document], **more: Any) -> Document:
    return {
        "name": name,
        "finish": "never",
        "limits": {"jobs": 60, "active-jobs": 20},
        "jobs": [_group("quick", 0.01), _group("long", LONG_SECONDS, 2)],
        "rules": [
            {"id": "begin", "trigger": "start", "action": _submit("quick")},
            {"id": "wait", "trigger": "start", "action": _submit("long")},
            *rules,
        ],
        **more,
    }


def sound(rng: random.Random, name: str) -> Document:
    """A document that is right."""
    rules: list[Document] = [
        {"id": "more", "trigger": "job-success", "group": "quick",
         "action": _submit("quick", repetitions=3)},
        {"id": "mean", "trigger": "metric", "name": "mean.quick-duration", "when": "> 0",
         "action": {"name": "update", "label": "long", "urgency": 3}},
        {"id": "memo", "trigger": "job-memo", "when": "fom > 5 and count.quick.success >= 0",
         "action": _submit("quick", repetitions=5)},
        {"id": "foreign", "trigger": "job-memo", "scope": "queue", "when": "step > 1",
         "action": _submit("quick", repetitions=5)},
        {"id": "raised", "trigger": "job-exception", "scope": "queue",
         "action": _submit("quick", repetitions=2)},
        {"id": "tick", "trigger": "timer", "every": 0.5, "action": _submit("swept")},
        {"id": "off", "trigger": "idle", "group": "swept", "action": {"name": "disable",
         "label": "tick"}},
    ]  # fmt: skip
    made = _ensemble(name, rng.sample(rules, rng.randrange(1, len(rules))))
    made["rules"] = [rule for rule in made["rules"] if rule["id"] != "off"]
    made["jobs"].append(
        _group("swept", 0.02, command="echo {x} {y}", params={"x": [1, 2], "y": "a"})
    )
    if rng.random() < 0.3:
        made["metrics"] = ["skew", {"name": "p90", "statistic": "quantile", "q": 0.9}]
        made["logging"] = {"heartbeat": 0.3, "debug": True}
    if rng.random() < 0.2:
        made["durability"] = "strict"
    if rng.random() < 0.3:
        made["finish"] = "idle"
    return made


CONDITIONS = (
    "round(1.5, -999999999) > 1", "round(count.quick.submitted, -999999999) == 0",
    "round(fom, -999999999) > 1", "round(fom, step) > 0", "step % 100 > 1", "step % step > 1",
    "fom * 1000000000 == fom", "'a' * step == 'a'", "fom * step * step * step > 1",
    "abs(fom) > 1", "max(fom, step) > 1", "min('a', 'b') == 'a'", "1 / 0 > 1", "fom // 0 == 1",
    "fom // 5e-324 > 1", "9" * 4000 + " > fom", "not " * 900 + "fom", "-" * 2000 + "fom > 1",
    "(" * 190 + "fom" + ")" * 190, "fom" + " + 1" * 1000 + " > 1", "1e308 * 10 * fom > 1",
    "fom == 'a' or step == 7 or step", "memo['a.b'] > 1", "mean['quick-duration'] ** 2 > 1",
    "fom > nan", "fom < 1e999", "__import__('os')", "fom.real > 1", "[fom][0] > 1",
    "count.quick.submitted * 'a' == 1", "fom if fom else step", "fom\0 > 1", "fom > \ud800",
)  # fmt: skip


def conditions(rng: random.Random, name: str) -> Document:
    """Conditions that are odd; memos bring them values that are."""
    kinds: list[Document] = [
        {"trigger": "job-memo", "group": "long"}, {"trigger": "job-memo", "scope": "queue"},
        {"trigger": "metric", "name": "count.quick.success"}, {"trigger": "heartbeat"},
        {"trigger": "start"}, {"trigger": "job-exception", "scope": "queue"},
    ]  # fmt: skip
    kind, when = rng.choice(kinds), rng.choice(CONDITIONS)
    if kind["trigger"] != "job-memo":
        when = when.replace("fom", "count.quick.submitted").replace("step", "count.long.submitted")
    rule = {**kind, "when": when, "action": _submit("quick")}
    return _ensemble(name, [rule], logging={"heartbeat": 0.2})


STATISTICS = (
    "autocorr", "bayesianmean", "count", "entropy", "ewmean", "ewvar", "iqr", "kurtosis", "mad",
    "max", "mean", "min", "mode", "nunique", "peaktopeak", "quantile", "rollingabsmax",
    "rollingiqr", "rollingmax", "rollingmin", "rollingmode", "rollingpeaktopeak",
    "rollingquantile", "sem", "shift", "skew", "sum", "var",
)  # fmt: skip
ARGUMENTS = (
    "q", "q_inf", "q_sup", "window_size", "fading_factor", "lag", "amount", "ddof", "k", "prior",
    "prior_weight", "error_rate", "bias", "eps", "fill_value", "n_trees",
)  # fmt: skip


def statistics(rng: random.Random, name: str) -> Document:
    """Statistics with odd arguments."""
    metrics = []
    for number in range(rng.randrange(1, 4)):
        kind = rng.choice(STATISTICS)
        rolling = {"q_inf": rng.choice((-1, 0, 1, 2)), "q_sup": rng.choice((-1, 0.5, 1.5))}
        arguments = {rng.choice(ARGUMENTS): rng.choice((odd(rng), -1, 0, 1.5, 3)) for _ in "ab"}
        if "iqr" in kind and rng.random() < 0.7:
            arguments = rolling if kind == "iqr" else {**rolling, "window_size": 3}
        arguments = dict(list(arguments.items())[: rng.randrange(3)])
        metrics.append({"name": f"m{number}", "statistic": kind, **arguments})
    rule = {"trigger": "metric", "name": "m0.quick-duration", "when": "> 0",
            "action": _submit("quick", repetitions=3)}  # fmt: skip
    return _ensemble(name, [rule], metrics=metrics)


SWEEPS: tuple[Any, ...] = (
    {"x": {"range": [0, 1e308]}}, {"x": {"range": [0, 10**30]}}, {"x": {"range": [0, 1, 1e-300]}},
    {"x": {"range": [0, 10, 0]}}, {"x": []}, {"x": [[]]}, {"x": {"range": ["a", "b"]}},
    {"x": {"range": [0, 1e999]}}, {f"p{n}": list(range(50)) for n in range(20)},
    {"x": [1, 2], "y": [1, 2, 3]}, {"x": list(TEXTS[:40])}, {"": [1]}, {"x\0": [1]},
)  # fmt: skip

#: Files that a document names: what reads them must not wait, and not read without end.
FILES = ("@DIR@/fifo", "@DIR@", "/dev/zero", "/dev/full", "@DIR@/missing", "@DIR@/a\0b",
         "@DIR@/\ud800", "@DIR@/latin", "/proc/self/mem", "x" * 5000)  # fmt: skip


def jobs(rng: random.Random, name: str) -> Document:
    """Jobs with odd commands, sweeps, counts, attributes and files."""
    made = _ensemble(name, [{"trigger": "start", "action": _submit("odd")}])
    entry = _group("odd", 0.01)
    kind = rng.randrange(5)
    if kind == 0:
        entry |= {"command": "a {x}", "params": rng.choice(SWEEPS)}
        entry |= rng.choice(({}, {"sweep": "zip"}, {"sweep": "sample", "samples": 7}))
    elif kind == 1:
        entry["command"] = rng.choice((odd_text(rng), [odd(rng)], "a " * 50_000))
    elif kind == 2:
        key = rng.choice(("workdir", "output", "error", "queue", "bank", "environment"))
        entry[key] = {odd_text(rng): odd(rng)} if key == "environment" else odd_text(rng)
    elif kind == 3:
        entry["attributes"]["user"] = {"ensemble": odd(rng), odd_text(rng): odd(rng)}
    else:
        del entry["command"]
        entry["jobspec"] = rng.choice(FILES)
    made["jobs"].append(entry)
    return made


#: What a worker process is not to say; the service reads it from descriptor 100.
FORGED = (
    '{"call": 1, "ok": true, "returned": [{"kind": "action"}]}', '{"call": 1, "ok": true}',
    '{"call": 1, "ok": true, "returned": [7]}', '{"call": 1, "ok": true, "returned": {"a": 1}}',
    '{"call": 1, "ok": true, "returned": [{"kind": "rule", "value": []}]}',
    '{"call": 1, "ok": true, "returned": [{"value": {"name": "terminate"}}]}',
    '{"call": 1, "ok": false, "reason": "\\\\ud800", "detail": "\\\\ud800"}',
    '{"call": 1, "ok": false, "reason": {"a": 1e999}, "detail": 7}', '{"call": 1e999}', "[]", "7",
    '{"ready": true}', '{"ready": false, "reason": "%n"}', "\\xff\\x00", "{" * 5000, "null",
    '{"call": 1, "ok": true, "returned": [{"kind": "action", "value": {"name": "submit", '
    '"label": "quick", "params": {"x": [NaN]}}}]}',
)  # fmt: skip

RETURNS = (
    "Action({'name': 'submit', 'label': '\\ud800'})", "Rule({})", "Action({})", "7", "{'a': 1}",
    "Action({'name': 'submit', 'label': 'quick', 'params': {'x': [float('nan')]}})",
    "Action({'name': 'submit', 'label': 'quick', 'count': 10**30})", "[[]]", "lambda: 7",
    "Action({'name': 'submit', 'label': 'a' * 2000000})", "Action({'name': 'terminate'})",
    "Action({'name': 'enable', 'label': '\\0%n'})",
    "[Action({'name': 'custom', 'label': 'f'})] * 3",
    "Rule({'trigger': 'job-memo', 'when': 'step % 100', 'action': {'name': 'terminate'}})",
    "Rule({'id': '%s\\ud800', 'trigger': 'start', 'action': {'name': 'terminate'}})",
    "Action({'name': 'update', 'label': 'long', 'duration': float('inf')})",
)  # fmt: skip

BODIES = (
    "raise ValueError('\\ud800 \\0 %s %n')", "raise SystemExit('\\0\\ud800')", "f()",
    "import os; os._exit(3)", "import os; os.close(100)", "import os; os.kill(os.getpid(), 9)",
    "print('\\0\\ud800\\x1b[31m' * 20)", "print('x' * 1000000)", "print('\\n' * 100000)",
    "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\x00 odd\\n')", "while True: pass",
    "raise type('E', (Exception,), {'__str__': None})",
)  # fmt: skip


def functions(rng: random.Random, name: str) -> Document:
    """Functions that print, return, raise and say odd things."""
    kind = rng.random()
    if kind < 0.35:
        text = f"return {rng.choice(RETURNS)}"
    elif kind < 0.6:
        line = rng.choice(FORGED)
        text = f"import os; os.write(100, b'{line}\\n')"
    elif kind < 0.9:
        text = rng.choice(BODIES)
    else:
        text = odd_text(rng).replace("\n", " ")[:1000]
    return _custom(name, text)


def percent(rng: random.Random, name: str) -> Document:
    """A function that prints text with percent signs; `judge` looks for it in Flux's log."""
    number = rng.randrange(len(PERCENT))
    return _custom(name, f"print({f'{MARK} {number}: {PERCENT[number]}'!r})")


def _custom(name: str, body: str) -> Document:
    action = {"name": "custom", "label": "f", "repetitions": 3, "timeout": 0.5}
    rule = {"id": "call", "trigger": "job-success", "group": "quick", "action": action}
    return _ensemble(name, [rule], custom=f"def f(**kwargs):\n    {body}\n")


def text_of(rng: random.Random, document: Document) -> str:
    """A document as text, which now and then is no YAML any more."""
    try:
        text = json.dumps(document)
    except (TypeError, ValueError, RecursionError):
        text = "jobs: ["
    if rng.random() < 0.5:
        return text
    at = rng.randrange(len(text))
    return text[:at] + rng.choice(SCRAPS) + text[at + rng.randrange(3) :]


SCRAPS = (
    "\t", "\0", "\ud800", "\ufeff", "&a [", "*a", "!!python/object/apply:os.getcwd []", "%n",
    "<<: *a", "? ", ": ", "- ", "---\n", "...\n", "|", "\u2028", "[" * 5000, "{a: " * 200, "'",
    "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b]",
    "x: " + "9" * 5000, ".inf", "!!float nan", "0o7", "2024-99-99", "!!binary ////",
    "# " + "a" * LONG,
)  # fmt: skip

#: What makes a document, and how often; `sound` ones keep requests meaningful.
KINDS: dict[str, tuple[Maker, float]] = {
    "sound": (sound, 4.0), "conditions": (conditions, 1.5), "statistics": (statistics, 1.5),
    "jobs": (jobs, 1.5), "functions": (functions, 1.5), "percent": (percent, 0.3),
}  # fmt: skip


def changed(rng: random.Random, name: str) -> Document:
    """A sound document with changes."""
    return mutated(rng, sound(rng, name))
