"""Custom functions that hang, die, shout and meddle: nothing of it reaches the service."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from caller_bench import KWARGS, Bench, Make, benches
from patience import PATIENCE

from flux_ensemble.runtime.custom import child
from flux_ensemble.runtime.custom.caller import MAX_LINES, FunctionResult
from flux_ensemble.runtime.custom.process import MAX_OUTPUT

#: A function that tells the worker's process, in every source below.
PID = "import os\ndef pid(**kwargs): return Action(pid=os.getpid())\n"

#: A function that starts a process that keeps its output and writes down its id.
BACKGROUND = PID + (
    "import subprocess\n"
    "def background(**kwargs):\n"
    "    child = subprocess.Popen(['sleep', '1000'])\n"
    "    return Action(pid=os.getpid(), child=child.pid)\n"
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path) as make:
        yield make


def runs(pid: int) -> bool:
    """A process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_of(bench: Bench) -> int:
    """The process that runs the functions now."""
    pid = bench.call("pid").returned[0]["value"]["pid"]
    assert isinstance(pid, int)
    return pid


def test_a_function_that_hangs_is_ended_and_the_next_call_gets_a_new_process(bench: Make) -> None:
    one = bench(PID + "import time\ndef f(**kwargs): time.sleep(1000)\n")
    first = pid_of(one)
    assert one.failure(timeout=0.2)[0] == "custom function 'f' was ended after 0.2 s, its 'timeout'"
    assert pid_of(one) != first
    one.loop.run(until=lambda: not runs(first))


def test_a_function_that_never_lets_go_of_the_interpreter_is_ended(bench: Make) -> None:
    one = bench("import re\ndef f(**kwargs): re.match('(a+)+$', 'a' * 64 + 'b')\n")
    assert one.failure(timeout=0.2)[0] == "custom function 'f' was ended after 0.2 s, its 'timeout'"


def test_a_function_that_ignores_signals_is_ended(bench: Make) -> None:
    one = bench(
        "import signal, time\n"
        "def f(**kwargs):\n"
        "    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "        signal.signal(number, signal.SIG_IGN)\n"
        "    time.sleep(1000)\n"
    )
    assert one.failure(timeout=0.2)[0] == "custom function 'f' was ended after 0.2 s, its 'timeout'"


def test_a_function_that_stops_itself_is_ended(bench: Make) -> None:
    one = bench("import os, signal\ndef f(**kwargs): os.kill(os.getpid(), signal.SIGSTOP)\n")
    assert one.failure(timeout=0.2)[0] == "custom function 'f' was ended after 0.2 s, its 'timeout'"


def test_a_timeout_of_zero_is_no_limit(bench: Make) -> None:
    assert bench("def f(**kwargs): pass").call(timeout=0.0).ok


def test_the_time_that_a_process_takes_to_start_does_not_count(bench: Make) -> None:
    assert bench("import time\ntime.sleep(4)\ndef f(**kwargs): pass\n").call(timeout=3.9).ok


def test_each_call_has_its_own_time(bench: Make) -> None:
    one = bench("import time\ndef f(**kwargs): time.sleep(1.5)\n")
    assert all(result.ok for result in one.calls("f", "f", "f", "f", timeout=5.9))


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("os._exit(3)", "exited with status 3"),
        ("os._exit(0)", "exited with status 0"),
        ("os.kill(os.getpid(), 9)", "was killed by signal 9 (SIGKILL)"),
        ("os.abort()", "was killed by signal 6 (SIGABRT)"),
        ("os.execv('/bin/false', ['false'])", "exited with status 1"),
        ("os.execv('/bin/sleep', ['sleep', '9'])", "closed its connection to the service"),
        ("os.closerange(0, 4096)", "exited with status 1"),
        ("os.killpg(0, 15)", "was killed by signal 15 (SIGTERM)"),
    ],
)
def test_a_function_that_takes_the_process_with_it_fails(
    bench: Make, code: str, sentence: str
) -> None:
    one = bench(PID + f"def f(**kwargs): {code}\n")
    before = pid_of(one)
    assert one.failure()[0] == f"custom function 'f' {sentence}"
    assert pid_of(one) != before


def test_what_was_printed_last_is_the_detail_of_a_death(bench: Make) -> None:
    one = bench("import os\ndef f(**kwargs):\n    print('so far', end='')\n    os.abort()\n")
    detail = one.failure()[1]
    assert "Fatal Python error: Aborted" in detail
    assert 'File "custom", line 4 in f' in detail


def test_calls_after_a_death_are_made_all_the_same(bench: Make) -> None:
    one = bench(PID + "def f(**kwargs): os._exit(1)\n")
    results = one.calls("pid", "f", "pid", "f", "pid")
    assert [result.ok for result in results] == [True, False, True, False, True]


def test_a_worker_that_dies_between_calls_is_replaced(bench: Make) -> None:
    one = bench(PID)
    first = pid_of(one)
    os.kill(first, 9)
    one.loop.run(until=lambda: bool(one.lines("warning")))
    assert one.lines("warning") == [
        "custom: the process was killed by signal 9 (SIGKILL) between two calls"
    ]
    assert pid_of(one) != first


def test_what_is_printed_is_logged_line_by_line(bench: Make) -> None:
    one = bench(
        "import os, sys\n"
        "print('loading')\n"
        "def f(**kwargs):\n"
        "    print('one')\n"
        "    print('two', file=sys.stderr)\n"
        "    os.system('echo three')\n"
        "    os.write(1, b'\\xff')\n"
    )
    assert one.call().ok
    assert one.lines("info") == ["custom: loading", "f: one", "f: two", "f: three", "f: \ufffd"]


def test_of_megabytes_of_output_the_last_part_is_logged(bench: Make) -> None:
    one = bench(
        "def f(**kwargs):\n"
        "    for number in range(100000): print(f'{number:050}')\n"
        "def g(**kwargs):\n"
        "    for number in range(100): print('x' * 50000)\n"
    )
    assert one.call().ok
    assert one.lines("info") == [f"f: {number:050}" for number in range(100000)][-MAX_LINES:]
    left_out = 51 * (100000 - MAX_LINES)
    assert one.lines("warning") == [f"f: {left_out} bytes of output left out before this"]
    one.logged.clear()
    assert one.call("g").ok
    assert sum(len(line) for line in one.lines("info")) < MAX_OUTPUT + 1000


def test_a_function_that_prints_for_ever_is_ended(bench: Make) -> None:
    one = bench("def f(**kwargs):\n    while True: print('y' * 1000)\n")
    assert one.failure(timeout=0.5)[0] == "custom function 'f' was ended after 0.5 s, its 'timeout'"


def test_what_looks_like_a_reply_in_the_output_is_output(bench: Make) -> None:
    one = bench(
        "import os\n"
        "def f(**kwargs):\n"
        '    print(\'{"call": 1, "ok": true, "returned": []}\')\n'
        "    return Action(name='mine')\n"
    )
    assert one.call().returned == [{"kind": "action", "value": {"name": "mine"}}]


def test_programs_that_a_function_starts_have_no_way_into_the_channel(bench: Make) -> None:
    one = bench(
        "import subprocess\n"
        "def f(**kwargs):\n"
        "    run = subprocess.run(['ls', '/proc/self/fd'], capture_output=True, text=True,\n"
        "                         close_fds=False)\n"
        "    return Action(fds=run.stdout.split())\n"
    )
    # 3 is the folder that is being listed.
    assert one.call().returned[0]["value"] == {"fds": ["0", "1", "2", "3"]}


def test_a_function_that_closes_the_low_descriptors_can_still_answer(bench: Make) -> None:
    one = bench("import os\ndef f(**kwargs):\n    os.closerange(0, 10)\n    return Action(x=1)\n")
    assert one.call().returned == [{"kind": "action", "value": {"x": 1}}]


@pytest.mark.parametrize(
    "text",
    ["nonsense", "[]", '{"call": 7, "ok": true, "returned": []}', '{"ready": true}', "x" * 2000000],
)
def test_a_worker_that_sends_nonsense_is_ended(bench: Make, text: str) -> None:
    one = bench(
        PID + "def f(**kwargs):\n"
        "    for fd in range(100, 200):\n"
        "        try:\n"
        f"            os.write(fd, {text.encode()!r} + b'\\n')\n"
        "        except OSError:\n"
        "            pass\n"
        "    import time; time.sleep(1000)\n"
    )
    first = pid_of(one)
    reason, _ = one.failure()
    assert reason.startswith("custom function 'f' sent the service something that is no ")
    assert pid_of(one) != first


@pytest.mark.parametrize(
    "value",
    [
        "NaN",
        "1e999",
        "9223372036854775808",
        '"\\ud800"',
        '"a\\u0000b"',
        "[" * 100 + "]" * 100,
    ],
)
def test_an_answer_that_holds_what_no_action_can_is_a_failure(bench: Make, value: str) -> None:
    answer = f'{{"call": 1, "ok": true, "returned": [{{"kind": "action", "value": {value}}}]}}'
    one = bench(forging(answer))
    reason, _ = one.failure()
    assert reason.startswith("custom function 'f' returned what cannot be used: ")


def test_a_reason_that_is_forged_is_plain_text_of_a_bounded_length(bench: Make) -> None:
    text = "\\ud800\\u0000\\u001b[31m" + "x" * 500_000
    answer = f'{{"call": 1, "ok": false, "reason": "{text}", "detail": "{text}"}}'
    for part in bench(forging(answer)).failure():
        assert "\\ud800\\x00\\x1b[31mxxx" in part
        assert "characters left out" in part
        assert len(part) < 5000


def forging(answer: str) -> str:
    """A function that answers the call itself, by the channel of the worker."""
    return (
        "import os\n"
        "def f(**kwargs):\n"
        "    for fd in range(100, 200):\n"
        "        try:\n"
        f"            os.write(fd, {answer.encode()!r} + b'\\n')\n"
        "        except OSError:\n"
        "            pass\n"
        "    import time; time.sleep(1000)\n"
    )


#: What a function can write on the channel of its worker, which is some descriptor from 100.
WRITE = PID + (
    "import time\n"
    "def write(data):\n"
    "    for fd in range(100, 200):\n"
    "        try:\n"
    "            while data: data = data[os.write(fd, data):]\n"
    "            return\n"
    "        except OSError:\n"
    "            pass\n"
)


def writes(code: str) -> str:
    """The source of a function that writes the bytes of an expression, and waits."""
    return WRITE + f"def f(**kwargs):\n    write({code})\n    time.sleep(1000)\n"


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ("null", "expected a list of actions and rules, not null"),
        ("3", "expected a list of actions and rules, not 3"),
        ('{"kind": "action"}', "expected a list of actions and rules, not a mapping with 1 key"),
        ("[3]", "[0]: expected the keys kind and value, not 3"),
        ("[[]]", "[0]: expected the keys kind and value, not a list with 0 items"),
        ("[{}]", "[0]: expected the keys kind and value, not a mapping with 0 keys"),
        ('[{"kind": "action"}]', "[0]: expected the keys kind and value, not a mapping with 1 key"),
        ('[{"value": {}}]', "[0]: expected the keys kind and value, not a mapping with 1 key"),
        ('[{"kind": "timer", "value": {}}]', "[0].kind: expected action or rule, not 'timer'"),
        ('[{"kind": ["rule"], "value": {}}]',
         "[0].kind: expected action or rule, not a list with 1 item"),
        ('[{"kind": "rule", "value": "x"}]', "[0].value: expected a mapping, not 'x'"),
        ('[{"kind": "rule", "value": null}]', "[0].value: expected a mapping, not null"),
        ('[{"kind": "rule", "value": {"a": NaN}}]',
         "[0].value.a: expected a finite number, not nan"),
        ('[{"kind": "rule", "value": {"a": 1e999}}]',
         "[0].value.a: expected a finite number, not inf"),
        (f'[{{"kind": "rule", "value": {{"a": {10**4000}}}}}]',
         "[0].value.a: expected an integer of at most 64 bits"),
        (f'[{{"kind": "rule", "value": {"[" * 500}{"]" * 500}}}]',
         "expected at most 64 levels of mappings and lists"),
        ("[" * 900 + "]" * 900, "expected at most 64 levels of mappings and lists"),
        ('[{"kind": "rule", "value": {"a": "\\u0000"}}]',
         "[0].value.a: expected text without the character '\\0'"),
        ('[{"kind": "rule", "value": {"\\ud800": 1}}]',
         "[0].value: expected UTF-8 text, not a lone surrogate"),
    ],
)  # fmt: skip
def test_an_answer_that_is_forged_and_wrong_fails_its_call(
    bench: Make, returned: str, sentence: str
) -> None:
    answer = f'{{"call": 1, "ok": true, "returned": {returned}}}\n'.encode()
    reason, detail = bench(writes(repr(answer))).failure()
    assert reason == f"custom function 'f' returned what cannot be used: {sentence}"
    assert detail == ""


def test_an_answer_of_very_many_wrong_items_fails_in_few_words(bench: Make) -> None:
    items = '{"call": 1, "ok": true, "returned": [' + "3, " * 200_000 + "3]}"
    reason, _ = bench(writes(f"{items!r}.encode() + b'\\n'")).failure()
    assert reason.startswith("custom function 'f' returned what cannot be used: [0]: expected ")
    assert len(reason) < 10_000


@pytest.mark.parametrize("key", ["reason", "detail"])
@pytest.mark.parametrize("text", ["null", "3", "[" * 900 + "]" * 900])
def test_a_failure_that_says_no_text_is_a_failure_all_the_same(
    bench: Make, key: str, text: str
) -> None:
    said = {"reason": '"no"', "detail": '"no"', key: text}
    answer = f'{{"call": 1, "ok": false, "reason": {said["reason"]}, "detail": {said["detail"]}}}\n'
    found = dict(
        zip(("reason", "detail"), bench(writes(repr(answer.encode()))).failure(), strict=True)
    )
    assert f"({key}: expected text, not " in found[key]


@pytest.mark.parametrize(
    "code",
    [
        'b\'{"call": true, "ok": true, "returned": []}\\n\'',
        'b\'{"call": 1.0, "ok": true, "returned": []}\\n\'',
        'b\'{"call": [1], "ok": true, "returned": []}\\n\'',
        'b\'{"ready": false, "reason": "x", "detail": ""}\\n\'',
        "b'{\"call\": ' + b'1' * 5000 + b'}\\n'",
        "b'[' * 100000 + b'\\n'",
        "b'{\"' + b'k' * 1000000 + b'\": 1}\\n'",
        "b'\\xff\\xfe\\n'",
        "b'\\n' * 1000000",
        "b'{}\\n' * 1000000",
        "b'x' * 3000000",
    ],
)
def test_a_function_that_floods_the_channel_is_ended(bench: Make, code: str) -> None:
    one = bench(writes(code))
    first = pid_of(one)
    reason, _ = one.failure()
    assert reason.startswith("custom function 'f' sent the service something that is no ")
    assert pid_of(one) != first


def test_a_call_that_is_answered_twice_has_the_first_answer(bench: Make) -> None:
    answer = b'{"call": 1, "ok": true, "returned": []}\n'
    one = bench(writes(repr(answer + answer.replace(b"true", b"false") * 3)))
    results = one.calls("f", "pid")
    assert results[0] == FunctionResult(True)
    # Whether the answers too many come between the calls or in the second one is chance.
    assert results[1].ok or "something that is no answer" in results[1].reason
    assert one.call("pid").ok


def test_a_process_that_a_function_forks_and_that_returns_does_no_harm(bench: Make) -> None:
    one = bench(
        PID + "def f(**kwargs):\n"
        "    child = os.fork()\n"
        "    if child: os.waitpid(child, 0)\n"
        "    return Action(child=child)\n"
    )
    before = pid_of(one)
    results = one.calls("f", "f", "pid")
    assert all(result.returned[0]["value"].get("child") != 0 for result in results)
    assert results[2].returned[0]["value"]["pid"] == before


def test_a_function_can_use_processes_of_multiprocessing(bench: Make, tmp_path: Path) -> None:
    (tmp_path / "squares.py").write_text("def square(x): return x * x\n")
    one = bench(
        "import multiprocessing, squares\n"
        "def f(**kwargs):\n"
        "    with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "        return Action(squares=pool.map(squares.square, [1, 2, 3]))\n"
    )
    assert one.call().returned[0]["value"] == {"squares": [1, 4, 9]}


def test_a_background_process_that_keeps_the_output_open_is_not_waited_for(bench: Make) -> None:
    one = bench(BACKGROUND)
    child = one.call("background").returned[0]["value"]["child"]
    assert runs(child)
    assert one.call("pid").ok
    one.caller.close()
    one.loop.run(until=lambda: not runs(child))


def test_a_death_is_noticed_though_a_background_process_lives_on(bench: Make) -> None:
    one = bench(BACKGROUND + "def f(**kwargs):\n    background()\n    os._exit(5)\n")
    assert one.failure()[0] == "custom function 'f' exited with status 5"


def test_closing_kills_the_worker_at_once_and_forgets_its_calls(bench: Make) -> None:
    one = bench(PID + "import time\ndef f(**kwargs): time.sleep(1000)\n")
    pid = pid_of(one)
    results: list[FunctionResult] = []
    for _ in range(3):
        one.caller.call("f", KWARGS, 0.5, results.append)
    one.loop.run(until=lambda: one.loop.watching > 2)
    one.caller.close()
    one.caller.close()
    one.loop.run(until=lambda: not one.loop.watching)
    assert not Path(f"/proc/{pid}").exists()
    assert results == []


def test_a_worker_can_be_closed_from_a_callback(bench: Make) -> None:
    one = bench("def f(**kwargs): pass")
    closed: list[FunctionResult] = []

    def done(result: FunctionResult) -> None:
        one.caller.close()
        closed.append(result)

    one.caller.call("f", KWARGS, 60.0, done)
    one.caller.call("f", KWARGS, 60.0, done)
    one.loop.run(until=lambda: not one.loop.watching)
    assert closed == [FunctionResult(True)]


def test_workers_leave_no_zombies(bench: Make) -> None:
    one = bench(PID + "def f(**kwargs): os._exit(1)\n")
    pids = [pid_of(one)]
    for _ in range(3):
        one.failure()
        pids.append(pid_of(one))
    one.caller.close()
    one.loop.run(until=lambda: not one.loop.watching)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


#: A service that starts a worker, prints its process and its child's, and runs on.
SERVICE = f"""
import os, sys
from pathlib import Path
from caller_bench import KWARGS, benches
with benches(Path(sys.argv[1])) as bench:
    one = bench({BACKGROUND!r} + "import re, time\\n"
        "def f(**kwargs): re.match('(a+)+$', 'a' * 64 + 'b')\\n"
        "def g(**kwargs): pass\\n")
    print(*one.call("background").returned[0]["value"].values(), flush=True)
    one.call(sys.argv[2])
    one.loop.run(until=lambda: False)
"""


@pytest.mark.parametrize("function", ["f", "g"])
def test_no_process_outlives_a_service_that_is_killed(tmp_path: Path, function: str) -> None:
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(tmp_path), function],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with service:
        assert service.stdout is not None
        pids = [int(word) for word in service.stdout.readline().split()]
        assert len(pids) == 2
        service.kill()
    t_end = time.monotonic() + PATIENCE
    while any(map(runs, pids)):
        assert time.monotonic() < t_end


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can choose the signal")
def test_a_worker_whose_service_died_before_it_began_ends_before_it_runs_any_code() -> None:
    theirs, ours = socket.socketpair()
    lifeline, held = os.pipe()
    with theirs, ours:
        os.close(held)
        process = subprocess.Popen(
            [sys.executable, "-E", "-P", child.__file__, str(theirs.fileno()), str(lifeline), "w"],
            start_new_session=True,
            pass_fds=(theirs.fileno(), lifeline),
        )
        os.close(lifeline)
        # As long as this channel is open nothing else ends it: it waits for a message.
        assert process.wait(60) == -signal.SIGKILL
