"""Members in a document: what is read, and what is refused, with the line and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.members import Pool

POOL: dict[str, Any] = {"name": "pool", "nodes": 4, "duration": "4h"}
SLURM = {**POOL, "from": "slurm"}
SIM: dict[str, Any] = {"name": "sim", "command": "sim", "duration": "2m"}
NEAR = {"name": "submit", "label": "sim", "near": "trigger"}

SUBMIT = {"name": "submit", "label": "sim"}
STOP = {"name": "terminate"}

WORKERS = {"name": "workers", "runs": "tasks"}
MPI = {"system": {"shell": {"options": {"mpi": "openmpi"}}}}


def on_count(when: str) -> dict[str, Any]:
    """A rule with a condition on a metric."""
    return {"trigger": "metric", "when": when, "action": STOP}


def problems(
    members: list[Any] | None,
    jobs: list[Any] | None = None,
    rules: list[Any] | None = None,
    workers: int | None = None,
) -> str:
    """The problems of a document, with so many workers of --tasks; "" if it has none."""
    document = {"name": "test", "jobs": jobs or [SIM], "rules": rules or []}
    if members is not None:
        document["members"] = members
    try:
        load_mapping(document, workers=workers)
    except DocumentError as error:
        return str(error)
    return ""


def test_a_pool_is_read_with_all_its_keys() -> None:
    entry = {
        **POOL,
        "count": {"min": 2, "max": 8},
        "drain": "5m",
        "on-lost": "hold",
        "labels": ["fast", "fast"],
    }
    spec = load_mapping({"name": "test", "jobs": [{**SIM, "member": "fast"}], "members": [entry]})
    assert spec.members == (Pool("pool", 2, 8, 4, 14400.0, 300.0, "hold", ("fast",)),)
    assert spec.groups["sim"].sets[0].member == "fast"


def test_the_job_of_a_member_has_what_the_document_says_of_it() -> None:
    entry = {
        **POOL,
        "queue": "batch",
        "bank": "physics",
        "constraint": {"properties": ["gpu"]},
        "attributes": {"system": {"constraints": {"ranks": ["1"]}, "x": 1}, "user": {"mine": 2}},
        "exclusive": False,
        "cores": 4,
        "gpus": 1,
    }
    (pool,) = load_mapping({"name": "test", "jobs": [SIM], "members": [entry]}).members
    assert pool.job_attributes() == {
        "system": {
            "queue": "batch",
            "bank": "physics",
            "constraints": {"and": [{"properties": ["gpu"]}, {"ranks": ["1"]}]},
            "x": 1,
        },
        "user": {"mine": 2},
    }
    assert (pool.exclusive, pool.cores, pool.gpus) == (False, 4, 1)


def test_jobs_may_name_a_queue_of_an_instance_that_is_there_already() -> None:
    there = {"name": "there", "uri": "local:///run/x"}
    assert problems([there], [{**SIM, "queue": "debug"}]) == ""
    assert problems([there, POOL], [{**SIM, "queue": "debug", "member": "there"}]) == ""


def test_workers_take_jobs_of_any_queue_which_means_nothing_there() -> None:
    assert problems([WORKERS], [{**SIM, "queue": "debug"}]) == ""


def test_jobs_of_a_document_without_members_may_be_spread_over_nodes() -> None:
    assert problems(None, [{**SIM, "retries": {"times": 1, "spread": "node"}}]) == ""


@pytest.mark.parametrize(
    ("service", "most", "calls"),
    [
        (None, 100, False),
        ("parent", 100, False),
        ("child", 1, True),
        ("auto", 8, False),
        ("auto", 9, True),
    ],
)
def test_members_have_services_of_their_own_where_the_document_says_so(
    service: str | None, most: int, calls: bool
) -> None:
    entry = {**POOL, "count": {"max": most}, **({} if service is None else {"service": service})}
    spec = load_mapping({"name": "test", "jobs": [SIM], "members": [entry]})
    assert spec.members[0].calls is calls


def test_a_short_member_drains_for_half_of_its_time_if_nothing_is_said() -> None:
    assert problems([{"name": "pool", "duration": 30}], [{"name": "a", "command": "a"}]) == ""


@pytest.mark.parametrize(
    ("members", "jobs", "rules", "sentence"),
    [
        ([], None, None, "members: expected a list of members, not a list with 0"),
        ([{"nodes": 4}], None, None, "members[0]: the key 'name' is missing"),
        ([{"name": "default"}], None, None, "'default' is the enclosing instance"),
        ([POOL, POOL], None, None, "members[1].name: the name 'pool' is that of members[0] too"),
        ([{**POOL, "count": {"min": 3, "max": 2}}], None, None, "at most 'max', which is 2, not 3"),
        ([{**POOL, "count": 0}], None, None, "members[0].count: expected an integer >= 1"),
        ([{**POOL, "drain": "4h"}], None, None, "less than 'duration', which is 14400 seconds"),
        ([{"name": "pool", "drain": "4h"}], None, None, "the end of 'duration'; give that too"),
        ([{"name": "pool", "uri": "x", "nodes": 2}], None, None, "'uri' is there already"),
        ([{**POOL, "on-lost": "fial"}], None, None, "did you mean 'fail'?"),
        ([{**POOL, "near": "trigger"}], None, None, "unknown key 'near'"),
        ([{**POOL, "simulate": {"loss": {"param": "x"}}}], None, None, "unknown key 'param'"),
        ([POOL], [{**SIM, "member": "pol"}], None, "did you mean 'pool'? members and labels: pool"),
        (None, [{**SIM, "member": "pool"}], None, "jobs[0].member: the document has no 'members'"),
        ([POOL], [SIM, {**SIM, "member": "pool"}], None, "'sim' differ in 'member'"),
        (
            None,
            [{**SIM, "retries": {"times": 1, "spread": "node"}, "avoid-nodes": False}],
            None,
            "jobs[0].retries.spread: without 'members' it avoids the nodes where the job failed, "
            "which 'avoid-nodes: false' turns off",
        ),
        (
            [POOL],
            [{**SIM, "retries": {"times": 1, "spread": "nodes"}}],
            None,
            "did you mean 'node'?",
        ),
        (
            None,
            None,
            [{"trigger": "job-success", "action": NEAR}],
            "rules[0].action.near: 'near' chooses a member, and the document has no 'members'",
        ),
        (
            [POOL],
            None,
            [{"trigger": "start", "action": NEAR}],
            "rules[0].action.near: no job triggers this",
        ),
        (
            [POOL],
            None,
            [{"trigger": "job-success", "action": {**NEAR, "name": "cancel"}}],
            "'near' means nothing to the action 'cancel' (only to: submit)",
        ),
        (
            [POOL],
            [{**SIM, "queue": "debug"}],
            None,
            "jobs[0].queue: the job is submitted to a member (pool), an instance without named "
            "queues, which would refuse it; leave out the queue, or write 'queue: debug' in",
        ),
        (
            [POOL],
            [{**SIM, "attributes": {"system": {"queue": "debug"}}}],
            None,
            "jobs[0].attributes: the job is submitted to a member (pool)",
        ),
        (
            [POOL],
            None,
            [{"trigger": "start", "action": {**SUBMIT, "queue": "debug"}}],
            "rules[0].action.queue: the job is submitted to a member (pool)",
        ),
        (
            [POOL, {"name": "there", "uri": "local:///run/x"}],
            [{**SIM, "retries": {"times": 1, "with": {"queue": "debug"}}}],
            None,
            "jobs[0].retries.with.queue: the job is submitted to a member (pool)",
        ),
        ([{**POOL, "cores": 2}], None, None, "for a part of them write 'exclusive: false', too"),
        (
            [{**POOL, "attributes": {"user": {"ensemble-member": {}}}}],
            None,
            None,
            "members[0].attributes.user.ensemble-member: the user attribute 'ensemble-member' is",
        ),
        (
            [{"name": "pool", "uri": "x", "queue": "debug"}],
            None,
            None,
            "'queue' is of members that are started, and one with 'uri' is there already",
        ),
        ([{**POOL, "silence": "5m"}], None, None, "'silence' is of members with a 'uri'; one that"),
        ([{**POOL, "options": {"qos": "low"}}], None, None, "'options' are those of sbatch, for"),
        ([{**SLURM, "queue": "debug"}], None, None, "'queue' is of Flux, and the members are jobs"),
        ([{**POOL, "limits": {"queued": 5}}], None, None, "'limits' are on what another system is"),
        ([{**SLURM, "limits": {"queued": 0}}], None, None, "expected an integer >= 1, not 0"),
        (
            [{"name": "hpc", "from": "slurm", "limits": {"node-hours": 4}}],
            None,
            None,
            "without a 'duration' of the members nobody knows how much each may use",
        ),
        (
            [{**SLURM, "count": 2, "limits": {"node-hours": 31.5}}],
            None,
            None,
            "expected at least 32, which the first members ask for (2 times 4 nodes for 4 hours), "
            "not 31.5",
        ),
        ([{**SLURM, "service": "auto"}], None, None, "'service: auto' is of members that Flux"),
        (
            [{**SLURM, "options": {"time": "1h"}}],
            None,
            None,
            "'time' is what 'duration' of the member says; leave it out here",
        ),
        ([{**SLURM, "options": {"hold": True}}], None, None, "'hold' is given by flux-ensemble"),
        ([{**SLURM, "options": {"-p": "x"}}], None, None, "expected the long name of an option of"),
        ([{**SLURM, "options": {"qos": [1]}}], None, None, "qos: expected text, a number, true or"),
        ([{**POOL, "from": "pbs"}], None, None, "expected who starts the members, not 'pbs'"),
        ([{**POOL, "constraint": {"property": ["gpu"]}}], None, None, "not 'property'"),
        ([{**POOL, "constraint": {"properties": "gpu"}}], None, None, "properties: expected a li"),
        ([{**POOL, "constraint": {"properties": [1]}}], None, None, "properties: expected text"),
        ([{**POOL, "constraint": {"not": ["gpu"]}}], None, None, "such as {properties: [gpu]}, n"),
        (
            [{**POOL, "constraint": {"properties": ["a"], "ranks": ["0"]}}],
            None,
            None,
            "expected a constraint with one key, not 2",
        ),
        ([{**POOL, "breaker": "off"}], None, None, "members[0].breaker: expected an integer >= 0"),
        ([POOL], [{**SIM, "nodes": 5}], None, "jobs[0].nodes: expected at most 4, the nodes of"),
        ([POOL], [{**SIM, "duration": "4h"}], None, "jobs[0].duration: expected at most 13091 sec"),
        (
            [POOL],
            None,
            [{"trigger": "start", "action": {"name": "submit", "label": "sim", "nodes": 5}}],
            "rules[0].action.nodes: expected at most 4, the nodes of the largest member",
        ),
        (
            [POOL, {"name": "big", "nodes": 9}],
            [{**SIM, "member": "pool"}],
            [
                {
                    "trigger": "start",
                    "actions": [
                        {"name": "submit", "label": "sim"},
                        {"name": "submit", "label": "sim", "duration": "4h"},
                    ],
                }
            ],
            "rules[0].actions[1].duration: expected at most 13091 seconds, because a job is placed "
            "only where 1.1 times its time limit is left",
        ),
        (
            [POOL],
            [{**SIM, "retries": {"times": 1, "with": {"nodes": 8}}}],
            None,
            "jobs[0].retries.with.nodes: expected at most 4, the nodes of the largest member",
        ),
        (
            [WORKERS],
            [{**SIM, "nodes": 2}],
            None,
            "jobs[0].nodes: expected at most 1, because tasks run on the one node of their worker "
            "(jobs of Flux can have more), not 2",
        ),
        (
            [WORKERS, POOL],
            [{**SIM, "attributes": MPI}],
            None,
            "jobs[0].attributes: tasks of a worker are processes that know nothing of each other, "
            "and the shell option 'mpi' is for jobs of Flux",
        ),
        (
            [WORKERS],
            None,
            [{"trigger": "start", "action": {**SUBMIT, "attributes": MPI}}],
            "rules[0].action.attributes: tasks of a worker are processes that know nothing",
        ),
        (
            [POOL],
            [SIM, {**SIM, "retries": {"times": 1, "with": {"duration": "1d"}}}],
            None,
            "jobs[1].retries.with.duration: expected at most 13091 seconds",
        ),
        (
            [{"name": "a", "uri": "f1"}, POOL, {"name": "b", "uri": "f1"}],
            None,
            None,
            "members[2].uri: the instance is that of members[0] too, and can be one member; leave "
            "one of them out",
        ),
        (
            [{"name": "a", "uri": "local://run/flux/local"}],
            None,
            None,
            "members[0].uri: expected local:///PATH, with three slashes, not 'local://run",
        ),
        (
            [{"name": "a", "uri": "ssh:///run/flux/local"}],
            None,
            None,
            "members[0].uri: expected ssh://HOST/PATH, not 'ssh:///run/flux/local'",
        ),
        (
            [{"name": "a", "uri": "ssh://[host/run/flux/local"}],
            None,
            None,
            "members[0].uri: expected a URI, not 'ssh://[host/run/flux/local': ",
        ),
        (
            [POOL],
            None,
            [{"trigger": "member-lost", "action": {"name": "grow", "label": "poll"}}],
            "no member named 'poll' (did you mean 'pool'? members: pool)",
        ),
        (
            None,
            None,
            [{"trigger": "start", "action": {"name": "grow", "label": "pool"}}],
            "no member named 'pool' (the document has no 'members')",
        ),
        (
            [POOL],
            None,
            [{"trigger": "member-up", "name": "sim", "action": {"name": "terminate"}}],
            "rules[0].name: no member named 'sim' (members: pool)",
        ),
        (
            None,
            None,
            [{"trigger": "member-up", "action": {"name": "terminate"}}],
            "rules[0].trigger: the document has no 'members'",
        ),
        (
            None,
            None,
            [{"trigger": "job-fail", "scope": "member", "action": {"name": "terminate"}}],
            "rules[0].scope: 'member' is each of the members, and the document has no 'members'",
        ),
        (
            [POOL],
            None,
            [{"trigger": "job-fail", "scope": "membr", "action": {"name": "terminate"}}],
            "expected a scope, not 'membr' (did you mean 'member'?",
        ),
        (
            [POOL],
            None,
            [{"trigger": "start", "scope": "member", "action": {"name": "terminate"}}],
            "rules[0].trigger: 'start' cannot be seen of one member ('scope: member'): "
            "write 'trigger: member-up'",
        ),
        (
            [POOL],
            None,
            [{"trigger": "job-fail", "scope": "member", "action": NEAR}],
            "rules[0].action.near: 'near' means nothing with 'scope: member'",
        ),
        (
            [POOL],
            None,
            [
                {
                    "trigger": "member-lost",
                    "scope": "member",
                    "actions": [{"name": "terminate"}, {"name": "submit", "label": "sim"}],
                }
            ],
            "rules[0].actions[1]: no job can run on the member any more at 'member-lost'",
        ),
        (
            [POOL],
            None,
            [
                {
                    "trigger": "job-fail",
                    "scope": "member",
                    "when": "rate.sim > 1",
                    "action": {"name": "terminate", "reason": "{nodes.free}"},
                }
            ],
            "rules[0].when: 'rate.sim' is not known of one member (of one there are counts",
        ),
        (
            [POOL],
            None,
            [
                {
                    "trigger": "member-up",
                    "scope": "member",
                    "action": {"name": "terminate", "reason": "{nodes.free}"},
                }
            ],
            "rules[0].action.reason: 'nodes.free' is not known of one member",
        ),
        ([{**POOL, "count": {"min": 2}}], None, None, "members[0].count: the key 'max' is missing"),
        (
            [POOL],
            None,
            [on_count("count['sim.success@pol'] > 3")],
            "rules[0].when: 'count.sim.success@pol': no member named 'pol' (members: pool)",
        ),
        (
            [POOL],
            None,
            [{**on_count("> 3"), "name": "count.sim.success@pol"}],
            "rules[0].name: 'count.sim.success@pol': no member named 'pol' (members: pool)",
        ),
        (
            [POOL],
            None,
            [{"trigger": "start", "action": {**STOP, "reason": "{count['sim.success@pol']}"}}],
            "rules[0].action.reason: 'count.sim.success@pol': no member named 'pol'",
        ),
        (
            None,
            None,
            [on_count("count['sim.success@pool'] > 3")],
            "'count.sim.success@pool' is of the members of a pool, and the document has no",
        ),
        (
            [POOL],
            None,
            [on_count("count.sim.success@pool > 3")],
            "rules[0].when: '@' is not allowed in an expression; a name that has it is written in "
            "brackets, such as count['GROUP.success@POOL']",
        ),
        (
            [POOL],
            None,
            [on_count("mean['sim-duration@pool'] > 3")],
            "rules[0].when: 'mean.sim-duration@pool' is not known of one pool, of which there are "
            "counts alone; in a rule with 'scope: member' statistics are those of its member",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_place_and_the_remedy(
    members: list[Any] | None, jobs: list[Any] | None, rules: list[Any] | None, sentence: str
) -> None:
    assert sentence in problems(members, jobs, rules)


def test_counts_of_a_pool_and_keys_of_memos_with_its_name_can_be_named() -> None:
    # A job may publish a key of any name.
    for name in ("count['sim.success@pool']", "mean['sim-fom@pool']"):
        assert problems([POOL], rules=[on_count(f"{name} > 3")]) == ""


@pytest.mark.parametrize(
    ("members", "jobs", "values"),
    [
        # They fit, only Flux knows whether they do, and it depends on the job.
        ([POOL], [{**SIM, "retries": {"times": 1, "with": {"nodes": 4}}}], {"duration": "3h"}),
        ([POOL, {"name": "a", "uri": "f1"}], [SIM], {"nodes": 50, "duration": "9d"}),
        ([{"name": "a", "uri": "f1"}, {"name": "b", "uri": "ssh://h/f1"}], [SIM], {"nodes": 50}),
        ([POOL], [SIM], {"nodes": "{job.nnodes * 2}", "duration": "{job.duration * 9}"}),
    ],
)
def test_a_submission_that_may_fit_a_member_is_valid(
    members: list[Any], jobs: list[Any], values: dict[str, Any]
) -> None:
    submit = {"name": "submit", "label": "sim", **values}
    assert problems(members, jobs, [{"trigger": "job-fail", "action": submit}]) == ""


def test_the_line_is_that_of_the_member() -> None:
    text = "members:\n  - {name: pool}\n  - {name: pool}\njobs: [{name: a, command: a}]\n"
    with pytest.raises(DocumentError, match=r"document:3: members\[1\]\.name"):
        load_text(text, name="test")


def test_a_pool_can_grow_though_the_enclosing_instance_has_a_fixed_size() -> None:
    grow = {"trigger": "start", "action": {"name": "grow", "label": "pool"}}
    document = {"name": "test", "jobs": [SIM], "members": [POOL], "rules": [grow]}
    spec = load_mapping(document, elastic=False)
    assert spec.rules[0].action.label == "pool"
    # And it needs no heartbeat, for members say by themselves what becomes of them.
    assert not spec.heartbeat


def test_an_mpi_option_means_nothing_to_jobs_of_flux_and_none_asks_for_none() -> None:
    assert problems([WORKERS, POOL], [{**SIM, "member": "pool", "attributes": MPI}]) == ""
    none = {"system": {"shell": {"options": {"mpi": "none"}}}}
    assert problems([WORKERS], [{**SIM, "attributes": none}]) == ""


@pytest.mark.parametrize(
    ("keys", "rule", "said"),
    [
        ({"nodes": 2}, {"trigger": "start", "action": SUBMIT}, "jobs[0].nodes: expected at most 1"),
        ({"member": "workers"}, {"trigger": "start", "action": SUBMIT}, "did you mean 'worker'?"),
        ({}, {"trigger": "job-fail", "action": {**NEAR, "repetitions": 1}}, ""),
        ({}, {"trigger": "member-lost", "action": {"name": "grow", "label": "worker"}}, ""),
    ],
)
def test_with_tasks_asked_for_by_the_command_a_document_is_checked_as_one_with_workers(
    keys: dict[str, Any], rule: dict[str, Any], said: str
) -> None:
    found = problems(None, [{**SIM, **keys}], [rule], workers=2)
    assert said in found
    assert bool(found) == bool(said)


def test_a_queue_is_one_of_those_of_each_instance_that_is_there_already() -> None:
    text = (
        "name: a\n"
        "members: [{name: x, uri: 'local:///x'}, {name: y, uri: 'local:///y', labels: [bare]}]\n"
        "jobs:\n"
        "- {name: g, command: a, queue: batch, member: x}\n"
        "- {name: h, command: a, retries: {times: 1, with: {queue: debg}}, member: x}\n"
        "- {name: i, command: a, queue: batch, member: bare}\n"
        "- {name: j, command: a, queue: '{q}', params: {q: [nowhere]}}\n"
        "- {name: k, command: a, queue: batch}\n"
    )
    queues = {"local:///x": {"batch", "debug"}, "local:///y": set()}
    with pytest.raises(DocumentError) as caught:
        load_text(text, queues=queues.get)
    start, no_queue = "the job may be submitted to member", "whose instance has no queue"
    assert [line.partition(": ")[2] for line in str(caught.value).splitlines()] == [
        f"jobs[1].retries.with.queue: {start} 'x', {no_queue} 'debg' "
        "(did you mean 'debug'? its queues: batch, debug)",
        f"jobs[2].queue: {start} 'y', {no_queue} 'batch' (it has none)",
        f"jobs[4].queue: {start} 'y', {no_queue} 'batch' (it has none)",
    ]
    # Nobody has asked, or been answered.
    load_text(text)
    load_text(text, queues={"local:///x": {"batch", "debg"}}.get)
