"""The parameters of a job in its environment, where a program finds them by `params()`.

document ──text_of──► FLUX_ENSEMBLE_PARAMS='{"t": 300}' ──read──► {"t": 300}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flux_ensemble.scalars import numbers

#: The variable.
VARIABLE = "FLUX_ENSEMBLE_PARAMS"

#: The most characters of its value: Linux starts no program with a variable of more than 128 KiB.
LONGEST = 64 << 10


def text_of(params: Mapping[str, Any]) -> str:
    """Return the value of the variable: JSON, or null for parameters that are too large.

    >>> from flux_ensemble.scalars import spelled
    >>> text_of({"t": 300, "v": spelled("1.10")}), text_of({"t": "x" * 99_999})
    ('{"t": 300, "v": 1.1}', 'null')
    """
    text = json.dumps(numbers(params))
    return text if len(text) <= LONGEST else "null"


def read(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of the job that has this environment; empty if there are none.

    Raises:
        ValueError: they are too large to be in it.

    >>> read({"FLUX_ENSEMBLE_PARAMS": '{"t": 300}'}), read({})
    ({'t': 300}, {})
    """
    found: dict[str, Any] | None = json.loads(environment.get(VARIABLE, "{}"))
    if found is None:
        raise ValueError(
            f"the parameters of this job have more than {LONGEST:,} characters: put those that it "
            "needs into its command"
        )
    return found
