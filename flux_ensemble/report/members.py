"""The members of an ensemble over several instances: how long each existed, and what it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from flux_ensemble import eventlog
from flux_ensemble.report.markup import Child, h, table
from flux_ensemble.report.source import Job
from flux_ensemble.report.texts import NOTHING, plural, seconds

#: Members that are kept by name; further ones are left out.
MOST_MEMBERS = 2000

#: The columns of the table that are numbers.
_NUMERIC = range(2, 10)


@dataclass
class Seen:
    """The data of one member.

    Args:
        state: the last one in the log.
        t_start, t_up, t_end: when it was requested, was up, and had ended.
        nodes, cores: its size.
        why: the reason for which it was drained, was lost or ended.
        outcomes: number of its jobs by outcome; None is active.
    """

    state: str = "starting"
    t_start: float | None = None
    t_up: float | None = None
    t_end: float | None = None
    nodes: int | None = None
    cores: int | None = None
    why: str = ""
    outcomes: Counter[str | None] = field(default_factory=Counter)


class MembersSeen:
    """The members that occur in the log and the jobs of an ensemble.

    Attributes:
        by_name: the data of each, in the order of their requests.
        left_out: how many times a member beyond the limit occurred.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Seen] = {}
        self.left_out = 0

    def _of(self, name: str) -> Seen | None:
        seen = self.by_name.get(name)
        if seen is None:
            if len(self.by_name) >= MOST_MEMBERS:
                self.left_out += 1
                return None
            seen = self.by_name[name] = Seen()
        return seen

    def take_entry(self, t: float, entry: eventlog.Entry) -> None:
        """Process an entry of the log."""
        seen = self._of(str(entry.member)) if isinstance(entry, eventlog.OfMember) else None
        if seen is None:
            return
        match entry:
            case eventlog.MemberStart():
                seen.t_start = t
            case eventlog.MemberUp():
                seen.state, seen.t_up = "up", t
                seen.nodes, seen.cores = entry.nodes, entry.cores
            case eventlog.MemberDraining():
                seen.state, seen.why = "draining", entry.reason
            case eventlog.MemberLost():
                seen.state, seen.why = "lost", entry.reason
            case eventlog.MemberEnded():
                seen.t_end = t
                seen.why = seen.why or entry.reason
                seen.state = "lost" if seen.state == "lost" else "ended"

    def take_job(self, job: Job) -> None:
        """Count a job."""
        if "member" in job:
            seen = self._of(job["member"])
            if seen is not None:
                seen.outcomes[job["outcome"]] += 1


def members(seen: MembersSeen, begin: float, end: float, most: int) -> Iterator[Child]:
    """Yield the table of the members.

    Args:
        seen: the members.
        begin, end: of the report's time.
        most: maximum number of rows.
    """
    named = list(seen.by_name.items())
    if not named:
        return
    lost = sum(member.state == "lost" for _, member in named)
    words = f"{plural(len(named), 'instance')} shared the jobs"
    yield h("p", f"{words}; {lost:,} of them {'was' if lost == 1 else 'were'} lost." if lost
            else f"{words}, and none of them was lost.")  # fmt: skip
    rows: list[list[Child]] = []
    for name, member in named[:most]:
        stop = end if member.t_end is None else member.t_end
        asked, up = member.t_start, member.t_up
        rows.append([
            name,
            member.state,
            "" if member.nodes is None else member.nodes,
            "" if member.cores is None else member.cores,
            NOTHING if asked is None else seconds(asked - begin),
            NOTHING if asked is None or up is None else seconds(up - asked),
            NOTHING if up is None else seconds(stop - up),
            member.outcomes["success"],
            member.outcomes["failed"] + member.outcomes["timeout"],
            member.outcomes["canceled"],
            member.why,
        ])  # fmt: skip
    yield table(
        "Members: when they were asked for, how long they took to start and were up, and how their "
        "jobs ended",
        ["Member", "State", "Nodes", "Cores", "Asked for", "Start", "Up", "Success", "Failed",
         "Canceled", "Why it ended"],
        rows, numeric=_NUMERIC,
    )  # fmt: skip
    left = len(named) - len(rows)
    if left:
        yield h("p.quiet", f"and {plural(left, 'more member')}.")
