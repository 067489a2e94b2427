"""Row 6 on streams: messages that kill their worker run out of attempts, and their neighbours are handled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final, Literal

import pytest
from msgspec.structs import replace

from holdfast.ports import Query
from holdfast.types import JobState
from tests.faults import stream_checker
from tests.faults.checker import Fault
from tests.faults.conftest import waits
from tests.faults.load import Dice
from tests.faults.report import Report
from tests.faults.stream_arena import Channel, StreamArena, orders_for, stream_arena
from tests.faults.stream_channels import KafkaChannel, RedisChannel
from tests.faults.stream_checker import finished_by
from tests.faults.stream_ledger import Name
from tests.faults.stream_shop import Order, StreamPlan
from tests.faults.workers import CLOCK, poll
from tests.kafka_broker import KafkaBroker
from tests.servers import RedisServer

pytestmark = waits
STORE = "streams"
KILLERS: Final = 3
WORKERS: Final = 2
DYING_S: Final = 0.5
"""Others may begin between the first line of a handler that kills its process and the end of that."""
DEATHS: Final = 2
"""So many workers may die of one message before it is suspected: the first one proves nothing."""


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> Channel:
    """A topic with a few partitions, or a stream."""
    if request.param == "kafka":
        broker: KafkaBroker = request.getfixturevalue("kafka")
        return KafkaChannel(broker, partitions=3, session_s=0.8, tag="killers")
    server: RedisServer = request.getfixturevalue("redis_server")
    return RedisChannel(server, shards=3 if request.param == "shards" else 1, tag="killers")


@pytest.mark.parametrize("channel", ["kafka", "redis", "shards"], indirect=True)
@pytest.mark.parametrize("kind", ["one", "batch"])
def test_messages_that_kill_their_worker_are_given_up_and_the_others_handled(
    channel: Channel, kind: Literal["one", "batch"], tmp_path: Path, is_full: bool, report: Report
) -> None:
    if not is_full and (kind == "batch" or (not channel.has_positions and channel.keeps_order)):
        pytest.skip("the small size has messages one by one on Kafka and on a shared stream")
    dice = Dice()
    count = 3_000 if is_full else 300
    orders = orders_for(count - KILLERS, dice, seconds=0.002, failures=0.0, dead=0.0)
    deadly = {(f"deadly{n}", 0) for n in range(KILLERS)}
    for n, (key, number) in enumerate(sorted(deadly)):
        orders.insert((n + 1) * count // (KILLERS + 1), Order(key, number, is_deadly=True))
    channel.send(orders)
    options = {} if channel.has_positions else {"claim_after_s": 0.8}
    plan = StreamPlan(kind=kind, batch=20, in_flight=20, max_retries=1, options=options)
    with stream_arena(tmp_path, channel, plan) as arena:
        starts = _keep_alive(arena, len(orders))
        seconds = arena.seconds
        running = arena.fleet.running
        letters = _letters(arena)
        runs = Counter(one.name for one in arena.handlings() if one.what == "start")
        handled = finished_by(arena.handlings())
        for pid in running:
            arena.drain(pid)
        evidence = arena.evidence()
        deaths = [Fault("kill", one.pid, one.at, one.at + DYING_S) for one in evidence.handlings if one.name in deadly]
        keeps_order = channel.keeps_order and kind == "one"  # a batch is handled at once
        evidence = replace(evidence, faults=deaths, keeps_order=keeps_order)

    assert stream_checker.check(evidence) == []
    assert len(running) == WORKERS
    assert handled == channel.sent.keys() - deadly

    assert letters == dict.fromkeys(deadly, ("WorkerDied", "retries used up"))
    alone = plan.max_retries + 1
    executions = {name: runs[name] for name in sorted(deadly)}
    # Each may also be hit by the deaths of the two others.
    assert all(alone <= n <= alone + KILLERS * DEATHS for n in executions.values()), executions
    assert starts - WORKERS <= KILLERS * DEATHS, f"{starts - WORKERS} workers have died"
    again = sum(n - 1 for name, n in runs.items() if name not in deadly)
    report(
        f"messages that kill their worker, handled {'one by one' if kind == 'one' else 'in batches'}",
        injected=KILLERS,
        figures=stream_checker.figures(evidence),
        note=f"all of them in the inbox as WorkerDied, runs of each {sorted(executions.values())}, {starts - WORKERS} "
        f"workers died, {again} runs of others were repeated, all ended {seconds:.1f} s after the start",
        seed=dice.seed,
        store=channel.name,
    )


def _keep_alive(arena: StreamArena, count: int) -> int:
    """Replace dead workers until everything is finished; how many were started."""
    starts = 0

    def is_done() -> bool:
        nonlocal starts
        while len(arena.fleet.running) < WORKERS:
            arena.start()
            starts += 1
        return len(arena.channel.done()) >= count

    began_s = CLOCK.monotonic()
    try:
        poll(is_done, 60, "every message is finished")
    except AssertionError as error:
        raise AssertionError(
            f"{error}, {starts} starts in {CLOCK.monotonic() - began_s:.0f} s: {arena.fleet.log()[-4000:]}"
        ) from None
    return starts


def _letters(arena: StreamArena) -> dict[Name, tuple[str, str]]:
    """What is in the inbox: the error of each, and why it was given up."""
    names = arena.letters()
    assert set(names.values()) <= {1}
    page = arena.app.bridge.run(arena.app.store.find(Query(states=(JobState.DEAD_LETTER,), task=arena.plan.name)))
    assert len(page.items) == len(names)
    whys = {(one.error_name.rpartition(".")[2], one.reason) for one in page.items}
    assert len(whys) == 1, whys
    return dict.fromkeys(names, next(iter(whys)))
