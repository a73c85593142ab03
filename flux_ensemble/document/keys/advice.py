"""Advice about keys that a document does not have where they were written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from flux_ensemble.document.keys.document import DOCUMENT
from flux_ensemble.document.keys.forms import table
from flux_ensemble.document.keys.jobs import JOB
from flux_ensemble.document.keys.rules import ACTION, ACTIONS, RULE
from flux_ensemble.suggestions import elsewhere, hint
from flux_ensemble.texts import listed, shown

#: What other tools have as a key of a job, and documents have in another way.
_OTHERWISE: Mapping[str, str] = {
    "depends-on needs after afterok dependencies dependency requires depends wait-for upstream "
    "parents parent": "a group that waits for another is submitted by a rule: {trigger: "
    "job-success, group: OTHER, action: {name: submit, label: THIS}}",
    "memory mem mem-mb mem-gb mem-per-cpu mem-per-core ram rss": "Flux gives out no memory: ask "
    "for 'cores', or with 'exclusive: true' for whole nodes",
    "image container docker singularity apptainer modules module conda venv pre post setup "
    "before-script before prologue epilogue": "it belongs into the command, such as "
    "[sh, -c, 'module load x; exec program {x}']",
    "resources": "'nodes', 'tasks', 'cores' and 'gpus' are keys of the group itself",
    "options flags submit-options sbatch cluster-options extra-args flux":
    "'nodes', 'tasks', 'cores', 'gpus', 'duration', 'queue' and 'bank' are keys of the group",
    "if only-if unless condition": "conditions are of rules: 'when' in an entry of 'rules'",
    "tasks-per-node ntasks-per-node ppn": "'tasks' counts those of all nodes: 2 nodes with 4 each "
    "are 'nodes: 2, tasks: 8'",
}  # fmt: skip

_ADVICE = {name: advice for names, advice in _OTHERWISE.items() for name in names.split()}

#: The mappings whose keys are written a level too high or too low, and what a key of each is.
_PLACES = (
    (DOCUMENT, "of the document, at the left margin"),
    (JOB, "of a job group: indent it as far as its 'name'"),
    (RULE, "of a rule: indent it as far as its 'trigger'"),
    (ACTION, "of an action: indent it as far as its 'name'"),
)


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the message about an unknown key.

    >>> unknown_key("comand", ["name", "command"])
    "unknown key 'comand' (did you mean 'command'? keys: name, command)"
    >>> unknown_key("walltime", ["name", "duration"])
    "unknown key 'walltime' (did you mean 'duration'? keys: name, duration)"
    """
    names = list(known)
    advice = _advice(key, names)
    if advice is not None:
        return f"unknown key {shown(key)} ({advice})"
    return f"unknown key {shown(key)} ({hint(key, names)}keys: {listed(names)})"


def _advice(key: str, known: Collection[str]) -> str | None:
    """Return the advice about a key; None if a name that is known may be meant."""
    name = elsewhere(key, _ADVICE)
    if name is not None and set(table(JOB)) == set(known):
        return _ADVICE[name]
    if elsewhere(key, known) is not None:
        return None
    if key in ACTIONS and set(table(ACTION)) == set(known):
        return f"an action has its name as a value: {{name: {key}, label: ...}}"
    families = [(table(form), place) for form, place in _PLACES]
    if not any(set(keys) == set(known) for keys, _ in families):
        return None
    return next((f"it is a key {place}" for keys, place in families if key in keys), None)
