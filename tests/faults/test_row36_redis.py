"""Row 36 on Redis Streams: consumers are stopped, killed and frozen; entries and groups vanish."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from holdfast.ports import Query
from holdfast.types import JobState, entry_id
from tests.faults import stream_checker
from tests.faults.conftest import IS_FULL, waits
from tests.faults.load import Dice
from tests.faults.report import Figures, Report
from tests.faults.stream_arena import Stream, StreamArena, orders_for, stream_arena
from tests.faults.stream_channels import RedisChannel
from tests.faults.stream_ledger import Handling
from tests.faults.stream_shop import Order, StreamPlan
from tests.faults.workers import CLOCK, poll
from tests.servers import RedisServer

pytestmark = waits
STORE = "redis"
CLAIM_S: Final = 1.0
PATIENT: Final = StreamPlan(options={"claim_after_s": 60.0})
HASTY: Final = StreamPlan(options={"claim_after_s": CLAIM_S})
every_layout: Final = pytest.mark.parametrize("shards", [1, 4])
sharded: Final = pytest.mark.parametrize("shards", [1, 4] if IS_FULL else [4])


@sharded
def test_a_stop_drains_acknowledges_and_leaves_at_once(
    redis_server: RedisServer, tmp_path: Path, shards: int, is_full: bool, report: Report
) -> None:
    dice = Dice()
    channel = RedisChannel(redis_server, shards=shards, tag="stop")
    sender = Stream(channel, orders_for(6_000 if is_full else 900, dice), over_s=15.0 if is_full else 3.0)
    with stream_arena(tmp_path, channel, PATIENT) as arena:
        pids = arena.start_many(3)
        sender.start()
        arena.wait_for_runs(50)
        stopped: list[float] = []
        for _ in range(2):
            pid = arena.busiest(pids)
            pids.remove(pid)
            stopped.append(arena.drain(pid))
            arena.look()
        sender.wait()
        drained_s = arena.quiesce()
        arena.drain(*pids)
        evidence = arena.evidence()

    assert stream_checker.check(evidence) == []
    assert stream_checker.duplicates(evidence) == stream_checker.cut_off(evidence) == 0
    pending = channel.pending()
    assert pending == 0
    assert drained_s < 20.0, "what the others had was not free at once"
    told = ", ".join(f"{one:.2f}" for one in stopped)
    report(
        "consumers told to stop (SIGTERM) under load, 2 of 3",
        injected=len(stopped),
        figures=stream_checker.figures(evidence),
        note=f"drained in {told} s, pending {pending}, {stream_checker.told(evidence, arena.seconds)}",
        seed=dice.seed,
        store=channel.name,
    )


@every_layout
def test_killed_consumers_entries_are_claimed_by_others(
    redis_server: RedisServer, tmp_path: Path, shards: int, is_full: bool, report: Report
) -> None:
    dice = Dice()
    kills = 15 if is_full else 2
    channel = RedisChannel(redis_server, shards=shards, tag="kill")
    sender = Stream(channel, orders_for(kills * 1_000, dice, seconds=0.04), over_s=kills * 5.0)  # until the last kill
    with stream_arena(tmp_path, channel, HASTY) as arena:
        pids = arena.start_many(3)
        sender.start()
        for _ in range(kills):
            arena.wait_for_runs(20)
            CLOCK.sleep(0.4 + 0.4 * dice.draw())
            victim = arena.busiest(pids)
            pids.remove(victim)
            arena.fleet.kill_amid(victim, partial(arena.is_busy, victim), within_s=10.0)
            pids.append(arena.start())
            arena.look()
        sender.stop()
        arena.quiesce()
        claimed = [one for fault in arena.fleet.faults for one in _claims(arena.handlings(), fault.pid, fault.until)]
        for pid in pids:
            arena.drain(pid)
        evidence = arena.evidence()

    assert stream_checker.check(evidence) == []
    assert stream_checker.cut_off(evidence) > 0, "no kill hit a running handler: this run shows nothing"
    assert claimed, "nothing was claimed: this run shows nothing"
    assert max(claimed) < 10 * CLAIM_S
    pending = channel.pending()
    assert pending == 0
    report(
        "consumers killed (SIGKILL) amid an entry",
        injected=kills,
        figures=stream_checker.figures(evidence),
        note=f"claimed after at most {max(claimed):.2f} s (claim_after {CLAIM_S:g} s), pending {pending}, "
        + stream_checker.told(evidence, arena.seconds),
        seed=dice.seed,
        store=channel.name,
    )


def _claims(handlings: list[Handling], victim: int, killed_s: float) -> list[float]:
    """How long after a kill others began with what it had cut off."""
    runs = stream_checker.runs_by_name(handlings)
    open_ = {name for name, some in runs.items() if any(run.start.pid == victim and run.last is None for run in some)}
    return [
        min(run.start.at for run in runs[name] if run.start.at > killed_s) - killed_s
        for name in open_
        if any(run.start.at > killed_s for run in runs[name])
    ]


@sharded
def test_a_frozen_consumer_acknowledges_nothing_late_and_goes_on(
    redis_server: RedisServer, tmp_path: Path, shards: int, report: Report
) -> None:
    dice = Dice()
    channel = RedisChannel(redis_server, shards=shards, tag="frozen")
    sender = Stream(channel, orders_for(4_500, dice, seconds=0.05), over_s=60.0)  # until it goes on
    with stream_arena(tmp_path, channel, HASTY) as arena:
        pids = arena.start_many(2)
        sender.start()
        arena.wait_for_runs(30)
        zombie = arena.busiest(pids)
        arena.fleet.pause(zombie)
        CLOCK.sleep(2.5 * CLAIM_S)
        arena.look()
        resumed_s = arena.resume(zombie)
        poll(lambda: arena.runs(zombie, resumed_s) > 5, 20, "it goes on")
        sender.stop()
        arena.quiesce()
        arena.look()
        for pid in pids:
            arena.drain(pid)
        evidence = arena.evidence()

    assert stream_checker.check(evidence) == []
    report(
        "a consumer stopped (SIGSTOP) for 2.5 times claim_after, and going on",
        injected=1,
        figures=stream_checker.figures(evidence),
        note=stream_checker.told(evidence, arena.seconds),
        seed=dice.seed,
        store=channel.name,
    )


def test_entries_that_are_deleted_before_they_are_handled_are_in_the_inbox(
    redis_server: RedisServer, tmp_path: Path, report: Report
) -> None:
    channel = RedisChannel(redis_server, tag="deleted")
    channel.send([Order("k0", n, seconds=0.2) for n in range(10)])
    with stream_arena(tmp_path, channel, replace(HASTY, in_flight=1)) as arena:
        (victim,) = arena.start_many(1)
        poll(lambda: channel.pending() >= 8, 20, "it has all of them")
        arena.fleet.kill(victim)
        gone = sorted(channel.sent, key=lambda name: name[1])[-2:]
        with redis_server.client() as client:
            client.xdel(channel.topic, *(entry_id(channel.sent.pop(name)[1]) for name in gone))
        (pid,) = arena.start_many(1)
        arena.quiesce()
        poll(lambda: len(_reasons(arena)) == 2, 20, "both are in the inbox")
        reasons = _reasons(arena)
        arena.drain(pid)
        handled = stream_checker.finished_by(arena.handlings())

    assert handled == frozenset(channel.sent)
    assert all("was deleted, or trimmed" in reason for reason in reasons), reasons
    pending = channel.pending()
    assert pending == 0
    report(
        "pending entries deleted before they are handled",
        injected=len(gone),
        figures=Figures(
            acked=len(channel.sent) + len(gone),
            completed=len(handled),
            dead=len(reasons),
            lost=len(gone) - len(reasons),
        ),
        note=f"in the inbox as gone, pending {pending}",
        store=channel.name,
    )


def _reasons(arena: StreamArena) -> list[str]:
    """What the inbox says of each message that was given up."""
    store, run = arena.app.store, arena.app.bridge.run
    found = run(store.find(Query(states=(JobState.DEAD_LETTER,))))
    letters = run(store.get([record.id for record in found.items]))
    return [letter.attempts[-1].message for letter in letters if letter is not None]


def test_a_server_that_forgets_everything_is_told_of_and_gone_on_with(tmp_path: Path, report: Report) -> None:
    with RedisServer() as server:
        channel = RedisChannel(server, tag="flushed")
        channel.send([Order("k0", n) for n in range(20)])
        with stream_arena(tmp_path, channel, HASTY) as arena:
            (pid,) = arena.start_many(1)
            arena.quiesce()
            with server.client() as client:
                client.flushall()
            channel.sent.clear()
            channel.send([Order("k1", n) for n in range(20)])
            arena.quiesce()
            log = arena.fleet.log(pid)
            arena.drain(pid)
            handled = stream_checker.finished_by(arena.handlings())
    assert len(handled) == 40
    assert "was gone and is made again" in log or "was silent for too long" in log, log
    report(
        "the server forgets everything (FLUSHALL)",
        injected=1,
        figures=Figures(completed=len(handled)),
        note=f"said so in the log, and all {len(channel.sent)} messages that came after were handled",
        store=channel.name,
    )
