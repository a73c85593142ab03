"""The table of commands: what one wants, and the commands for it.

`--help`, completion and the manual page have these sections in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command.

    Args:
        module: in `cli.commands`; has the command in its `COMMANDS`.
        summary: in the list of commands.
    """

    module: str
    summary: str


#: Title -> commands in the order of a session. A module is imported when one of its commands runs,
#: so a command does not wait for packages that only others need.
SECTIONS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "Run an ensemble": {
        "run": Entry("run", "Load a document, follow the ensemble, and exit with it."),
        "load": Entry("run", "Load a document and leave the ensemble to the service."),
        "watch": Entry("run", "Follow a loaded ensemble live, and exit with it."),
        "wait": Entry("logs", "Wait until ensembles have ended."),
    },
    "Look at it": {
        "list": Entry("show", "List the ensembles, ended ones included."),
        "status": Entry("show", "Show the service, the queue and the ensembles, or one of them."),
        "top": Entry("top", "Show ensembles live: progress, rules, failures and the log."),
        "jobs": Entry("jobs", "Show the jobs of an ensemble, and how each of them ended."),
        "failures": Entry("jobs", "Show why jobs failed, and what those have in common."),
        "output": Entry("jobs", "Print what a job of an ensemble wrote."),
        "best": Entry("search", "Show the best jobs of an ensemble, with their parameters."),
        "report": Entry("report", "Write a report of ensembles, as one HTML file."),
        "export": Entry("jobs", "Write the jobs of an ensemble to a file, as a table."),
        "log": Entry("logs", "Print what an ensemble did, and why."),
        "why": Entry("show", "Show why rules fire or do not, and what they wait for."),
        "metrics": Entry("show", "Show the statistics of every job group."),
        "search": Entry("search", "Show the searches of an ensemble, and the best trials."),
    },
    "Steer it": {
        "cancel": Entry("control", "Cancel an ensemble, or the jobs of one group."),
        "terminate": Entry("control", "End an ensemble."),
        "pause": Entry("control", "Keep an ensemble's rules from firing."),
        "resume": Entry("control", "Let a paused ensemble go on."),
        "submit": Entry("control", "Submit a job group once more and print the job ids."),
        "enable": Entry("control", "Turn a rule on."),
        "disable": Entry("control", "Turn a rule off."),
        "action": Entry("control", "Perform an action now."),
        "memo": Entry("memo", "Publish values from within a job."),
        "rm": Entry("control", "Remove ensembles that have ended."),
    },
    "Write documents": {
        "init": Entry("document", "Write a document to begin with."),
        "explain": Entry("document", "Say what a key of a document means."),
        "validate": Entry("document", "Check documents, without Flux."),
        "simulate": Entry("simulate", "Predict a run in virtual time, without running anything."),
        "replay": Entry("replay", "Check that a recording gives the same commands again."),
        "schema": Entry("document", "Print the JSON Schema of documents, for editors."),
    },
    "Operate the service": {
        "doctor": Entry("doctor", "Check the Flux instance, and say what to do about it."),
        "supervise": Entry("supervise", "Run the service beside the broker, and again if it dies."),
        "serve": Entry("serve", "Run the service in the foreground, outside the broker."),
        "metrics-exporter": Entry("exporter", "Give the metrics of ensembles to Prometheus."),
        "grpc": Entry("grpc", "The gRPC service: scaling, and remote access to ensembles."),
        "operator": Entry("operator", "The operator: Ensembles in Kubernetes."),
    },
}

#: Commands that `--help` leaves out, because another one does the same.
HIDDEN: Final[Mapping[str, Entry]] = {
    "unload": Entry("control", "Forget an ensemble that has ended: see rm."),
}

#: All commands by name.
COMMANDS: Final[Mapping[str, Entry]] = {
    name: entry for entries in (*SECTIONS.values(), HIDDEN) for name, entry in entries.items()
}
