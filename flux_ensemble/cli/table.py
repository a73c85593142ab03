"""The table of commands: what one wants, and the commands for it.

`--help`, completion and the manual page have these sections in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Command(NamedTuple):
    """A command.

    Args:
        module: in `cli.commands`; has the command in its `COMMANDS`.
        summary: in the list of commands.
    """

    module: str
    summary: str


#: Title -> commands in the order of a session. A module is imported when one of its commands runs,
#: so a command does not wait for packages that only others need.
SECTIONS: Final[Mapping[str, Mapping[str, Command]]] = {
    "Run an ensemble": {
        "run": Command("run", "Load a document, follow the ensemble, and exit with it."),
        "load": Command("run", "Load a document and leave the ensemble to the service."),
        "rerun": Command("rerun", "Run the failed jobs of an ensemble again, in the same record."),
        "watch": Command("run", "Follow a loaded ensemble live, and exit with it."),
        "wait": Command("logs", "Wait until ensembles have ended."),
    },
    "Look at it": {
        "list": Command("show", "List the ensembles, ended ones included."),
        "status": Command("show", "Show the service, the queue and the ensembles, or one of them."),
        "top": Command("top", "Show ensembles live: progress, rules, failures and the log."),
        "jobs": Command("jobs", "Show the jobs of an ensemble, and how each of them ended."),
        "failures": Command("jobs", "Show why jobs failed, and what those have in common."),
        "output": Command("jobs", "Print what a job of an ensemble wrote."),
        "best": Command("search", "Show the best jobs of an ensemble, with their parameters."),
        "report": Command("report", "Write a report of ensembles, as one HTML file."),
        "export": Command("jobs", "Write the jobs of an ensemble to a file, as a table."),
        "log": Command("logs", "Print what an ensemble did, and why."),
        "why": Command("show", "Show why rules fire or do not, and what they wait for."),
        "metrics": Command("show", "Show the statistics of every job group."),
        "search": Command("search", "Show the searches of an ensemble, and the best trials."),
    },
    "Steer it": {
        "cancel": Command("control", "Cancel an ensemble, or the jobs of one group."),
        "terminate": Command("control", "End an ensemble."),
        "pause": Command("control", "Keep an ensemble's rules from firing."),
        "resume": Command("control", "Let a paused ensemble go on."),
        "submit": Command("control", "Submit a job group once more and print the job ids."),
        "enable": Command("control", "Turn a rule on."),
        "disable": Command("control", "Turn a rule off."),
        "action": Command("control", "Perform an action now."),
        "memo": Command("memo", "Publish values from within a job."),
        "rm": Command("control", "Remove ensembles that have ended."),
    },
    "Write documents": {
        "init": Command("document", "Write a document to begin with."),
        "explain": Command("document", "Say what a key of a document means."),
        "validate": Command("document", "Check documents, without Flux."),
        "simulate": Command("simulate", "Predict a run in virtual time, without running anything."),
        "replay": Command("replay", "Check that a recording gives the same commands again."),
        "schema": Command("document", "Print the JSON Schema of documents, for editors."),
    },
    "Operate the service": {
        "doctor": Command("doctor", "Check the Flux instance, and say what to do about it."),
        "supervise": Command("serve", "Run the service beside the broker, and again if it dies."),
        "serve": Command("serve", "Run the service in the foreground, outside the broker."),
        "metrics-exporter": Command("exporter", "Give the metrics of ensembles to Prometheus."),
        "grpc": Command("grpc", "The gRPC service: scaling, and remote access to ensembles."),
        "operator": Command("operator", "The operator: Ensembles in Kubernetes."),
    },
}

#: Commands that `--help` leaves out, because another one does the same.
HIDDEN: Final[Mapping[str, Command]] = {
    "unload": Command("control", "Forget an ensemble that has ended: see rm."),
}

#: All commands by name.
COMMANDS: Final[Mapping[str, Command]] = {
    name: entry for entries in (*SECTIONS.values(), HIDDEN) for name, entry in entries.items()
}
