"""The checker of streams goes red on a product that is broken for real: workers run on code that was edited."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.faults import stream_checker
from tests.faults.conftest import waits
from tests.faults.edited import copied, edit
from tests.faults.stream_arena import stream_arena
from tests.faults.stream_channels import KafkaChannel, RedisChannel
from tests.faults.stream_shop import Order, StreamPlan
from tests.faults.workers import CLOCK, poll
from tests.kafka_broker import KafkaBroker
from tests.servers import RedisServer

pytestmark = waits
Edit = tuple[str, str, str]
"""A file of the package, a pattern that is there once, and what stands there instead."""

EARLY_COMMIT: Final[Edit] = (
    "runtime/streams/part.py",
    r"position=self\.offsets\.position, fin",
    "position=self.offsets.end, fin",
)
NO_ORDER: Final[Edit] = ("runtime/streams/flow.py", r"if key in busy:", "if False:")
NO_LETTER: Final[Edit] = (
    "runtime/streams/flow.py",
    r"self\._write\(part, delivery, letters, copies=copies\)",
    "self.finish(delivery)",
)
NO_COPY: Final[Edit] = (
    "runtime/streams/flow.py",
    r"letters=letters, sends=sends, copies=copies\)",
    "letters=letters, sends=sends)",
)
NO_COMMIT: Final[Edit] = ("runtime/streams/pump.py", r"_COMMIT_S: Final = 0\.1", "_COMMIT_S: Final = 60.0")
NO_RESCUE: Final[Edit] = (
    "streams/redis_streams/lua/rescue.lua",
    r"elseif is_wanted and left > 0 then",
    "elseif false then",
)


def broken(folder: Path, change: Edit) -> Path:
    """A copy of the package with this edit."""
    name, pattern, instead = change
    source = copied(folder)
    edit(source / "holdfast" / name, pattern, instead)
    return source


def orders(count: int, seconds: float = 0.0) -> list[Order]:
    return [Order(f"k{n % 4}", n // 4, seconds=seconds) for n in range(count)]


def test_when_messages_are_committed_before_they_are_handled(kafka: KafkaBroker, tmp_path: Path) -> None:
    channel = KafkaChannel(kafka, partitions=1, session_s=1.0, tag="mutant")
    source = broken(tmp_path, EARLY_COMMIT)
    with stream_arena(tmp_path, channel, StreamPlan(in_flight=4), source=source) as arena:
        channel.send([*orders(8), *orders(16, seconds=30.0)[8:]])
        (pid,) = arena.start_many(1)
        poll(lambda: len(channel.done()) == 16, 20, "everything is committed")
        arena.look()
        arena.fleet.kill(pid)
        evidence = arena.evidence()
    found = stream_checker.check(evidence)
    assert any(one.startswith("committed too early") for one in found), found
    assert any(one.startswith("lost") for one in found), found


def test_when_the_messages_of_a_key_run_side_by_side(kafka: KafkaBroker, tmp_path: Path) -> None:
    channel = KafkaChannel(kafka, partitions=1, tag="mutant")
    with stream_arena(tmp_path, channel, StreamPlan(), source=broken(tmp_path, NO_ORDER)) as arena:
        channel.send([Order(order.key, order.n, seconds=0.02 * (order.n % 3)) for order in orders(40)])
        arena.start_many(1)
        arena.quiesce()
        found = stream_checker.order_of_keys(arena.evidence())
    assert any("began before" in one or "began while" in one for one in found), found


def test_when_what_is_given_up_is_not_written_down(kafka: KafkaBroker, tmp_path: Path) -> None:
    channel = KafkaChannel(kafka, partitions=1, tag="mutant")
    with stream_arena(tmp_path, channel, StreamPlan(), source=broken(tmp_path, NO_LETTER)) as arena:
        channel.send([*orders(4), Order("k9", 0, is_poison=True)])
        arena.start_many(1)
        poll(lambda: len(channel.done()) == 5, 20, "everything is committed")
        arena.look()
        found = stream_checker.check(arena.evidence())
    assert "lost: ('k9', 0) was not handled, and is not in the inbox" in found
    assert "committed too early: ('k9', 0) was not finished" in found


def test_when_the_dlq_gets_no_copy(kafka: KafkaBroker, tmp_path: Path) -> None:
    channel = KafkaChannel(kafka, partitions=1, tag="mutant")
    with stream_arena(tmp_path, channel, StreamPlan(), source=broken(tmp_path, NO_COPY)) as arena:
        channel.send([*orders(4), Order("k9", 0, is_poison=True)])
        arena.start_many(1)
        arena.quiesce()
        found = stream_checker.check(arena.evidence())
    assert found == ["no copy: ('k9', 0) is in the inbox, and not in the DLQ"]


def test_when_commits_come_much_too_late(kafka: KafkaBroker, tmp_path: Path) -> None:
    channel = KafkaChannel(kafka, partitions=1, session_s=1.0, tag="mutant")
    with stream_arena(tmp_path, channel, StreamPlan(), source=broken(tmp_path, NO_COMMIT)) as arena:
        (first,) = arena.start_many(1)
        for some in (orders(8)[:4], orders(8)[4:]):  # after the first commit the next one is a minute away
            channel.send(some)
            poll(lambda: len(stream_checker.finished_by(arena.handlings())) == len(channel.sent), 20, "all is handled")
            CLOCK.sleep(0.3)
        CLOCK.sleep(stream_checker.COMMIT_S)
        arena.fleet.kill(first)
        arena.start_many(1)
        poll(lambda: stream_checker.duplicates(arena.evidence()) > 0, 20, "something runs again")
        found = stream_checker.explained_duplicates(arena.evidence())
    assert any(one.startswith("duplicate") for one in found), found


def test_when_nobody_claims_what_a_dead_consumer_had(redis_server: RedisServer, tmp_path: Path) -> None:
    channel = RedisChannel(redis_server, tag="mutant")
    plan = StreamPlan(options={"claim_after_s": 0.5})
    with stream_arena(tmp_path, channel, plan, source=broken(tmp_path, NO_RESCUE)) as arena:
        channel.send(orders(8, seconds=30.0))
        (first,) = arena.start_many(1)
        arena.wait_for_runs(4)
        arena.fleet.kill(first)
        arena.start_many(1)
        CLOCK.sleep(2.0)
        found = stream_checker.check(arena.evidence())
    assert any(one.startswith("lost") for one in found), found
    assert any(one.startswith("not committed") for one in found), found
