"""A document that a Python program has composed, checked by the code that checks YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.api.document_data import PythonDocument
from flux_ensemble.entries import Place

if TYPE_CHECKING:
    from flux_ensemble.document.lint import Warnings
    from flux_ensemble.document.model import Spec


class Draft:
    """The document of an ensemble.

    Args:
        value: the document: entries, and other values that `api.plain` accepts.
        place: the line of the program that composed it.

    >>> draft = Draft({"name": "demo", "jobs": [{"name": "hello", "comand": "true"}]}, None)
    >>> draft.check()
    Traceback (most recent call last):
    flux_ensemble.document.problems.DocumentError: document: jobs[0].comand: unknown key ...
    """

    def __init__(self, value: Mapping[str, Any], place: Place | None) -> None:
        self._value = value
        self._place = place

    def plain(self) -> dict[str, Any]:
        """Return the document as plain data, as JSON and YAML have it."""
        value: dict[str, Any] = self._read().value
        return value

    def check(self, *, elastic: bool = True, warnings: Warnings | None = None) -> Spec:
        """Check the document.

        Args:
            elastic: rules may grow and shrink the queue.
            warnings: receives warnings about a document without errors.

        Raises:
            DocumentError: it has problems; all of them, with lines of the program.
        """
        from flux_ensemble.document.loading import load_document

        return load_document(
            self._read(), directory=os.getcwd(), elastic=elastic, warnings=warnings
        )

    def yaml(self, spec: Spec | None = None) -> str:
        """Return the document as YAML.

        Args:
            spec: the result of reading it, which has the expansion of its `use`.

        Raises:
            DocumentError: it holds values that YAML has no form for.
        """
        from flux_ensemble.api.yaml_writer import to_yaml
        from flux_ensemble.document.plain_data import check_plain
        from flux_ensemble.document.problems import Problems

        if spec is not None and spec.expansion is not None:
            return to_yaml(spec.expansion)
        document = self._read()
        problems = Problems(document.line, document.file)
        check_plain(document.value, problems)
        if problems:
            raise problems.error()
        return to_yaml(document.value)

    def _read(self) -> PythonDocument:
        return PythonDocument(self._value, self._place)
