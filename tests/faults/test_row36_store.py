"""Row 36: the store is away while messages are given up. Nothing is lost, and nothing is committed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import apsw
import pytest

from tests.faults import stream_checker
from tests.faults.conftest import IS_FULL, waits
from tests.faults.report import Report
from tests.faults.stream_arena import stream_arena
from tests.faults.stream_channels import KafkaChannel
from tests.faults.stream_shop import Order, StreamPlan
from tests.faults.workers import CLOCK, poll
from tests.kafka_broker import KafkaBroker
from tests.servers import PostgresServer

pytestmark = waits
STORE = "kafka"
AWAY_S = 1.5
Away = AbstractContextManager[None]
ORDERS = [Order(f"k{n}", 0, is_poison=n % 5 == 4) for n in range(50)]
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


@pytest.fixture(params=["SQLite", "PostgreSQL"] if IS_FULL else ["SQLite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, Callable[[], Away]]]:
    """Its name, its URL, and what takes it away."""
    if request.param == "SQLite":
        path = tmp_path / "letters.db"
        yield "SQLite locked", f"sqlite:///{path}", lambda: locked(path)
    else:
        with PostgresServer() as server:
            yield "PostgreSQL frozen", server.url(), lambda: frozen(server)


def test_while_the_store_is_away_nothing_that_is_given_up_is_committed(
    kafka: KafkaBroker, store: tuple[str, str, Callable[[], Away]], tmp_path: Path, report: Report
) -> None:
    what, url, away = store
    channel = KafkaChannel(kafka, partitions=3, tag="away")
    with stream_arena(tmp_path, channel, StreamPlan(), store=url) as arena:
        (pid,) = arena.start_many(1)
        with away():
            channel.send(ORDERS)
            fails = len(POISON)
            poll(lambda: sum(one.what == "fail" for one in arena.handlings()) == fails, 20, "all poison has failed")
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
        f"the store is away ({what}) while messages are given up",
        injected=len(POISON),
        figures=stream_checker.figures(evidence),
        note=f"committed meanwhile {len(during & POISON)} of them, in the inbox afterwards {len(evidence.letters)}, "
        + stream_checker.told(evidence, arena.seconds),
    )
