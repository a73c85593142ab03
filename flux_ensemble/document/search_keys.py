"""What the keys of a search mean: see `explanations`."""

from __future__ import annotations

from flux_ensemble.document.key import Key

#: By their paths below `search`.
SEARCH_KEYS = {
    "": Key(
        "Searches: a sampler suggests the parameters of a group's jobs, and learns from them.",
        (
            [
                {
                    "id": "hpo",
                    "group": "trial",
                    "variables": {"lr": {"low": 1e-5, "high": 0.1, "log": True}},
                    "minimize": "loss",
                    "trials": 100,
                }
            ],
        ),
    ),
    ".id": Key("Its name, for rules and commands.", ("hpo",)),
    ".group": Key("The job group of its trials; a submission of it is one job.", ("trial",)),
    ".variables": Key(
        "What is searched, by name: a range, or a list of choices. They become parameters.",
        ({"layers": {"low": 1, "high": 8, "integer": True}, "opt": ["sgd", "adam"]},),
    ),
    ".variables.low": Key("The least value.", (1e-5,)),
    ".variables.high": Key("The greatest value.", (0.1,)),
    ".variables.log": Key("The order of magnitude is what matters.", (True,), False),
    ".variables.integer": Key("Integers alone.", (True,), False),
    ".minimize": Key(
        "The key of the memo that is to be small; a list of several is several objectives.",
        ("loss", ["loss", "seconds"]),
    ),
    ".maximize": Key(
        "The key of the memo that is to be large; a list of several is several objectives.",
        ("accuracy",),
    ),
    ".sampler": Key("What suggests the points.", ("random", "qmc", "cma", "nsga2", "gp"), "tpe"),
    ".generator": Key(
        "A class of yours that suggests the points, in place of a sampler: see gest-api.",
        ("learner:Learner",),
    ),
    ".arguments": Key("What the generator's class is called with.", ({"model": "model.json"},), {}),
    ".initial": Key(
        "So many trials are to be complete before the generator is asked; points before are those "
        "of the sampler qmc.",
        (0, 20),
        1,
    ),
    ".trials": Key("How many there are.", (500,)),
    ".parallel": Key("How many are in the queue at once.", (64,), 1),
    ".batch": Key(
        "So many points are asked for at once. Without it, as many as there are free slots.", (16,)
    ),
    ".sequential": Key("Points are asked for only when no trial is under way.", (True,), False),
    ".on-failure": Key("What becomes of a trial that fails.", ("retry", {"penalty": 100}), "skip"),
    ".on-failure.penalty": Key(
        "The value that the sampler is told of it; a list of one for each of several objectives.",
        (100, [100, 0]),
    ),
    ".failures": Key("After so many failed trials in a row the search closes.", (5,), 20),
    ".stop": Key(
        "Trials are stopped early, by what their jobs publish while they run.",
        ({"policy": "asha", "step": "epoch", "eta": 3},),
    ),
    ".stop.policy": Key(
        "asha keeps one trial in eta at each of a few steps; median those better than half.",
        ("asha", "median"),
    ),
    ".stop.step": Key("The key of the memo that says how far the job is.", ("epoch",)),
    ".stop.from": Key("The first step at which trials are compared.", (3,), 1),
    ".stop.eta": Key("Of asha: one trial in so many goes on.", (4,), 3),
    ".stop.trials": Key("Of median: so many trials are complete before.", (10,), 5),
    ".timeout": Key("How long an ask may take; 0 is no limit.", ("1h",), "5m"),
}
