"""Commits of one consumer, whose answers come when they come."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from holdfast.errors import SourceError
from holdfast.ports import Progress
from holdfast.streams.kafka.commits import Commits, offsets_of
from holdfast.testing import ManualClock

ORDERS, OTHERS = ("orders", 0), ("orders", 1)


class Sent:
    """A consumer that only writes down what is to be committed: the test answers in its place."""

    def __init__(self) -> None:
        self.commits: list[dict[tuple[str, int], int]] = []

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.commits.append({(one.topic, one.partition): one.offset for one in offsets})


@pytest.mark.parametrize(
    "code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError._ASSIGNMENT_LOST]
)
def test_a_commit_that_was_refused_goes_again_without_the_partitions_that_were_lost_meanwhile(code: int) -> None:
    clock, sent = ManualClock(), Sent()
    commits = Commits(cast(Consumer, sent), "kafka://here/orders", clock)
    told: list[SourceError | None] = []
    commits.add(offsets_of({ORDERS: Progress(position=7), OTHERS: Progress(position=3)}), told.append)
    commits.drop([ORDERS])  # after it was sent, and before its answer: the news of a loss may come first
    commits.answered(KafkaError(code), [])
    clock.advance(1.0)
    commits.send()
    assert sent.commits == [{ORDERS: 7, OTHERS: 3}, {OTHERS: 3}]
    commits.answered(None, [])
    assert told == [None]


def test_a_commit_of_lost_partitions_alone_is_answered_and_not_sent_again() -> None:
    clock, sent = ManualClock(), Sent()
    commits = Commits(cast(Consumer, sent), "kafka://here/orders", clock)
    told: list[SourceError | None] = []
    commits.add(offsets_of({ORDERS: Progress(position=7)}), told.append)
    commits.drop([ORDERS])
    commits.answered(KafkaError(KafkaError.UNKNOWN_MEMBER_ID), [])
    clock.advance(1.0)
    commits.send()
    assert (len(sent.commits), told, commits.is_waiting) == (1, [None], False)


@pytest.mark.parametrize(
    ("code", "is_at_once"),
    [
        (KafkaError.ILLEGAL_GENERATION, True),
        (KafkaError.REBALANCE_IN_PROGRESS, True),
        (KafkaError.UNKNOWN_MEMBER_ID, False),
        (KafkaError._ASSIGNMENT_LOST, False),
    ],
)
def test_a_member_sends_again_at_once_and_then_after_a_pause(code: int, is_at_once: bool) -> None:
    clock, sent = ManualClock(), Sent()
    commits = Commits(cast(Consumer, sent), "kafka://here/orders", clock)
    commits.add(offsets_of({ORDERS: Progress(position=7)}), lambda _: None)
    commits.answered(KafkaError(code), [])
    assert len(sent.commits) == 1 + is_at_once
    clock.advance(0.2)
    commits.send()
    assert len(sent.commits) == 2
    commits.answered(KafkaError(code), [])
    assert len(sent.commits) == 2, "the group is not settled yet"
