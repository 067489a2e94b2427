"""Row 30 for streams: the server does what a worker asks and the reply is lost, again and again. Nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from holdfast.testing import FaultProxy
from tests.faults import stream_checker
from tests.faults.checker import Fault
from tests.faults.conftest import IS_FULL, waits
from tests.faults.load import Dice
from tests.faults.report import Report
from tests.faults.stream_arena import Channel, Stream, orders_for, stream_arena
from tests.faults.stream_channels import KafkaChannel, RedisChannel
from tests.faults.stream_shop import StreamPlan
from tests.faults.workers import CLOCK
from tests.kafka_server import KafkaServer
from tests.servers import RedisServer

pytestmark = waits
STORE = "streams"
BACK_S: Final = 8.0
"""So long after a fault a commit may still be on its way."""


class Line(KafkaServer):
    """A broker whose clients come by a proxy; the tests' own go straight."""

    def __init__(self, options: Mapping[str, str] = {}) -> None:
        super().__init__(options)
        self.proxy = FaultProxy("127.0.0.1", self.port)
        self.advertised_port = self.proxy.port

    def __exit__(self, *error: object) -> None:
        self.proxy.close()
        super().__exit__(*error)


EVERY = ["kafka", "redis, 1 shard", "redis, 4 shards"] if IS_FULL else ["kafka", "redis, 4 shards"]


@pytest.fixture(params=EVERY)
def faulty(request: pytest.FixtureRequest) -> Iterator[tuple[str, Channel, FaultProxy]]:
    """What the server is called, a topic there, and the proxy that leads to it."""
    name = str(request.param)
    if name == "kafka":
        with Line() as server:
            yield name, KafkaChannel(server, partitions=6, session_s=10.0, tag="proxy"), server.proxy
    else:
        with RedisServer() as redis, FaultProxy("127.0.0.1", redis.port) as proxy:
            shards = 4 if "4" in name else 1
            yield name, RedisChannel(redis, shards=shards, port=proxy.port, tag="proxy"), proxy


@pytest.mark.parametrize("is_blocking", [True, False] if IS_FULL else [False])
def test_lost_replies_lose_no_message(
    faulty: tuple[str, Channel, FaultProxy], tmp_path: Path, is_blocking: bool, is_full: bool, report: Report
) -> None:
    dice = Dice()
    name, channel, proxy = faulty
    drops = 100 if is_full else 12
    options = {} if name == "kafka" else {"claim_after_s": 2.0, "answer_within_s": 1.0}
    plan = StreamPlan(is_blocking=is_blocking, delay_s=0.1, options=options)
    orders = orders_for(drops * 20, dice, failures=0.1, dead=0.03)
    sender = Stream(channel, orders, over_s=drops * 0.25)
    with stream_arena(tmp_path, channel, plan) as arena:
        pids = arena.start_many(2)
        sender.start()
        arena.wait_for_runs(20)
        began_s = CLOCK.monotonic()
        for number in range(drops):
            proxy.drop_reply(1 + dice.below(8), then="silence" if number % 6 == 5 and name != "kafka" else "reset")
            CLOCK.sleep(0.25)
            if is_blocking and number % 10 == 9:  # else what was sent to a retry topic is finished where it came from
                arena.look()
        proxy.heal()
        ended_s = CLOCK.monotonic()
        sender.wait()
        arena.quiesce()
        assert arena.fleet.running == pids, f"a worker ended by itself: {arena.fleet.log()[-3000:]}"
        for pid in pids:
            arena.drain(pid)
        faults = [Fault("replies", pid, began_s, ended_s + BACK_S) for pid in pids]
        evidence = replace(arena.evidence(), faults=faults, keeps_order=channel.keeps_order and is_blocking)

    assert stream_checker.check(evidence) == []
    assert proxy.traffic.replies_dropped > drops / 3, "too few replies were lost: this run shows nothing"
    how = "in place" if is_blocking else "through retry topics"
    copies = sum(evidence.dead.values()) - len(evidence.dead)
    report(
        f"replies lost again and again, retries {how}",
        injected=proxy.traffic.replies_dropped,
        figures=stream_checker.figures(evidence),
        note=f"twice in the DLQ {copies}, {stream_checker.told(evidence, arena.seconds)}",
        seed=dice.seed,
        store=channel.name,
    )
