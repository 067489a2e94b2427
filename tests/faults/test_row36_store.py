"""Row 36: the store is away while messages are given up. Nothing is lost, and nothing is committed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tests.faults import stream_checker
from tests.faults.conftest import Report, waits
from tests.faults.stream_arena import StreamArena, stream_arena
from tests.faults.stream_channels import KafkaChannel
from tests.faults.stream_shop import Order, StreamPlan
from tests.faults.workers import CLOCK, poll
from tests.kafka_broker import KafkaBroker
from tests.servers import PostgresServer

pytestmark = waits
STORE = "kafka"
AWAY_S = 1.5
ORDERS = [Order(f"k{n % 10}", n // 10, is_poison=n % 5 == 4) for n in range(50)]
POISON = {(order.key, order.n) for order in ORDERS if order.is_poison}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else can write."""
    connection = apsw.Connection(str(path))
    connection.setbusytimeout(10_000)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """Nobody is answered."""
    server.pause()
    yield
    server.resume()


def _go_through(arena: StreamArena, away: Callable[[], object], report: Report, what: str) -> None:
    channel = arena.channel
    (pid,) = arena.start_many(1)
    with away():  # type: ignore[attr-defined]
        channel.send(ORDERS)
        poll(lambda: sum(one.what == "fail" for one in arena.handlings()) == len(POISON), 20, "all poison has failed")
        CLOCK.sleep(AWAY_S)
        during = channel.done()
    arena.quiesce()
    assert arena.fleet.running == [pid], arena.fleet.log(pid)[-2000:]
    arena.drain(pid)
    evidence = arena.evidence()
    assert not during & POISON, "what was given up is committed, and nobody has it"
    assert stream_checker.check(evidence) == []
    assert evidence.letters.keys() == POISON
    report(
        f"row 36 {what} while {len(POISON)} messages are given up: committed meanwhile 0 of them, in the inbox "
        f"afterwards {len(evidence.letters)}; {stream_checker.told(evidence, arena.seconds)}"
    )


def test_a_locked_sqlite_holds_commits_back(kafka: KafkaBroker, tmp_path: Path, report: Report) -> None:
    with stream_arena(tmp_path, KafkaChannel(kafka, partitions=3, tag="locked"), StreamPlan()) as arena:
        _go_through(arena, lambda: locked(tmp_path / "letters.db"), report, "SQLite locked")


def test_a_frozen_postgres_holds_commits_back(
    kafka: KafkaBroker, tmp_path: Path, is_full: bool, report: Report
) -> None:
    if not is_full:
        pytest.skip("HOLDFAST_FAULTS=full")
    with PostgresServer() as server:
        channel = KafkaChannel(kafka, partitions=3, tag="frozen-store")
        with stream_arena(tmp_path, channel, StreamPlan(), store=server.url()) as arena:
            _go_through(arena, lambda: frozen(server), report, "PostgreSQL frozen")
