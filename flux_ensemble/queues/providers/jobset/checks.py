"""Checks for `doctor FILE` that Kubernetes would take the members of a pool."""

from __future__ import annotations

from importlib import import_module

from flux_ensemble.document.members import Pool
from flux_ensemble.extras import install_command
from flux_ensemble.finding import Finding
from flux_ensemble.queues.nested.provider import UnavailableError
from flux_ensemble.queues.nested.shape import MemberTag, Program, Shape, Size
from flux_ensemble.queues.providers.jobset.job import describe


def check(pool: Pool) -> Finding:
    """Have the API server check the JobSet of a member as if it were made."""
    try:
        jobsets = import_module("flux_ensemble.k8s.jobsets")
    except ImportError as error:
        return Finding(
            "site",
            "problem",
            f"{pool.name}: members in Kubernetes need {error.name}",
            f"install it: {install_command('k8s')}",
        )
    shape = Shape(
        MemberTag("doctor", 0, f"{pool.name}.0", 0, 0),
        "doctor",
        Size(duration=pool.duration),
        environment={},
        cwd="/",
        program=Program.WORKER,
        template=pool.template,
        credentials="{}",
    )
    try:
        reason, namespace = jobsets.try_out(lambda namespace: describe(shape, namespace)["jobset"])
    except UnavailableError as error:
        return Finding("site", "problem", f"{pool.name}: {error}", "see `kubectl cluster-info`")
    if reason is not None:
        return Finding(
            "site",
            "problem",
            f"{pool.name}: Kubernetes refuses its JobSet: {reason}",
            "docs/jobset-members.md says what the cluster and its user need",
        )
    return Finding("site", "ok", f"{pool.name}: namespace {namespace} takes its JobSets")
