"""Row 36 on Kafka: consumers are stopped, killed and frozen, and come and go, under load."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from tests.faults import stream_checker
from tests.faults.conftest import waits
from tests.faults.load import Dice
from tests.faults.report import Report
from tests.faults.stream_arena import Stream, orders_for, stream_arena
from tests.faults.stream_channels import KafkaChannel
from tests.faults.stream_shop import StreamPlan
from tests.faults.workers import CLOCK, poll
from tests.kafka_broker import KafkaBroker

pytestmark = waits
STORE = "kafka"
SESSION_S = 2.0
HANDLED_S = 0.15


@pytest.mark.parametrize("kind", ["one", "thread"])
def test_a_stop_drains_commits_and_leaves_at_once(
    kafka: KafkaBroker, tmp_path: Path, kind: Literal["one", "thread"], is_full: bool, report: Report
) -> None:
    dice = Dice()
    channel = KafkaChannel(kafka, session_s=45.0, tag=f"stop-{kind}")
    sender = Stream(
        channel, orders_for(6_000 if is_full else 1_200, dice, failures=0.0), over_s=20.0 if is_full else 4.0
    )
    with stream_arena(tmp_path, channel, StreamPlan(kind=kind)) as arena:
        pids = arena.start_many(3)
        sender.start()
        arena.wait_for_runs(50)
        stopped: list[tuple[float, float]] = []
        for _ in range(2):
            pid = arena.busiest(pids)
            pids.remove(pid)
            had = arena.partitions_of(pid)
            began_s = CLOCK.monotonic()
            drained_s = arena.drain(pid)
            arena.look()
            stopped.append((drained_s, arena.wait_for_heirs(pid, had, began_s)))
        sender.wait()
        arena.quiesce()
        arena.drain(*pids)
        evidence = arena.evidence()

    assert stream_checker.check(evidence) == []
    assert stream_checker.duplicates(evidence) == stream_checker.cut_off(evidence) == 0, stream_checker.everything(
        evidence
    )
    # Members that are not told wait for the session's time-out, 45 s.
    assert max(taken_s for _, taken_s in stopped) < 10.0
    told = ", ".join(
        f"drained in {drained_s:.2f} s, taken over after {taken_s:.2f} s" for drained_s, taken_s in stopped
    )
    report(
        f"consumers told to stop (SIGTERM) under load, 2 of 3{', handlers on threads' if kind == 'thread' else ''}",
        injected=len(stopped),
        figures=stream_checker.figures(evidence),
        note=f"{told}; {stream_checker.told(evidence, arena.seconds)}",
        seed=dice.seed,
    )


def test_killed_consumers_lose_nothing_also_in_the_middle_of_a_rebalance(
    kafka: KafkaBroker, tmp_path: Path, is_full: bool, report: Report
) -> None:
    dice = Dice()
    kills, each_s = (20, 2.5) if is_full else (2, 2.0)
    channel = KafkaChannel(kafka, session_s=SESSION_S, tag="kill")
    sender = Stream(channel, orders_for(kills * 1_200, dice, seconds=0.03), over_s=kills * 4 * each_s)
    with stream_arena(tmp_path, channel, StreamPlan()) as arena:
        pids = arena.start_many(3)
        sender.start()
        arena.wait_for_runs(50)
        for number in range(kills):
            victim = arena.busiest(pids) if number % 3 else pids[dice.below(len(pids))]
            pids.remove(victim)
            if number % 2:  # the next one is about to join: partitions are on their way
                pids.append(arena.start())
                poll(lambda: "reads kafka://" in arena.fleet.log(pids[-1]), 20, "it joins")
                CLOCK.sleep(0.2 * dice.draw())
                arena.fleet.kill(victim)
            else:
                arena.fleet.kill_amid(victim, partial(arena.is_busy, victim), within_s=5.0)
                pids.append(arena.start())
            CLOCK.sleep(each_s * dice.draw())
            arena.look()
        sender.stop()  # there was enough until the last kill
        arena.quiesce()
        for pid in pids:
            arena.drain(pid)
        evidence = arena.evidence()

    assert stream_checker.check(evidence) == []
    assert stream_checker.cut_off(evidence) > 0, "no kill hit a running handler: this run shows nothing"
    report(
        "consumers killed (SIGKILL), every second one in a rebalance",
        injected=kills,
        figures=stream_checker.figures(evidence),
        note=stream_checker.told(evidence, arena.seconds),
        seed=dice.seed,
    )


def test_members_that_come_and_go_repeat_nothing(
    kafka: KafkaBroker, tmp_path: Path, is_full: bool, report: Report
) -> None:
    dice = Dice()
    rounds = 12 if is_full else 3
    channel = KafkaChannel(kafka, session_s=45.0, tag="rebalance")
    # No line of a key lasts for the 2 s after which it is left to others, so that what overtook it would repeat.
    orders = orders_for(rounds * 90, dice, keys=200, seconds=HANDLED_S, failures=0.0)
    sender = Stream(channel, orders, over_s=rounds * 1.5)
    with stream_arena(tmp_path, channel, StreamPlan()) as arena:
        pids = arena.start_many(1)
        sender.start()
        arena.wait_for_runs(20)
        for number in range(rounds):
            if number % 3 < 2:
                pids.append(arena.start())
                arena.wait_for_partitions(pids[-1])
            else:
                arena.drain(pids.pop(0))
            arena.look()
        sender.wait()
        arena.quiesce()
        for pid in pids:
            arena.drain(pid)
        evidence = arena.evidence()

    assert stream_checker.check(evidence) == []
    assert stream_checker.duplicates(evidence) == 0
    assert all(one.what != "stop" for one in evidence.handlings), "a handler was not waited for"
    report(
        "members come and go under load",
        injected=rounds,
        figures=stream_checker.figures(evidence),
        note=f"handlers of up to {2 * HANDLED_S:g} s in flight were finished each time, "
        + stream_checker.told(evidence, arena.seconds),
        seed=dice.seed,
    )


def test_a_frozen_member_commits_nothing_late_and_goes_on(kafka: KafkaBroker, tmp_path: Path, report: Report) -> None:
    dice = Dice()
    channel = KafkaChannel(kafka, session_s=1.0, tag="frozen")
    orders = orders_for(500, dice, seconds=0.05)
    sender = Stream(channel, orders[:400], over_s=4.0)
    with stream_arena(tmp_path, channel, StreamPlan()) as arena:
        pids = arena.start_many(2)
        sender.start()
        arena.wait_for_runs(50)
        zombie = arena.busiest(pids)
        arena.fleet.pause(zombie)
        arena.wait_for_heirs(zombie, arena.partitions_of(zombie), CLOCK.monotonic())
        before = channel.done()
        arena.resume(zombie)
        sender.wait()
        poll(
            lambda: _has_partitions_again(arena.fleet.log(zombie)), 30, "it has lost its partitions, and has some again"
        )
        again_s = CLOCK.monotonic()
        channel.send(orders[400:])
        arena.quiesce()
        after = channel.done()
        runs_again = arena.runs(zombie, again_s)
        for pid in pids:
            arena.drain(pid)
        evidence = arena.evidence()

    assert before <= after, "a late commit has turned the group back"
    assert runs_again > 0, "it did not go on"
    assert stream_checker.check(evidence) == []
    report(
        "a consumer stopped (SIGSTOP) past its session, and going on",
        injected=1,
        figures=stream_checker.figures(evidence),
        note=f"a session of {channel.session_s:g} s, late commits that turned the group back {len(before - after)}, "
        + stream_checker.told(evidence, arena.seconds),
        seed=dice.seed,
    )


def _has_partitions_again(log: str) -> bool:
    after_loss = log.partition("what ran may run again")[2]
    return re.search(r" has [1-9]\d* partitions", after_loss) is not None
