"""The document in a request to load an ensemble."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from flux_ensemble.members.recording import Recorder
from flux_ensemble.service.requests import RequestError
from flux_ensemble.spec.loading import DocumentError, load_mapping, load_text
from flux_ensemble.spec.model import Spec


def read_document(payload: Mapping[str, Any], files: dict[str, str], *, elastic: bool) -> Spec:
    """Read and check the document of an `ensemble.load` request.

    Args:
        payload: of the request; `requests.parse` has checked its form.
        files: the texts of the files that it names, as for `spec.loading.load_text`.
        elastic: the member can change its size.

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
    directory = os.path.join(cwd, os.path.dirname(file or ""))
    where: dict[str, Any] = {"name": payload.get("name"), "file": file, "directory": directory}
    try:
        if "text" in payload:
            return load_text(payload["text"], **where, elastic=elastic, files=files)
        return load_mapping(payload["spec"], **where, elastic=elastic, files=files)
    except DocumentError as error:
        raise RequestError(errno.EINVAL, str(error)) from None


def open_recorder(
    path: str | None, spec: Spec, document: str | Mapping[str, Any]
) -> Recorder | None:
    """What records an ensemble to the file that its `ensemble.load` request names, if any.

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
