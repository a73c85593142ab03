"""The document of a report: as it was written, except for the values of environment variables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

#: The key whose values are left out, and the text in their place.
ENVIRONMENT = "environment"
LEFT_OUT = "..."


def text_of(document: str | Mapping[str, Any], *, environment: bool) -> str:
    """Return the text of a document.

    Args:
        document: as it was loaded.
        environment: include the values of variables.

    >>> print(text_of("name: a\\nenvironment: {KEY: secret, N: 1} # why", environment=False))
    name: a
    environment: {KEY: ..., N: ...} # why
    """
    import yaml

    text = document if isinstance(document, str) else json.dumps(document, indent=2)
    if environment or ENVIRONMENT not in text:
        return text
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        spans = sorted(set(_spans(root)))
    except (yaml.YAMLError, RecursionError):
        return "(left out: it cannot be read again, and has values of environment variables)"
    for begin, end in reversed(spans):
        text = text[:begin] + LEFT_OUT + text[end:]
    return text


def _spans(root: Any) -> Iterator[tuple[int, int]]:
    """Yield where the values of environment variables begin and end."""
    from yaml import MappingNode, SequenceNode

    seen: set[tuple[int, bool]] = set()
    nodes = [] if root is None else [(root, False)]
    while nodes:
        node, hidden = nodes.pop()
        # An alias is the same node as its anchor.
        if (id(node), hidden) in seen:
            continue
        seen.add((id(node), hidden))
        if isinstance(node, MappingNode):
            for key, value in node.value:
                if hidden and not isinstance(value, MappingNode | SequenceNode):
                    yield value.start_mark.index, value.end_mark.index
                else:
                    nodes.append((value, hidden or key.value == ENVIRONMENT))
        elif isinstance(node, SequenceNode):
            nodes.extend((value, hidden) for value in node.value)
        elif hidden:
            yield node.start_mark.index, node.end_mark.index


#: How the forms of values divide an axis: evenly, or evenly in their logarithms.
_LOGARITHMIC = {"range": False, "linspace": False, "logspace": True}


def logarithmic(document: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the numbers of parameters were chosen by their order of magnitude.

    Those are in it of which the document says so: ranges of the variables of searches and
    algorithms, and values of jobs that are evenly spaced.

    >>> variables = {"lr": {"low": 0.01, "high": 0.1, "log": True}, "x": {"low": 0, "high": 1}}
    >>> params = {"d": {"logspace": [-2, 0, 3]}, "e": [1, 1000]}
    >>> logarithmic({"search": [{"variables": variables}], "jobs": [{"params": params}]})
    {'lr': True, 'x': False, 'd': True}
    """
    found: dict[str, bool] = {}
    sections = [section for section in document.values() if isinstance(section, list)]
    for entry in chain.from_iterable(sections):
        for kind in ("variables", "params"):
            values = entry.get(kind) if isinstance(entry, Mapping) else None
            for name, one in values.items() if isinstance(values, Mapping) else ():
                if not isinstance(one, Mapping):
                    continue
                if kind == "variables" and "low" in one:
                    found[str(name)] = one.get("log") is True
                for form in _LOGARITHMIC.keys() & one.keys():
                    found[str(name)] = _LOGARITHMIC[form]
    return found


def without_environment(value: Any) -> Any:
    """Return JSON without the values of environment variables.

    >>> without_environment({"action": {"environment": {"KEY": "secret"}, "label": "a"}})
    {'action': {'environment': {'KEY': '...'}, 'label': 'a'}}
    """
    if isinstance(value, Mapping):
        return {
            key: (
                dict.fromkeys(one, LEFT_OUT)
                if key == ENVIRONMENT and isinstance(one, Mapping)
                else without_environment(one)
            )
            for key, one in value.items()
        }
    return [without_environment(one) for one in value] if isinstance(value, list) else value
