"""Checks of the ensemble service: that it runs, that it is kept running, its configuration."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from flux_ensemble import __version__
from flux_ensemble.bindings import BindingsError, module_problem
from flux_ensemble.client.errors import failure
from flux_ensemble.deploy.checks.instance import PATIENCE, Finding, InstanceInfo, config
from flux_ensemble.queues.elastic.settings import old_settings, read_scaler
from flux_ensemble.service.settings import read_settings

_ADVICE = "`flux ensemble supervise` runs it beside the broker, and again after a crash"


def service(instance: InstanceInfo) -> Finding:
    """Check that the service answers, and has this version."""
    answer = instance.service
    if isinstance(answer, Mapping):
        if "pid" not in answer:
            return Finding("service", "ok", f"flux-ensemble {answer['version']} (seen as a guest)")
        text = (
            f"flux-ensemble {answer['version']}, {answer['mode']} (pid {answer['pid']}), "
            f"Python {answer['python']}"
        )
        if answer["version"] != __version__:
            advice = f"this command is {__version__}: load the module of the same version"
            return Finding("service", "warning", text, advice)
        return Finding("service", "ok", text)
    if answer.errno == errno.EPERM:
        advice = "the owner of the instance has to run this, or to open status to guests"
        return Finding("service", "warning", "it does not answer guests", advice)
    if answer.errno == errno.ETIMEDOUT:
        return Finding(
            "service",
            "problem",
            f"it does not answer within {PATIENCE:.0f} s",
            "`flux dmesg` may say why",
        )
    if answer.errno != errno.ENOSYS:
        return Finding("service", "problem", str(failure(answer, "status")), "see `flux dmesg`")
    if instance.keeper is not None:
        return Finding("service", "problem", "it died", "see what the keeper, below, does about it")
    try:
        problem = module_problem()
    except BindingsError as error:
        problem = str(error)
    if problem is not None:
        return Finding(
            "service",
            "problem",
            "it is not loaded, and runs beside the broker only",
            f"`run` and `load` start it so when they need it; {problem}",
        )
    return Finding(
        "service",
        "problem",
        "it is not loaded; Flux's Python can load it",
        "`run` and `load` do so when they need it; `flux ensemble supervise` runs it beside the "
        "broker, and again after a crash",
    )


def keeper(instance: InstanceInfo) -> Finding:
    """Check that the instance outlives the service, which is restarted after a crash."""
    kept = instance.keeper
    if kept is not None:
        ended = f"; the last one {kept['last_exit']}" if kept["last_exit"] else ""
        text = f"a process beside the broker, started again {kept['restarts']} times{ended}"
        if kept["state"] == "given up":
            advice = "`flux dmesg` says why; `flux ensemble supervise` begins anew"
            return Finding("keeper", "problem", f"not started again any more{ended}", advice)
        return Finding("keeper", "ok", text)
    answer = instance.service
    if isinstance(answer, Mapping) and answer.get("mode") == "client":
        return Finding("keeper", "ok", "up to what started `flux ensemble serve`")
    if not (isinstance(answer, Mapping) and "mode" in answer):
        return Finding("keeper", "warning", "none", _ADVICE)
    return Finding(
        "keeper",
        "warning",
        "none: the service is a module of the broker, and should it die, the whole instance does",
        _ADVICE,
    )


def guests(instance: InstanceInfo) -> Finding:
    """Check that the configuration of guests' access is valid."""
    wrong: list[str] = []
    settings = read_settings(config(instance, "ensemble"), wrong.append)
    if wrong:
        return Finding("guests", "problem", "; ".join(wrong), "correct the configuration")
    open_to = "list and status" if settings.allow_guest_status else "nothing"
    return Finding("guests", "ok", f"guests may ask for {open_to}")


def scaler(instance: InstanceInfo) -> Finding:
    """Check that the scaler of the instance is configured in a way that can work."""
    table = config(instance, "ensemble")
    try:
        settings = read_scaler(table) if isinstance(table, Mapping) else None
    except ValueError as error:
        return Finding("scaler", "problem", f"[ensemble] {error}", "correct the configuration")
    if settings is None:
        return Finding("scaler", "ok", "none is configured: the size of the instance is fixed")
    if instance.instance is not None and instance.instance["scaler"] is None:
        text = f"{settings.kind!r} is configured, and the service does not use it"
        advice = "`flux dmesg` says why; the configuration is read when the service starts"
        return Finding("scaler", "problem", text, advice)
    text = f"the instance can change its size: {settings.kind!r}"
    old = old_settings(table)
    if old:
        text = f"{text}; [ensemble] {'; '.join(old)}"
        return Finding("scaler", "warning", text, "rename the keys in the configuration")
    return Finding("scaler", "ok", text)


def members(instance: InstanceInfo) -> Finding:
    """Check that processes started by a member's broker end with the broker."""
    if config(instance, "exec").get("service") == "sdexec":
        return Finding("members", "ok", "what they run ends with their brokers")
    text = "what they run can live on for a while if their brokers are killed"
    if not instance.has_members:
        return Finding("members", "ok", f"no ensemble has some; {text}")
    advice = 'where systemd is there, set `service = "sdexec"` in [exec] of the configuration'
    return Finding("members", "warning", text, advice)
