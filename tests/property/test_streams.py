"""Streams under random failures, joins, leaves and deaths, against a plain ledger of what was handled."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from msgspec import Struct

from holdfast.errors import Permanent, SourceAway, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Progress
from holdfast.runtime.streams.letters import letter_id
from holdfast.runtime.streams.passage import Passage, from_dlq, from_retry
from holdfast.types import Message, Place, Snooze
from tests.unit.runtime.streams.stage import DLQ, GROUP, TOPIC, Consumer, Stage

POLICY = RetryPolicy(max_retries=2, strategy="fixed", initial_delay=1.0, jitter=False, total_timeout=None)
Kind = Literal["fine", "flaky", "doomed", "poison", "snoozes"]
Name = Literal["wait", "send", "join", "leave", "die", "lose", "store away", "broker away", "all back", "commit fails"]
MOVES: frozenset[Name] = frozenset({"join", "leave", "die", "lose"})
"""After these, partitions have gone to somebody else, and what was finished behind an unfinished message runs again."""


class Sent(Struct, frozen=True):
    kind: Kind
    key: int | None


class Act(Struct, frozen=True):
    name: Name
    number: int


class Scenario(Struct, frozen=True):
    partitions: int
    in_flight: int
    batch: int | None
    blocking: bool
    bisect: bool
    transactional: bool
    takes_s: float
    messages: tuple[Sent, ...]
    acts: tuple[Act, ...]

    @property
    def options(self) -> dict[str, Any]:
        is_batch = self.batch is not None
        is_transactional = self.transactional and is_batch
        return {
            "in_flight": max(self.in_flight, self.batch or 0),
            "batch": self.batch,
            "blocking": self.blocking or is_transactional,
            "bisect": self.bisect and is_batch,
            "transactional": is_transactional,
            "max_gap": 10,
            "retry": POLICY,
        }


KINDS = st.sampled_from(["fine", "fine", "fine", "flaky", "doomed", "poison", "snoozes"])
SENT = st.builds(Sent, kind=KINDS, key=st.none() | st.integers(0, 2))
ACTS = st.builds(
    Act,
    name=st.sampled_from(
        [
            "wait",
            "wait",
            "send",
            "join",
            "leave",
            "die",
            "lose",
            "store away",
            "broker away",
            "all back",
            "commit fails",
        ]
    ),
    number=st.integers(0, 7),
)
SCENARIOS = st.builds(
    Scenario,
    partitions=st.integers(1, 3),
    in_flight=st.integers(1, 5),
    batch=st.none() | st.integers(1, 4),
    blocking=st.booleans(),
    bisect=st.booleans(),
    transactional=st.booleans(),
    takes_s=st.sampled_from([0.0, 0.3]),
    messages=st.lists(SENT, min_size=1, max_size=12).map(tuple),
    acts=st.lists(ACTS, max_size=12).map(tuple),
)


class Play:
    """One scenario, and the ledger of what its handler has done."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.stage = Stage(partitions=scenario.partitions)
        self.sent: dict[int, Message] = {}
        self.waiting = list(enumerate(scenario.messages))
        self.runs: Counter[int] = Counter()
        self.handled: Counter[int] = Counter()
        self.problems: list[str] = []
        """What was found where nobody would hear of an assertion."""
        self.running = 0
        self.most = 0
        self.has_moved = False

    # ---- the handler

    def outcome(self, values: list[int]) -> object:
        kinds = {value: self.scenario.messages[value].kind for value in values}
        for value in values:
            self.runs[value] += 1
        if "poison" in kinds.values():
            raise Permanent("poison")
        if any(kind == "doomed" or (kind == "flaky" and self.runs[value] == 1) for value, kind in kinds.items()):
            raise Transient("busy")
        if any(kind == "snoozes" and self.runs[value] == 1 for value, kind in kinds.items()):
            return Snooze(0.7)
        self.handled.update(values)
        return None

    async def handle(self, values: list[int]) -> object:
        self.check_order(values)
        self.running += len(values)
        self.most = max(self.most, self.running)
        try:
            if self.scenario.takes_s:
                await self.stage.clock.asleep(self.scenario.takes_s)
            return self.outcome(values)
        finally:
            self.running -= len(values)

    async def handle_one(self, value: int) -> object:
        return await self.handle([value])

    # ---- the oracle

    def check_order(self, values: list[int]) -> None:
        """Where retries are in place: nothing is begun before all that comes before it has ended.

        That is what is before it in its partition, where batches are handled; or what has the same key.
        """
        if not self.scenario.options["blocking"]:
            return
        first = self.sent[values[0]]
        offsets = [self.sent[value].offset for value in values]
        if offsets != sorted(offsets):
            self.problems.append(f"{values} is in another order")
        if self.scenario.options["transactional"]:  # what became of a batch is written when all of it has ended
            if offsets[-1] >= (self.stage.position(first.partition) or 0) + (self.scenario.batch or 0):
                self.problems.append(f"{values} is begun before the transaction in front of it")
            return
        for value, message in self.sent.items():
            is_before = message.place == first.place and message.offset < first.offset
            is_in_line = self.scenario.batch is not None or (message.key == first.key and message.key is not None)
            if is_before and is_in_line and not self.is_finished(message):
                self.problems.append(f"{values} is begun before {value} has ended")

    def is_finished(self, message: Message) -> bool:
        """Whether a message of any topic may be passed: handled, in the inbox, or written on to a retry topic."""
        passage = from_retry(message) if ".retry." in message.topic else Passage(message, 0)
        origin = passage.message
        if self.handled[int(origin.value or b"")]:
            return True
        if self.stage.store.inner._jobs.get(letter_id(GROUP, origin)) is not None:  # type: ignore[attr-defined]
            return True
        return any(
            one.message.offset == origin.offset
            and one.message.partition == origin.partition
            and one.attempt > passage.attempt
            for one in self.retried()
        )

    def retried(self) -> Iterator[Passage]:
        for topic in list(self.stage.broker._topics):
            if ".retry." in topic:
                yield from map(from_retry, self.stage.messages(topic))

    def watch_commits(self) -> None:
        """No commit, of whatever way, passes what is not finished."""
        group = self.stage.broker.group(GROUP)
        commit = group.commit

        def watched(member: Any, progress: Mapping[Place, Progress]) -> None:
            for place, one in progress.items():
                if place in member.next:
                    begin = group.position(place) or 0
                    if one.position < begin:
                        self.problems.append(f"{place} goes back from {begin} to {one.position}")
                    for message in self.stage.broker.log(place)[begin : one.position]:
                        if not self.is_finished(message):
                            self.problems.append(f"{message.id} is passed and not finished")
            commit(member, progress)

        group.commit = watched  # type: ignore[method-assign]

    # ---- the acts

    @property
    def alive(self) -> list[Consumer]:
        return [one for one in self.stage.consumers if not one.has_ended]

    def send(self, n: int) -> None:
        for value, one in self.waiting[:n]:
            self.sent[value] = self.stage.send(value, None if one.key is None else f"k{one.key}")
        del self.waiting[:n]

    async def act(self, act: Act) -> None:
        stage = self.stage
        self.has_moved |= act.name in MOVES
        chosen = self.alive[act.number % len(self.alive)] if self.alive else None
        match act.name:
            case "wait":
                await stage.wait(0.35 * act.number)
            case "send":
                self.send(act.number)
            case "join" if len(self.alive) < 4:
                stage.consumer()
            case "leave" if chosen is not None:
                await chosen.drain(2.0)
            case "die" if chosen is not None:
                await chosen.kill()
            case "lose" if chosen is not None:
                stage.broker.expel(chosen.source.inner)
            case "store away":
                stage.store.fail("enqueue", fault="lost" if act.number % 2 else "away")
            case "broker away":
                stage.broker.go_away()
            case "all back":
                self.mend()
            case "commit fails" if chosen is not None:
                chosen.source.faults["commit"] = [SourceAway("rebalance in progress")]
            case _:
                pass

    def mend(self) -> None:
        self.stage.store.mend()
        self.stage.broker.come_back()

    async def run(self) -> None:
        stage, scenario = self.stage, self.scenario
        stage.stream(self.handle if scenario.batch else self.handle_one, **scenario.options)
        self.watch_commits()
        self.send(len(self.waiting) // 2)
        stage.consumer()
        for act in scenario.acts:
            await self.act(act)
        self.mend()
        self.send(len(self.waiting))
        if not self.alive:
            stage.consumer()
        await stage.rest(within_s=600.0)
        await self.judge()
        await stage.close()

    async def judge(self) -> None:
        """At the end, when all is quiet."""
        stage, scenario = self.stage, self.scenario
        letters = {letter_id(GROUP, message): value for value, message in self.sent.items()}
        found = [letters[one.id] for one in await stage.letters()]
        assert len(found) == len(set(found)), "one letter for a message"
        dead = set(found)
        for value in self.sent:
            assert self.handled[value] or value in dead, f"{value} is lost"
        copies = [entry.letter for one in stage.messages(DLQ) if (entry := from_dlq(one)) is not None]
        assert {letters[one] for one in copies} == dead, "every letter has its copy in the DLQ"
        for partition in range(scenario.partitions):
            assert (stage.position(partition) or 0) == len(stage.broker.log((TOPIC, partition)))
        for one in self.alive:
            assert one.flow.in_flight == 0
        assert self.problems == [], self.problems
        if len(stage.consumers) == 1 and "lose" not in {act.name for act in scenario.acts}:
            assert self.most <= scenario.options["in_flight"]
        if not self.has_moved:
            self.judge_calm(dead)

    def judge_calm(self, dead: set[int]) -> None:
        """Where no partition has moved, nothing is done twice, and only those are given up who deserve it."""
        options = self.scenario.options
        assert set(self.handled.values()) <= {1}
        assert dead.isdisjoint(self.handled)
        hopeless = {value for value in self.sent if self.scenario.messages[value].kind in {"doomed", "poison"}}
        if options["batch"] is None or options["bisect"]:
            assert dead == hopeless
        else:
            assert dead >= hopeless
        if options["batch"] is None:
            expected = {"fine": 1, "flaky": 2, "doomed": 3, "poison": 1, "snoozes": 2}
            for value in self.sent:
                assert self.runs[value] == expected[self.scenario.messages[value].kind]


@contextmanager
def silence() -> Iterator[None]:
    """Thousands of failures are made on purpose."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(scenario=SCENARIOS)
def test_every_message_is_handled_or_in_the_inbox_whatever_happens(scenario: Scenario) -> None:
    note(repr(scenario))  # a failure shows nothing of a struct by itself
    with silence():
        asyncio.run(Play(scenario).run())
