"""Loading the broker module `ensemble` where the service is not there."""

from __future__ import annotations

import errno
import re
from typing import Any

from flux_ensemble.bindings import module_arguments, module_path, module_problem
from flux_ensemble.client import Client, EnsembleError

#: The first Flux with Python broker modules.
MODULES_SINCE = (0, 84)


class DeployError(Exception):
    """The service cannot be started here; the text says why, and what to do."""


def ensure_service(client: Client) -> None:
    """Loads the broker module on rank 0, unless some ensemble service answers already.

    Raises:
        DeployError: it cannot be loaded here.
        EnsembleError: the service answers with an error.
    """
    try:
        client.list()
        return
    except EnsembleError as exc:
        if exc.errno != errno.ENOSYS:
            raise
    version = str(client.handle.attr_get("version"))
    if parse_version(version) < MODULES_SINCE:
        raise DeployError(
            f"Flux {version} has no Python broker modules (0.84 brought them): "
            "run `flux ensemble serve` beside this, and try again"
        )
    # Rank 0, whatever the rank of this process: requests from every rank reach it there.
    request = {"path": str(module_path()), "args": module_arguments()}
    try:
        declare_module(client.handle)
        client.handle.rpc("module.load", request, nodeid=0).get()
    except OSError as exc:
        if exc.errno == errno.EEXIST:
            return  # someone else loaded it in the meantime
        if exc.errno == errno.EPERM:
            raise DeployError(
                "the ensemble service is not loaded, and only the owner of this Flux instance "
                "may load it"
            ) from exc
        if exc.errno == errno.EBUSY:
            raise DeployError(
                "another ensemble service drives the ensembles of this instance, and cannot be "
                "reached from this rank: `flux dmesg` says where it is"
            ) from exc
        problem = module_problem() or (
            f"the broker module 'ensemble' does not load ({exc.strerror}): `flux dmesg` may say "
            "why, and `flux ensemble serve` runs the service outside the broker"
        )
        raise DeployError(problem) from exc


def declare_module(handle: Any) -> None:
    """Has the instance remove the module when it ends.

    flux-modprobe(1) removes only modules that it knows, and an instance that has to kill a
    module ends with 1. So the module's declaration, which a site puts in Flux's own
    directory to load the module with the broker, is added to where the broker looks.
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
    """Major and minor of a version such as "0.88.0-12-gabcdef"; (0, 0) if it is none."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
