"""Custom functions in a real process of their own: what they get, return and how they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from caller_bench import KWARGS, Make, benches

from flux_ensemble.runtime.custom.caller import FunctionResult
from flux_ensemble.runtime.custom.child import MAX_DETAIL


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path) as make:
        yield make


def test_no_process_is_started_before_the_first_call(bench: Make) -> None:
    assert bench("def f(**kwargs): pass").loop.watching == 0


def test_a_function_that_returns_nothing_does_nothing(bench: Make) -> None:
    assert bench("def f(**kwargs): pass").call() == FunctionResult(True)


def test_an_action_and_a_rule_come_back_as_they_were_returned(bench: Make) -> None:
    result = bench(
        "def f(**kwargs):\n"
        "    submit = Action({'name': 'submit', 'label': 'echo', 'params': {'x': [1, 'ü']}})\n"
        "    return [submit, None, Rule({'trigger': 'start', 'action': submit})]\n"
    ).call()
    submit = {"name": "submit", "label": "echo", "params": {"x": [1, "ü"]}}
    assert result.returned == [
        {"kind": "action", "value": submit},
        {"kind": "rule", "value": {"trigger": "start", "action": submit}},
    ]


def test_a_function_gets_what_the_documentation_says(bench: Make, tmp_path: Path) -> None:
    result = bench(
        "import os\n"
        "def f(metrics, event, rule, action, handle, ensemble):\n"
        "    return Action(metrics=metrics, event=event, rule=rule.action.label,\n"
        "        action=action.label, handle=str(handle), ensemble=ensemble,\n"
        "        cwd=os.getcwd(), greeting=os.environ['GREETING'],\n"
        "        home=str(os.environ.get('HOME')))\n"
    ).call()
    assert result.returned[0]["value"] == {
        "metrics": KWARGS["metrics"],
        "event": KWARGS["event"],
        "rule": "f",
        "action": "f",
        "handle": "None",
        "ensemble": {"name": "hello", "directory": str(tmp_path)},
        "cwd": str(tmp_path),
        "greeting": "hello",
        "home": "None",
    }


def test_the_source_is_run_once_and_keeps_its_state(bench: Make) -> None:
    results = bench(
        "count = 0\n"
        "def f(**kwargs):\n"
        "    global count\n"
        "    count += 1\n"
        "    return Action(name='submit', count=count)\n"
    ).calls("f", "f", "f")
    assert [result.returned[0]["value"]["count"] for result in results] == [1, 2, 3]


def test_calls_are_made_one_at_a_time_and_in_order(bench: Make) -> None:
    results = bench(
        "import time\n"
        "def slow(**kwargs):\n"
        "    time.sleep(0.2)\n"
        "    return Action(t=time.monotonic())\n"
        "def fast(**kwargs): return Action(t=time.monotonic())\n"
    ).calls("slow", "fast", "slow", "fast")
    times = [result.returned[0]["value"]["t"] for result in results]
    assert times == sorted(times)


def test_arguments_of_megabytes_arrive(bench: Make) -> None:
    one = bench("def f(metrics, **kwargs): return Action(size=len(metrics['text']))")
    results: list[FunctionResult] = []
    kwargs = KWARGS | {"metrics": {"text": "x" * (4 << 20)}}
    one.caller.call("f", kwargs, 60.0, results.append)
    one.loop.run(until=lambda: bool(results))
    assert results[0].returned[0]["value"] == {"size": 4 << 20}


def test_an_exception_is_reported_with_the_lines_of_the_users_code(bench: Make) -> None:
    source = "def f(**kwargs):\n    return g()\n\ndef g():\n    raise ValueError('no\\nway')\n"
    reason, detail = bench(source).failure()
    assert reason == "custom function 'f' raised ValueError: no way"
    # Python may underline parts of the lines.
    lines = [line for line in detail.splitlines() if line.strip("^~ ")]
    assert lines == [
        "Traceback (most recent call last):",
        '  File "custom", line 2, in f',
        "    return g()",
        '  File "custom", line 5, in g',
        "    raise ValueError('no\\nway')",
        "ValueError: no",
        "way",
    ]


def test_the_worker_lives_on_after_an_exception(bench: Make) -> None:
    raised, returned = bench(
        "import os\n"
        "def f(**kwargs): raise ValueError(os.getpid())\n"
        "def g(**kwargs): return Action(pid=os.getpid())\n"
    ).calls("f", "g")
    assert raised.reason.endswith(f": {returned.returned[0]['value']['pid']}")


def test_sys_exit_is_a_failure_and_not_an_end(bench: Make) -> None:
    one = bench("import sys\ndef f(**kwargs): sys.exit(3)\ndef g(**kwargs): sys.exit()\n")
    assert one.failure()[0] == "custom function 'f' called sys.exit(3)"
    assert one.failure("g")[0] == "custom function 'g' called sys.exit()"


def test_keyboard_interrupt_is_a_failure_and_not_an_end(bench: Make) -> None:
    one = bench(
        "import os, signal\n"
        "def f(**kwargs): os.kill(os.getpid(), signal.SIGINT)\n"
        "def g(**kwargs): pass\n"
    )
    assert one.failure()[0] == "custom function 'f' raised KeyboardInterrupt"
    assert one.call("g").ok


def test_an_exception_whose_text_fails_is_reported_all_the_same(bench: Make) -> None:
    reason, _ = bench(
        "class Bad(Exception):\n"
        "    def __str__(self): raise SystemExit\n"
        "def f(**kwargs): raise Bad\n"
    ).failure()
    assert reason == "custom function 'f' raised Bad"


def test_reasons_and_tracebacks_are_bounded(bench: Make) -> None:
    reason, detail = bench("def f(**kwargs): raise ValueError('x' * 1000000)").failure()
    assert len(reason) < 1000
    assert len(detail) < MAX_DETAIL + 100
    assert detail.startswith("Traceback")


def test_endless_recursion_is_reported(bench: Make) -> None:
    reason, _ = bench("def f(**kwargs): g()\ndef g(): return g()\n").failure()
    assert reason.startswith("custom function 'f' raised RecursionError")


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ("{'name': 'submit'}", "returned a plain dict: wrap it as Action({...}) or Rule({...})"),
        ("3", "returned 3 (int), expected None, an Action, a Rule or a list of these"),
        ("[Action(name='x'), 'y']", "returned 'y' (str), expected None, an Action, a Rule"),
        ("Action(x=object)", "returned action Action({'x': <class 'object'>}), not JSON: Object"),
        ("Action(x=float('nan'))", "returned action Action({'x': nan}), not JSON: Out of range"),
        ("Action(x='\\ud800')", "not JSON: 'utf-8' codec can't encode character"),
        ("Action(x='x' * 2000000)", "bytes of JSON, more than 1048576"),
    ],
)
def test_anything_else_that_is_returned_is_refused(
    bench: Make, returned: str, sentence: str
) -> None:
    reason, detail = bench(f"def f(**kwargs): return {returned}").failure()
    assert reason.startswith("custom function 'f' returned")
    assert sentence in reason
    assert detail == ""


def test_a_rule_that_contains_itself_is_refused(bench: Make) -> None:
    reason, _ = bench(
        "def f(**kwargs):\n    rule = Rule()\n    rule['x'] = rule\n    return rule"
    ).failure()
    assert reason.endswith("not JSON: Circular reference detected")


def test_an_unknown_function_is_reported_with_those_there_are(bench: Make) -> None:
    one = bench("def a(**kwargs): pass\ndef b(**kwargs): pass\nf = 3\n")
    assert one.failure()[0] == "custom function 'f' does not exist (functions: a, b)"


def test_a_source_that_does_not_parse_fails_each_call_with_its_line(bench: Make) -> None:
    one = bench("x = 1\ndef f(:\n")
    for _ in range(2):
        reason, detail = one.failure()
        assert reason.startswith(
            "custom function 'f' could not be loaded: the custom source raised SyntaxError: "
        )
        assert '  File "custom", line 2\n' in detail


def test_a_source_that_raises_fails_the_call_with_its_line(bench: Make) -> None:
    reason, detail = bench("\n\nimport no_such_module\n").failure()
    assert reason == (
        "custom function 'f' could not be loaded: the custom source raised "
        "ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert detail.startswith(
        "Traceback (most recent call last):\n"
        '  File "custom", line 3, in <module>\n'
        "    import no_such_module\n"
    )


def test_a_source_that_exits_fails_the_call(bench: Make) -> None:
    reason, _ = bench("import sys\nsys.exit(1)\n").failure()
    assert reason == "custom function 'f' could not be loaded: the custom source called sys.exit(1)"
    reason, _ = bench("import os\nos._exit(4)\n").failure()
    assert reason == "custom function 'f' could not be loaded: its process exited with status 4"


def test_the_source_is_a_module_to_dataclasses_and_pickle(bench: Make) -> None:
    result = bench(
        "from __future__ import annotations\n"
        "import dataclasses, pickle\n"
        "@dataclasses.dataclass\n"
        "class Point:\n"
        "    x: int\n"
        "def f(**kwargs): return Action(x=pickle.loads(pickle.dumps(Point(7))).x)\n"
    ).call()
    assert result.returned[0]["value"] == {"x": 7}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a package of functions and an installed distribution with an entry point."""
    home = tmp_path / "packages"
    (home / "plug").mkdir(parents=True)
    (home / "plug" / "__init__.py").write_text("")
    (home / "plug" / "actions.py").write_text(
        "from flux_ensemble import Action\n"
        "def f(**kwargs): return Action(who='plugin')\n"
        "def shared(**kwargs): return Action(who='plugin')\n"
        "def _private(**kwargs): return Action(who='private')\n"
        "def point(**kwargs): return Action(who='entry point')\n"
    )
    info = home / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[flux_ensemble.actions]\nspecial = plug.actions:point\nbroken = plug.none:f\n"
    )
    return home


def test_functions_come_from_plugins_too_and_from_the_source_first(
    bench: Make, package: Path
) -> None:
    one = bench(
        "def shared(**kwargs): return Action(who='source')",
        plugins=("plug.actions",),
        environment={"PYTHONPATH": str(package)},
    )
    who = [result.returned[0]["value"]["who"] for result in one.calls("f", "shared")]
    assert who == ["plugin", "source"]
    assert one.failure("_private")[0] == (
        "custom function '_private' does not exist (functions: broken, f, point, shared, special)"
    )


def test_functions_come_from_entry_points(bench: Make, package: Path) -> None:
    one = bench(environment={"PYTHONPATH": str(package)})
    assert one.call("special").returned[0]["value"] == {"who": "entry point"}
    assert one.failure("broken")[0].startswith(
        "custom function 'broken' could not be loaded: its entry point raised ModuleNotFoundError"
    )


def test_modules_beside_the_document_can_be_plugins(bench: Make, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def f(**kwargs): pass\n")
    assert bench(plugins=("beside",)).call().ok


def test_what_the_service_can_import_its_workers_can(
    bench: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "only_here.py").write_text("def f(**kwargs): pass\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert bench(plugins=("only_here",)).call().ok


def test_the_users_python_settings_do_not_break_the_worker(bench: Make) -> None:
    result = bench(
        "import os\ndef f(**kwargs): return Action(home=os.environ['PYTHONHOME'])",
        environment={"PYTHONHOME": "/nowhere"},
    ).call()
    assert result.returned[0]["value"] == {"home": "/nowhere"}


def test_a_plugin_that_cannot_be_imported_fails_the_call(bench: Make, tmp_path: Path) -> None:
    (tmp_path / "bad_plugin.py").write_text("import json\n1 / 0\n")
    reason, detail = bench(plugins=("bad_plugin",)).failure()
    assert reason == (
        "custom function 'f' could not be loaded: plugin 'bad_plugin' raised "
        "ZeroDivisionError: division by zero"
    )
    assert detail.splitlines()[1] == f'  File "{tmp_path / "bad_plugin.py"}", line 2, in <module>'


def test_a_working_directory_that_is_gone_fails_the_call(bench: Make) -> None:
    reason, _ = bench("def f(**kwargs): pass", cwd="/no/such/directory").failure()
    assert reason == (
        "custom function 'f' could not be loaded: its process cannot be started in "
        "'/no/such/directory': No such file or directory"
    )


def test_a_flux_handle_that_cannot_be_opened_fails_the_call(bench: Make, tmp_path: Path) -> None:
    (tmp_path / "flux.py").write_text("def Flux(uri): raise OSError(f'no broker at {uri}')\n")
    reason, _ = bench("def f(**kwargs): pass", uri="local:///nowhere").failure()
    assert reason.startswith("custom function 'f' could not be loaded: opening a Flux handle")


def test_the_worker_runs_under_the_services_python(bench: Make) -> None:
    result = bench("import sys\ndef f(**kwargs): return Action(executable=sys.executable)").call()
    assert result.returned[0]["value"] == {"executable": sys.executable}


# -- checks --------------------------------------------------------------------------------


def test_a_check_finds_the_functions_of_source_plugins_and_entry_points(
    bench: Make, package: Path
) -> None:
    one = bench(
        "def mine(**kwargs): 1 / 0",
        plugins=("plug.actions",),
        environment={"PYTHONPATH": str(package)},
    )
    assert one.check("mine", "f", "special") == FunctionResult(True)
    assert one.check() == FunctionResult(True)


def test_a_check_names_what_is_missing_and_what_there_is(bench: Make, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def converged(**kwargs): pass\ndef parse(**kwargs): pass\n")
    result = bench(plugins=("tools",)).check("parse", "convergd", "x")
    assert not result.ok
    assert result.reason == (
        "custom functions cannot be called: 'convergd' does not exist (did you mean 'converged'? "
        "functions: converged, parse); 'x' does not exist (functions: converged, parse)"
    )


def test_a_check_fails_where_a_plugin_is_missing_and_says_where_it_was_looked_for(
    bench: Make,
) -> None:
    result = bench(plugins=("nowhere.actions",)).check("f")
    assert result.reason == (
        "custom functions could not be loaded: plugin 'nowhere.actions' is not there "
        "(No module named 'nowhere'): modules are looked for where flux-ensemble is installed, "
        "in PYTHONPATH and in the document's directory"
    )


def test_a_check_fails_with_the_traceback_of_a_plugin(bench: Make, tmp_path: Path) -> None:
    (tmp_path / "bad_plugin.py").write_text("import json\nimport nowhere_else\n")
    result = bench(plugins=("bad_plugin",)).check("f")
    assert result.reason == (
        "custom functions could not be loaded: plugin 'bad_plugin' raised ModuleNotFoundError: "
        "No module named 'nowhere_else'"
    )
    assert 'bad_plugin.py", line 2' in result.detail


@pytest.mark.parametrize(
    ("source", "objection"),
    [
        ("def f(metrics): pass", "is called with 'event' too, which it does not take"),
        ("async def f(**kwargs): pass", "is asynchronous: functions are called, not awaited"),
        ("def g(d): return lambda metric, **k: d\n@g\ndef f(**k): pass", "takes 'metric', which"),
        ("class F:\n    def __call__(self, event): pass\nf = F()", "is called with 'metrics' too"),
    ],
)
def test_a_check_fails_where_a_function_cannot_be_called(
    bench: Make, source: str, objection: str
) -> None:
    result = bench(source).check("f")
    assert not result.ok
    assert f"custom functions cannot be called: 'f' {objection}" in result.reason


def test_a_traceback_has_the_lines_of_the_document(bench: Make) -> None:
    source = "def f(**kwargs):\n    raise ValueError('no')\n"
    _, detail = bench(source, source_at=("study.yaml", 40)).failure()
    assert '  File "study.yaml", line 41, in f\n    raise ValueError' in detail


def test_the_process_of_a_check_makes_the_calls(bench: Make) -> None:
    one = bench("import os\npid = os.getpid()\ndef f(**kwargs): return Action(pid=pid)")
    assert one.check("f").ok
    watching = one.loop.watching
    assert watching
    assert one.call().ok
    assert one.loop.watching == watching


def test_a_check_of_a_process_that_dies_fails(bench: Make) -> None:
    result = bench("import os\nos._exit(3)").check("f")
    assert result.reason == (
        "custom functions could not be loaded: its process exited with status 3"
    )
