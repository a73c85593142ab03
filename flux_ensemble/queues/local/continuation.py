"""The continuation of an interrupted run: a command, or the Python program that began it.

The run keeps it in a file (`state_dir.AGAIN`), and readers say it in a sentence.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flux_ensemble.own_command import own_command

#: The options of `run` for the local queue, with which a run goes on as it was begun.
SIZES = ("nodes", "cores", "gpus")

#: Greatest length of the file in bytes.
MAX_BYTES = 4096

#: The second line of the file for a run that a Python program began, which has to ask for it to go
#: on; and for one that does.
_ASKS, _HAS = "needs resume=True", "has resume=True"


@dataclass(frozen=True)
class Continuation:
    """The way in which an interrupted run goes on.

    Attributes:
        command: for a shell, in the directory in which the run was begun; "" if none is known.
        python: a Python program began the run. Its command is that of the program; it has none in
            a notebook.
        resume: the program says `resume=True`.
        notebook: the file of the notebook that began the run, if that is known.

    >>> print(Continuation("flux-ensemble run --resume a.yaml").clause())
    'flux-ensemble run --resume a.yaml' goes on with it
    >>> print(Continuation("python3 a.py", python=True, resume=True).clause())
    'python3 a.py' goes on with it
    >>> print(Continuation("python3 a.py", python=True).clause())
    'python3 a.py' goes on with it, with resume=True in its run() or start()
    >>> print(Continuation("", python=True).clause())
    run(resume=True) of the same Ensemble, in its notebook or session, goes on with it
    >>> print(Continuation("", python=True, notebook="/work/basin.ipynb").clause())
    run(resume=True) of the same Ensemble, in the notebook /work/basin.ipynb, goes on with it
    """

    command: str
    python: bool = False
    resume: bool = False
    notebook: str = ""

    def to_bytes(self) -> bytes | None:
        """Return the contents of the file; None if they are too long for it."""
        how = [_HAS if self.resume else _ASKS] if self.python else []
        how += [self.notebook] if self.notebook else []
        data = "\n".join([self.command, *how]).encode(errors="replace")
        return data if len(data) <= MAX_BYTES else None

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> Continuation:
        """Return what a file says, with a command that can be typed here.

        Args:
            data: the contents, which anybody may have written.
            where: the directory in which the run was begun.

        >>> Continuation.from_bytes(Continuation("python3 a.py", python=True).to_bytes(), "/data")
        Continuation(command='cd /data && python3 a.py', python=True, resume=False, notebook='')
        """
        command, how, notebook, *_ = [*data.decode(errors="replace").split("\n"), "", ""]
        if not command.isprintable():
            command = ""
        if not notebook.isprintable():
            notebook = ""
        if command and isinstance(where, str) and where != os.getcwd():
            command = f"cd {shlex.quote(where)} && {command}"
        return cls(command, how in (_ASKS, _HAS), how == _HAS, notebook)

    def clause(self) -> str:
        """Return what goes on with the run, as the end of a sentence."""
        if self.command:
            asks = ", with resume=True in its run() or start()" if self._asks else ""
            return f"'{self.command}' goes on with it{asks}"
        if self.python:
            return f"run(resume=True) of the same Ensemble, in {self._where}, goes on with it"
        return f"'{self._of_document}' goes on with it, where FILE is its document"

    def advice(self, name: str, rerun: str = "") -> tuple[str, str]:
        """Return a command or a call that goes on with a run, and what it does.

        Args:
            name: of the run.
            rerun: the command `rerun --resume` about it, which needs no change of a program.

        >>> Continuation("python3 a.py", python=True).advice("a", "flux-ensemble rerun --resume a")
        ('flux-ensemble rerun --resume a', "goes on with 'a', which was interrupted")
        """
        what = f"goes on with {name!r}, which was interrupted"
        if rerun and self.command and self._asks:
            return rerun, what
        if self.command:
            return self.command, what + (", with resume=True in its run()" if self._asks else "")
        if self.python:
            return "run(resume=True)", f"in {self._where}: {what}"
        return self._of_document, f"{what}, where FILE is its document"

    def is_of(self, program: str) -> bool:
        """Return whether a program of that file's name has begun the run.

        >>> Continuation("python3 a.py -n 2", python=True).is_of("./a.py")
        True
        """
        with suppress(ValueError):
            words = shlex.split(self.command) if self.python else []
            return Path(program).name in (Path(word).name for word in words)
        return False

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the local queue that the command names; a program has its own.

        >>> Continuation("flux-ensemble run --nodes 2 --resume a.yaml").sizes()
        {'nodes': 2}
        """
        words, sizes = self._words(), {}
        for key in SIZES:
            with suppress(ValueError, IndexError):
                sizes[key] = int(words[words.index(f"--{key}") + 1])
        return sizes

    def document(self) -> str:
        """Return the file of the document, as the command names it; "-" if there is none.

        >>> Continuation("flux-ensemble run --resume a.yaml").document()
        'a.yaml'
        >>> Continuation("flux-ensemble run --resume - < /kept/document").document()
        '-'
        """
        return (self._words() or ["-"])[-1]

    def _words(self) -> list[str]:
        """Return the words of a command `run`, the last of which is its document."""
        if self.python:
            return []
        with suppress(ValueError):
            words = shlex.split(self.command)
            return words[: words.index("<")] if "<" in words else words
        return []

    @property
    def _where(self) -> str:
        return f"the notebook {self.notebook}" if self.notebook else "its notebook or session"

    @property
    def _of_document(self) -> str:
        return own_command("run", "--resume", "FILE")

    @property
    def _asks(self) -> bool:
        return self.python and not self.resume


def clause_of(again: Mapping[str, Any] | None) -> str:
    """Return what goes on with a run, as the end of a sentence.

    Args:
        again: the fields of a `Continuation`, as the status has them; None for another user's run.

    >>> clause_of(None)
    'its user can go on with it'
    """
    return Continuation(**again).clause() if again else "its user can go on with it"


def of_program(resume: bool | None) -> Continuation:
    """Return how a run goes on that this Python program begins.

    Args:
        resume: what the program says.
    """
    # A notebook, an interactive session and `python -c` have no file.
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    # A notebook that runs a file has not been started with it.
    started = file and any(Path(word).name == Path(file).name for word in sys.orig_argv)
    of_module = file and "-m" in sys.orig_argv
    command = shlex.join(sys.orig_argv) if started or of_module else ""
    return Continuation(command, True, bool(resume), "" if command else _notebook())


def _notebook() -> str:
    """Return the file of the notebook in whose kernel this is; "" if that is not known.

    Jupyter's server has it in the environment of the kernel (`get_kernel_env` of its sessions), and
    VS Code as a variable.
    """
    of_code = getattr(sys.modules.get("__main__"), "__vsc_ipynb_file__", "")
    file, ending, _ = str(of_code or os.environ.get("JPY_SESSION_NAME", "")).partition(".ipynb")
    return file + ending if ending else ""
