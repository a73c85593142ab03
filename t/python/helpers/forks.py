"""Has short commands be forks of a process that has imported what they need (t/lib/warm_server.py).

with forked_commands(os.environ) as variables:
    subprocess.run(["flux-ensemble", "memo", "loss=3"], env={**os.environ, **variables})
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LIB = Path(__file__).parents[2] / "lib"
sys.path.append(str(LIB))

from check import warm_commands  # noqa: E402


@contextmanager
def forked_commands(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Have such a process.

    Args:
        environment: of the commands.

    Yields:
        The variables that commands have besides, with which they are forks.
    """
    with warm_commands(environment) as variables:
        assert variables
        bin_directory = str(Path(sys.executable).parent)
        yield {
            **variables,
            "PATH": os.pathsep.join((str(LIB / "warm"), bin_directory, environment["PATH"])),
            "FLUX_EXEC_PATH_PREPEND": str(LIB / "warm_flux"),
            "SHARNESS_BUILD_DIRECTORY": bin_directory,
        }
