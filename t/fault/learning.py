"""An ensemble that learns as it goes: searches, early stopping, a generator, copies, predictions.

What its jobs publish follows from the numbers of their trials. They are mock jobs, so `Publisher`
publishes it for them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

from scenario import TICK
from witness import Job, Witness
from workloads import Expected, Submits, Workload, mock

NAME = "learning"

SEED = 7

#: Of the generator's search; `generators.Waits` waits when it was told of four trials.
LEARNT = 12

#: Pieces of work. Some of them hang where they run first: 0 for ever, 5, 10 and 15 for about as
#: long as it takes until a copy is through.
PIECES = 16

#: The epochs of which a trial publishes its loss, and seconds from each to the next.
EPOCHS, PAUSE = (1, 2), 0.25

#: The searches that stop trials early, and how each does.
STOPS: Mapping[str, Mapping[str, Any]] = {
    "early": {"policy": "asha", "step": "epoch", "eta": 2},
    "median": {"policy": "median", "step": "epoch", "trials": 4},
}

_WORK = "mkdir piece-{n} 2>/dev/null || exit 0; case {n} in 0) sleep 3600;; 5|10|15) sleep 1;; esac"


def learning(trials: int, *, sampler: str, parallel: int) -> Workload:
    """Four searches and a group whose jobs get copies, and one job when each is done.

    Jobs of the search `hpo` publish nothing, so each of its trials has failed when its job has
    succeeded. Its points, those of `STOPS`, and those of `learn` where what became of the trials
    before is known, follow from their numbers.

    Args:
        trials: of `hpo`, and of each of `STOPS`.
        sampler: of these, "random" or "qmc".
        parallel: how many of each are in the queue at once.
    """
    variables = {
        "x": {"low": 1e-3, "high": 1, "log": True},
        "n": {"low": 1, "high": 9, "integer": True},
        "kind": ["p", "q"],
    }
    given = {"minimize": "loss", "variables": variables}
    many = {"sampler": sampler, "trials": trials, "parallel": parallel, "failures": trials + 1}
    searches = ("hpo", *STOPS, "learn")
    document = {
        "name": NAME,
        "seed": SEED,
        "search": [
            {"id": "hpo", "group": "trial", **given, **many},
            *({"id": id, "group": f"epochs-{id}", **given, **many, "stop": stop}
              for id, stop in STOPS.items()),
            {"id": "learn", "group": "learnt", **given, "generator": "generators:Waits",
             "trials": LEARNT, "failures": LEARNT + 1},
        ],
        "jobs": [
            {"name": "trial", "command": "true {x} {n} {kind}", "attributes": mock(0.1)},
            *({"name": f"epochs-{id}", "command": "true {x} {n} {kind}",
               "attributes": mock(PAUSE * (len(EPOCHS) + 1))} for id in STOPS),
            {"name": "learnt", "command": "true {x} {n} {kind}", "attributes": mock(PAUSE)},
            {"name": "work", "command": ["sh", "-c", _WORK], "predict": ["n"],
             "order": "longest-first", "max-active": PIECES // 2,
             "params": {"n": {"range": [0, PIECES]}}},
            {"name": "next", "command": "true {n}", "params": {"n": -1},
             "attributes": mock(0.01)},
            {"name": "rest", "command": "true", "attributes": mock(0.01)},
            *({"name": f"last-{id}", "command": "true", "attributes": mock(0.01)}
              for id in searches),
        ],
        "use": [{"algorithm": "stragglers", "group": "work", "ends": 5, "factor": 2,
                 "every": "300ms"}],
        "rules": [
            {"id": "work", "trigger": "start", "action": {"name": "submit", "label": "work"}},
            {"id": "next", "trigger": "job-success", "group": "work",
             "action": {"name": "submit", "label": "next", "params": "trigger",
                        "repetitions": "unlimited"}},
            {"id": "rest", "trigger": "idle", "group": "work",
             "action": {"name": "submit", "label": "rest", "repetitions": "unlimited"}},
            *({"id": f"begin-{id}", "trigger": "start", "action": {"name": "search", "label": id}}
              for id in searches),
            *({"id": f"last-{id}", "trigger": "search-done", "name": id,
               "action": {"name": "submit", "label": f"last-{id}"}} for id in searches),
        ],
    }  # fmt: skip
    submits = {
        "work": Submits("work", 1, PIECES),
        "next": Submits("next", PIECES, 1),
        "rest": Submits("rest", 1, 1),
        **{f"last-{id}": Submits(f"last-{id}", 1, 1) for id in searches},
    }
    outcomes = {
        group: {"success": many}
        for group, many in {"trial": trials, "learnt": LEARNT, "next": PIECES, "rest": 1}.items()
    }
    expected = Expected(
        submits,
        firings={f"begin-{id}": 1 for id in searches},
        outcomes=outcomes,
        searches={
            "search:hpo": Submits("trial", trials, 1),
            **{f"search:{id}": Submits(f"epochs-{id}", trials, 1) for id in STOPS},
            "search:learn": Submits("learnt", LEARNT, 1),
        },
        copied={"stragglers-copy": "work"},
    )
    return Workload(document, expected)


def loss(number: int, epoch: int) -> float:
    """What the trial of a number publishes."""
    return (37 * number % 101) / 101 + 1 / epoch


class Publisher:
    """Publishes what the jobs of trials have to say, while they run.

    Args:
        uri: of the instance.
        witness: says which jobs run.
    """

    #: By group, the epochs after which there is a loss.
    EPOCHS: Mapping[str, tuple[int, ...]] = {
        **{f"epochs-{id}": EPOCHS for id in STOPS},
        "learnt": EPOCHS[:1],
    }

    def __init__(self, uri: str, witness: Witness) -> None:
        import flux

        self._handle = flux.Flux(uri)
        self._witness = witness
        self._end = threading.Event()
        self._published: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Publish nothing more."""
        self._end.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._end.wait(10 * TICK):
            for job in self._witness.started(NAME):
                assert job.tag is not None
                epochs = self.EPOCHS.get(job.tag["group"], ())
                done = self._published.get(job.id, 0)
                alloc = job.first("alloc")
                if done < len(epochs) and alloc and time.time() >= alloc[0] + PAUSE * done:
                    self._publish(job, epochs[done])
                    self._published[job.id] = done + 1

    def _publish(self, job: Job, epoch: int) -> None:
        assert job.tag is not None
        memo: dict[str, Any] = {"epoch": epoch, "loss": loss(job.tag["firing"], epoch)}
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            self._handle.rpc("job-manager.memo", {"id": job.id, "memo": memo}).get()
