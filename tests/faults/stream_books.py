"""What workers had and said of their partitions, as the checker of streams asks for it: evidence, not inference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.types import Place
from tests.faults.checker import Fault
from tests.faults.stream_ledger import Fact, Handling, Name

NEVER: Final = float("inf")
RUN_OUT_S: Final = 2.0
"""For so long a hand-over or a stop goes on with messages that others have overtaken."""
AGAIN_S: Final = 5.0
"""A worker that was told no tells again after so long at most, by its back-off."""


class Tenure(Struct, frozen=True):
    """The time in which a worker had a partition."""

    since: float = 0.0
    until: float = NEVER
    position: int = 0
    """From where it read."""
    asked: float = NEVER
    """When it was asked back."""
    gave: Fact | None = None
    """How it was given back, if it was."""

    @property
    def is_orderly(self) -> bool:
        """Whether it was the worker's to say when it ends, and there was time to run what others had overtaken."""
        if self.gave is None:
            return self.until == NEVER  # it has taken leave, if anything
        return self.gave.at - self.asked < RUN_OUT_S


class Telling(Struct, frozen=True):
    """How a worker told the server how far it is."""

    said: Fact
    until: float = NEVER
    """When it was answered, or given up."""
    is_told: bool = False
    """Whether the server has said yes."""


ALWAYS: Final = Tenure()
"""That of a worker of which nothing is known."""


class Books:
    """Of all workers of a stream."""

    def __init__(
        self, facts: Sequence[Fact], handlings: Sequence[Handling], faults: Sequence[Fault], *, has_positions: bool
    ) -> None:
        self._has_positions = has_positions
        self._tellings = {pid: list(_tellings(some)) for pid, some in _by_pid(facts).items()}
        self._tenures = _tenures(facts, faults)
        self._handlings: dict[Name, list[Handling]] = defaultdict(list)
        for one in sorted(handlings, key=lambda one: one.at):
            self._handlings[one.name].append(one)

    def tenure(self, worker: int, place: Place, at: float) -> Tenure:
        """In which a worker had a partition at an instant, or last before it."""
        known = [one for one in self._tenures.get((worker, place), ()) if one.since <= at]
        return known[-1] if known else ALWAYS

    def told_at(self, place: Place, offset: int) -> float:
        """When the server first said yes to its being finished, to somebody who had the partition."""
        return min(
            (
                one.until
                for worker, some in self._tellings.items()
                for one in some
                if one.is_told
                and one.said.covers(place, offset, has_positions=self._has_positions)
                # What is told of a partition that is not ours any more is passed over, and answered all the same.
                and one.until < self.tenure(worker, place, one.said.at).until
            ),
            default=NEVER,
        )

    def tellable_at(
        self, worker: int, tenure: Tenure, before: Mapping[Name, int], given_up: Mapping[Name, int]
    ) -> float:
        """When a worker had finished all of these, in this time; NEVER where it has not.

        before: messages of the partition, with their offsets. What comes before its position is none of its business.
        """
        latest = 0.0
        for name, offset in before.items():
            if offset < tenure.position:
                continue
            own = self._own(worker, tenure, name)
            if not own or not (own[-1].what == "end" or (own[-1].what == "fail" and name in given_up)):
                return NEVER
            latest = max(latest, own[-1].at)
        return latest

    def is_held_up(self, worker: int, tenure: Tenure, before: Mapping[Name, int]) -> bool:
        """Whether one of these was begun in this time, and is open: nothing behind it can be told of."""
        lasts = [
            own[-1] for name, at in before.items() if at >= tenure.position and (own := self._own(worker, tenure, name))
        ]
        return any(one.what != "end" for one in lasts)

    def _own(self, worker: int, tenure: Tenure, name: Name) -> list[Handling]:
        """What a worker did with a message in this time."""
        return [
            one
            for one in self._handlings[name]
            if worker in {one.pid, one.parent} and tenure.since <= one.at <= tenure.until
        ]

    def was_heard(self, worker: int, place: Place, offset: int, since: float, until: float, idle_s: float) -> bool:
        """Whether it has told of this message, or waited for the answer to what it had told before, all the time.

        idle_s: so long it may do neither; longer where it was told no.
        """
        for one in self._tellings.get(worker, ()):
            if one.said.at > until or one.said.at > since + idle_s:
                break
            if one.until >= since and one.said.covers(place, offset, has_positions=self._has_positions):
                return True
            since = max(since, one.until if one.is_told else one.until + AGAIN_S)
        return until <= since + idle_s


def _by_pid(facts: Sequence[Fact]) -> dict[int, list[Fact]]:
    found: dict[int, list[Fact]] = defaultdict(list)
    for fact in sorted(facts, key=lambda fact: fact.at):
        found[fact.pid].append(fact)
    return found


def _tellings(facts: Sequence[Fact]) -> Iterator[Telling]:
    """Those of one worker, in the order in which they began."""
    found: list[Telling] = []
    for fact in facts:
        if fact.word in {"tell", "gave"}:
            found.append(Telling(fact))
        elif fact.word in {"told", "untold"}:
            under_way = [
                n for n, one in enumerate(found) if one.until == NEVER and one.said.positions == fact.positions
            ]
            found[under_way[-1]] = Telling(found[under_way[-1]].said, fact.at, is_told=fact.word == "told")
    return iter(found)


def _tenures(facts: Sequence[Fact], faults: Sequence[Fault]) -> dict[tuple[int, Place], list[Tenure]]:
    found: dict[tuple[int, Place], list[Tenure]] = defaultdict(list)
    for pid, some in _by_pid(facts).items():
        killed_at = min((one.at for one in faults if one.pid == pid and one.kind == "kill"), default=NEVER)
        for fact in some:
            for topic, partition, position in fact.positions:
                own = found[pid, (topic, partition)]
                if fact.word == "have":
                    own.append(Tenure(fact.at, killed_at, position))
                elif fact.word == "give" and own:
                    own[-1] = replace(own[-1], asked=fact.at)
                elif fact.word in {"gave", "lost"} and own and own[-1].until == killed_at:
                    own[-1] = replace(own[-1], until=fact.at, gave=fact if fact.word == "gave" else None)
    return found
