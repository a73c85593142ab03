"""Plays rounds again, and finds shorter ones that lead to the same finding."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hostile.judge import Finding
from hostile.recipes import Step
from hostile.stage import Stage

Round = list[Step]

#: Seconds that may be spent on it, and seconds in which a fault shows after the last step.
SECONDS, LATER = 60.0, 2.0


def played(stage: Stage, rounds: Sequence[Round], *, to_the_end: bool = True) -> list[Finding]:
    """What is found when rounds are played as a scene.

    Args:
        stage: where.
        to_the_end: end the stage too.
    """
    findings: list[Finding] = []
    for steps in rounds:
        if not stage.over:
            findings += stage.play(steps)
    if not stage.over:
        findings += stage.look(LATER)
    if not stage.over:
        findings += stage.end_scene()
    if to_the_end and not stage.over:
        findings += stage.end()
        stage.over = True
    return findings


def shorten(finding: Finding, rounds: list[Round]) -> tuple[list[Round], Mapping[str, Finding]]:
    """The shortest rounds that were found to lead to a finding.

    Returns:
        Those rounds, and all findings that they lead to, by their keys; all rounds and nothing
        where the finding is not seen again.
    """
    until = time.monotonic() + SECONDS
    with Again(finding) as again:

        def first(sequences: Iterable[list[Round]]) -> list[Round] | None:
            for one in sequences:
                if time.monotonic() > until:
                    return None
                if again.shows(one):
                    return one
            return None

        shortest = first(_guesses(finding, rounds))
        if shortest is None:
            return rounds, {}
        size = sum(map(len, shortest)) // 2
        while size:
            shorter = first(_without(shortest, size))
            if shorter is None:
                size //= 2
            else:
                shortest = shorter
        return shortest, again.company


def _guesses(finding: Finding, rounds: list[Round]) -> Iterator[list[Round]]:
    """Rounds that may lead to a finding: one step, the recipe that made it, the last rounds."""
    step = finding.step
    if step is not None and step in rounds[-1]:
        yield [[dict(step)]]
        yield [[one for one in rounds[-1] if one["by"] == step["by"]]]
    for many in (1, 4, 16, len(rounds)):
        yield rounds[-many:]


class Again:
    """Sees whether rounds lead to a finding, on one stage as long as that lasts.

    Attributes:
        company: all findings of the last rounds that did, by their keys.
    """

    def __init__(self, finding: Finding) -> None:
        self._finding = finding
        self._stage: Stage | None = None
        self.company: Mapping[str, Finding] = {}

    def __enter__(self) -> Again:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stage is not None:
            self._stage.close()

    def shows(self, rounds: Sequence[Round]) -> bool:
        """They lead to a finding like this one."""
        if self._stage is not None and self._stage.over:
            self._stage.close()
            self._stage = None
        if self._stage is None:
            self._stage = Stage()
        to_the_end = self._finding.kind == "control"
        findings = played(self._stage, rounds, to_the_end=to_the_end)
        company = {one.key: one for one in findings}
        if self._finding.key not in company:
            return False
        self.company = company
        return True


def _without(rounds: list[Round], size: int) -> Iterator[list[Round]]:
    """The rounds with so many steps left out, at one place after the other."""
    flat = [(number, step) for number, steps in enumerate(rounds) for step in steps]
    for at in range(0, len(flat), size):
        kept = flat[:at] + flat[at + size :]
        numbers = sorted({number for number, _ in kept})
        if kept:
            yield [[step for other, step in kept if other == number] for number in numbers]
