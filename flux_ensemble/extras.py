"""Commands that install an extra of this package, such as `tui`.

The command depends on where the package came from (PEP 610) and on what installed it. It does not
rely on an index that has the package. Errors about a missing package quote it.

The broker runs the service with Flux's Python, which finds the package in a virtual environment
that is not its own; the command is for that environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import site
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

#: Name of the distribution.
PACKAGE = "flux-ensemble"

#: A requirement of an extra in the metadata, such as `textual>=3.0; extra == 'tui'`.
_REQUIREMENT = re.compile(r"""(?P<what>[^;]+);.*\bextra == ['"](?P<extra>[\w-]+)['"]""")


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra to the environment that has this package.

    Args:
        extra: as in `[project.optional-dependencies]` of pyproject.toml.
    """
    # Imported here, because few commands need it.
    from importlib.metadata import Distribution, PackageNotFoundError

    try:
        package = Distribution.from_name(PACKAGE)
    except PackageNotFoundError:
        # Its directory is on the path, and nothing else of it.
        return shlex.join([*_pip(Path(sys.prefix)), f"{PACKAGE}[{extra}]"])
    source = _source(package, extra)
    where = Path(str(package.locate_file(""))).resolve()
    prefix = _environment(where)
    place = _place(where, prefix)
    if source is None:
        return shlex.join([*_pip(prefix), *place, *_requirements(package, extra)])
    if (prefix / "uv-receipt.toml").is_file():
        return shlex.join(["uv", "tool", "install", *source])
    if (prefix / "pipx_metadata.json").is_file():
        return shlex.join(["pipx", "install", "--force", *source])
    return shlex.join([*_pip(prefix), *place, *source])


def library(name: str, use: str) -> Any:
    """Import a library that no extra has.

    Args:
        name: of the module, and of its package.
        use: what needs it, for the error.

    Raises:
        ImportError: it is not installed; the sentence has the command for it.
    """
    try:
        return import_module(name)
    except ImportError:
        command = shlex.join([*_pip(Path(sys.prefix)), name])
        raise ImportError(f"{use} needs {name}: {command}", name=name) from None


def _environment(where: Path) -> Path:
    """Return the virtual environment that has a directory; if none does, that of this process."""
    if not where.is_relative_to(Path(sys.prefix).resolve()):
        for directory in where.parents:
            if (directory / "pyvenv.cfg").is_file():
                return directory
    return Path(sys.prefix)


def _place(where: Path, prefix: Path) -> list[str]:
    """Return pip's words for the directory that has the package, if pip needs to be told."""
    if where == Path(site.getusersitepackages()).resolve():
        return ["--user"]
    # What `pip --target` has made is found by PYTHONPATH.
    return [] if where.is_relative_to(prefix.resolve()) else ["--target", str(where)]


def _source(package: Distribution, extra: str) -> list[str] | None:
    """Return pip's words for the package with an extra, from where it was installed before.

    Returns:
        None if it came from an index, or from files that are gone, as where it was packaged.
    """
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    url = urlsplit(origin.get("url", ""))
    if url.scheme == "file" and "vcs_info" not in origin:
        path = Path(unquote(url.path))
        if not path.is_file() and not (path / "pyproject.toml").is_file():
            return None
        editable = origin.get("dir_info", {}).get("editable", False)
        return ["--editable"] * editable + [f"{path}[{extra}]"]
    if not url.scheme:
        return None
    vcs = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    return [f"{PACKAGE}[{extra}] @ {vcs}{url.geturl()}"]


def _requirements(package: Distribution, extra: str) -> Iterator[str]:
    """Yield the requirements of an extra, with those of the extras that are part of it."""
    for line in package.requires or ():
        match = _REQUIREMENT.fullmatch(line)
        if match is None or match["extra"] != extra:
            continue
        what = match["what"].strip()
        name, _, inner = what.rstrip("]").partition("[")
        if name == PACKAGE:
            yield from _requirements(package, inner)
        else:
            yield what


def _pip(prefix: Path) -> list[str]:
    """Return the words that install into an environment."""
    if prefix != Path(sys.prefix):
        # What PATH has, there, is unknown.
        own = prefix / "bin" / "pip"
        if own.is_file():
            return [str(own), "install"]
        return ["uv", "pip", "install", "--python", str(prefix / "bin" / "python")]
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return ["pip", "install"]
    if any(Path(entry, "pip").is_dir() for entry in sys.path if entry):
        return [sys.executable, "-m", "pip", "install"]
    if os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return ["uv", "pip", "install"]
    return ["uv", "pip", "install", "--python", sys.executable]
