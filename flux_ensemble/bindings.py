"""Search for Flux's Python bindings, and for our packages for the broker module.

`require_flux` makes `import flux` work from a virtual environment, with either

- the bindings of the Flux installation, whose path `flux config builtin python_path` prints, or
- the package flux-python in the environment, if its version is that of the `flux` on PATH,

and raises an error with the remedy in one sentence if neither works. The broker module runs under
Flux's own Python instead, which does not see the environment: `module_path` and `module_arguments`
return what to load it with. `keeper_path` and `keeper_arguments` do so for the module that keeps
the service running beside the broker, and `python -m flux_ensemble.bindings` prints all of them as
JSON for `etc/rc1.d/ensemble.py`. Only the standard library is needed here.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
import urllib.parse
from importlib.machinery import PathFinder
from pathlib import Path

#: Packages that the bindings import but do not include: module -> package.
_PACKAGES = {"_cffi_backend": "cffi", "ply": "ply", "yaml": "pyyaml"}

#: Time limit of a `flux` command in seconds, far above the usual time.
_PATIENCE_SECONDS = 60

#: The oldest Python that can run the service.
OLDEST = (3, 11)

#: Run by Flux's Python with the module's file and site directories as arguments: imports the
#: module's dependencies, and prints its own version and the error.
_TRY_MODULE = """
import sys
from flux.importer import import_path
module = import_path(sys.argv[1])
module.add_to_path([str(module.PACKAGES), *sys.argv[2:]])
try:
    import flux_ensemble.service.module
except Exception as error:
    print("%d.%d" % sys.version_info[:2], type(error).__name__, error)
"""


class BindingsError(RuntimeError):
    """Flux's Python bindings are not usable; the text is one sentence with the remedy."""


def require_flux() -> None:
    """Make sure that `import flux` works, with everything else that is used of the bindings.

    Raises:
        BindingsError: it does not work.
    """
    if "_flux._core" in sys.modules:
        return
    if _has_wheel_of_another_version():
        _put_flux_on_path(first=True)
    error = _try_import()
    if error is not None:
        # Bindings that were found but do not load must not be found again.
        absent = isinstance(error, ModuleNotFoundError) and error.name == "flux"
        directories = _put_flux_on_path(first=not absent, error=None if absent else error)
        error = _try_import()
        if error is not None:
            raise BindingsError(_advice(error, directories))
    for module, package in _PACKAGES.items():
        if PathFinder.find_spec(module) is None:
            raise BindingsError(_missing(package))


def _try_import() -> Exception | None:
    """Import the bindings; return the exception if that fails."""
    try:
        importlib.import_module("flux")
        importlib.import_module("_flux._core")
    except Exception as error:  # cffi raises a plain Exception if versions do not fit
        for name in list(sys.modules):
            if name.partition(".")[0] in ("flux", "_flux"):
                del sys.modules[name]
        return error
    return None


def _has_wheel_of_another_version() -> bool:
    """Return True if `import flux` would find a flux-python of another version than `flux`."""
    spec = PathFinder.find_spec("flux")
    if spec is None or spec.origin is None:
        return False
    site = Path(spec.origin).parents[1]
    wheel = next(site.glob("flux_python-*.dist-info"), None)
    if wheel is None or shutil.which("flux") is None:
        return False
    return wheel.stem.partition("-")[2] != _flux_version()


def _flux(*arguments: str) -> str:
    """Return the output of a `flux` command.

    Raises:
        BindingsError: there is no `flux` on PATH, or the command fails.
    """
    # Imported here, because a command that Flux starts finds the bindings without this.
    import subprocess

    command = shutil.which("flux")
    if command is None:
        raise BindingsError(
            "there is no `flux` on PATH: install Flux (flux-core of your system or of "
            "conda-forge, or a container such as fluxrm/flux-sched), or put it on PATH"
        )
    try:
        return subprocess.run(
            [command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_SECONDS,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise BindingsError(
            f"`{command} {' '.join(arguments[:3])}` fails ({''.join(said)}): repair this Flux, "
            "or put another one first on PATH"
        ) from None


def _flux_version() -> str:
    """Return the version of the `flux` on PATH, such as "0.88.0"; "" if it is not printed."""
    found = re.search(r"^commands:\s*(\S+)", _flux("--version"), re.MULTILINE)
    return found[1] if found else ""


def _put_flux_on_path(*, first: bool, error: Exception | None = None) -> list[str]:
    """Add the directories of Flux's own bindings to `sys.path`.

    Args:
        first: put them first, else last.
        error: why other bindings, which were found before, do not load.

    Raises:
        BindingsError: there is no `flux` command.
    """
    if error is not None and shutil.which("flux") is None:
        raise BindingsError(
            f"the Python bindings of Flux do not load ({_line(error)}) and there is no `flux` "
            "on PATH: install Flux, of the version of flux-python if you use that package"
        )
    text = _flux("config", "builtin", "python_path")
    directories = [entry for entry in text.strip().split(":") if entry]
    at = 0 if first else len(sys.path)
    sys.path[at:at] = directories
    return directories


def _advice(error: Exception, directories: list[str]) -> str:
    """Return the remedy for bindings that do not load."""
    where = ":".join(directories)
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name is not None and name.partition(".")[0] not in ("flux", "_flux"):
        return _missing(_PACKAGES.get(name, name))
    wheel = f"`pip install flux-python=={_flux_version()}`"
    if name is not None:
        return (
            f"the Flux on PATH has no Python bindings in {where or 'any directory'} "
            f"({_line(error)}): install them with Flux, or {wheel}"
        )
    built = re.search(r"python(\d+\.\d+)", where)
    built_for = f", built for Python {built[1]}," if built else ""
    return (
        f"Flux's Python bindings in {where}{built_for} do not load in Python "
        f"{_minor(sys.version_info)} ({_line(error)}): {wheel}, or install flux-ensemble in an "
        "environment of Flux's Python (`flux python -m venv DIRECTORY`)"
    )


def _missing(package: str) -> str:
    return f"Flux's Python bindings need the package {package}: `pip install {package}`"


def _line(error: object) -> str:
    return " ".join(str(error).split())


def _minor(version: tuple[object, ...]) -> str:
    return f"{version[0]}.{version[1]}"


def module_path() -> Path:
    """Return the file of the broker module, for `flux module load`."""
    return Path(__file__).resolve().parent / "modules" / "ensemble.py"


def module_arguments() -> list[str]:
    """Return `site=DIRECTORY` for each directory in which this Python finds installed packages.

    Paths are percent-encoded, because Flux splits a module's arguments at white space.
    """
    import sysconfig

    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    sites = []
    for entry in dict.fromkeys(map(os.path.abspath, filter(None, sys.path))):
        if entry not in own and os.path.isdir(entry) and _has_packages(entry):
            sites.append(f"site={urllib.parse.quote(entry)}")
    return sites


def _has_packages(directory: str) -> bool:
    with os.scandir(directory) as entries:
        return any(
            entry.name.endswith((".dist-info", ".egg-info")) or entry.name == "flux_ensemble"
            for entry in entries
        )


def keeper_path() -> Path:
    """Return the file of the broker module that keeps the service running beside the broker."""
    return module_path().with_name("ensemble-keeper.py")


def keeper_arguments() -> list[str]:
    """Return `python=FILE` with this Python, by which the keeper runs the service."""
    return [f"python={urllib.parse.quote(sys.executable)}"]


def module_problem() -> str | None:
    """Return why the broker module cannot run under Flux's Python; None if it can.

    The text is one sentence. The check takes as long as starting the service does, so it is only
    for explaining a failure.

    Raises:
        BindingsError: there is no `flux` command.
    """
    sites = [urllib.parse.unquote(entry.partition("=")[2]) for entry in module_arguments()]
    said = _flux("python", "-c", _TRY_MODULE, str(module_path()), *sites)
    version, _, error = said.partition(" ")
    if not error:
        return None
    if tuple(map(int, version.split("."))) < OLDEST:
        return (
            f"Flux runs broker modules under its own Python {version}, and flux-ensemble needs "
            f"{_minor(OLDEST)}: the service runs beside the broker here (`--isolate`, or "
            '`service = "process"` in [ensemble])'
        )
    ours = _minor(sys.version_info)
    why = f"as installed for Python {ours}" if version != ours else f"({_line(error)[:200]})"
    return (
        f"Flux runs broker modules under its own Python {version}, which cannot load "
        f"flux-ensemble {why}: install it in an environment of Flux's Python "
        "(`flux python -m venv DIRECTORY`), or run the service beside the broker (`--isolate`)"
    )


def main() -> None:
    """Print the path and the arguments of the broker module as JSON, and those of the keeper."""
    keeper = {"path": str(keeper_path()), "args": keeper_arguments()}
    module = {"path": str(module_path()), "args": module_arguments()}
    print(json.dumps({**module, "keeper": keeper}))


if __name__ == "__main__":
    main()
