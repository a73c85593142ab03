"""Mutants of the engine: whether the tests and the histories notice a small change of it.

    t/fuzz/mutants.py [--mutants N] [--seed S] [--results FILE] [--module NAME] [--only TEXT]
        [--oracle ORACLE] [--jobs N]

One place of one module is changed: a comparison, a number, a condition, a statement left out. Two
oracles judge each mutant: histories of `engines/` that execute the changed line, and which the
engine as it is has taken before (`differential.py` compares two trees in the same way); and then
the tests of t/python/engine and a few other rooms that execute it, the fastest first. A mutant that
neither notices survives: a test is missing, or the change makes no difference.

Mutants are drawn with the seed, from each module by its size; with `--module` from these alone.
Modules of features are called `copies.engine`; what documents need of a feature is loaded before
the engine, and is not changed. `--results` keeps a verdict for each
in a file, and a later run with the file judges only what is not in it, and what survived. `--only`
takes the mutants whose names contain the text. Processor time is limited, not time, so that the
verdicts are the same on a loaded machine; a mutant that needs more is noticed. What the oracles
know of the engine as it is stands in .mutants/ until the engine, the tests or the histories change.

Why no tool of others: mutmut changes functions only, so no constant and no table, and wraps each
in a way that slotted and compiled classes do not bear; cosmic-ray starts an interpreter and all
tests for each mutant, which costs some twenty times the processor time of the forks here.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, TypeVar

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
TESTS = TREE / "t/python/engine"
#: The directories and files whose tests are asked.
ASKED = (
    TESTS,
    *(TREE / "t/python" / room for room in ("features", "algorithms", "runtime/test_rerun.py")),
)
PACKAGE = TREE / "flux_ensemble"
ROOM = PACKAGE / "engine"
FEATURES = PACKAGE / "features"
#: Parts of features that documents need.
OF_DOCUMENTS = ("algorithms", "document", "fields", "keys", "metrics", "words")
# Files here may have the names of modules that others import.
sys.path[:] = [str(TREE), *(path for path in sys.path if path != str(HERE))]
sys.path += [str(TESTS), str(TREE / "t/python/helpers"), str(HERE)]

#: Tests that are histories themselves, or are about the process.
LEFT_OUT = ("test_differential.py", "test_engine_member_histories.py", "test_features.py")

#: Seconds of processor time of the oracles for one mutant: as they are, times and plus.
TIMES, PLUS = 5.0, 10.0
#: Bytes of memory of one mutant: some make lists that have no end.
MEMORY = 3 << 30

#: The tests that are tried first: so many seconds, and if these notice nothing, the others.
FIRST_SECONDS = 0.3

#: Who judges, the fastest first.
ORACLES = ("histories", "tests")

#: Histories that judge a mutant at most: of those that execute the line, the shortest.
JUDGES = 400


# -- mutants ------------------------------------------------------------------------------


_COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may stand in place of a node."""
    match node:
        case ast.Compare(ops=[op]):
            yield _with(node, ops=[_COMPARED[type(op)]()])
        case ast.BoolOp(op=op, values=values):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for left_out in values:
                kept = [value for value in values if value is not left_out]
                yield kept[0] if len(kept) == 1 else _with(node, values=kept)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _COMPUTED:
            yield _with(node, op=_COMPUTED[type(op)]())
        case ast.Constant(value=bool() as value):
            yield _with(node, value=not value)
        case ast.Constant(value=int() | float() as value):
            yield _with(node, value=value + 1)
        case ast.Constant(value=str() as value):
            yield _with(node, value=f"x{value}")
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            yield _with(node, func=ast.Name(_CALLED[name], ast.Load()))
        case ast.comprehension(ifs=ifs):
            for left_out in ifs:
                yield _with(node, ifs=[test for test in ifs if test is not left_out])
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield _with(node, value=ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


@dataclass(frozen=True)
class Mutant:
    """One change of one module.

    Attributes:
        module: name of the module, as in `modules`.
        node, variant: which node, counted as `ast.walk` comes to it, and which change of it.
        line: of the node.
        lines: all lines of the statement, of which some is executed.
        at_import: whether the change takes effect when the module is imported.
        called: what it is called in reports; says where and what.
    """

    module: str
    node: int
    variant: int
    line: int
    lines: range = field(compare=False)
    at_import: bool = field(compare=False)
    called: str = field(compare=False)

    @property
    def full(self) -> str:
        """The module's full name."""
        return f"flux_ensemble.{'features' if '.' in self.module else 'engine'}.{self.module}"

    def code(self) -> CodeType:
        """The changed module, compiled."""
        path = modules()[self.module]
        tree = ast.parse(path.read_text())
        old = next(node for at, node in enumerate(ast.walk(tree)) if at == self.node)
        new = list(changed(old))[self.variant]
        replaced: ast.AST = _Replace(old, ast.copy_location(new, old)).visit(tree)
        assert isinstance(replaced, ast.Module)
        return compile(ast.fix_missing_locations(replaced), str(path), "exec")

    def install(self) -> None:
        """Have this process import the changed module."""
        code, get_code = self.code(), SourceFileLoader.get_code

        def get(loader: SourceFileLoader, name: str) -> CodeType | None:
            return code if name == self.full else get_code(loader, name)

        SourceFileLoader.get_code = get  # type: ignore[method-assign, assignment]


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else super().generic_visit(node)


def modules() -> dict[str, Path]:
    """Return the modules that are changed, by the names that they have here."""
    found = {called(path): path for path in sorted(ROOM.glob("[a-z]*.py"))}
    for path in sorted(FEATURES.glob("*/[a-z]*.py")):
        if path.stem not in OF_DOCUMENTS:
            found[called(path)] = path
    return found


def called(path: Path) -> str:
    """Return the name of a module: of a feature with the feature's."""
    return f"{path.parent.name}.{path.stem}" if path.is_relative_to(FEATURES) else path.stem


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield the mutants of a module: of all that is executed, and is no type or documentation."""
    tree = ast.parse(modules()[module].read_text())
    left_out = set(_left_out(tree))
    statement: dict[ast.AST, ast.AST] = {}
    called: set[ast.AST] = set()
    for outer in ast.walk(tree):
        body = outer.body if isinstance(outer, ast.FunctionDef | ast.Lambda) else ()
        of_call = body if isinstance(body, Sequence) else [body]
        for node in ast.iter_child_nodes(outer):
            own = node if isinstance(node, ast.stmt) else statement.get(outer, tree)
            statement[node] = own
            if outer in called or node in of_call:
                called.add(node)
    times: Counter[str] = Counter()
    for at, node in enumerate(ast.walk(tree)):
        if node in left_out:
            continue
        for variant, new in enumerate(changed(node)):
            line = getattr(node, "lineno", None) or node.target.lineno  # type: ignore[attr-defined]
            lines = _lines(statement[node], line)
            name = f"{module}:{line} {_said(node)} -> {_said(new)}"
            times[name] += 1
            # Verdicts are kept by name.
            name += f" ({times[name]})" if times[name] > 1 else ""
            yield Mutant(module, at, variant, line, lines, node not in called, name)


def _lines(statement: ast.AST, line: int) -> range:
    """The lines of a statement; of one with others in it only those up to the first of these."""
    if not isinstance(statement, ast.stmt):
        return range(line, line + 1)
    body: Sequence[ast.stmt] = getattr(statement, "body", ())
    end = body[0].lineno if body else (statement.end_lineno or line) + 1
    return range(min(line, statement.lineno), max(end, line + 1))


def _said(node: ast.AST) -> str:
    match node:
        case ast.If() | ast.While():
            text = f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
        case ast.comprehension():
            text = "".join(f" if {ast.unparse(test)}" for test in node.ifs) or "no if"
        case _:
            text = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return text if len(text) <= 70 else f"{text[:67]}..."


def _left_out(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield nodes that nobody executes, or which say nothing: types, documentation, imports."""
    for node in ast.walk(tree):
        roots: list[ast.AST | None] = []
        match node:
            case ast.FunctionDef():
                roots = [node.returns, *node.decorator_list]
            case ast.arg(annotation=annotation):
                roots = [annotation]
            case ast.AnnAssign():
                roots = [node.annotation]
            case ast.ClassDef():
                roots = [*node.decorator_list]
            case ast.Assert() | ast.Import() | ast.ImportFrom():
                roots = [node]
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                roots = [node]
            case ast.Assign(targets=[ast.Name(id=name)]) if name == "__slots__" or name == "T":
                roots = [node]
            case ast.Expr(value=ast.Constant()):
                roots = [node]
            case ast.Call(func=ast.Name(id="cast" | "TypeVar")):
                roots = [*node.args[:1]]
        for root in roots:
            if root is not None:
                yield from ast.walk(root)


def drawn(number: int, seed: int, of: Collection[str] = ()) -> list[Mutant]:
    """Draw mutants: from each module by its size, and some from each; `of` names the modules."""
    found = {name: list(mutants_of(name)) for name in modules() if not of or name in of}
    total = sum(map(len, found.values()))
    chosen = []
    for module, mutants in found.items():
        share = min(len(mutants), max(3, round(number * len(mutants) / total)))
        chosen += Random(f"{seed}:{module}").sample(mutants, share)
    # However far one comes, all modules have had their share.
    Random(seed).shuffle(chosen)
    return chosen


# -- processes ----------------------------------------------------------------------------


def forked(work: Callable[[], int], seconds: float | None = None) -> int:
    """Run something in a process of its own; return 1 if it failed or took too much, or 0."""
    return failed(begun(work, seconds))


def begun(work: Callable[[], int], seconds: float | None = None) -> int:
    """Begin something in a process of its own, and return the process id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if seconds is not None:
                limit = int(seconds) + 1
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                signal.signal(signal.SIGXCPU, signal.SIG_DFL)
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                os.dup2(quiet, 2)
            status = work()
        except BaseException:
            # Nothing is raised beyond `os._exit`.
            if seconds is None:
                traceback.print_exc()
        finally:
            os._exit(status)
    return child


def failed(child: int) -> int:
    """Wait for a process; return 1 if it failed, or 0."""
    return 1 if os.waitpid(child, 0)[1] else 0


def taken(work: Callable[[], T]) -> T:
    """Run something in a process of its own, and return what it returns."""
    with tempfile.TemporaryFile() as file:

        def write() -> int:
            pickle.dump(work(), file)
            file.flush()
            return 0

        if forked(write):
            raise SystemExit("mutants.py: the engine as it is does not pass")
        file.seek(0)
        found: T = pickle.load(file)
        return found


def kept(name: str, work: Callable[[], T], sources: Iterable[Path]) -> T:
    """What some work came to before, where none of its sources has changed, or comes to now."""
    file = TREE / ".mutants" / f"{name}.pickle"
    files = [path for source in sources for path in (source, *source.rglob("*.py"))]
    newest = max(path.stat().st_mtime for path in files)
    if file.exists() and file.stat().st_mtime > newest:
        found: T = pickle.loads(file.read_bytes())
        return found
    found = taken(work)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(pickle.dumps(found))
    return found


# -- the oracles --------------------------------------------------------------------------


@dataclass
class Known:
    """What an oracle knows of the engine as it is.

    Attributes:
        seconds: of processor time, by name of a test or number of a history.
        executed: which of them execute a line, by module and line.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    executed: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))

    def of(self, mutant: Mutant) -> list[str]:
        """Return the names of those that execute what is changed, the fastest first.

        A module is imported by the first of those that use it, and all these see the change.
        """
        names = set[str]()
        for (module, line), executing in self.executed.items():
            if module == mutant.module and (mutant.at_import or line in mutant.lines):
                names |= executing
        return sorted(names, key=lambda name: (self.seconds[name], name))

    def read(self, coverage: Any) -> None:
        """Take what was executed; what was at the import is executed by all."""
        data = coverage.get_data()
        for path in data.measured_files():
            for line, names in data.contexts_by_lineno(path).items():
                everyone = "" in names
                self.executed[called(Path(path)), line] |= set(
                    self.seconds if everyone else names
                ).intersection(self.seconds)


def tracing() -> Any:
    """What notes which lines of the engine are executed, for each of some contexts."""
    from coverage import Coverage

    coverage = Coverage(data_file=None, source=[str(ROOM), str(FEATURES)], config_file=False)
    coverage._warn_no_data = False
    coverage.start()
    return coverage


def settle() -> None:
    """Have Hypothesis try the same few examples each time."""
    from hypothesis import settings

    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, max_examples=10
    )


PYTEST = ("-q", "-x", "-n0", "--no-header", "-p", "no:cacheprovider", "--timeout=0",
          "-W", "ignore", "--hypothesis-profile=mutants", f"--rootdir={TREE}")  # fmt: skip


def tests() -> Known:
    """Run the tests on the engine as it is."""
    import pytest

    known, coverage = Known(), tracing()

    class Notes:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
            coverage.switch_context(item.nodeid)
            began = time.process_time()
            try:
                return (yield)
            finally:
                known.seconds[item.nodeid] = time.process_time() - began

    settle()
    left_out = [f"--ignore={room / name}" for room in ASKED for name in LEFT_OUT]
    status = pytest.main([*PYTEST, *left_out, *map(str, ASKED)], plugins=[Notes()])
    coverage.stop()
    if status:
        raise SystemExit("mutants.py: the tests fail on the engine as it is")
    known.read(coverage)
    return known


def noticed_by_tests(mutant: Mutant, names: Sequence[str]) -> bool:
    """Whether some of these tests fails."""
    import pytest

    mutant.install()
    settle()
    return bool(pytest.main([*PYTEST, *names]))


@dataclass
class Histories:
    """Histories that the engine as it is has taken.

    Attributes:
        taken: by number, the source of each and its steps with digests of what these came to.
    """

    known: Known
    taken: dict[str, tuple[dict[str, Any], list[tuple[Sequence[Any], bytes]]]]


def digest(text: str) -> bytes:
    """A digest of what a step came to."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12).digest()


def histories(number: int, seed: int) -> Histories:
    """Have the engine as it is take random histories."""
    known, coverage, found = Known(), tracing(), {}
    from differential import LENGTH, make_up
    from engines.side import allow_chains

    allow_chains()
    for one in range(number):
        name = f"history {one}"
        coverage.switch_context(name)
        began = time.process_time()
        made, history = make_up(seed, one)
        history.run(LENGTH)
        known.seconds[name] = time.process_time() - began
        steps = [(step, digest(text)) for step, text in history.steps]
        found[name] = {"document": made}, steps
    coverage.stop()
    known.read(coverage)
    return Histories(known, found)


def noticed_by_histories(mutant: Mutant, those: Iterable[Any]) -> bool:
    """Whether some of these histories comes to something else."""
    mutant.install()
    from engines.side import Side, allow_chains

    allow_chains()
    for source, steps in those:
        side = Side(source)
        if any(digest(side.take(step)) != text for step, text in steps):
            return True
    return False


class Judge:
    """Both oracles, of which each learns what it has to know when it is first asked.

    Args:
        number, seed: of the histories.
        oracles: which of `histories` and `tests` are asked.
    """

    def __init__(self, number: int, seed: int, oracles: Sequence[str]) -> None:
        self._number, self._seed = number, seed
        self._oracles = oracles

    @cached_property
    def _tests(self) -> Known:
        return kept("tests", tests, [ROOM, FEATURES, *ASKED])

    @cached_property
    def _histories(self) -> Histories:
        name = f"histories-{self._number}-{self._seed}"
        made = lambda: histories(self._number, self._seed)  # noqa: E731
        return kept(name, made, [ROOM, FEATURES, HERE / "engines"])

    def learn(self) -> None:
        """Learn what the oracles have to know, once for all processes."""
        for oracle in self._oracles:
            getattr(self, f"_{oracle}")

    def verdict(self, mutant: Mutant) -> str:
        """Return which oracle notices a mutant: `histories`, `tests`, or `survived`."""
        for oracle in self._oracles:
            if getattr(self, f"_noticed_by_{oracle}")(mutant):
                return oracle
        return "survived"

    def _noticed_by_histories(self, mutant: Mutant) -> bool:
        known, taken = self._histories.known, self._histories.taken
        chosen = known.of(mutant)[:JUDGES]
        limit = PLUS + TIMES * sum(known.seconds[name] for name in chosen)
        those = [taken[name] for name in chosen]
        return bool(forked(lambda: noticed_by_histories(mutant, those), limit))

    def _noticed_by_tests(self, mutant: Mutant) -> bool:
        seconds, names = self._tests.seconds, self._tests.of(mutant)
        first: list[str] = []
        others: list[str] = []
        spent = 0.0
        for name in names:
            spent += seconds[name]
            (first if spent < FIRST_SECONDS or not first else others).append(name)
        for these in filter(None, (first, others)):
            limit = PLUS + TIMES * sum(seconds[name] for name in these)
            if forked(partial(noticed_by_tests, mutant, these), limit):
                return True
        return False


# -- the command --------------------------------------------------------------------------


def preload() -> None:
    """Import what is no part of the engine, once for all forks."""
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401

    import flux_ensemble.document.loading
    import flux_ensemble.runtime.custom  # noqa: F401

    engine = [name for name in sys.modules if name.startswith("flux_ensemble.engine")]
    assert not engine, engine


def read(results: Path) -> dict[str, str]:
    """Return the verdicts of a file, the last on each mutant."""
    lines = results.read_text().splitlines() if results.exists() else ()
    return {line["mutant"]: line["verdict"] for line in map(json.loads, lines)}


def main() -> None:
    """Judge mutants, and say which survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutants", metavar="N", type=int, default=300)
    parser.add_argument("--histories", metavar="N", type=int, default=1500)
    parser.add_argument("--seed", metavar="S", type=int, default=0)
    parser.add_argument("--results", metavar="FILE", type=Path)
    parser.add_argument("--module", metavar="NAME", action="append", default=[])
    parser.add_argument("--only", metavar="TEXT", default="")
    parser.add_argument("--oracle", choices=ORACLES, action="append", help="ask this one only")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="processes that judge")
    parser.add_argument("--list", action="store_true", help="name them, and judge none")
    given = parser.parse_args()
    mutants = [
        one for one in drawn(given.mutants, given.seed, given.module) if given.only in one.called
    ]
    if given.list:
        print(*(one.called for one in mutants), sep="\n")
        return
    results = given.results
    if results is None:
        results = Path(tempfile.mkstemp(suffix=".json", prefix="mutants-")[1])
    verdicts = read(results)
    preload()
    judge = Judge(given.histories, given.seed, given.oracle or ORACLES)
    judge.learn()
    left = [
        (number, mutant)
        for number, mutant in enumerate(mutants, start=1)
        if verdicts.get(mutant.called, "survived") == "survived"
    ]

    def work(share: int) -> int:
        for number, mutant in left[share :: given.jobs]:
            verdict = judge.verdict(mutant)
            print(f"{number}/{len(mutants)} {verdict}: {mutant.called}", flush=True)
            # One write of a short line: those of other processes are not mixed with it.
            with results.open("a") as file:
                file.write(json.dumps({"mutant": mutant.called, "verdict": verdict}) + "\n")
        return 0

    children = [begun(partial(work, share)) for share in range(given.jobs)]
    if sum(map(failed, children)):
        raise SystemExit("mutants.py: not all were judged")
    verdicts = read(results)
    if given.results is None:
        results.unlink()
    counted = Counter(verdicts[mutant.called] for mutant in mutants)
    print(", ".join(f"{verdict}: {count}" for verdict, count in counted.most_common()))
    raise SystemExit(1 if counted["survived"] else 0)


if __name__ == "__main__":
    main()
