"""The site's command that starts brokers."""

from __future__ import annotations

import os
import re
import select
from pathlib import Path

import pytest
from loops import SelectorLoop
from patience import PATIENCE

from flux_ensemble.queues.elastic.commands import COMMANDS, Commands, check_template


def outcomes(template: str, ranks: int = 1, limit: float = PATIENCE) -> dict[int, str | None]:
    """What came of the command for some ranks."""
    found: dict[int, str | None] = {}
    with SelectorLoop() as loop:
        commands = Commands(loop, template, os.environ, limit)
        for rank in range(ranks):

            def ended(reason: str | None, rank: int = rank) -> None:
                assert rank not in found
                found[rank] = reason

            commands.run(rank, f"node{rank}", ended)
        loop.run(lambda: len(found) == ranks)
        assert not loop.watching
    return found


def test_the_command_runs_once_for_each_broker(tmp_path: Path) -> None:
    many = 2 * COMMANDS + 1
    found = outcomes(f"sh -c 'echo {{rank}} >{tmp_path}/{{host}}'", many)
    assert found == dict.fromkeys(range(many))
    wrote = {path.name: path.read_text().strip() for path in tmp_path.iterdir()}
    assert wrote == {f"node{rank}": str(rank) for rank in range(many)}


def test_a_command_that_fails_is_told_of_with_what_it_said_last() -> None:
    template = "sh -c 'echo {host}; seq 1000; echo no route >&2; exit 3'"
    reason = outcomes(template)[0]
    assert reason is not None
    assert re.search(r"failed \(exit status 3\): .* 999 1000 no route$", reason)
    assert "node0; seq" in reason
    assert len(reason) < 600


def test_a_command_that_is_killed_or_not_there_is_told_of() -> None:
    assert "failed (signal 9)" in str(outcomes("sh -c 'kill -9 $$ {rank}'")[0])
    missing = outcomes("/no/such/command {rank}")[0]
    assert missing is not None
    assert missing.startswith("cannot run '/no/such/command': ")


def test_a_command_that_hangs_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    template = f"sh -c 'sleep 60{{rank}} & echo $! >{tmp_path}/pid; wait'"
    reason = outcomes(template, limit=2)[0]
    assert reason is not None
    assert reason.endswith("did not end within 2 s")
    try:
        started = os.pidfd_open(int((tmp_path / "pid").read_text()))
    except ProcessLookupError:
        return
    # A busy machine takes a while to end what was killed.
    ended, _, _ = select.select([started], [], [], 30)
    os.close(started)
    assert ended


def test_a_broker_that_the_command_leaves_behind_is_not_waited_for_nor_killed(
    tmp_path: Path,
) -> None:
    template = f"sh -c 'sleep 60{{rank}} & echo $! >{tmp_path}/pid'"
    assert outcomes(template) == {0: None}
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_closing_ends_what_runs_and_tells_nobody() -> None:
    with SelectorLoop() as loop:
        commands = Commands(loop, "sleep 60{rank}", os.environ, 60)
        told: list[str | None] = []
        for rank in range(COMMANDS + 2):
            commands.run(rank, "node", told.append)
        loop.run(lambda: len(commands._running) == COMMANDS)
        commands.close()
        assert not loop.watching
        assert not told


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("", "names {host} or {rank}, not ''"),
        ("start", "names {host} or {rank}"),
        ("start {hostname}", "unknown field {hostname}"),
        ("start {}", "unknown field {}"),
        ("start {host", "start-broker: expected '}'"),
        ("start '{host}", "No closing quotation"),
    ],
)
def test_a_template_that_cannot_work_is_refused(template: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        check_template(template)


def test_a_template_is_split_as_a_shell_does_before_it_is_filled_in() -> None:
    words = check_template("ssh {host} 'flux broker' --setattr={{x}}={rank}")
    assert words == ["ssh", "{host}", "flux broker", "--setattr={{x}}={rank}"]
