"""Log entries in words: the announcements of `run` and `watch`, and the lines of `log`.

A line is a tuple of spans, each a text and the name of its style; a view prints the texts, and uses
the styles if it has colours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flux_ensemble.cli.display.colours import STATE_STYLES
from flux_ensemble.cli.display.member_messages import STYLES, member_sentence
from flux_ensemble.cli.display.outlook import in_words
from flux_ensemble.cli.display.search_messages import search_sentence
from flux_ensemble.engine.job_keys import shown
from flux_ensemble.scalars import WRITTEN
from flux_ensemble.texts import hanging

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus, Entry


class Span(NamedTuple):
    """A piece of a line: style is "trigger", "action", "detail", "good", "bad" or "warn"."""

    text: str
    style: str = ""


Line = tuple[Span, ...]

#: A line of a traceback with the place where an exception was raised.
_PLACE = re.compile(r'  File ".*", line \d+')

#: Characters of a submission's parameters that `run` prints.
_PARAMS = 100

#: Keys of an action that `log` leaves out: named already, or not about what was done.
_QUIET = frozenset({"name", "label", "repetitions", "backoff", "cooldown", "timeout"})


def plain(line: Line) -> str:
    """Return the line without styles."""
    return hanging("".join(span.text for span in line))


def announce(entry: Entry) -> Iterator[Line]:
    """Yield the lines of `run` about an entry: rules that fired, their actions, and errors."""
    context = entry["context"]
    match entry["name"]:
        case "fire":
            combination = _combination(context["cause"])
            yield (Span(f" => trigger {context['trigger']}{combination}", "trigger"),)
            yield from _action_lines(context)
        case "outcome" | "custom-error" if not context["ok"]:
            yield (Span(f"   {context['rule']} failed: {context['reason']}", "bad"),)
            detail = str(context.get("detail") or "").splitlines()
            if place := next((line for line in reversed(detail) if _PLACE.match(line)), None):
                yield (Span(f"   {place.strip()}", "bad"),)
        case "outcome" if "nodes" in context:
            yield (Span(f"   the size is {_nodes(context['nodes'])} now", "good"),)
        case "rule-disabled" | "rule-enabled" | "rule-added" as name:
            verb = name.removeprefix("rule-")
            yield (Span(f"   rule {context['rule']} {verb}", "warn"),)
        case "retry" if context["attempt"]:
            # An interrupted job is not counted as a retry: it runs as if it had not run.
            what = f"{context['rule']} #{context['firing']}, job {context['index']}"
            yield (Span(f"   retry {context['attempt']} of {what}", "warn"),)
        case "gave-up":
            what = f"{context['rule']} #{context['firing']}, job {context['index']}"
            yield (Span(f"   no retry of {what}: {context['reason']}", "bad"),)
        case "request":
            yield (Span(f"   request {_request(context)}", "warn"),)
        case "pause" | "resume" as name:
            yield (Span(f"   {name}d", "warn"),)
        case "epoch":
            yield (Span(f"   {_goes_on(context)}", "warn"),)
        case "shutdown":
            yield (
                Span(f"   {context.get('reason', 'the Flux instance is shutting down')}", "warn"),
            )
        case "walltime" | "allocation":
            yield (Span(f"   {_allocation(entry)}", "warn"),)
        case "memo-left-out" | "values-left-out" | "not-started":
            yield (Span(f"   {context['group']}: {context['reason']}", "warn"),)
        case name if name in STYLES and name not in ("member-start", "member-ended"):
            yield (Span(f"   {member_sentence(entry)}", STYLES[name]),)
        case "best" | "front":
            yield (Span(f"   {_best(context)}", "good"),)
        case "pruned":
            yield (Span(f"   {search_sentence(entry)}"),)
        case "trial-failed" | "ask-failed":
            yield (Span(f"   {search_sentence(entry)}", "warn"),)
        case "search-done":
            yield (Span(f"   {search_sentence(entry)}", "action"),)
        case "custom-output":
            for text in context["text"].splitlines():
                yield (Span(f"   {context['function']}: "), Span(text, "detail"))
        case "held":
            yield (Span(f"   {context['text']}", "warn"),)
        case "go-on":
            yield (Span(f"   {_taken_again(context)}", "good"),)
        case "error":
            yield (Span(f"   {context['text'].partition(chr(10))[0]}", "bad"),)
        case "violation":
            what = f"job {context['index']} of {_firing(context)} was in the queue twice"
            yield (Span(f"   {what}; one is cancelled", "bad"),)


def _goes_on(context: Mapping[str, Any]) -> str:
    """Return a sentence about a service, or a local run, that continues the work of another one."""
    if "firings" in context:
        firings = context["firings"]
        return f"going on after {firings} firing{'s'[: firings != 1]}"
    return "the service was started again, and goes on"


def _taken_again(context: Mapping[str, Any]) -> str:
    """Return a sentence about a queue that accepts jobs again."""
    whose = f"the job of member {context['member']!r}" if context["group"] is None else ""
    whose = whose or f"the jobs of group {context['group']!r}"
    return f"the queue takes {whose} again, after {in_words(context['seconds'])}"


def _best(context: Mapping[str, Any]) -> str:
    """Return a sentence about a trial that is the best so far, or in the Pareto front."""
    params = " ".join(_each_pair({key: _short(value) for key, value in context["params"].items()}))
    found = f"best {context['value']:.6g}" if "value" in context else _of_front(context["values"])
    return f"{context['search']}: {found} (trial {context['trial']}: {params})"


def _of_front(values: Iterable[float]) -> str:
    return f"none is better in all than {', '.join(f'{value:.6g}' for value in values)}"


def _short(value: Any) -> Any:
    """Return a number in six digits."""
    return f"{value:.6g}" if isinstance(value, float) else value


def _allocation(entry: Entry) -> str:
    """Return a sentence about an allocation that ends, or has been extended or replaced."""
    context = entry["context"]
    if entry["name"] == "allocation":
        t_expires = context["t_expires"]
        lasts = "" if t_expires is None else f", for {in_words(t_expires - entry['timestamp'])}"
        return f"there is time again{lasts}: what was left goes on"
    left = in_words(context["t_expires"] - entry["timestamp"])
    return (
        f"the allocation ends in {left}: no more jobs are started; {context['active']} are in "
        f"the queue, {context['waiting']} wait"
    )


def _request(context: Mapping[str, Any]) -> str:
    rest = _pairs(context, [key for key in context if key != "op" and context[key] is not False])
    return f"{context['op']} {rest}".rstrip()


def _action_lines(context: Mapping[str, Any]) -> Iterator[Line]:
    action = context["action"]
    name, label = action["name"], action.get("label")
    if name == "submit":
        for job in context.get("jobs", ()):
            yield (
                Span(f"   submit {job['name']}".ljust(21) + " ", "action"),
                Span(describe_jobs(job) + _parameters(action), "detail"),
            )
        return
    jobs = "the triggering job" if action.get("jobs") else label or "all jobs"
    if name == "terminate":
        what = "terminate ensemble" + (" as failed" if action.get("state") == "failed" else "")
        what += " and cancel its jobs" if action.get("cancel") else ""
    elif name in ("cancel", "copy"):
        what = f"{name} {'the triggering job' if name == 'copy' else jobs}"
    elif name == "update":
        what = f"update {jobs} " + _pairs(action, ("urgency", "duration"))
    elif name in ("grow", "shrink"):
        what = f"{name} by {action.get('value', 1)}"
    else:
        what = f"{name} {label or ''}".rstrip()
    yield (Span(f"   {what}", "action"),)


def describe_jobs(job: Mapping[str, Any]) -> str:
    """Return a job set in the form `(name:echo),(command:echo hello),(count:5),(nodes:1)`."""
    return ",".join(f"({key}:{job[key]})" for key in ("name", "command", "count", "nodes"))


def _parameters(action: Mapping[str, Any]) -> str:
    """Return the parameters that override those of a submission's group: `,(params:t=280)`."""
    params = action.get("params")
    if not isinstance(params, Mapping) or not params:
        return ""
    words = " ".join(_each_pair(params))
    return f",(params:{words if len(words) <= _PARAMS else words[: _PARAMS - 3] + '...'})"


def job_event(entry: Entry, jobid: Callable[[int], str]) -> Line:
    """Return a job's event in the form of `flux job eventlog`: id, name, key=value."""
    context = entry["context"]
    return (
        Span(f"   {shown(context['id'], context, jobid)} ", "detail"),
        Span(context["name"]),
        Span("".join(f" {pair}" for pair in _each_pair(context.get("context") or {})), "detail"),
    )


def explain(entry: Entry, t_start: float, jobid: Callable[[int], str]) -> Line:
    """Return an entry as one line of `log`: when, what, why, and the result."""
    sentence = _sentence(entry, jobid)
    name = entry["name"].ljust(13) + " " if sentence else entry["name"]
    return (
        Span(f"{entry['timestamp'] - t_start:11.3f}s  ", "detail"),
        Span(name, _entry_style(entry)),
        Span(sentence),
    )


def explain_several(entries: Sequence[Entry], t_start: float) -> Line:
    """Return several `interrupted` entries that differ only in their jobs as one line of `log`."""
    context = entries[0]["context"]
    where = f" on {context['member']}" if "member" in context else ""
    whose = f"{len(entries)} jobs of group {context['group']!r}{where}"
    return (
        Span(f"{entries[0]['timestamp'] - t_start:11.3f}s  ", "detail"),
        Span("interrupted   ", _entry_style(entries[0])),
        Span(f"{whose}: {_why_interrupted(context)}; {_FATES[context['fate']][1]}"),
    )


def _why_interrupted(context: Mapping[str, Any]) -> str:
    return str(context["reason"] or "what it ran on was ending")


#: The fate of one and of several interrupted jobs (`engine.retries.Fate`).
_FATES = {
    "again": ("it runs again", "they run again"),
    "held": ("it is submitted again with urgency 0", "they are submitted again with urgency 0"),
    "failed": ("it has failed", "they have failed"),
    "gave up": ("it is given up", "they are given up"),
    "bound": ("it can run nowhere else", "they can run nowhere else"),
    "over": ("it is not needed any more", "they are not needed any more"),
}


def _entry_style(entry: Entry) -> str:
    match entry["name"]:
        case "fire":
            return "trigger"
        case "outcome":
            return "good" if entry["context"]["ok"] else "bad"
        case "custom-error" | "error" | "violation" | "stopped":
            return "bad"
        case "interrupted" | "shutdown" | "walltime" | "allocation" | "epoch":
            return "warn"
        case "memo-left-out" | "values-left-out" | "not-started":
            return "warn"
        case "trial-failed" | "ask-failed":
            return "warn"
        case "held":
            return "warn"
        case "best" | "front" | "go-on":
            return "good"
        case "finish":
            return STATE_STYLES.get(entry["context"]["state"], "")
        case "custom-output":
            return "detail"
        case name:
            return STYLES.get(name, "action")


def _sentence(entry: Entry, jobid: Callable[[int], str]) -> str:
    context = entry["context"]
    match entry["name"]:
        case "load":
            return ""  # its context is the whole document, which `--json` prints
        case "fire":
            action = context["action"]
            what = f"{action['name']} {action.get('label') or ''}".rstrip()
            rest = _pairs(action, [key for key in action if key not in _QUIET])
            why = explain_cause(context["trigger"], context["cause"], jobid)
            return f"{_firing(context)}: {what}{f' ({rest})' if rest else ''} on {why}"
        case "scale":
            verb = "grow" if context["by"] > 0 else "shrink"
            return f"{_firing(context)}: {verb} the instance to {_nodes(context['to'])}"
        case "outcome" if context["ok"]:
            jobs, nodes, streams = map(context.get, ("jobs", "nodes", "streams"))
            more = _jobs(jobs) if jobs is not None else "" if nodes is None else _nodes(nodes)
            if streams is not None:
                more = "1 metric" if streams == 1 else f"{streams} metrics"
            late = "late" if context.get("late") else ""
            return f"{_firing(context)}: " + ", ".join(filter(None, ("ok", more, late)))
        case "outcome" | "custom-error":
            detail = str(context.get("detail") or "").splitlines()
            return "\n".join(_indented([f"{_firing(context)}: {context['reason']}", *detail]))
        case "rule-disabled" | "rule-enabled":
            return f"{context['rule']}: {context['reason']}"
        case "memo-left-out" | "values-left-out" | "not-started":
            return f"{context['group']}: {context['reason']}"
        case "retry":
            again = f"job {context['index']} again as retry #{context['retry']}"
            return f"{_firing(context)}: {again} (attempt {context['attempt']})"
        case "gave-up":
            which = f"job {context['index']} does not run again"
            return (
                f"{_firing(context)}: {which} (attempt {context['attempt']}): {context['reason']}"
            )
        case "request":
            return _request(context)
        case "best" | "front":
            return _best(context)
        case "ask" | "ask-failed" | "trial-failed" | "pruned" | "search-done":
            return search_sentence(entry)
        case "held":
            return str(context["text"])
        case "go-on":
            return _taken_again(context)
        case "epoch" if "epoch" in context:
            return f"service number {context['epoch']} goes on with it"
        case "epoch":
            return _goes_on(context)
        case "shutdown":
            return str(context.get("reason", "the Flux instance began to shut down"))
        case "walltime" | "allocation":
            return _allocation(entry)
        case "interrupted":
            why, (fate, _) = _why_interrupted(context), _FATES[context["fate"]]
            return f"{_whose(context, jobid)}: {why}; {fate}"
        case "violation":
            return f"{_whose(context, jobid)}: it has the tag of another job, and is cancelled"
        case "error":
            return "\n".join(_indented(context["text"].splitlines()))
        case "custom-output":
            return "\n".join(_indented([f"{context['function']}:", *context["text"].splitlines()]))
        case "finish" | "stopped":
            return f"{context['state']}: {context['reason']}"
        case name if name in STYLES:
            return member_sentence(entry)
        case _:
            return " ".join(_each_pair(context))


def _firing(context: Mapping[str, Any]) -> str:
    return f"{context['rule']} #{context['firing']}"


def _whose(context: Mapping[str, Any], jobid: Callable[[int], str]) -> str:
    job = shown(context["id"], context, jobid)
    return f"{job} {context['group']}, job {context['index']} of {_firing(context)}"


def _indented(lines: list[str]) -> Iterator[str]:
    yield from lines[:1]
    for line in lines[1:]:
        yield f"{'':15}{line}"


def _jobs(count: int) -> str:
    return f"{count} job{'s'[: count != 1]}"


def _nodes(count: int) -> str:
    return f"{count} node{'s'[: count != 1]}"


def explain_cause(title: str, cause: Mapping[str, Any], jobid: Callable[[int], str]) -> str:
    """Return why a rule fired.

    Args:
        title: the rule's trigger as it is announced.
        cause: the event in the log, and the metric with its value.
        jobid: returns the text of a job id.
    """
    trigger = str(cause.get("trigger", title))
    words = title
    if "metric" in cause:
        # The title of a drift or an anomaly ends with the metric already.
        name = title if title.endswith(f" {cause['metric']}") else cause["metric"]
        words = f"{name} = {_plain(cause['value'])}"
    if "job" in cause:
        job = shown(cause["job"], cause, jobid)
        event = [cause["group"], trigger.removeprefix("job-"), *_each_pair(cause["context"] or {})]
        return f"{words} ({' '.join([job, *filter(None, event)])})"
    if trigger == "custom":
        return f"{words} (returned by {_firing(cause)})"
    if trigger == "idle":
        return words + _combination(cause)
    if "member" in cause:
        return f"{words} ({cause['member']})"
    return words if trigger in (words, "metric") else f"{words} ({trigger})"


def _combination(cause: Mapping[str, Any]) -> str:
    """Return the values that an `idle` rule with `by` fires for: ` (t=280)`."""
    params = cause.get("params")
    return f" ({' '.join(_each_pair(params))})" if isinstance(params, Mapping) else ""


def _pairs(values: Mapping[str, Any], keys: Iterable[str]) -> str:
    return " ".join(_each_pair({key: values[key] for key in keys if values.get(key) is not None}))


def _each_pair(values: Mapping[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        yield f"{key}={_plain(value)}"


def _plain(value: Any) -> str:
    value = _as_written(value)
    return value if isinstance(value, str) and " " not in value else json.dumps(value)


def _as_written(value: Any) -> Any:
    """Return the values of a parameter as they were written."""
    if isinstance(value, list):
        return list(map(_as_written, value))
    one = isinstance(value, Mapping) and value.keys() == {WRITTEN}
    return value[WRITTEN] if one else value


def time_is_up(timeout: float) -> str:
    """Return why an ensemble is cancelled at the end of `--timeout` seconds."""
    from flux_ensemble.cli.display.plain_tables import fsd

    return f"the time is up (--timeout {fsd(timeout)})"


def closing(status: EnsembleStatus) -> Line:
    """Return the last line of `run` and `watch`: how the ensemble ended, and after how long."""
    from flux_ensemble.cli.display import troubles
    from flux_ensemble.cli.display.plain_tables import fsd

    state, reason = status["state"], status["reason"]
    t_end = status["t_end"]
    t_start = status["t_start"]
    after = "" if t_end is None or t_start is None else f" after {fsd(t_end - t_start)}"
    wrong = troubles.sentence(status)
    joint = "but" if state == "completed" else "and"
    return (
        Span(f"{status['name']}: "),
        Span(state, STATE_STYLES.get(state, "")),
        Span(after),
        Span(f", {joint} {wrong}" if wrong else "", "bad"),
        Span(f": {reason}" if reason else ""),
    )
