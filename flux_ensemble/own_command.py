"""Commands that are recommended to users, as they can be typed where the user is.

`.venv/bin/flux-ensemble run` must not recommend `flux-ensemble report` where PATH has none.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

#: Name of the program.
PROGRAM = "flux-ensemble"


def own_command(*words: str, flux: bool = False) -> str:
    """Return a command of this program as text for a shell.

    Args:
        words: the sub-command and its arguments.
        flux: name it as Flux's sub-command, if it can be called so.

    >>> own_command("rm", "my sweep"), own_command("rm", "sweep", flux=True)
    ("flux-ensemble rm 'my sweep'", 'flux ensemble rm sweep')
    """
    called = _called()
    program = ["flux", "ensemble"] if flux and called == PROGRAM else [called]
    return shlex.join([*program, *words])


def _called() -> str:
    """Return the program's name if PATH has it, else the program as it was called.

    What PATH has may be a wrapper of this one. A program that is no command of this package, such
    as a notebook, is not this one either.
    """
    named = Path(sys.argv[0]).name == PROGRAM and shutil.which(PROGRAM) is None
    return sys.argv[0] if named else PROGRAM


def with_program(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which PATH finds the program, for jobs that call it.

    Its directory is added at the end if PATH does not have it, as in an environment that is not
    activated.
    """
    path = environment.get("PATH", os.defpath)
    if shutil.which(PROGRAM, path=path) is None:
        for directory in (Path(sys.argv[0]).absolute().parent, Path(sys.executable).parent):
            if os.access(directory / PROGRAM, os.X_OK):
                return {**environment, "PATH": f"{path}{os.pathsep}{directory}"}
    return dict(environment)
