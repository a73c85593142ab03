"""A document that a Python program has composed, checked by the code that checks YAML."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flux_ensemble.document.problems import Path
from flux_ensemble.document.yaml_reader import Document
from flux_ensemble.entries import Place, plain

if TYPE_CHECKING:
    from flux_ensemble.document.lint import Warnings
    from flux_ensemble.document.model import Spec


class Draft:
    """The document of an ensemble.

    Args:
        value: the document: entries, and other values that `entries.plain` accepts.
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

        document = self._read()
        spec = load_document(document, directory=os.getcwd(), elastic=elastic, warnings=warnings)
        if warnings is not None:
            warnings.warnings += self._replaced(document)
        return spec

    def _replaced(self, document: PythonDocument) -> Iterator[str]:
        """Yield a warning for each group that has lost a parameter to an f-string."""
        from flux_ensemble.api.f_strings import replaced

        for index, job in enumerate(self._value.get("jobs", ())):
            name = replaced(job)
            if name is not None:
                at = ("jobs", index, "command")
                yield (
                    f"{document.file(at)}:{document.line(at)}: jobs[{index}].command: the f-string "
                    f"has a value of the program in place of {{{name}}}, the same for all jobs: "
                    f"leave out the f, or write {{{{{name}}}}}"
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
        problems = Problems(document.line, document.file, document.told)
        check_plain(document.value, problems)
        if problems:
            raise problems.error()
        return to_yaml(document.value)

    def _read(self) -> PythonDocument:
        return PythonDocument(self._value, self._place)


class LoadedDraft(Draft):
    """The document of an ensemble that was started elsewhere, as it was loaded.

    Args:
        name: the ensemble.
        read: returns the document, which is text or a mapping, and the directory of its paths.

    >>> text = "jobs: [{name: hello, command: echo hello}] # why"
    >>> draft = LoadedDraft("demo", lambda: (text, "/tmp"))
    >>> draft.plain()["jobs"][0]["command"], draft.check().name, draft.yaml() == text
    ('echo hello', 'demo', True)
    """

    def __init__(self, name: str, read: Callable[[], tuple[Any, str]]) -> None:
        self._name = name
        self._load = read

    def plain(self) -> dict[str, Any]:
        from flux_ensemble.document.yaml_reader import read_yaml

        document, _ = self._load()
        value: dict[str, Any]
        if isinstance(document, str):
            value = read_yaml(document, f"the document of {self._name}")[0].value
        else:
            value = document
        return value

    def check(self, *, elastic: bool = True, warnings: Warnings | None = None) -> Spec:
        from flux_ensemble.document.loading import load_mapping, load_text

        document, directory = self._load()
        options: Any = {
            "name": self._name,
            "directory": directory,
            "elastic": elastic,
            "warnings": warnings,
        }
        if isinstance(document, str):
            return load_text(document, file=f"the document of {self._name}", **options)
        return load_mapping(document, **options)

    def yaml(self, spec: Spec | None = None) -> str:
        from flux_ensemble.api.yaml_writer import to_yaml

        document, _ = self._load()
        return document if isinstance(document, str) else to_yaml(document)


class PythonDocument(Document):
    """A document made in Python, whose places are lines of the program.

    Args:
        value: the document; entries that know their places, and values that `plain` accepts.
        place: the line that composed it.

    >>> document = PythonDocument({"jobs": [{"name": "a"}]}, ("study.py", 3))
    >>> document.value, document.line(("jobs", 0)), document.file(())
    ({'jobs': [{'name': 'a'}]}, 3, 'study.py')
    """

    def __init__(self, value: Mapping[str, Any], place: Place | None) -> None:
        self._places: dict[Path, Place] = {} if place is None else {(): place}
        self._given = value
        super().__init__(plain(value, self._places))

    def told(self, path: Path, message: str) -> tuple[Path, str]:
        """Return a problem in the words of Python: keywords where the program has keywords."""
        from flux_ensemble.api.python_words import in_words_of_python, keyword_of

        shown = tuple(
            keyword_of(step) if isinstance(step, str) and path[:place] in self._places else step
            for place, step in enumerate(path)
        )
        of_entry = path in self._places or path[:-1] in self._places
        for key, keyword in zip(path, shown, strict=True):
            if key != keyword:
                message = message.replace(f"'{key}'", f"'{keyword}'")
        return shown, in_words_of_python(message, keywords=of_entry)

    def is_pair(self, path: Path) -> bool:
        """Return whether the value is a tuple, as other tools have the bounds of a variable."""
        value: Any = self._given
        with suppress(LookupError):  # what was put there
            for step in path:
                value = value[step]
            return isinstance(value, tuple) and len(value) == 2
        return False

    def line(self, path: Path) -> int | None:
        """Return the line that made the value at `path`, or the closest value around it."""
        place = self._place_of(path)
        return None if place is None else place[1]

    def file(self, path: Path) -> str | None:
        """Return the file with that line."""
        place = self._place_of(path)
        return None if place is None else _shown_file(place[0])

    def _place_of(self, path: Path) -> Place | None:
        for length in range(len(path), -1, -1):
            place = self._places.get(path[:length])
            if place is not None:
                return place
        return None


def _shown_file(file: str) -> str:
    """Return the name of a file for people: for a notebook cell its number, not a file in /tmp."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    return file if name is None else str(name[1])
