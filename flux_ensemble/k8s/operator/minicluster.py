"""Manifests of a member of an Ensemble: its document, its volume, and its MiniCluster; pure."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.manifests import PORT, Manifest, digest, new, port_of

#: Number of failed pods after which a MiniCluster fails. The Flux Operator takes 0 for 100.
BACKOFF_LIMIT = 6

#: Default requirement that pip installs.
REQUIREMENT = f"flux-ensemble[grpc]=={__version__}"


def document(ensemble: Mapping[str, Any], member: Mapping[str, Any]) -> Manifest:
    owner = ensemble["metadata"]["name"]
    return new(
        ensemble,
        "v1",
        "ConfigMap",
        names.member_document(owner, member["name"]),
        names.labels(owner, "member", member["name"]),
        data={names.DOCUMENT_FILE: member["ensemble"]},
    )


def claim(ensemble: Mapping[str, Any], member: Mapping[str, Any]) -> Manifest:
    """Return the PersistentVolumeClaim of a member that has a template of one."""
    owner, given = ensemble["metadata"]["name"], member["state"]["template"]
    own = given.get("metadata") or {}
    labels = names.labels(owner, "state", member["name"])
    manifest = new(
        ensemble,
        "v1",
        "PersistentVolumeClaim",
        names.member_state(owner, member["name"]),
        {**(own.get("labels") or {}), **labels},
        spec=copy.deepcopy(given["spec"]),
    )
    # All pods of the member mount it.
    manifest["spec"].setdefault("accessModes", ["ReadWriteMany"])
    if own.get("annotations"):
        manifest["metadata"]["annotations"] = dict(own["annotations"])
    return manifest


def runner(spec: Mapping[str, Any]) -> int:
    """Return the index of the container that runs Flux: the one with `runFlux`, or the only one.

    Raises:
        ValueError: a sentence.
    """
    containers = spec["containers"]
    chosen = [at for at, container in enumerate(containers) if container.get("runFlux")]
    if len(chosen) == 1:
        return chosen[0]
    if not chosen and len(containers) == 1:
        return 0
    raise ValueError(
        f"containers: expected one container with 'runFlux: true' of {len(containers)}, "
        f"not {len(chosen)}"
    )


def minicluster(ensemble: Mapping[str, Any], member: Mapping[str, Any]) -> Manifest:
    """Return the MiniCluster of a member, with its initial size.

    The user's volumes, commands and environment are kept; ours are added.
    """
    owner, given = ensemble["metadata"]["name"], member["minicluster"]
    name = names.member(owner, member["name"])
    labels = names.labels(owner, "member", member["name"])
    spec = copy.deepcopy(given["spec"])
    own = given.get("metadata") or {}
    manifest = new(
        ensemble,
        names.MINICLUSTER,
        "MiniCluster",
        name,
        {**(own.get("labels") or {}), **labels},
        spec=spec,
    )
    if own.get("annotations"):
        manifest["metadata"]["annotations"] = dict(own["annotations"])
    spec.setdefault("size", 1)
    spec.setdefault("maxSize", spec["size"])
    queue = queue_of(ensemble, member)
    spec.setdefault("minSize", 1 if queue is None else spec["size"])
    if queue is not None:
        # The Flux Operator passes these labels on to the Job, which Kueue then suspends.
        spec["jobLabels"] = {**(spec.get("jobLabels") or {}), names.QUEUE_LABEL: queue}
    spec.setdefault("backoffLimit", BACKOFF_LIMIT)
    # If all members had the same headless name, the first one would select only its own pods.
    spec.setdefault("network", {}).setdefault("headlessName", name)
    # Only with this does the Flux Operator's script exit with the exit code of the ensemble, and a
    # pod that fails is started again.
    logging = spec.setdefault("logging", {})
    logging.setdefault("strict", ensemble["spec"].get("restart", "Never") == "OnFailure")
    # Workers that lose rank 0 have done their work.
    spec.setdefault("flux", {}).setdefault("completeWorkers", True)
    pod = spec.setdefault("pod", {})
    pod["labels"] = {**(pod.get("labels") or {}), **labels, **names.of_uid(ensemble)}
    # Members call the gRPC service, never the API server.
    pod.setdefault("automountServiceAccountToken", False)
    _run(ensemble, member, spec["containers"][runner(spec)])
    annotations = manifest["metadata"].setdefault("annotations", {})
    annotations[names.TEMPLATE] = template(ensemble, member)
    annotations[names.PORT] = str(port_of(ensemble))
    return manifest


def queue_of(ensemble: Mapping[str, Any], member: Mapping[str, Any]) -> str | None:
    """Return the queue of Kueue by which a member is started: its own, or that of the Ensemble."""
    own = member["minicluster"]["spec"].get("jobLabels") or {}
    queue: str | None = own.get(names.QUEUE_LABEL, ensemble["spec"].get("queue"))
    return queue


def template(ensemble: Mapping[str, Any], member: Mapping[str, Any]) -> str:
    """Return a digest of what the user cannot change while the member runs.

    That is everything but its size, its least size, and the port of the service. The digest covers
    the user's input, and not the objects made from it, so that a new release of the operator leaves
    members alone.
    """
    given = {key: value for key, value in member.items() if key != "minicluster"}
    spec = member["minicluster"]["spec"]
    fixed = {key: value for key, value in spec.items() if key not in ("size", "minSize")}
    own = ensemble["spec"]
    restarted = (ensemble["metadata"].get("annotations") or {}).get(names.RESTART)
    said = [given, fixed, own.get("install"), own.get("restart", "Never"), restarted]
    # The port is in the members' command. Defaults are left out, as in earlier releases.
    port = port_of(ensemble)
    said += [] if port == PORT else [port]
    return digest([*said, {"queue": own["queue"]}] if "queue" in own else said)


def _run(ensemble: Mapping[str, Any], member: Mapping[str, Any], container: dict[str, Any]) -> None:
    """Complete the container that runs Flux, so that it runs the ensemble."""
    owner = ensemble["metadata"]["name"]
    install = member.get("install") or ensemble["spec"].get("install") or {}
    container["runFlux"] = container["launcher"] = True
    volumes = container.setdefault("volumes", {})
    source = member.get("ensembleFrom") or {
        "name": names.member_document(owner, member["name"]),
        "key": names.DOCUMENT_FILE,
    }
    key = source.get("key", names.DOCUMENT_FILE)
    volumes["flux-ensemble-document"] = {
        "configMapName": source["name"],
        "path": names.DOCUMENT_PATH,
        "items": {key: names.DOCUMENT_FILE},
        "readOnly": True,
    }
    volumes["flux-ensemble-tls"] = {
        "secretName": names.member_tls(owner, member["name"]),
        "path": names.TLS_PATH,
        "readOnly": True,
    }
    if not install.get("skip"):
        _add(container, "brokerPre", _installation(install))
    if "state" in member:
        made = names.member_state(owner, member["name"])
        volume = member["state"].get("claim", made)
        _keep(names.member(owner, member["name"]), volume, container)
    container["command"] = " ".join(_command(ensemble, member, install))


def _add(container: dict[str, Any], key: str, lines: str) -> None:
    """Append shell commands to those of the user."""
    commands = container.setdefault("commands", {})
    given = [commands[key]] if commands.get(key) else []
    commands[key] = "\n".join([*given, lines])


def _keep(name: str, claim: str, container: dict[str, Any]) -> None:
    """Let the ensemble continue from the state on a volume, after the loss of any pod.

    Rank 0 has its statedir on the volume, in a directory of this MiniCluster only. It waits for an
    earlier pod of rank 0 that still runs, for example on an unreachable node: both use one lock.
    With rank 0, Flux loses only what happened since its last checkpoint. Workers that lose rank 0
    wait for the next one; the Flux Operator's script would make them leave for good. A pod of rank
    0 that ends without a summary of the ensemble is started again, by its exit code.
    """
    container["volumes"]["flux-ensemble-state"] = {"claimName": claim, "path": names.STATE_PATH}
    own = f"{names.STATE_PATH}/{name}"
    here = f"{own}/{names.RUN_TOKEN}"
    before = (
        f"mkdir -p {here} || exit 1",
        f"if command -v flock >/dev/null; then exec 9>{own}/lock; flock 9; fi",
        f'for old in {own}/*/; do [ "$old" = {here}/ ] || rm -rf "$old"; done',
        'printf \'[kvs]\\ncheckpoint-period = "1s"\\n\' >"$cfg"/flux-ensemble.toml || exit 1',
        f'brokerOptions="$brokerOptions -Sstatedir={here}"',
    )
    again = (
        "flux() {",
        f'until command flux "$@"; do [ ! -e {here}/over ] || return 0; sleep 1; done',
        "}",
    )
    after = (
        'if [ "$(hostname)" = "$mainHost" ]; then',
        f"[ -s {names.SUMMARY_PATH} ] || exit 1",
        f"touch {here}/over",
        "fi",
    )
    for key, lines in (("brokerPre", before), ("workerPre", again), ("post", after)):
        _add(container, key, "\n".join(lines))


def numbered(manifest: Manifest, run: str) -> Manifest:
    """Return a MiniCluster with a mark that distinguishes it from earlier ones of its name.

    Args:
        manifest: of a MiniCluster.
        run: a word that no other MiniCluster has had.
    """
    found = copy.deepcopy(manifest)
    for container in found["spec"]["containers"]:
        commands = container.get("commands") or {}
        for key, lines in commands.items():
            if isinstance(lines, str):
                commands[key] = lines.replace(names.RUN_TOKEN, run)
    found["metadata"]["annotations"][names.RUN] = run
    return found


def _installation(install: Mapping[str, Any]) -> str:
    """Return the shell commands that install the software on rank 0, or end the pod."""
    pip = [f"{names.PREFIX}/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    if "indexUrl" in install:
        pip += ["--index-url", install["indexUrl"]]
    pip.append(install.get("requirement", REQUIREMENT))
    failed = '{"exit_code": 1, "error": "flux-ensemble could not be installed: see the log"}'
    return (
        f"{{ python3 -m venv --system-site-packages {names.PREFIX} && {shlex.join(pip)}; }} || "
        f"{{ echo {shlex.quote(failed)} > {names.SUMMARY_PATH}; exit 1; }}"
    )


def _command(
    ensemble: Mapping[str, Any], member: Mapping[str, Any], install: Mapping[str, Any]
) -> list[str]:
    """Return the command of rank 0. The Flux Operator splits it at spaces, so no word has one."""
    owner, namespace = (
        ensemble["metadata"]["name"],
        ensemble["metadata"].get("namespace", "default"),
    )
    program = "flux-ensemble" if install.get("skip") else f"{names.PREFIX}/bin/flux-ensemble"
    return [
        program,
        "run",
        "--queue=minicluster",
        f"--name={namespace}/{names.member(owner, member['name'])}",
        f"--host={names.hosts(owner, namespace)[0]}",
        f"--port={port_of(ensemble)}",
        f"--tls-cert={names.TLS_PATH}/tls.crt",
        f"--tls-key={names.TLS_PATH}/tls.key",
        f"--tls-ca={names.TLS_PATH}/ca.crt",
        f"--summary={names.SUMMARY_PATH}",
        *(["--resume"] if "state" in member else []),
        # The Flux of the Flux Operator's view may be older than the broker modules in Python.
        "--serve",
        f"{names.DOCUMENT_PATH}/{names.DOCUMENT_FILE}",
    ]
