"""The local queue: processes with the events of a real job."""

from __future__ import annotations

import os
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dead_mount import dead_mount
from local_queue import await_end, await_pid, bench, shell
from patience import PATIENCE

from flux_ensemble.engine.events import CPU, RSS
from flux_ensemble.queues.local import processes
from flux_ensemble.queues.virtual.cluster import UnsatisfiableError, VirtualCluster
from flux_ensemble.runtime import outputs

WHOLE_LIFE = [
    "submit", "validate", "depend", "priority", "alloc",
    "start", "finish", "release", "free", "clean",
]  # fmt: skip


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A FIFO in the directory of the jobs."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture
def reader(fifo: Path) -> Iterator[int]:
    """That FIFO, open for reading, so that no job waits to write into it."""
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    yield fd
    os.close(fd)


def test_a_job_has_the_events_of_a_real_job_in_their_order(tmp_path: Path) -> None:
    with bench(tmp_path, command="true") as one:
        one.submit()
        one.run()
    assert one.names() == WHOLE_LIFE
    assert one.context("finish")["status"] == 0
    times = [event.t for event in one.events]
    assert times == sorted(times)
    assert one.events[0].tag == ("j", "r", 0, 0)


def test_the_status_of_a_job_is_its_exit_code_or_signal_as_in_flux(tmp_path: Path) -> None:
    with bench(tmp_path, command=shell("{do}"), params={"do": ["exit 3", "kill -9 $$"]}) as one:
        one.submit(2)
        one.run()
    assert one.context("finish", 1)["status"] == 3 << 8
    assert one.context("finish", 2)["status"] == (128 + 9) << 8


def test_a_command_that_does_not_exist_is_an_exception_as_in_flux(tmp_path: Path) -> None:
    with bench(tmp_path, command="no-such-command") as one:
        one.submit()
        one.run()
    start = WHOLE_LIFE.index("start") + 1
    assert one.names() == [*WHOLE_LIFE[:start], "exception", *WHOLE_LIFE[start:]]
    exception = one.context("exception")
    assert (exception["type"], exception["severity"]) == ("exec", 0)
    expected = "task 0: start failed: no-such-command: No such file or directory"
    assert exception["note"] == expected
    assert one.context("finish")["status"] == 127 << 8


@pytest.mark.parametrize("name", ["plain", "directory"])
def test_a_file_that_cannot_be_executed_is_an_exception_as_in_flux(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "plain").write_text("echo hello\n")
    (tmp_path / "directory").mkdir()
    with bench(tmp_path, command=name, base={"PATH": str(tmp_path)}) as one:
        one.submit()
        one.run()
    assert one.context("finish")["status"] == 126 << 8
    assert "Permission denied" in one.context("exception")["note"]


def test_a_command_is_the_first_on_the_path_that_can_be_executed(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("nothing", "directory", "plain", "right", "late")]
    for place in places[1:]:
        place.mkdir()
    (tmp_path / "directory" / "greet").mkdir()
    for name, mode in (("plain", 0o644), ("right", 0o755), ("late", 0o755)):
        file = tmp_path / name / "greet"
        file.write_text(f"#!/bin/sh\necho {name}\n")
        file.chmod(mode)
    with bench(tmp_path, command="greet", base={"PATH": ":".join(map(str, places))}) as one:
        one.submit()
        one.run()
    assert one.printed() == "right\n"


def test_a_command_that_was_moved_is_found_where_it_is_now(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("here", "there")]
    for place in places:
        place.mkdir()
        file = place / "greet"
        file.write_text(f"#!/bin/sh\necho {place.name}\n")
        file.chmod(0o755)
    path = ":".join(map(str, places))
    with bench(tmp_path, command="greet", count=3, base={"PATH": path}) as one:
        one.submit()
        one.run()
        (tmp_path / "here" / "greet").unlink()
        one.submit(first=1)
        one.run()
        (tmp_path / "there" / "greet").unlink()
        one.submit(first=2)
        one.run()
    assert [one.printed(1), one.printed(2)] == ["here\n", "there\n"]
    assert one.context("finish", 3)["status"] == 127 << 8


def test_a_command_on_a_relative_path_is_that_of_the_working_directory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        file = tmp_path / name / "bin" / "greet"
        file.parent.mkdir(parents=True)
        file.write_text(f"#!/bin/sh\necho {name}\n")
        file.chmod(0o755)
    job: dict[str, Any] = {"command": "greet", "workdir": "{d}", "params": {"d": ["a", "b"]}}
    with bench(tmp_path, base={"PATH": f"bin:{os.environ['PATH']}"}, **job) as one:
        one.submit(2)
        one.run()
    assert [one.printed(1), one.printed(2)] == ["a\n", "b\n"]


def test_a_script_without_an_interpreter_line_is_run_by_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $1\n")
    script.chmod(0o755)
    with bench(tmp_path, command=["./script", "hello"]) as one:
        one.submit()
        one.run()
    assert one.printed() == "hello\n"


def test_working_directories_are_made_and_jobs_do_not_share_them(tmp_path: Path) -> None:
    job: dict[str, Any] = {"command": shell("echo {x} >result; pwd"), "params": {"x": [1, 2]}}
    with bench(tmp_path, workdir="runs/{x}", **job) as one:
        one.submit(2)
        one.run()
    assert [one.printed(1), one.printed(2)] == [f"{tmp_path}/runs/{x}\n" for x in (1, 2)]
    assert [(tmp_path / "runs" / x / "result").read_text() for x in "12"] == ["1\n", "2\n"]


@pytest.mark.parametrize("what", ["a file above it", "a file", "a link to itself", "a long name"])
def test_a_job_whose_working_directory_cannot_be_entered_runs_nowhere(
    tmp_path: Path, what: str
) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    where, why = {
        "a file above it": ("plain/below", "Not a directory"),
        "a file": ("plain", "File exists"),
        "a link to itself": ("loop/below", "Too many levels of symbolic links"),
        "a long name": ("x" * 300, "File name too long"),
    }[what]
    with bench(tmp_path, command=shell(f"touch {tmp_path}/ran"), workdir=where) as one:
        one.submit()
        one.run()
    assert one.context("finish")["status"] == 1 << 8
    note = one.context("exception")["note"]
    assert note.startswith(f"cannot change to the working directory '{tmp_path}/{where}': ")
    assert why in note
    assert not (tmp_path / "ran").exists()


def test_inputs_are_linked_into_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "a.in").write_text("a\n")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "table").write_text("table\n")
    job: dict[str, Any] = {
        "command": shell("cat {x}.in shared/table"), "params": {"x": ["a", "b"]},
        "workdir": "runs/{x}", "inputs": ["shared/", "{x}.in"],
    }  # fmt: skip
    with bench(tmp_path, **job) as one:
        one.submit(2)
        one.run()
        assert one.printed(1) == "a\ntable\n"
        assert one.context("exception", 2) == {
            "type": "exec", "severity": 0,
            "note": f"start failed: cannot link the input '{tmp_path}/b.in': it does not exist",
        }  # fmt: skip
        assert one.context("finish", 2)["status"] == 127 << 8
        assert not list((tmp_path / "runs" / "b").iterdir())
        # Both run again: the links of the one are there already.
        (tmp_path / "b.in").write_text("b\n")
        one.submit(2)
        one.run()
    assert [one.printed(3), one.printed(4)] == ["a\ntable\n", "b\ntable\n"]


def test_inputs_on_a_file_system_that_does_not_answer_hold_back_their_own_jobs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "SECONDS", 1.0)
    # What lies beside it here would be on another file system elsewhere.
    monkeypatch.setattr(outputs, "NAMES", len((tmp_path / "dead").parts) - 1)
    with dead_mount(tmp_path / "dead"):
        job: dict[str, Any] = {
            "command": "true", "workdir": "{x}", "inputs": ["in"],
            "params": {"x": ["dead/1", "dead/2", "good"]},
        }  # fmt: skip
        (tmp_path / "in").write_text("")
        with bench(tmp_path, VirtualCluster(4, 1), **job) as one:
            one.submit(2)
            one.submit(1, first=2)
            one.loop.run(lambda: one.runner.running == 3)
            one.cancel(1)
            one.wait("clean", 1)
            assert one.names(1)[-6:] == ["exception", "start", "finish", "release", "free", "clean"]
            assert one.context("finish", 1) == {"status": signal.SIGTERM}
            one.run()
            assert one.context("finish", 3)["status"] == 0
            assert one.context("exception", 2)["note"].startswith(
                "start failed: cannot link the inputs into the working directory: "
            )
            assert one.context("finish", 2) == {"status": 127 << 8}


def test_a_run_ends_while_a_file_system_does_not_answer(tmp_path: Path) -> None:
    with dead_mount(tmp_path / "dead"), bench(tmp_path, command="true", workdir="dead/1",
                                              inputs=["in"]) as one:  # fmt: skip
        (tmp_path / "in").write_text("")
        one.submit()
        one.loop.run(lambda: one.runner.running == 1)
        one.queue.stop()
        one.loop.run(lambda: not one.runner.running)
    assert one.loop.timers == 0


def test_a_job_that_is_cancelled_before_it_fails_for_want_of_an_input_ends_once(
    tmp_path: Path,
) -> None:
    with bench(tmp_path, command="true", workdir="w", inputs=["none"]) as one:
        one.submit()
        one.run()
        one.submit()
    assert one.names(1) == [*WHOLE_LIFE[:6], "exception", *WHOLE_LIFE[6:]]


def test_output_files_are_made_in_a_working_directory_that_is_made(tmp_path: Path) -> None:
    with bench(tmp_path, command="pwd", workdir="{index}", output="out/a.txt") as one:
        one.submit()
        one.run()
    assert (tmp_path / "0" / "out" / "a.txt").read_text() == f"{tmp_path}/0\n"


@pytest.mark.parametrize("key", ["output", "error"])
def test_a_missing_working_directory_sends_no_file_elsewhere(tmp_path: Path, key: str) -> None:
    name = f"stray-{os.getpid()}.txt"
    files: dict[str, Any] = {key: name}
    (tmp_path / "plain").write_text("")
    with bench(tmp_path, command="pwd", workdir="plain/below", **files) as one:
        one.submit()
        one.run()
    assert one.context("exception")["note"] == (
        f"cannot change to the working directory '{tmp_path}/plain/below': Not a directory"
    )
    assert one.context("finish")["status"] == 1 << 8
    assert not Path("/tmp", name).exists()


def test_a_job_runs_in_its_working_directory_and_environment(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with bench(
        tmp_path,
        command=shell('echo "$PWD $X $FLUX_JOB_ID $FLUX_JOB_SIZE $FLUX_JOB_NNODES $HOME"'),
        workdir="there",
        environment={"X": "{x}"},
        params={"x": [7]},
    ) as one:
        one.submit()
        one.run()
    assert one.printed() == f"{tmp_path}/there 7 1 1 1 \n"


def test_a_job_has_as_many_processes_as_tasks_and_the_highest_status(tmp_path: Path) -> None:
    with bench(
        tmp_path,
        command=shell("echo $FLUX_TASK_RANK of $FLUX_JOB_SIZE; exit $FLUX_TASK_RANK"),
        tasks=3,
        nodes=2,
    ) as one:
        one.submit()
        one.run()
    assert sorted(one.printed().splitlines()) == ["0 of 3", "1 of 3", "2 of 3"]
    assert one.context("finish")["status"] == 2 << 8
    assert one.names() == WHOLE_LIFE


def test_a_job_tells_what_its_processes_used_and_their_children(tmp_path: Path) -> None:
    program = "data = bytearray(150_000_000); print(sum(range(3_000_000)))"
    command = [sys.executable, "-I", "-S", "-c", program]
    inside = shell(f"{shlex.join(command)}; true")
    with bench(tmp_path, command=inside, tasks=2) as one:
        one.submit()
        one.run()
    used = one.context("finish")
    assert used.keys() == {"status", CPU, RSS}
    # In KiB; the two tasks have as much, and each has its own processor time.
    assert 140_000 < used[RSS] < 290_000
    assert used[CPU] > 40_000


def test_a_job_that_did_not_run_used_nothing_that_is_known(tmp_path: Path) -> None:
    with bench(tmp_path, command="no-such-command") as one:
        one.submit()
        one.run()
    assert one.context("finish").keys() == {"status"}


def test_output_goes_to_the_files_of_the_document(tmp_path: Path) -> None:
    with bench(
        tmp_path,
        command=shell("echo out; echo err >&2"),
        output="{{name}}-{{id}}.txt",
        error="{{jobid}}-{{nnodes}}-{{other}}.err",
    ) as one:
        one.submit(1)
        one.run()
    assert (tmp_path / "j-1.txt").read_text() == "out\n"
    assert (tmp_path / "1-1-{{other}}.err").read_text() == "err\n"
    assert list(one.output.iterdir()) == []


def test_errors_go_where_the_output_goes(tmp_path: Path) -> None:
    with bench(tmp_path, command=shell("echo out; echo err >&2"), output="a.txt") as one:
        one.submit()
        one.run()
    assert (tmp_path / "a.txt").read_text() == "out\nerr\n"


def test_without_a_file_the_output_is_kept_and_an_empty_one_is_not(tmp_path: Path) -> None:
    with bench(tmp_path, command=shell("{do}"), params={"do": ["echo hello", "true"]}) as one:
        one.submit(2)
        one.run()
    assert [path.name for path in one.output.iterdir()] == ["1.out"]
    assert one.printed() == "hello\n"


def test_an_output_file_that_cannot_be_opened_is_an_exception(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with bench(tmp_path, command="true", output="plain/out/file") as one:
        one.submit()
        one.run()
    assert one.context("exception")["note"] == ("cannot open 'plain/out/file': Not a directory")
    assert one.context("finish")["status"] == 1 << 8


def test_the_directory_of_an_output_file_is_made(tmp_path: Path) -> None:
    with bench(tmp_path, command="echo hi", output="out/{{id}}/a.txt", error="out/b.txt") as one:
        one.submit()
        one.run()
    assert (tmp_path / "out" / "1" / "a.txt").read_text() == "hi\n"
    assert (tmp_path / "out" / "b.txt").is_file()


def test_a_job_reads_nothing_and_has_no_descriptor_of_the_queue(tmp_path: Path) -> None:
    code = "import os, sys; print(repr(sys.stdin.read()), sorted(os.listdir('/proc/self/fd')))"
    with bench(tmp_path, command=[sys.executable, "-c", code]) as one:
        one.submit()
        one.run()
    # 3 is what lists them.
    assert one.printed() == "'' ['0', '1', '2', '3']\n"


def test_the_time_limit_ends_a_job_with_a_timeout(tmp_path: Path) -> None:
    with bench(tmp_path, command="sleep 1000", duration=0.05) as one:
        one.submit()
        one.run()
    assert one.context("exception")["type"] == "timeout"
    assert one.context("finish")["status"] == (128 + signal.SIGTERM) << 8


def test_a_job_over_its_limit_timed_out_though_it_ended_by_itself(
    tmp_path: Path, reader: int
) -> None:
    with bench(tmp_path, command=shell("sleep 0.2; echo >fifo"), duration=0.1) as one:
        one.submit()
        one.wait("start")
        # The queue is busy until the job is over.
        os.read(reader, 1)
        select.select([one.runner._channel.fileno()], [], [], PATIENCE)
        one.run()
    assert one.context("exception")["type"] == "timeout"
    assert one.context("finish")["status"] == 0
    assert one.names()[5:8] == ["start", "exception", "finish"]
    times = [event.t for event in one.events if event.name in ("exception", "finish")]
    assert times[0] == times[1]


def test_a_limit_counts_from_the_start_and_not_from_when_the_queue_reads_of_it(
    tmp_path: Path,
) -> None:
    with bench(tmp_path, command="sleep 1000", duration=1.0) as one:
        one.submit()
        one.until(lambda: bool(one.runner.running))
        one.runner.flush()
        select.select([one.runner._channel.fileno()], [], [], PATIENCE)
        time.sleep(1.0)  # it is busy
        read = time.time()
        one.run()
    exception = next(event for event in one.events if event.name == "exception")
    assert exception.context["type"] == "timeout"
    assert exception.t < read + 1.0


def test_a_job_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.05)
    ready = tmp_path / "ready"
    script = "trap '' TERM; : >ready; while :; do sleep 1000; done"
    with bench(tmp_path, command=shell(script)) as one:
        one.submit()
        one.until(ready.exists)
        one.cancel(1)
        one.cancel(1)
        one.run()
    assert one.context("exception") == {"type": "cancel", "severity": 0, "note": "enough"}
    assert one.context("finish")["status"] == (128 + signal.SIGKILL) << 8


def test_a_new_time_limit_counts_from_the_start_of_the_job(tmp_path: Path) -> None:
    with bench(tmp_path, command="sleep 1000") as one:
        one.submit()
        one.wait("start")
        one.update(1, duration=0.01)
        one.run()
    assert one.context("exception")["type"] == "timeout"


def test_a_job_that_waits_is_cancelled_without_a_start(tmp_path: Path) -> None:
    with bench(tmp_path, VirtualCluster(1, 1), command="sleep 1000", count=2) as one:
        one.submit(2)
        one.wait("start")
        one.cancel(2)
        assert one.names(2) == [*WHOLE_LIFE[:4], "exception", "clean"]
        one.cancel(1)
        one.run()


def test_urgency_decides_who_starts_next(tmp_path: Path) -> None:
    with bench(tmp_path, VirtualCluster(1, 1), command="true", count=3) as one:
        one.submit(3)
        one.update(2, urgency=0)
        one.update(3, urgency=31)
        one.wait("clean", 1)
        one.update(2, urgency=16)
        one.run()
    started = [event.job for event in one.events if event.name == "start"]
    assert started == [3, 1, 2]


def test_a_request_that_the_cluster_cannot_satisfy_ends_as_in_flux(tmp_path: Path) -> None:
    with bench(tmp_path, VirtualCluster(2, 2), command="true", nodes=3) as one:
        one.submit()
        one.run()
    assert one.names() == [*WHOLE_LIFE[:4], "exception", "clean"]
    assert one.context("exception")["type"] == "alloc"
    assert one.context("exception")["note"].startswith("unsatisfiable request: ")


def test_no_more_runs_at_once_than_there_are_cores(tmp_path: Path) -> None:
    with bench(tmp_path, VirtualCluster(2, 2), command="true", count=12) as one:
        one.submit(12)
        one.run()
    running = most = 0
    for event in one.events:
        running += {"alloc": 1, "free": -1}.get(event.name, 0)
        most = max(most, running)
    assert most == 4


def test_a_job_starts_though_the_loop_does_not_turn_again(tmp_path: Path, reader: int) -> None:
    with bench(tmp_path, command=shell("echo here >fifo")) as one:
        one.submit()
        one.wait("alloc")
        assert select.select([reader], [], [], PATIENCE)[0], "nobody told the supervisor"


def test_a_job_starts_when_its_process_does_not_when_the_queue_hears_of_it(
    tmp_path: Path, fifo: Path
) -> None:
    with bench(tmp_path, command=shell("exec date +%s.%N >fifo")) as one:
        one.submit()
        one.wait("alloc")
        # The queue does nothing else until the process is there.
        ran = float(fifo.read_text())
        one.run()
    (start,) = [event.t for event in one.events if event.name == "start"]
    assert start <= ran


def test_no_child_outlives_its_job(tmp_path: Path, reader: int) -> None:
    with bench(tmp_path, command=shell("sleep 1000 & echo $! >fifo")) as one:
        one.submit()
        one.run()
        await_end(int(os.read(reader, 100)))


def test_closing_the_queue_kills_daemons_that_left_their_group(tmp_path: Path, reader: int) -> None:
    script = "setsid sh -c 'echo $$ >fifo; : >there; exec sleep 1000' & "
    script += "while ! test -e there; do sleep 0.01; done"
    with bench(tmp_path, command=shell(script)) as one:
        one.submit()
        one.run()
        pid = int(os.read(reader, 100))
        os.kill(pid, 0)
    await_end(pid)


def test_the_end_of_the_supervisor_is_reported_and_ends_the_jobs(
    tmp_path: Path, fifo: Path
) -> None:
    with bench(tmp_path, command=shell("ps -o ppid= -p $$ >fifo; exec sleep 1000")) as one:
        one.submit()
        one.wait("start")
        os.kill(await_pid(fifo), signal.SIGKILL)
        one.loop.run(lambda: bool(one.lost))
    assert one.lost == ["the process that starts the jobs has ended unexpectedly"]


def test_a_form_of_resources_that_there_is_not_is_refused(tmp_path: Path) -> None:
    slot = {"type": "slot", "count": 1, "label": "task", "with": [{"type": "node", "count": 1}]}
    task = {"command": ["true"], "slot": "task", "count": {"per_slot": 1}}
    document = {
        "version": 1,
        "resources": [slot],
        "tasks": [task],
        "attributes": {"system": {"duration": 0}},
    }
    with (
        pytest.raises(UnsatisfiableError, match="job group 'j': no resources of type 'node'"),
        bench(tmp_path, jobspec=document),
    ):
        pass
