"""What two services say to each other over a way that loses, repeats and reorders."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.queues.nested.link import MAX_ITEMS, Link, LinkError


class Lossy:
    """Two links, and a way between them."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self.links = Link(), Link()
        self.on_way: tuple[list[str], list[str]] = ([], [])
        self.said: tuple[list[int], list[int]] = ([], [])
        self.heard: tuple[list[int], list[int]] = ([], [])
        self._choose = choose

    def say(self, end: int) -> None:
        self.said[end].append(len(self.said[end]))
        self.links[end].put(self.said[end][-1])

    def send(self, end: int) -> None:
        link = self.links[end]
        self._post(end, link.next() or link.again())

    def _post(self, end: int, message: dict[str, Any] | None) -> None:
        if message is not None:
            self.on_way[end].append(json.dumps(message))

    def deliver(self, end: int, *, keep: bool = False) -> None:
        """Any message of an end comes at last, and perhaps once more later."""
        way = self.on_way[end]
        if way:
            place = self._choose(len(way))
            text = way[place] if keep else way.pop(place)
            self.take(1 - end, text)

    def lose(self, end: int) -> None:
        if self.on_way[end]:
            self.on_way[end].pop(self._choose(len(self.on_way[end])))

    def take(self, end: int, text: str) -> None:
        self.heard[end].extend(self.links[end].take(json.loads(text)))

    def step(self, kind: int, end: int) -> None:
        if kind == 0:
            self.say(end)
        elif kind == 1:
            self.send(end)
        elif kind == 2:
            self.deliver(end)
        elif kind == 3:
            self.deliver(end, keep=True)
        else:
            self.lose(end)

    def check(self) -> None:
        for end in (0, 1):
            heard = self.heard[1 - end]
            assert heard == self.said[end][: len(heard)]

    def calm(self) -> None:
        """From now on nothing is lost: all that was said is heard."""
        for _ in range(2 * (len(self.said[0]) + len(self.said[1])) + 4):
            for end in (0, 1):
                self.send(end)
                while self.on_way[end]:
                    self.deliver(end)
        for end in (0, 1):
            assert self.heard[1 - end] == self.said[end]
            assert not self.links[end].unanswered


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), max_size=200),
    st.randoms(use_true_random=False),
)
def test_all_is_heard_once_and_in_order(steps: list[tuple[int, int]], draw: random.Random) -> None:
    lossy = Lossy(draw.randrange)
    for kind, end in steps:
        lossy.step(kind, end)
        lossy.check()
    lossy.calm()


def test_1000_ends_over_a_bad_way() -> None:
    draw = random.Random(18)
    ends = [Lossy(draw.randrange) for _ in range(1000)]
    for _ in range(100_000):
        draw.choice(ends).step(draw.randrange(5), draw.randrange(2))
    for lossy in ends:
        lossy.check()
        lossy.calm()


def test_messages_are_bounded_and_wait_for_each_other() -> None:
    here, there = Link(), Link()
    for item in range(MAX_ITEMS + 1):
        here.put(item)
    first = here.next()
    assert first is not None
    assert here.next() is None
    assert there.take(first) == list(range(MAX_ITEMS))
    answer = there.next()
    assert answer is not None
    here.take(answer)
    second = here.next()
    assert second is not None
    assert there.take(second) == [MAX_ITEMS]


@pytest.mark.parametrize(("number", "taken"), [(2, 0), (0, 1)])
def test_a_message_of_another_conversation_is_an_error(number: int, taken: int) -> None:
    with pytest.raises(LinkError, match="was not expected after 0"):
        Link().take({"number": number, "taken": taken, "items": []})
