"""`operator run | render | convert`: Ensembles in Kubernetes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
import yaml

from flux_ensemble.cli.commands.server_options import HEALTH_PORT, LOG_FORMAT, needs
from flux_ensemble.cli.common import USAGE, Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Variable with the image of the gRPC service, in the operator's Deployment.
IMAGE = "FLUX_ENSEMBLE_IMAGE"

IMAGE_OPTION = click.option(
    "--image",
    metavar="IMAGE",
    default=lambda: os.environ.get(IMAGE),
    help=f"The image of the gRPC service where an Ensemble names none (default: {IMAGE}, else "
    "flux-ensemble of this version).",
)


@click.group()
def operator() -> None:
    """The operator: an Ensemble in Kubernetes becomes MiniClusters and their gRPC service."""


@operator.command(short_help="Look after the Ensembles of a cluster.")
@click.option(
    "--namespace",
    "namespaces",
    metavar="NAMESPACE",
    multiple=True,
    help="Look after this namespace only. Can be repeated.  [default: all]",
)
@IMAGE_OPTION
@HEALTH_PORT
@click.option("--lease-namespace", metavar="NAMESPACE", help="Where its Lease is.")
@click.option(
    "--lease-seconds",
    type=click.FloatRange(1.0),
    default=15.0,
    show_default=True,
    help="How long another operator waits for one that is silent.",
)
@click.option(
    "--resync-seconds",
    type=click.FloatRange(1.0),
    default=300.0,
    show_default=True,
    help="How often all Ensembles are looked at, whatever the watches say.",
)
@LOG_FORMAT
def run(image: str | None, log_format: str, **options: Any) -> None:
    """Look after Ensembles until Ctrl-C, with the pod's service account or KUBECONFIG.

    Of several operators one works; the others wait for its Lease.
    """
    with needs("k8s"):
        from flux_ensemble.k8s.api_server import ClusterError
        from flux_ensemble.k8s.json_logs import start_logging
        from flux_ensemble.k8s.operator import app
    start_logging(log_format)
    settings = app.Settings(image) if image else app.Settings()
    try:
        app.run(app.Options(settings=settings, **options))
    except ClusterError as exc:
        raise Failure(str(exc), USAGE) from exc


@operator.command(short_help="Print what an Ensemble becomes.")
@click.argument("file", type=click.File())
@click.option("--namespace", default="default", show_default=True, help="Where it would be.")
@IMAGE_OPTION
def render(file: Any, namespace: str, image: str | None) -> None:
    """Print the objects that the Ensembles in FILE ("-": standard input) become, as YAML.

    Nothing is asked of a cluster, and Secrets are left out: they are made there. Exits 2 if an
    Ensemble has errors, and prints them all.
    """
    with needs("k8s"):
        from flux_ensemble.k8s.operator import render as rendering
        from flux_ensemble.k8s.operator.check import check
        from flux_ensemble.k8s.operator.names import API_VERSION

    settings = rendering.Settings(image) if image else rendering.Settings()
    manifests = []
    problems = []
    for ensemble in _read(file):
        if ensemble.get("apiVersion") != API_VERSION or ensemble.get("kind") != "Ensemble":
            problems.append(
                f"{file.name}: expected an Ensemble of {API_VERSION}, not "
                f"{ensemble.get('kind')} of {ensemble.get('apiVersion')}"
            )
            continue
        try:
            ensemble["metadata"].setdefault("namespace", namespace)
            # A document in a ConfigMap is not available here.
            members = ensemble["spec"]["members"]
            documents: dict[str, Any] = {
                one["name"]: one.get("ensemble", "jobs: [{name: a, command: a}]") for one in members
            }
            problems += [f"{file.name}: {problem}" for problem in check(ensemble, documents)]
            manifests += [] if problems else rendering.render(ensemble, settings)
        except (KeyError, TypeError, AttributeError) as exc:
            raise Failure(
                f"{file.name}: the Ensemble is not complete: {exc!r}; see docs/kubernetes.md",
                USAGE,
            ) from exc
    if problems:
        raise Failure("\n".join(problems), USAGE)
    click.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)


@operator.command(short_help="Convert Ensembles of ensemble-operator.")
@click.argument("file", type=click.File())
def convert(file: Any) -> None:
    """Print the Ensembles of ensemble-operator in FILE ("-": standard input) as ours.

    What has no counterpart is said on standard error.
    """
    with needs("k8s"):
        from flux_ensemble.k8s.operator.convert import NotConvertible
        from flux_ensemble.k8s.operator.convert import convert as convert_one

    converted = []
    for ensemble in _read(file):
        try:
            result, notes = convert_one(ensemble)
        except NotConvertible as exc:
            raise Failure(f"{file.name}: {exc}", USAGE) from exc
        converted.append(result)
        for note in notes:
            click.echo(f"note: {note}", err=True)
    click.echo(_as_yaml(converted), nl=False)


def _read(file: Any) -> Iterator[dict[str, Any]]:
    try:
        documents = [one for one in yaml.safe_load_all(file) if one is not None]
    except yaml.YAMLError as exc:
        raise Failure(f"{file.name}: {exc}", USAGE) from exc
    for document in documents:
        if not isinstance(document, dict):
            raise Failure(f"{file.name}: expected an object, not {document!r}", USAGE)
        yield document


class _Dumper(yaml.SafeDumper):
    """A writer that keeps multi-line texts as they are, so that documents stay readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _as_yaml(documents: list[dict[str, Any]]) -> str:
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False)


COMMANDS = (operator,)
