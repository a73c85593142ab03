"""The file that `flux module load` runs; see `flux_ensemble.service.module`.

Flux runs it with its own Python, which does not see the virtual environment that
flux-ensemble is installed in. So the directory of this package, and the directories
given as `site=DIRECTORY`, are added to `sys.path`: after the standard library, as a
virtual environment would have it, and before the system's own packages, so that versions
are not mixed. Flux's bindings are imported by then and stay Flux's. No `.pth` files are
read, because they can run any code, in the broker module's process.

Arguments (Flux splits them at white space, so paths are percent-encoded):

    site=DIRECTORY    where the dependencies are; may be given several times
    log-level=LEVEL   emerg, alert, crit, err, warning, notice, info (default) or debug
"""

import errno
import os
import platform
import site
import sys
import sysconfig
import syslog
import urllib.parse
from pathlib import Path
from typing import Any

#: The oldest Python that flux-ensemble runs with; this file is read by older ones.
OLDEST = (3, 11)

PACKAGES = Path(__file__).resolve().parents[2]


def mod_main(handle: Any, *args: str) -> None:
    """Entry point for Flux's module loader."""
    try:
        sites, level = parse(args)
    except ValueError as error:
        # Flux keeps nothing but the errno of a failed load.
        log_error(handle, str(error))
        raise
    # A service has no use for numpy's threads, one for each core of the node.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    add_to_path([str(PACKAGES), *sites])
    try:
        if sys.version_info[:2] < OLDEST:
            raise ImportError("it needs Python %d.%d or newer" % OLDEST, name="flux_ensemble")
        from flux_ensemble.service.logger import logger
        from flux_ensemble.service.module import EnsembleModule
    except ImportError as error:
        log_error(handle, explain(error))
        # Who loads it takes this for a sign that the service has to run beside the broker.
        raise OSError(errno.ENOENT, str(error)) from None
    EnsembleModule(handle, logger(handle, level)).run()


def log_error(handle: Any, text: str) -> None:
    """Write one line to Flux's log, while `service.logger` cannot be imported.

    `flux_log` takes its text for a format of printf(3).
    """
    line = handle.ffi.new("char[]", text.encode("utf-8", "backslashreplace"))
    handle.lib.flux_log(handle.handle, syslog.LOG_ERR, b"%s", line)


def parse(args: "tuple[str, ...]") -> "tuple[list[str], str]":
    """The module's arguments.

    Returns:
        The directories, and the log level.

    Raises:
        ValueError: an argument that there is not.
    """
    sites: "list[str]" = []
    level = "info"
    for arg in args:
        key, _, value = arg.partition("=")
        if not value or key not in ("site", "log-level"):
            raise ValueError(
                f"unknown argument {arg[:200]!r} (arguments: site=DIRECTORY, log-level=LEVEL)"
            )
        if key == "site":
            sites.append(urllib.parse.unquote(value))
        else:
            level = value
    return sites, level


def add_to_path(directories: "list[str]") -> None:
    """Add directories to `sys.path` where a virtual environment would have them."""
    own = {sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()}
    at = next((i for i, path in enumerate(sys.path) if path in own), len(sys.path))
    new = [path for path in directories if path not in sys.path[:at]]
    sys.path[at:] = [*new, *(path for path in sys.path[at:] if path not in new)]


def explain(error: ImportError) -> str:
    """Return a sentence with the remedy for a dependency that cannot be imported."""
    version = ".".join(platform.python_version_tuple()[:2])
    # numpy's is a page long.
    why = " ".join(str(error).split())[:200]
    return (
        f"cannot import {error.name or 'a dependency'} ({why}) with Flux's Python {version}; "
        "'flux ensemble load' runs the service beside the broker then; to have it in the broker, "
        f"install flux-ensemble with Python {version}, or pass site=DIRECTORY, the site-packages "
        "directory of its dependencies"
    )
