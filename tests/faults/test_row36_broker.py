"""Row 36: Kafka itself is killed, restarted, frozen, and answers with errors, under load."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError
from msgspec.structs import replace

from tests.faults import stream_checker
from tests.faults.checker import Fault
from tests.faults.conftest import waits
from tests.faults.load import Dice
from tests.faults.report import Report
from tests.faults.stream_arena import Stream, orders_for, stream_arena
from tests.faults.stream_channels import KafkaChannel
from tests.faults.stream_shop import StreamPlan
from tests.faults.workers import CLOCK, ROOT, poll
from tests.kafka_broker import KafkaBroker
from tests.kafka_mock import ApiKey, MockCluster
from tests.kafka_server import KafkaServer

pytestmark = waits
STORE = "kafka"
BACK_S: Final = 8.0
"""So long after an outage commits may still fail: clients connect again, and the group is shared out anew."""
PASSING: Final = {
    ApiKey.OFFSET_COMMIT: [
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._TRANSPORT,
    ],
    ApiKey.FETCH: [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT],
    ApiKey.HEARTBEAT: [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.NOT_COORDINATOR],
    ApiKey.PRODUCE: [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REQUEST_TIMED_OUT],
    ApiKey.METADATA: [KafkaError.LEADER_NOT_AVAILABLE],
    ApiKey.FIND_COORDINATOR: [KafkaError.COORDINATOR_NOT_AVAILABLE],
}
"""What a broker may answer, and what helps is to ask again."""


def test_a_broker_that_dies_restarts_and_freezes_costs_nothing(
    own_kafka: KafkaServer, tmp_path: Path, is_full: bool, report: Report
) -> None:
    dice = Dice()
    rounds = 3 if is_full else 1
    channel = KafkaChannel(own_kafka, session_s=10.0, is_certain=True, tag="broker")

    def freeze() -> None:
        own_kafka.suspend()
        CLOCK.sleep(4.0)
        own_kafka.resume()

    def die() -> None:
        own_kafka.kill()
        own_kafka.start()

    strikes: list[Callable[[], None]] = [die, own_kafka.restart, freeze] if is_full else [die, own_kafka.restart]
    sender = Stream(channel, orders_for(20_000, dice), over_s=200.0)  # until it is stopped
    with stream_arena(tmp_path, channel, StreamPlan()) as arena:
        pids = arena.start_many(2)
        sender.start()
        arena.wait_for_runs(50)
        outages = []
        for strike in strikes * rounds:
            began_s = CLOCK.monotonic()
            strike()
            outages.append((began_s, CLOCK.monotonic()))
            before = len(stream_checker.finished_by(arena.handlings()))
            poll(lambda: len(stream_checker.finished_by(arena.handlings())) > before + 100, 30, "it goes on")  # noqa: B023
            arena.look()
        sender.stop()
        arena.quiesce()
        assert arena.fleet.running == pids, f"a worker ended by itself: {arena.fleet.log()[-3000:]}"
        for pid in pids:
            arena.drain(pid)
        faults = [Fault("outage", pid, begin, end + BACK_S) for pid in pids for begin, end in outages]
        evidence = replace(arena.evidence(), faults=faults)

    assert stream_checker.check(evidence) == []
    longest_s = max(end - begin for begin, end in outages)
    report(
        f"the broker killed{', restarted and frozen' if is_full else ' and restarted'}",
        injected=len(outages),
        figures=stream_checker.figures(evidence),
        note=f"outages of up to {longest_s:.1f} s, {stream_checker.told(evidence, arena.seconds)}",
        seed=dice.seed,
    )


class Errors:
    """Errors for the next requests of each kind, and how many of them were answered with one: each takes one."""

    def __init__(self, broker: MockCluster) -> None:
        self._broker = broker
        self._ready: Counter[ApiKey] = Counter()
        self._seen: dict[ApiKey, int] = {}
        self._answered: Counter[ApiKey] = Counter()

    def push(self, kind: ApiKey, error: int) -> None:
        """One more. A request that comes between this and the look after it counts as answered without."""
        self.answered(kind)
        self._broker.push_errors(kind, error)
        self._ready[kind] += 1
        self._seen[kind] = self._broker.count(kind)

    def answered(self, kind: ApiKey) -> int:
        """How many so far."""
        seen = self._broker.count(kind)
        taken = min(self._ready[kind], seen - self._seen.get(kind, seen))
        self._ready[kind] -= taken
        self._answered[kind] += taken
        self._seen[kind] = seen
        return self._answered[kind]

    def end(self, kind: ApiKey) -> int:
        """Forget those that are left; how many were answered in all."""
        answered = self.answered(kind)
        self._broker.clear_errors(kind)
        return answered


def test_a_broker_that_answers_with_errors_costs_nothing(
    mock_kafka: MockCluster, tmp_path: Path, is_full: bool, report: Report
) -> None:
    dice = Dice()
    port = int(mock_kafka.bootstrap.rpartition(":")[2])

    def create(topic: str, partitions: int) -> None:  # it makes none when it is asked to
        for name in (topic, f"{topic}.billing-{topic}.retry.0", f"{topic}.dlq"):
            mock_kafka.create_topic(name, partitions)

    channel = KafkaChannel(KafkaBroker(port, port), create=create, tag="errors")
    strikes = 200 if is_full else 20
    errors = Errors(mock_kafka)
    sender = Stream(channel, orders_for(strikes * 12, dice, dead=0.02), over_s=strikes * 0.1)
    with stream_arena(tmp_path, channel, StreamPlan()) as arena:
        (pid,) = arena.start_many(1)
        sender.start()
        arena.wait_for_runs(20)
        began_s = CLOCK.monotonic()
        downs = 0
        for number in range(strikes):
            kind = list(PASSING)[number if number < len(PASSING) else dice.below(len(PASSING))]  # each of them once
            errors.push(kind, PASSING[kind][dice.below(len(PASSING[kind]))])
            if number % 20 == 10:
                mock_kafka.set_down()
                CLOCK.sleep(0.3)
                mock_kafka.set_up()
                downs += 1
            CLOCK.sleep(0.1)
        poll(lambda: errors.answered(ApiKey.OFFSET_COMMIT) > 0, 30, "a commit is refused")
        answered = {kind: errors.end(kind) for kind in PASSING}
        ended_s = CLOCK.monotonic()
        arena.look()
        sender.wait()
        arena.quiesce()
        arena.drain(pid)
        evidence = replace(arena.evidence(), faults=[Fault("errors", pid, began_s, ended_s + BACK_S)])

    assert stream_checker.check(evidence) == []
    told = ", ".join(f"{kind.name.lower()} {n}" for kind, n in answered.items())
    report(
        "the broker (a mock) answers with errors, among them refused commits in rebalances, and is down at times",
        injected=sum(answered.values()),
        figures=stream_checker.figures(evidence),
        note=f"of {strikes} that were ready for the next request of a kind, requests answered so: {told}; down {downs} "
        f"times, {stream_checker.told(evidence, arena.seconds)}",
        seed=dice.seed,
    )


MOVING: Final = (16, 15, 14)
"""The group has moved, there is no coordinator, it has not read its log yet."""
ASK: Final = f"""
import asyncio, sys
from holdfast.clock import SystemClock
from holdfast.streams.kafka import KafkaSource
from tests.kafka_mock import ApiKey, MockCluster

async def main():
    source = KafkaSource(cluster.url("orders"), "billing", SystemClock())
    for code in {(None, *MOVING)}:
        if code is not None:
            cluster.push_errors(ApiKey.OFFSET_FETCH, *[code] * 3)
        assert [lag.lag for lag in await source.lags(["orders"])] == [0]
    await source.close()

with MockCluster() as cluster:
    cluster.create_topic("orders")
    asyncio.run(main())
"""


def test_asking_how_far_a_group_is_survives_that_it_moves(report: Report) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:] or f"it ended with {done.returncode}"
    report(
        "a group moves while its lag is asked for",
        injected=len(MOVING),
        note=f"answered each time, exit code {done.returncode}",
    )
