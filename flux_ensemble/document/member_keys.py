"""What the keys of a member mean: see `explanations`."""

from __future__ import annotations

from flux_ensemble.document.key import Key

#: By their paths below `members`.
MEMBER_KEYS = {
    "": Key(
        "Flux instances that the jobs are shared out over. Without it, jobs run on the enclosing "
        "instance.",
        ([{"name": "pool", "count": {"min": 2, "max": 8}, "nodes": 4, "duration": "4h"}],),
    ),
    ".name": Key("Name of the pool: its members are NAME.0, NAME.1 and so on.", ("pool",)),
    ".count": Key("How many members there are, or a mapping with bounds.", (4,), 1),
    ".count.min": Key("So many are started at first, and 'shrink' leaves no fewer.", (2,), 1),
    ".count.max": Key("'grow' starts no more.", (8,)),
    ".nodes": Key("Nodes of each member.", (4,), 1),
    ".duration": Key("How long each lasts; 0 is no limit of its own.", ("4h",), 0),
    ".drain": Key(
        "So long before a member ends no job is placed on it, and those that wait move. The "
        "default is 30s, and half of a shorter duration.",
        ("5m",),
    ),
    ".on-lost": Key(
        "What becomes of jobs that had not ended when their member was lost: resubmit has them run "
        "again, fail counts them as failed, hold submits them with urgency 0.",
        ("fail", "hold"),
        "resubmit",
    ),
    ".breaker": Key(
        "After so many different jobs in a row that failed within 5 seconds a member is in doubt, "
        "and is drained if others run such jobs well; 0 is never.",
        (50, 0),
        20,
    ),
    ".labels": Key("What jobs can ask for with 'member', besides the name.", (["gpu"],)),
    ".service": Key(
        "Who submits and follows the jobs of a member: the service of the ensemble (parent), or a "
        "service in the member, which calls that one (child). With auto it is child where there "
        "may be more than 8 members.",
        ("child", "auto"),
        "parent",
    ),
    ".uri": Key("A Flux instance that is there already.", ("ssh://host/run/flux/local",)),
    ".simulate": Key(
        "How the members behave in a simulation.",
        ({"startup": "5s", "loss": {"exponential": {"mean": "20h"}}},),
    ),
    ".simulate.startup": Key("How long a member takes until it is up.", ("30s",), "2s"),
    ".simulate.loss": Key(
        "How long it is up until it is lost. The default is never.",
        ({"exponential": {"mean": "20h"}},),
    ),
    ".simulate.broken": Key("The probability that a member fails each of its jobs.", (0.1,), 0),
}
