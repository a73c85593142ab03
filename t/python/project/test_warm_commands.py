"""Commands that are forks of the process of t/lib/warm_server.py are as if they were started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from patience import PATIENCE

LIB = Path(__file__).parents[2] / "lib"
sys.path.append(str(LIB))

import check  # noqa: E402
from check import SHARNESS, warm_commands  # noqa: E402

pytestmark = pytest.mark.flux

#: Variables with which commands of Flux's own are forks.
FORKED = {
    "FLUX_EXEC_PATH_PREPEND": str(LIB / "warm_flux"),
    "SHARNESS_BUILD_DIRECTORY": str(Path(sys.executable).parent),
}


@pytest.fixture(scope="module")
def warm() -> Iterator[Mapping[str, str]]:
    with warm_commands() as variables:
        assert variables
        yield {**os.environ, **SHARNESS, **variables}


def start(
    warm: Mapping[str, str], directory: Path, code: str, *arguments: str, kind: str = "script"
) -> subprocess.Popen[str]:
    """Begin a script in the place of `flux python`, or of `python`."""
    script = directory / "script.py"
    script.write_text(code)
    words = [sys.executable, "-IS", f"{LIB}/warm_client.py", kind, str(script), *arguments]
    return subprocess.Popen(
        words, cwd=directory, env=warm, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_it_has_the_files_the_directory_the_environment_and_the_limits(
    warm: Mapping[str, str], tmp_path: Path
) -> None:
    code = (
        "import os, resource, sys\n"
        "print(sys.argv[1:], sys.stdin.read(), os.getcwd(), os.environ['ONE'], os.umask(0))\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], file=sys.stderr)\n"
        "print('jsonschema' in sys.modules)\n"
        "sys.exit(7)\n"
    )
    before = os.umask(0o027)
    try:
        process = start({**warm, "ONE": "1"}, tmp_path, code, "a", "b c")
    finally:
        os.umask(before)
    out, err = process.communicate("said")
    limit = subprocess.run(["sh", "-c", "ulimit -n"], capture_output=True, text=True).stdout
    assert out.splitlines() == [f"['a', 'b c'] said {tmp_path} 1 {0o027}", "True"]
    assert (err, process.returncode) == (limit, 7)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGALRM], ids=lambda one: one.name)
def test_signals_reach_it_and_its_end_by_a_signal_is_seen(
    warm: Mapping[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    wait = "print('here', flush=True)\nimport signal\nsignal.pause()\n"
    caught = f"import sys, signal\nsignal.signal({number:d}, lambda *_: sys.exit(5))\n{wait}"
    for code, ends in ((caught, 5), (wait, -number)):
        with start(warm, tmp_path, code) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            process.send_signal(number)
            assert process.wait() == ends
    with start(warm, tmp_path, "import os\nos.kill(os.getpid(), 9)\n") as process:
        assert process.wait() == -signal.SIGKILL


def test_it_ends_when_who_asked_for_it_is_killed(warm: Mapping[str, str], tmp_path: Path) -> None:
    code = "import signal\nprint('here', flush=True)\nsignal.pause()\n"
    with start(warm, tmp_path, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.kill()
        # Its end closes the file, and nothing else does.
        assert process.stdout.read() == ""


def test_what_python_reads_as_it_begins_takes_a_python_of_its_own(
    warm: Mapping[str, str], tmp_path: Path
) -> None:
    code = "import sys\nprint('flux_ensemble' in sys.modules)\n"
    for kind in ("script", "python"):
        for environment, forked in ((warm, True), ({**warm, "PYTHONUTF8": "1"}, False)):
            with start(environment, tmp_path, code, kind=kind) as process:
                assert process.communicate()[0] == f"{forked}\n"


def test_commands_of_flux_are_as_if_they_were_started(
    warm: Mapping[str, str], tmp_path: Path
) -> None:
    code = (
        "flux run sh -c 'cat; exit 3' </dev/null; echo $?\n"
        "flux submit --quiet false; flux queue idle --quiet\n"
        "flux jobs -a --no-header --format='{returncode}'\n"
        "flux jobs --format='{wrong}'; echo $?\n"
        "flux getattr size; echo $PYTHONPATH\n"
        "flux run flux start flux run sh -c 'exit 4'; echo $?\n"
    )
    started, others = (
        subprocess.run(
            ["flux", "start", "--test-size=1", "sh", "-c", code],
            cwd=tmp_path, env={**warm, **variables}, capture_output=True, text=True,
        )
        for variables in ({}, FORKED)
    )  # fmt: skip
    assert (others.stdout, others.returncode) == (started.stdout, started.returncode)
    assert others.stdout.splitlines()[0] == "3"
    assert started.stderr.count("flux-jobs: ERROR") == others.stderr.count("flux-jobs: ERROR") == 1


def test_what_brokers_start_are_forks_those_of_one_in_a_job_too(
    warm: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "children.sh").write_text(
        "flux run true\n"
        "for child in $(cat /proc/$(flux getattr broker.pid)/task/*/children)\n"
        "do tr '\\0' ' ' <\"/proc/$child/cmdline\" | grep -o 'warm_client.py flux [a-z-]*'\n"
        "done | sort\n"
    )
    started = subprocess.run(
        ["flux", "start", "--test-size=1", "sh", "-c",
         "sh children.sh; echo in a job:; flux run flux start sh children.sh"],
        cwd=tmp_path, env={**warm, **FORKED}, capture_output=True, text=True,
    )  # fmt: skip
    children = [
        "warm_client.py flux job-validator",
        "warm_client.py flux module-python-exec",
    ]
    assert started.stdout.splitlines() == [*children, "in a job:", *children], started.stderr


def test_a_service_is_a_fork_and_gone_when_the_next_one_begins(
    warm: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "serve.sh").write_text(
        'eval "$("$SHARNESS_BUILD_DIRECTORY/python" -c "from flux_ensemble.bindings import *\n'
        "import shlex; print('module=' + shlex.quote(' '.join([str(module_path()),"
        ' *module_arguments()])))")"\n'
        "flux module load $module\n"
        'pid=$(flux ensemble status --json | grep -o \'"pid": [0-9]*\' | grep -o "[0-9]*")\n'
        "tr '\\0' ' ' </proc/$pid/cmdline | grep -o warm_server.py\n"
        "flux module remove ensemble\n"
        "for round in 1 2 3 4\n"
        "do\n"
        '    test -z "$service" || kill -9 $service\n'
        f'    "$SHARNESS_BUILD_DIRECTORY/python" -IS {LIB}/warm_client.py python '
        '"$SHARNESS_BUILD_DIRECTORY/flux-ensemble" serve & service=$!\n'
        "    until flux ensemble list; do sleep 0.1; done >/dev/null 2>&1\n"
        "done\n"
        "kill $service && wait $service && echo ended\n"
    )
    path = f"{LIB}/warm:{Path(sys.executable).parent}:{warm['PATH']}"
    done = subprocess.run(
        ["flux", "start", "sh", "serve.sh"],
        cwd=tmp_path, env={**warm, **FORKED, "PATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["warm_server.py", "ended"], done.stderr


def test_what_cannot_be_written_at_its_end_is_told_as_python_does(
    warm: Mapping[str, str], tmp_path: Path
) -> None:
    code = "import sys\nsys.stdin.read()\nsys.stdout = open(1, 'w', closefd=False)\nprint('text')\n"
    process = start(warm, tmp_path, code)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.close()
    assert process.wait() == 120
    assert process.stderr is not None
    with process.stderr:
        assert "BrokenPipeError" in process.stderr.read()


def test_who_has_the_number_of_a_connection_that_is_gone_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    code = (
        "import socket, sys\n"
        f"sys.path.append({str(LIB)!r})\n"
        "from warm_server import Server\n"
        "listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "listener.bind('socket')\n"
        "listener.listen()\n"
        "server = Server(listener)\n"
        "gone, _ = socket.socketpair()\n"
        "before = server.selector.register(gone, 1, server.asked)\n"
        "server.selector.unregister(gone)\n"
        "gone.close()\n"
        "new, other = socket.socketpair()\n"
        "assert server.selector.register(new, 1, lambda _: sys.exit(7)).fd == before.fd\n"
        "other.send(b'asked')\n"
        "rounds, select = [[(before, 1)]], server.selector.select\n"
        "server.selector.select = lambda: rounds.pop() if rounds else select()\n"
        "server.serve()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdin=-1) as process:
        assert process.wait(PATIENCE) == 7


@pytest.mark.parametrize(
    ("server", "said"),
    [("", "does not begin"), ("print('ready')", "has ended before the tests")],
)
def test_it_is_said_where_commands_are_no_forks(
    server: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(check, "TESTS", tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "warm_server.py").write_text(server)
    with warm_commands() as variables:
        # It has ended, and is still to be waited for.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert bool(variables) == bool(server)
    assert f"warm_server.py {said}" in capsys.readouterr().err
