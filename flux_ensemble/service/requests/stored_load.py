"""Checks of a load request in the KVS, before an ensemble is made from it.

An error makes this ensemble unreadable, with a sentence about the error, and no other ensemble.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.service.requests.protocol import TOPICS
from flux_ensemble.service.store.errors import StoreError, damaged
from flux_ensemble.texts import shown


def check_load(name: str, load: Mapping[str, Any]) -> None:
    """Check the form of a stored load request.

    Args:
        name: of the ensemble, by the key.
        load: the payload, with the texts of its files and the number of the run added.

    Raises:
        StoreError: the form is wrong.
    """
    for key, field in TOPICS["load"].fields.items():
        problem = field.problem(load[key]) if key in load else None
        if problem is not None:
            raise _wrong(name, key, problem)
        if field.required and key not in load:
            raise _wrong(name, key, f"expected {field.expected}, and it is missing")
    run, files = load.get("run"), load.get("files")
    if type(run) is not int or not 0 <= run < 1 << 63:
        raise _wrong(name, "run", f"expected the number of a run, not {shown(run)}")
    if type(files) is not dict or any(type(text) is not str for text in files.values()):
        raise _wrong(name, "files", f"expected an object of strings, not {shown(files)}")


def check_name(name: str, document_name: str) -> None:
    """Check that an ensemble is stored under its own name: a copy would be driven a second time.

    Args:
        name: by the key.
        document_name: by its document.

    Raises:
        StoreError: the names differ.
    """
    if document_name != name:
        problem = f"it is that of ensemble {document_name!r}, copied or moved"
        raise damaged(f"ensemble.{name}.load", problem)


def _wrong(name: str, key: str, problem: str) -> StoreError:
    return damaged(f"ensemble.{name}.load", f"{key}: {problem}")
