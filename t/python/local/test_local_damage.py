"""Files of a local run that was killed, cut short and changed in every way: no traceback, and no
recovery but the right one."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_queue import Run, events_in

from flux_ensemble.cli.main import run_command
from flux_ensemble.document.loading import load_text
from flux_ensemble.engine.codec import encode
from flux_ensemble.engine.engine import Engine
from flux_ensemble.metrics.statistics import ESTIMATES
from flux_ensemble.queues.local.recovery import EventFile, recover
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.runtime.durability.timers import Timers

DOCUMENT: dict[str, Any] = {
    "name": "test",
    "jobs": [{"name": "a", "command": "true", "count": 2}],
    "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
}
TEXT = yaml.safe_dump(DOCUMENT)
SPEC = load_text(TEXT)

FILES = ("events", "status.json", "document", "eventlog", "lock", "jobs.lock")

#: Events that the last status of the run knew of; the run was killed some events later.
KNOWN = 12


#: A file is cut at every so many bytes, and so many times fewer bits are turned over; `make chaos`
#: leaves out nothing.
STEP = int(os.environ.get("STEP", "7"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with an ensemble whose run was killed before its end."""
    directory = tmp_path_factory.mktemp("killed")
    assert Run(directory, DOCUMENT).end()[0] == 0
    files = directory / "state" / "test"
    lines = (files / "events").read_bytes().splitlines(keepends=True)
    (files / "events").write_bytes(b"".join(lines[: KNOWN + 4]))
    snapshot = json.loads((files / "status.json").read_text())
    snapshot["status"].update(state="running", reason="", t_end=None)
    snapshot["events"] = KNOWN
    (files / "status.json").write_text(json.dumps(snapshot))
    return directory / "state"


def damages(data: bytes) -> Iterator[bytes]:
    """A file cut short anywhere, with bits turned over, and with lines gone or twice."""
    yield from (data[:size] for size in range(0, len(data), STEP))
    chance = random.Random(1)
    for _ in range(350 // STEP if data else 0):
        bad = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 5))):
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        yield bytes(bad)
    lines = data.splitlines(keepends=True)
    for index in range(len(lines)):
        yield b"".join(lines[:index] + lines[index + 1 :])
        yield b"".join(lines[: index + 1] + lines[index:])


def recovered(root: Path) -> list[str] | None:
    """The events that a run goes on after; None if it is refused with a sentence."""
    try:
        log = StateLog(root, "test", TEXT, resume=True)
    except StateError:
        return None
    taken: list[str] = []
    file = EventFile(log.directory, Timers(), pytest.fail)
    engine = Engine(SPEC)

    def noted() -> Iterator[Any]:
        for event in file.read(log.events):
            taken.append(encode(event))
            yield event

    try:
        recover(engine, file.timers, noted(), lambda _: None)
        engine.check()
    except ValueError:
        return None
    finally:
        file.close()
        log.close()
    return taken


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_a_sentence_or_the_right_recovery(
    killed: Path, tmp_path: Path, name: str
) -> None:
    right = [encode(event) for event in events_in(killed / "test")]
    root = tmp_path / "state"
    good = (killed / "test" / name).read_bytes()
    refused = went_on = 0
    shutil.copytree(killed, root)
    for data in (good, *damages(good)):
        # What goes on cuts off what was cut off of the events.
        shutil.copy(killed / "test" / "events", root / "test")
        (root / "test" / name).write_bytes(data)
        found = recovered(root)
        if found is None:
            refused += 1
            continue
        went_on += 1
        if name == "events":
            # Cut off after what the status knew of, as if the run had been killed then.
            assert found == right[: len(found)]
            assert len(found) >= KNOWN
        else:
            assert found == right
    assert went_on
    # What people read is not needed to go on.
    assert not (refused and name in ("eventlog", "lock", "jobs.lock"))


@pytest.mark.parametrize("name", ["status.json", "eventlog", "lock"])
def test_a_damaged_file_is_no_traceback_to_a_reader(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    root = tmp_path / "state"
    shutil.copytree(killed, root)
    good = (killed / "test" / name).read_bytes()
    words = {
        "status.json": (["status", "test"], ["metrics", "test"], ["list"]),
        "eventlog": (["log", "test"],),
        "lock": (["status", "test"],),
    }
    for data in damages(good):
        (root / "test" / name).write_bytes(data)
        for one in words[name]:
            code = run_command([*one, "--state-dir", str(root)])
            err = capsys.readouterr().err.replace(f"flux-ensemble: {ESTIMATES}\n", "")
            assert code in (0, 1)
            assert bool(err) == (code == 1)
            assert err.startswith("flux-ensemble: ERROR: ") or not err
