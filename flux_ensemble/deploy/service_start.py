"""Start of the service if it does not run: as the module `ensemble`, or beside the broker.

The module is used if Flux's Python can run it. Otherwise, or on request, the module
`ensemble-keeper`, which any Flux's Python can run, keeps the service running as a process of its
own.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Mapping
from typing import Any

from flux_ensemble.bindings import (
    OLDEST,
    keeper_arguments,
    keeper_path,
    module_arguments,
    module_path,
    module_problem,
)
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.errors import KEEPER, SERVICE, not_kept
from flux_ensemble.deploy.launch import split_by_launcher

#: The first Flux with Python broker modules.
MODULES_SINCE = (0, 84)

#: Valid values of `[ensemble] service`.
KINDS = ("module", "process")


class DeployError(Exception):
    """The service cannot be started here; the text has the reason and the remedy."""


def ensure_service(client: Client, *, isolate: bool = False) -> str | None:
    """Start the service on rank 0, unless an ensemble service answers already.

    Args:
        client: of the instance.
        isolate: beside the broker, whatever is configured.

    Returns:
        How it was started, in one sentence; None if it was running.

    Raises:
        DeployError: it cannot be started here, is a keeper's to restart, or runs as a module and
            `isolate` is given; or the instance is one of several that were meant to be one.
        EnsembleError: the service answers with an error.
    """
    split = split_by_launcher(client.handle.attr_get)
    if split is not None:
        raise DeployError(split)
    if _is_there(client):
        if isolate and client.status()["service"].get("mode") == "module":
            raise DeployError(
                "the service is already loaded as a broker module: "
                "`flux ensemble supervise` makes it a process beside the broker"
            )
        return None
    kept = client.keeper()
    if kept is not None:
        # A service that dies again and again must not run in the broker, which would die with it.
        raise DeployError(not_kept(kept))
    return start_service(client, isolate=isolate)


def _is_there(client: Client) -> bool:
    try:
        client.list()
    except EnsembleError as exc:
        if exc.errno != errno.ENOSYS:
            raise
        return False
    return True


def start_service(client: Client, *, isolate: bool) -> str:
    """Load one of the two modules on rank 0; arguments and result as for `ensure_service`."""
    handle = client.handle
    version = str(handle.attr_get("version"))
    if parse_version(version) < MODULES_SINCE:
        raise DeployError(
            f"Flux {version} has no Python broker modules (0.84 brought them): "
            "run `flux ensemble serve` beside this, and try again"
        )
    kind = "process" if isolate else configured_kind(handle)
    why = ""
    try:
        declare_module(handle)
        if kind is None and _is_python_too_old():
            why = ", because Flux's own Python is too old to run it"
        elif kind != "process":
            try:
                _load(handle, str(module_path()), module_arguments())
                return f"the ensemble service is loaded, as the broker module {SERVICE!r}"
            except OSError as exc:
                # ENOENT: Flux's Python cannot import it.
                if exc.errno != errno.ENOENT or kind == "module":
                    raise
                why = ", because Flux's own Python cannot import it"
        _load(handle, str(keeper_path()), keeper_arguments())
    except OSError as exc:
        raise _refusal(exc, process=kind == "process" or bool(why)) from exc
    return (
        "the ensemble service is started beside the broker, kept running by the module "
        f"{KEEPER!r}{why}"
    )


def _is_python_too_old() -> bool:
    """Return True if Flux's bindings are for a Python that is too old, so that none is tried."""
    file = str(getattr(sys.modules.get("flux"), "__file__", ""))
    found = re.search(r"/python(\d+)\.(\d+)/flux/", file)
    return found is not None and (int(found[1]), int(found[2])) < OLDEST


def _load(handle: Any, path: str, arguments: list[str]) -> None:
    # Rank 0, whatever the rank of this process: requests from every rank reach it there.
    try:
        handle.rpc("module.load", {"path": path, "args": arguments}, nodeid=0).get()
    except OSError as exc:
        # The error means that another process has loaded the module in the meantime.
        if exc.errno != errno.EEXIST:
            raise


def _refusal(exc: OSError, *, process: bool) -> DeployError:
    if exc.errno == errno.EPERM:
        return DeployError(
            "the ensemble service is not loaded, and only the owner of this Flux instance may "
            "load it"
        )
    if exc.errno == errno.EBUSY:
        return DeployError(
            "another ensemble service drives the ensembles of this instance, and cannot be "
            "reached from this rank: `flux dmesg` says where it is"
        )
    if process:
        return DeployError(
            f"the ensemble service does not start as a process of {KEEPER!r} ({exc.strerror}): "
            "`flux dmesg` says why, and `flux ensemble serve` runs it in the foreground"
        )
    return DeployError(
        module_problem()
        or f"the broker module {SERVICE!r} does not load ({exc.strerror}): `flux dmesg` may say "
        "why, and `--isolate` runs the service outside the broker"
    )


def configured_kind(handle: Any) -> str | None:
    """Return the value of `[ensemble] service`: "module", "process", or None for either.

    Raises:
        DeployError: it has another value.
        OSError: the configuration cannot be read.
    """
    table = handle.rpc("config.get", {}, nodeid=0).get().get(SERVICE)
    kind = table.get("service") if isinstance(table, Mapping) else None
    if kind is not None and kind not in KINDS:
        raise DeployError(
            f"[ensemble] service: expected one of {', '.join(KINDS)}, not {kind!r}: correct the "
            "configuration"
        )
    return kind


def replace_service(client: Client) -> str:
    """Run the service beside the broker, in place of the module or after it was given up.

    Returns:
        What was done, in one sentence.

    Raises:
        DeployError: it cannot be started, or is a process that something else has started.
        EnsembleError: the service answers with an error.
    """
    if _is_there(client):
        mode = client.status()["service"].get("mode")
        if mode == "process":
            return f"the ensemble service is kept running by the module {KEEPER!r} already"
        if mode == "client":
            raise DeployError(
                "the ensemble service is `flux ensemble serve` here: what started that has to "
                "start it again (etc/README.md shows how)"
            )
        _remove(client.handle, SERVICE)
    elif client.keeper() is not None:
        _remove(client.handle, KEEPER)
    return start_service(client, isolate=True)


def _remove(handle: Any, name: str) -> None:
    try:
        handle.rpc("module.remove", {"name": name}, nodeid=0).get()
    except OSError as exc:
        if exc.errno == errno.EPERM:
            raise DeployError(
                "only the owner of this Flux instance may supervise its service"
            ) from exc
        if exc.errno != errno.ENOENT:
            raise DeployError(f"cannot remove the module {name!r}: {exc.strerror}") from exc


def declare_module(handle: Any) -> None:
    """Make the instance remove the modules when it ends.

    flux-modprobe(1) removes only modules that it knows, and an instance that has to kill a module
    exits with 1. So the directory with the modules' declaration, which a site puts in Flux's own
    directory to load one with the broker, is added to the broker's search path.
    """
    name = "FLUX_MODPROBE_PATH_APPEND"
    package = module_path().parents[1]
    installed, source = package / "etc", package.parent / "etc"
    directory = str(installed if installed.is_dir() else source)
    given = handle.rpc("broker.getenv", {"names": [name]}, nodeid=0).get()["env"].get(name)
    directories = given.split(":") if given else []
    if directory not in directories:
        value = ":".join([*directories, directory])
        handle.rpc("broker.setenv", {"env": {name: value}}, nodeid=0).get()


def parse_version(text: str) -> tuple[int, int]:
    """Parse major and minor of a version such as "0.88.0-12-gabcdef"; (0, 0) if it is none."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
