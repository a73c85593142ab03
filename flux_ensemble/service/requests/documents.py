"""The document in a request to load an ensemble, and the request as it was stored in the KVS."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from flux_ensemble.client.topics import TOPICS
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.members_reader import QueuesOf, unknown_queues
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.runtime.recording import Recorder
from flux_ensemble.service.store.errors import StoreError, damaged
from flux_ensemble.texts import shown

#: Limits of Linux (linux/limits.h, linux/binfmts.h) in bytes: of a path, and of a variable as
#: NAME=VALUE, each with the NUL at its end.
MAX_PATH = 4096
MAX_VARIABLE = 128 * 1024

#: Bytes of all variables together. Each job has them in its jobspec, and Linux leaves a quarter of
#: the limit of the stack for them and the arguments.
MAX_ENVIRONMENT = 1024 * 1024


def check_context(payload: Mapping[str, Any]) -> None:
    """Check that jobs can have the working directory and the environment of a load request.

    Raises:
        RequestError: EINVAL.
    """
    size = len(payload["cwd"].encode()) + 1
    if size > MAX_PATH:
        raise _invalid(f"cwd: expected a path of less than {MAX_PATH} bytes, not {size - 1}")
    total = 0
    for key, value in payload["environment"].items():
        size = len(f"{key}={value}".encode()) + 1
        total += size
        if size > MAX_VARIABLE:
            raise _invalid(
                f"environment: {shown(key)}: expected a variable of less than {MAX_VARIABLE} "
                f"bytes, not {size - 1}; unset it, or put what it holds into a file"
            )
    if total > MAX_ENVIRONMENT:
        raise _invalid(
            f"environment: expected at most {MAX_ENVIRONMENT} bytes, not {total}; unset what the "
            "jobs do not need"
        )


def read_document(
    payload: Mapping[str, Any],
    files: dict[str, str],
    *,
    elastic: bool,
    queues: QueuesOf = unknown_queues,
) -> Spec:
    """Read and check the document of an `ensemble.load` request.

    Args:
        payload: of the request; `protocol.parse` has checked its form.
        files: the texts of the files that it names, as for `document.loading.load_text`.
        elastic: the member can change its size.
        queues: as for `document.loading.load_text`.

    Raises:
        RequestError: EINVAL; for a document, with one line for each error.
    """
    if ("text" in payload) == ("spec" in payload):
        raise _invalid("expected one of 'text' and 'spec'")
    cwd, file = payload["cwd"], payload.get("file")
    if not os.path.isabs(cwd):
        raise _invalid(f"cwd: expected an absolute path, not {cwd!r}")
    for key, value in payload["environment"].items():
        if type(value) is not str:
            raise _invalid(f"environment: {key}: expected a string, not {value!r}")
    directory = document_directory(payload)
    where: dict[str, Any] = {"name": payload.get("name"), "file": file, "directory": directory}
    # The client has expanded algorithms of other packages; their code must not run in the service.
    how: dict[str, Any] = {"elastic": elastic, "files": files, "packages": False, "queues": queues}
    how["workers"] = payload.get("workers")
    try:
        if "text" in payload:
            spec = load_text(payload["text"], **where, **how)
        else:
            spec = load_mapping(payload["spec"], **where, **how)
    except DocumentError as error:
        raise RequestError(errno.EINVAL, str(error)) from None
    return spec


def document_directory(payload: Mapping[str, Any]) -> str:
    """Return the base of relative paths in the document of a load request."""
    return os.path.join(payload["cwd"], os.path.dirname(payload.get("file") or ""))


def open_recorder(
    path: str | None, spec: Spec, document: str | Mapping[str, Any]
) -> Recorder | None:
    """Open the recorder for the file that an `ensemble.load` request names, if it names one.

    Raises:
        RequestError: EINVAL; the file cannot be written.
    """
    if path is None:
        return None
    if not os.path.isabs(path):
        raise _invalid(f"record: expected an absolute path, not {path!r}")
    try:
        return Recorder(path, spec, document)
    except OSError as error:
        raise _invalid(f"record: {path}: {error.strerror}") from None


def _invalid(reason: str) -> RequestError:
    return RequestError(errno.EINVAL, f"ensemble.load: {reason}")


def check_load(name: str, load: Mapping[str, Any]) -> None:
    """Check the form of a stored load request.

    An error makes this ensemble unreadable, with a sentence about the error, and no other ensemble.

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
