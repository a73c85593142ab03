"""In a real Jupyter kernel: what cells show, while they wait and of what is wrong."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from patience import PATIENCE

pytest.importorskip("ipykernel", reason="ipykernel is not installed")

MAKE = """
from flux_ensemble import Action, Ensemble, Job, Rule
start = Rule(trigger="start", action=Action(name="submit", label="a"))
ensemble = Ensemble(name="cell", jobs=[Job(name="a", command="sleep 0.1")], rules=[start])
"""


class Run(Protocol):
    """Runs a cell: what it shows as (kind of message, MIME type -> text), and its error or "".

    With `interrupt` the cell is interrupted as soon as it shows something. The error has the end of
    its traceback below it.
    """

    def __call__(
        self, code: str, *, interrupt: bool = False
    ) -> tuple[list[tuple[str, dict[str, str]]], str]: ...


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from jupyter_client.manager import start_new_kernel

        state = tmp_path_factory.mktemp("state")
        manager, client = start_new_kernel(
            kernel_name="python3", env={"XDG_STATE_HOME": str(state), "PATH": "/usr/bin:/bin"}
        )

    def run(code: str, *, interrupt: bool = False) -> tuple[list[tuple[str, dict[str, str]]], str]:
        shown: list[tuple[str, dict[str, str]]] = []
        error = ""

        def take(message: Any) -> None:
            nonlocal error
            kind, content = message["header"]["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data", "execute_result"):
                if interrupt and not shown:
                    manager.interrupt_kernel()
                shown.append((kind, content["data"]))
            elif kind == "error":
                last = content["traceback"][-1]
                error = f"{content['ename']}: {content['evalue']}\n{last}"
                frames = [one for one in content["traceback"] if "Cell In" not in one]
                assert sum("flux_ensemble" in one for one in frames) <= 3, frames

        client.execute_interactive(code, timeout=PATIENCE, output_hook=take)
        return shown, error

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def test_run_shows_how_far_it_is_and_how_it_ended(run: Run) -> None:
    shown, error = run(MAKE + "ended = ensemble.run('local')")
    assert error == ""
    assert [kind for kind, _ in shown][:1] == ["display_data"]
    assert {kind for kind, _ in shown[1:]} == {"update_display_data"}
    assert "completed" in shown[-1][1]["text/html"]
    assert "1/1" in shown[-1][1]["text/html"]


def test_a_cell_waits_and_shows_the_ensemble(run: Run) -> None:
    run(MAKE)
    shown, error = run("ensemble.start('local'); print((await ensemble.wait())['state'])\nensemble")
    assert error == ""
    assert shown[0][0] == "display_data"
    assert shown[-1][0] == "execute_result"
    # It may be run by now: a run of its own each time, with a name of its own.
    assert re.search(r"<strong>cell(-\d+)?</strong>: completed", shown[-1][1]["text/html"])
    assert re.fullmatch(r"<Ensemble 'cell(-\d+)?': completed>", shown[-1][1]["text/plain"])


LONG = MAKE.replace("sleep 0.1", "sleep 100")


def test_an_interrupted_run_is_shown_as_canceled(run: Run) -> None:
    shown, error = run(LONG + "ensemble.run('local')", interrupt=True)
    assert error.startswith("KeyboardInterrupt")
    assert ": canceled" in shown[-1][1]["text/html"]
    assert re.search(
        r"ensemble 'cell(-\d+)?' and its jobs were cancelled: rerun\(\) runs those jobs again",
        error,
    )


def test_an_interrupted_wait_says_that_the_ensemble_goes_on(run: Run) -> None:
    shown, error = run(LONG + "ensemble.start('local')\nawait ensemble.wait()", interrupt=True)
    assert re.search(
        r"ensemble 'cell(-\d+)?' goes on as long as this program or kernel: 'await wait\(\)' "
        r"follows it again, and cancel\(\) ends it; run\(resume=True\) goes on with it later",
        error,
    )
    assert "not updated any more" in shown[-1][1]["text/html"]
    shown, _ = run("ensemble")
    assert ": running" in shown[-1][1]["text/html"]
    assert "not updated any more" not in shown[-1][1]["text/html"]
    shown, error = run("ensemble.cancel()\n(await ensemble.wait())['state']")
    assert (error, shown[-1][1]["text/plain"]) == ("", "'canceled'")


def test_an_error_names_the_cell(run: Run) -> None:
    imports = "from flux_ensemble import Ensemble, Job"
    made = "Ensemble(name='x', jobs=[Job(name='a', comand='x')]).validate()"
    _, error = run(f"{imports}\n\n{made}")
    assert re.match(r"DocumentError: In\[\d+\]:3: jobs\[0\]\.comand: unknown key", error)


def test_an_ensemble_that_was_not_started_is_shown_without_markup(run: Run) -> None:
    shown, _ = run(MAKE.replace('"cell"', '"<b>"') + "ensemble")
    assert "<b>" not in shown[-1][1]["text/html"]


NOTEBOOKS = sorted((Path(__file__).parents[3] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_of_the_docs_runs_as_it_is(path: Path, tmp_path: Path, run: Run) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    notebook = json.loads(path.read_text())
    assert [cell for cell in notebook["cells"] if cell.get("outputs")] == []
    _, error = run(f"import os\nos.chdir({str(tmp_path)!r})")
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            results, error = run("".join(cell["source"]))
            assert error == ""
            shown += [content["text/plain"] for kind, content in results if "execute" in kind]
    state, table, reasons, report = shown[-4:]
    assert state == "'completed'"
    assert "params.angle = 90: 3 of 3 jobs failed so" in reasons
    assert "an angle of 90.0 degrees throws nothing forward" in reasons
    assert "throws.html" in report
    # A row for each of 12 jobs, and a heading.
    assert len(table.splitlines()) == 13
    assert table.count("failed") == 3
