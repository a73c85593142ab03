"""Loads an ensemble document: returns a `Spec`, or raises an error with all problems.

    text ──yaml_reader──► values with lines ──schema──► form ──spec_reader──► Spec
                                                         └──use──► plain form ──┘

All stages add to the same list of problems and continue with the valid part, so users see all
problems at once. Loading stops early only if the YAML does not parse, after `MAX_PROBLEMS`, or
where a document has `use`: nothing is made from one whose form is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, TypedDict, Unpack

from flux_ensemble.document.feature import JobsOf, sections, unknown_jobs
from flux_ensemble.document.inputs import missing_inputs
from flux_ensemble.document.job_lint import Finding
from flux_ensemble.document.keys.document import FORMER, below
from flux_ensemble.document.keys.members import TASKS
from flux_ensemble.document.lint import Warnings, lint
from flux_ensemble.document.members_reader import QueuesOf, unknown_queues
from flux_ensemble.document.model import Spec
from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import DocumentError, Path, Problem, Problems, TooMany
from flux_ensemble.document.schema import check_form
from flux_ensemble.document.spec_reader import SpecReader
from flux_ensemble.document.spellings import with_spellings
from flux_ensemble.document.use import USE, Expanded, check_uses, expand, plain_form
from flux_ensemble.document.yaml_reader import Document, read_yaml

__all__ = ["DocumentError", "Problem", "load_document", "load_mapping", "load_text"]

#: Paths of the mappings that have renamed keys below them.
_ABOVE = {path[:end] for path in FORMER for end in range(len(path)) if path[end] == "." or not end}


#: The name of the pool of workers that --tasks makes.
WORKER = "worker"


class LoadOptions(TypedDict, total=False):
    """The options of loading a document: keyword arguments of the functions here.

    Attributes:
        name: the ensemble's name; default: the document's, else the file's stem.
        file: the document's file name, for messages and the default name.
        directory: the base of relative paths in the document.
        elastic: whether rules may grow and shrink the member.
        files: cache of the files that the document names: name -> text. Missing ones are
            read and added.
        warnings: gets what there is to say of a document without errors.
        packages: algorithms of other packages may be run here.
        here: the files that the document names are on this machine. If not, none is looked at, and
            what follows from their contents is not checked: the Spec lacks it.
        workers: the jobs run as tasks of so many workers, which the document does not name.
        queues: returns the names of the queues of the instance with a URI, which is there already;
            None if they are not known.
        jobs: returns the jobs of an ensemble that the document names, a line of JSON each; None if
            it is not known.
    """

    name: str | None
    file: str | None
    directory: str
    elastic: bool
    files: dict[str, str] | None
    warnings: Warnings | None
    packages: bool
    here: bool
    workers: int | None
    queues: QueuesOf
    jobs: JobsOf


def load_text(text: str, **options: Unpack[LoadOptions]) -> Spec:
    """Read and check a document.

    Args:
        text: the document, YAML or JSON.
        options: see `LoadOptions`.

    Raises:
        DocumentError: the document has problems; it lists at most `MAX_PROBLEMS`.

    >>> spec = load_text("jobs: [{name: hello, command: echo hello}]", name="demo")
    >>> spec.groups["hello"].sets[0].command
    ('echo', 'hello')
    >>> load_text("jobs: [{name: hello}]", name="demo")
    Traceback (most recent call last):
    flux_ensemble.document.problems.DocumentError: document:1: jobs[0]: expected a command ...
    """
    file = options.get("file")
    other = not_a_document(file or "")
    try:
        document, problems = read_yaml(text, file)
    except DocumentError:
        if other is None:
            raise
        raise DocumentError([Problem(None, "", other)], file) from None
    if isinstance(document.value, dict):
        other = _not_ours(document.value, file or "FILE") if "jobs" not in document.value else None
    if other is not None:
        raise DocumentError([Problem(None, "", other)], file)
    return _Loader(document, problems, **options).load()


#: Ends of the names of files that are no documents.
_TABLES = (".csv", ".tsv", ".xlsx", ".parquet")
_PROGRAMS = (".py", ".sh", ".bash", ".slurm", ".sbatch", ".pbs", ".R", ".jl", ".m", ".ipynb")
_OTHERS = (".toml", ".ini", ".cfg", ".md", ".txt", ".smk", ".nf", ".cwl")


def not_a_document(file: str) -> str | None:
    """Return what to do with a file that is no document by its name; None if it can be one.

    >>> not_a_document("points.csv")
    "this is a table: a document runs a job for each row, with 'params: {NAME: {file: points.csv}}'"
    >>> not_a_document("study.yaml")
    """
    name = PurePath(file).name
    if file.endswith(_TABLES):
        return (
            "this is a table: a document runs a job for each row, with "
            f"'params: {{NAME: {{file: {name}}}}}'"
        )
    if file.endswith(_PROGRAMS):
        run = {".py": "python ", ".R": "Rscript ", ".jl": "julia "}.get(PurePath(file).suffix, "./")
        jobs = f"jobs: [{{name: NAME, command: {run}{name}}}]"
        return (
            f"this is a program: a document runs it, with {jobs!r}; 'flux-ensemble init' writes "
            "one to begin with"
        )
    if file.endswith(_OTHERS):
        return "a document is YAML or JSON: 'flux-ensemble init' writes one to begin with"
    return None


def _not_ours(value: Mapping[str, Any], file: str) -> str | None:
    """Return what to do with a mapping of another tool; None if it may be a document."""
    if {"version", "resources", "tasks"} <= value.keys():
        return (
            "this is a jobspec: a document runs it, with "
            f"'jobs: [{{name: NAME, jobspec: {PurePath(file).name}}}]'"
        )
    if {"cells", "nbformat"} <= value.keys():
        return not_a_document("notebook.ipynb")
    if {"apiVersion", "kind"} <= value.keys():
        return (
            f"this is a manifest of Kubernetes: 'kubectl apply -f {PurePath(file).name}' sends it "
            "to the operator"
        )
    return None


def load_mapping(mapping: Mapping[str, Any], **options: Unpack[LoadOptions]) -> Spec:
    """Check a document that is already parsed, for example from JSON.

    Args:
        mapping: the document, plain data.
        options: see `LoadOptions`.

    Raises:
        DocumentError: the document has problems; it lists at most `MAX_PROBLEMS`.

    >>> spec = load_mapping({"name": "demo", "jobs": [{"name": "hello", "command": "true"}]})
    >>> spec.name, list(spec.groups), spec.limits.active_jobs
    ('demo', ['hello'], 10000)
    """
    return load_document(Document(mapping), **options)


def load_document(document: Document, **options: Unpack[LoadOptions]) -> Spec:
    """Check a document that knows where its values are; for the options see `LoadOptions`.

    Raises:
        DocumentError: the document has problems; it lists at most `MAX_PROBLEMS`.

    >>> load_document(Document({"name": "demo", "jobs": [{"name": "a", "command": "x"}]})).name
    'demo'
    """
    problems = Problems(document.line, document.file, document.told)
    return _Loader(document, problems, **options).load()


@dataclass(eq=False)
class _Loader:
    """Loads one document; for the options see `LoadOptions`."""

    document: Document
    problems: Problems
    name: str | None = None
    file: str | None = None
    directory: str = "."
    elastic: bool = True
    files: dict[str, str] | None = None
    warnings: Warnings | None = None
    packages: bool = True
    here: bool = True
    workers: int | None = None
    queues: QueuesOf = unknown_queues
    jobs: JobsOf = unknown_jobs

    def load(self) -> Spec:
        """Check the document.

        Raises:
            DocumentError: it has problems.
        """
        spec = None
        with suppress(TooMany):
            value = self._form()
            if value is not None and USE in value:
                value = self._expand(value)
            if value is not None and self.workers is not None:
                value = self._on_workers(value, self.workers)
            if value is not None:
                reader = SpecReader(
                    self.document,
                    self.problems,
                    self.directory,
                    self.elastic,
                    self.files,
                    here=self.here,
                    queues=self.queues,
                    jobs=self.jobs,
                )
                spec = reader.read(value, self.name, self.file)
        if self.problems or spec is None:
            raise self.problems.error(self.file)
        if isinstance(self.document, Expanded):
            packaged = self.document.packaged or None
            spec = replace(spec, expansion=plain_form(self.document), packaged=packaged)
        spec = self._whole(spec)
        if self.warnings is not None:
            old = [
                Finding(path, f"{path[-1]!r} is deprecated: use {new[-1]!r}")
                for new, path in self.problems.renamed.items()
            ]
            if self.here:
                old += (Finding(*found) for found in missing_inputs(spec, self.document.value))
            lint(spec, self.document, self.file, self.warnings, old)
        return spec

    def _whole(self, spec: Spec) -> Spec:
        """Put what features have read of files in the place of these, which are read only once."""
        read: dict[Path, Any] = {}
        for section in sections():
            read |= section.read_of_files(spec)
        if not read:
            return spec
        value: Any = spec.expansion or plain_form(self.document)
        for (*above, last), made in read.items():
            entry = value
            for step in above:
                entry = entry[step]
            entry[last] = made
        return replace(spec, expansion=value)

    def _on_workers(self, value: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return the document with workers as its members."""
        if value.get("members"):
            self.problems.add(
                ("members",),
                "--tasks makes a worker of each node, and the document has 'members' already: "
                f"leave out --tasks, and write 'runs: {TASKS}' there",
            )
        return {**value, "members": [{"name": WORKER, "count": workers, "runs": TASKS}]}

    def _form(self) -> dict[str, Any] | None:
        """The valid part of the document's form."""
        written = with_new_keys(with_spellings(self.document), self.problems)
        wrong = check_plain(written, self.problems)
        value: dict[str, Any] | None = check_form("document", written, self.problems, wrong=wrong)
        return value

    def _expand(self, value: dict[str, Any]) -> dict[str, Any] | None:
        """Put what `use` makes in its place; None if there are problems."""
        if self.problems:
            return None
        algorithms = check_uses(value, self.problems, packages=self.packages)
        if self.problems:
            return None
        expanded = expand(self.document, algorithms, self.problems)
        if self.problems:
            return None
        self.document = expanded
        self.problems = Problems(expanded.line, expanded.file, expanded.told)
        return self._form()


def with_new_keys(value: Any, problems: Problems, path: str = "", at: Path = ()) -> Any:
    """Return the value of a document with its old keys renamed; the value itself is not changed.

    Problems of a renamed key are reported under the key that the document has.

    Args:
        value: of the document, or of a part of it.
        problems: collects the problems, and which keys were renamed.
        path: of the key whose value it is.
        at: where the document has it.

    >>> problems = Problems()
    >>> with_new_keys({"scaling": {"max-size": 3}}, problems)
    {'scaling': {'max-nodes': 3}}
    >>> problems.renamed
    {('scaling', 'max-nodes'): ('scaling', 'max-size')}
    """
    if path not in _ABOVE:
        return value
    if isinstance(value, list):
        return [
            with_new_keys(item, problems, path, (*at, place)) for place, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, item in value.items():
        here = below(path, key) if isinstance(key, str) else ""
        new = FORMER[here].rpartition(".")[2] if here in FORMER else None
        if new is None:
            made[key] = with_new_keys(item, problems, here, (*at, key)) if here else item
        elif new in value:
            problems.add(
                (*at, key), f"{new!r} is the new name of this key, and is there too: take one out"
            )
        else:
            problems.renamed[(*at, new)] = (*at, key)
            made[new] = item
    return made
