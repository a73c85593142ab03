"""What jobs of the local queue can do to the run that they are in: nothing that it does not say."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, await_end, bench, children, command, shell

from flux_ensemble.queues.local import memos
from flux_ensemble.queues.local.memos import MemoError, MemoSocket
from flux_ensemble.queues.local.states import States

SUBMIT = [{"trigger": "start", "action": {"name": "submit", "label": "a"}}]

#: Sends datagrams that are given as words, or for ever.
SEND = """
import os, socket, sys
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
out.connect(os.environ["FLUX_ENSEMBLE_MEMO"])
for word in sys.argv[1:]:
    out.send(word.encode())
while len(sys.argv) == 1:
    out.send(b'{"id": %d, "memo": {"x": 1}}' % int(os.environ["FLUX_JOB_ID"]))
"""


# -- files and processes --------------------------------------------------------------


def test_an_output_that_is_a_fifo_which_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with bench(tmp_path, command="true", output="fifo") as one:
        one.submit()
        one.run()
    assert one.context("exception")["note"] == "cannot open 'fifo': No such device or address"


def test_an_output_that_is_a_fifo_which_is_read_is_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = subprocess.Popen(
        ["sh", "-c", "exec <fifo; wc -c"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    # More than a pipe holds: the job waits for the reader, as it would anywhere.
    writes = shell("head -c 1000000 /dev/zero")
    with bench(tmp_path, command=writes, output="fifo", error="err") as one:
        held = os.open(tmp_path / "fifo", os.O_RDWR)
        one.submit()
        one.wait("start")
        os.close(held)
        one.run()
    assert reader.communicate()[0] == b"1000000\n"
    assert (tmp_path / "err").read_text() == ""


def test_output_in_the_place_of_which_a_job_put_something_else_ends_the_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "precious").write_text("precious")
    with bench(tmp_path, command=shell("ln -s ../precious output/2.out"), count=2) as one:
        one.submit()
        one.run()
        assert one.names(1)[-1] == "clean"
        one.submit(1, first=1)
        one.loop.run(lambda: bool(one.lost))
    assert one.lost == [f"cannot write {one.output}/2.out: Too many levels of symbolic links"]
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("whom", ["$PPID", "$(ps -o ppid= -p $PPID)"])
def test_a_job_that_kills_what_started_it_ends_the_run_with_a_sentence(
    tmp_path: Path, whom: str
) -> None:
    script = f"echo $$ >>pids; sleep 1000 & echo $! >>pids; kill -9 {whom}; wait"
    document = {"jobs": [{"name": "a", "command": ["sh", "-c", script]}], "rules": SUBMIT}
    code, out, err = Run(tmp_path, document).end()
    assert code == 1
    assert "the process that starts the jobs has ended unexpectedly" in out
    assert "its jobs are killed; --resume goes on" in err
    for pid in (tmp_path / "pids").read_text().split():
        await_end(int(pid))


def test_a_job_can_stop_the_run_which_then_goes_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = "kill -STOP $(cat <fifo); echo >fifo; read _ <fifo"
    document = {"jobs": [{"name": "a", "command": ["sh", "-c", script]}], "rules": SUBMIT}
    run = Run(tmp_path, document, cold=True)
    (tmp_path / "fifo").write_text(f"{run.process.pid}\n")
    (tmp_path / "fifo").read_text()
    (tmp_path / "fifo").write_text("\n")
    os.waitpid(run.process.pid, os.WUNTRACED)
    run.process.send_signal(signal.SIGCONT)
    assert run.end()[0] == 0
    assert States(run.state).status("test")["groups"]["a"]["success"] == 1


#: Ends when all its children have left its process group.
DAEMONS = """
import os, signal
told, tell = os.pipe()
for _ in range(1000):
    if not os.fork():
        os.setsid()
        os.write(tell, b".")
        signal.pause()
left = 0
while left < 1000:
    left += len(os.read(told, 1000))
"""


def test_a_thousand_daemons_do_not_outlive_the_run(tmp_path: Path) -> None:
    # Those that have not left the process group when the job ends would end with it.
    with bench(tmp_path, command=[sys.executable, "-IS", "-c", DAEMONS]) as one:
        # The children of a process are in the order in which they began.
        guard = children(os.getpid())[-1]
        one.submit()
        one.run()
        (supervisor,) = children(guard)
        left = children(supervisor)
        assert len(left) == 1000
    for pid in left:
        await_end(pid)


def test_a_job_has_no_terminal(tmp_path: Path) -> None:
    with bench(tmp_path, command=shell("(: </dev/tty) 2>/dev/null; echo $?; stty 2>&1")) as one:
        one.submit()
        one.run()
    code, said = one.printed().splitlines()
    assert code != "0"
    assert "stty" in said


# -- memos ----------------------------------------------------------------------------

BAD = {
    "{": "it is not JSON",
    "[" * 20_000: "it is not JSON",
    '{"id": 1, "memo": {"x": NaN}}': "it is not JSON",
    "[]": "it has not the form of a memo",
    '{"id": 1}': "it has not the form of a memo",
    '{"id": "1", "memo": {}}': "it has not the form of a memo",
    '{"id": 1, "memo": {"x": "' + "y" * 40_000 + '"}}': "it has more than 32768 bytes",
    '{"id": 1, "memo": {"x": 1e999}}': "a number in it is too large",
    '{"id": 1, "memo": {"x": [{"y": -1e999}]}}': "a number in it is too large",
    '{"id": 1, "memo": {"x": 1' + "0" * 400 + "}}": "an integer in it has more than 64 bits",
    '{"id": 1, "memo": {"x": 9223372036854775808}}': "an integer in it has more than 64 bits",
    '{"id": 1, "memo": {"x": "\\ud800"}}': "a text in it is not Unicode (a lone surrogate)",
    '{"id": 1, "memo": {"\\udfff": 1}}': "a text in it is not Unicode (a lone surrogate)",
    '{"id": 1, "memo": {"x": ' + "[" * 40 + "]" * 40 + "}}": (
        "its values are nested more than 32 levels deep"
    ),
}


def test_what_is_no_memo_is_dropped_and_said_once(tmp_path: Path) -> None:
    good = '{"id": 1, "memo": {"x": 2, "y": "a\\u0000b", "z": -9223372036854775808}}'
    with bench(tmp_path, command=[sys.executable, "-c", SEND, *BAD, *BAD, good]) as one:
        one.submit()
        one.run()
    contexts = [event.context for event in one.events if event.name == "memo"]
    assert contexts == [{"x": 2, "y": "a\0b", "z": -(2**63)}]
    reasons = dict.fromkeys(BAD.values())
    assert one.warned == [f"a memo of a job was dropped: {why}" for why in reasons]


def test_the_keys_of_all_memos_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memos, "MAX_KEYS", 3)
    taken: list[Any] = []
    warned: list[str] = []
    receiver = MemoSocket(str(tmp_path), lambda _, memo: taken.append(memo), warned.append)
    for key in "abcdea":
        memos.send(receiver.path, 1, {key: 1})
    receiver.receive()
    receiver.close()
    assert taken == [{"a": 1}, {"b": 1}, {"c": 1}, {"a": 1}]
    assert warned == [
        "a memo of a job was dropped: memos of an ensemble have at most 3 different keys"
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("1" + "0" * 400, "an integer in it has more than 64 bits"),
        ('"\\ud800"', "a text in it is not Unicode"),
        ("[" * 50 + "]" * 50, "its values are nested more than 32 levels deep"),
    ],
)
def test_memo_refuses_what_no_memo_can_hold(tmp_path: Path, value: str, why: str) -> None:
    with pytest.raises(MemoError, match=why):
        memos.send("/nowhere", 1, {"x": json.loads(value)})
    environment = {**os.environ, "FLUX_JOB_ID": "1", memos.VARIABLE: "/nowhere"}
    done = subprocess.run(
        command("memo", f"x={value}"), env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("flux-ensemble: ERROR: a memo cannot be sent: ")
    assert why in done.stderr


def test_a_flood_of_memos_keeps_nothing_else_from_happening(tmp_path: Path) -> None:
    """Jobs that send for ever, and slow nobody down but themselves, until another one ends them."""
    document = {
        "jobs": [
            {"name": "a", "command": [sys.executable, "-c", SEND], "count": 4},
            {"name": "b", "command": "true"},
        ],
        "rules": [
            *SUBMIT,
            {"trigger": "timer", "after": 1.0, "action": {"name": "submit", "label": "b"}},
            {"trigger": "job-success", "group": "b",
             "action": {"name": "terminate", "cancel": True}},
        ],
    }  # fmt: skip
    run = Run(tmp_path, document, "--cores", "4")
    assert run.end()[0] == 0
    groups = States(run.state).status("test")["groups"]
    assert (groups["b"]["success"], groups["a"]["canceled"]) == (1, 4)


def test_all_memos_before_the_end_of_a_job_are_taken_in_before_it(tmp_path: Path) -> None:
    count = 5000
    words = ['{"id": 1, "memo": {"x": 1}}'] * count
    (tmp_path / "words").write_text("\n".join(words))
    code = SEND.replace("sys.argv[1:]", "open('words').read().splitlines()")
    with bench(tmp_path, command=[sys.executable, "-c", code, "once"]) as one:
        one.submit()
        one.run()
    names = one.names()
    assert names.count("memo") == count
    assert "memo" not in names[names.index("finish") :]


def test_the_socket_holds_fewer_memos_than_are_taken_in_at_once(tmp_path: Path) -> None:
    """So what a job sent before its end is among those."""
    receiver = MemoSocket(str(tmp_path), lambda *_: None, print)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
        out.connect(receiver.path)
        with pytest.raises(BlockingIOError):
            send_often(out, memos.AT_ONCE)
    receiver.close()


def send_often(out: socket.socket, count: int) -> None:
    """Send so many datagrams."""
    for _ in range(count):
        out.send(b"{}")
