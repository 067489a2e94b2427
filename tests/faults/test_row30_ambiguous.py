"""Row 30: the store does what it is asked and a reply is lost, each of each verb in turn. All is done once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from holdfast import App
from holdfast.clock import new_id, new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Delivery, Exchange, Note, Operation, Settlement, Store, ValueChange, WorkerRecord
from holdfast.testing import FaultProxy
from holdfast.types import Attempt, Change, JobState, NewJob, Notes
from tests.faults.conftest import on
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.report import Report
from tests.faults.shop import open_shop

MOST_REPLIES = 30


class Line(Struct, frozen=True):
    """The same store by a proxy that loses replies, and straight."""

    proxy: FaultProxy
    far: App
    near: App

    def ask(self, what: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
        """Through the proxy; once more when that fails, as callers do."""
        try:
            return self.far.bridge.run(what(self.far.store))
        except StoreError:
            return self.far.bridge.run(what(self.far.store))

    def look(self, what: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
        """Past the proxy."""
        return self.near.bridge.run(what(self.near.store))


@pytest.fixture
def line(engine: PostgresEngine | RedisEngine, tmp_path: Path) -> Iterator[Line]:
    proxy = engine.proxy()
    with (
        closing(open_shop(engine.url_by(proxy), tmp_path / "far")) as far,
        closing(open_shop(engine.url, tmp_path / "near")) as near,
    ):
        line = Line(proxy, far, near)
        line.ask(lambda store: store.exchange(Exchange()))
        yield line


# ---------------------------------------------------------------- each verb, and what must be there afterwards


def enqueue(line: Line, queue: str) -> None:
    job = NewJob(id=new_id(), task="work", payload=b"{}", queue=queue, idempotency_key=new_id())
    (answer,) = line.ask(lambda store: store.enqueue([job]))
    assert answer.id == job.id
    assert _count(line, queue, JobState.QUEUED) == 1


def enqueue_from_a_thread(line: Line, queue: str) -> None:
    job = NewJob(id=new_id(), task="work", payload=b"{}", queue=queue, idempotency_key=new_id())
    try:
        line.far.store.enqueue_now([job])
    except StoreError:
        line.far.store.enqueue_now([job])
    assert _count(line, queue, JobState.QUEUED) == 1


def claim(line: Line, queue: str) -> None:
    _fill(line, queue, 5)
    wish = Claim(worker="w", token=new_token(), limit=2, queues=(queue,))
    answer = line.ask(lambda store: store.exchange(Exchange(claim=wish)))
    assert len(answer.deliveries) == 2
    assert {one.attempt for one in answer.deliveries} == {1}
    assert (_count(line, queue, JobState.RUNNING), _count(line, queue, JobState.QUEUED)) == (2, 3)


def acknowledge(line: Line, queue: str) -> None:
    delivery = _started(line, queue)
    done = Settlement(id=delivery.id, token=delivery.token, change=Change.COMPLETE, result=b"1")
    answer = line.ask(lambda store: store.exchange(Exchange(settlements=[done])))
    assert list(answer.settled) == [True]
    assert _count(line, queue, JobState.COMPLETED) == 1


def retry(line: Line, queue: str) -> None:
    delivery = _started(line, queue)
    attempt = Attempt(number=1, started_at=1.0, ended_at=2.0, worker="w", outcome=Change.RETRY)
    settlement = Settlement(id=delivery.id, token=delivery.token, change=Change.RETRY, attempt=attempt)
    answer = line.ask(lambda store: store.exchange(Exchange(settlements=[settlement])))
    assert list(answer.settled) == [True]
    (record,) = line.look(lambda store: store.get([delivery.id]))
    assert (record.state, len(record.attempts)) == (JobState.RETRYING, 1)


def change_value(line: Line, queue: str) -> None:
    key = new_id()
    exchange = Exchange(changes=[ValueChange(key, 0, b"1")])
    line.ask(lambda store: store.exchange(exchange))
    values = [one for one in line.look(lambda store: store.exchange(Exchange())).values if one.key == key]
    assert [one.data for one in values] == [b"1"]


def note(line: Line, queue: str) -> None:
    delivery = _started(line, queue)
    what = Note(id=delivery.id, token=delivery.token, step=("one", b"1"))
    assert line.ask(lambda store: store.note(what)) is True
    (record,) = line.look(lambda store: store.get([delivery.id]))
    assert record.notes == Notes(steps={"one": b"1"})


def replay(line: Line, queue: str) -> None:
    delivery = _started(line, queue)
    bury = Settlement(id=delivery.id, token=delivery.token, change=Change.BURY, reason="for the test")
    line.look(lambda store: store.exchange(Exchange(settlements=[bury])))
    operation = Operation(change=Change.REPLAY, ids=[delivery.id], replay="r")
    (changed,) = line.ask(lambda store: store.change(operation))
    assert (changed.is_done, changed.state) == (True, JobState.QUEUED)
    (record,) = line.look(lambda store: store.get([delivery.id]))
    assert (record.state, record.replays) == (JobState.QUEUED, 1)


def reclaim(line: Line, queue: str) -> None:
    delivery = _started(line, queue, f"dead {queue}")
    line.look(lambda store: store.heartbeat(WorkerRecord(id=f"dead {queue}", lease_s=0.0)))
    line.look(lambda store: store.heartbeat(WorkerRecord(id="heir", lease_s=60.0)))
    token = new_token()
    (orphan,) = line.ask(lambda store: store.reclaim("heir", token, 10))
    assert (orphan.id, orphan.orphaned) == (delivery.id, 1)


def heartbeat(line: Line, queue: str) -> None:
    name = new_id()
    delivery = _started(line, queue, name)
    line.look(lambda store: store.change(Operation(change=Change.CANCEL, ids=[delivery.id])))
    beat = line.ask(lambda store: store.heartbeat(WorkerRecord(id=name, lease_s=60.0)))
    assert beat.is_alive
    assert beat.cancelled == (delivery.id,)
    assert sum(worker.id == name for worker in line.look(lambda store: store.stats()).workers) == 1


VERBS = [enqueue, enqueue_from_a_thread, claim, acknowledge, retry, change_value, note, replay, reclaim, heartbeat]


@on("postgres", "redis")
@pytest.mark.parametrize("verb", VERBS, ids=lambda it: it.__name__)
def test_a_verb_whose_reply_is_lost_is_done_once(line: Line, verb: Callable[[Line, str], None], report: Report) -> None:
    verb(line, new_id())  # so that there are connections, whose own first replies are not counted
    replies = 0
    for number in range(1, MOST_REPLIES):
        dropped = line.proxy.traffic.replies_dropped
        line.proxy.drop_reply(number)
        verb(line, new_id())
        if line.proxy.traffic.replies_dropped == dropped:
            break  # it gets fewer replies than that
        replies += 1
    else:
        pytest.fail(f"{verb.__name__} takes {MOST_REPLIES} round trips")
    assert replies > 0, "no reply was lost: this run shows nothing"
    report(
        "a reply lost, each reply of each verb in turn",
        injected=replies,
        note=f"{verb.__name__.replace('_', ' ')}: {replies}, done once",
    )


def _fill(line: Line, queue: str, count: int) -> None:
    jobs = [NewJob(id=new_id(), task="work", payload=b"{}", queue=queue) for _ in range(count)]
    line.look(lambda store: store.enqueue(jobs))
    line.look(lambda store: store.heartbeat(WorkerRecord(id="w", lease_s=60.0)))


def _started(line: Line, queue: str, worker: str = "w") -> Delivery:
    _fill(line, queue, 1)
    line.look(lambda store: store.heartbeat(WorkerRecord(id=worker, lease_s=60.0)))
    wish = Claim(worker=worker, token=new_token(), limit=1, queues=(queue,))
    (delivery,) = line.look(lambda store: store.exchange(Exchange(claim=wish))).deliveries
    assert isinstance(delivery, Delivery)
    return delivery


def _count(line: Line, queue: str, state: JobState) -> int:
    tallies = line.look(lambda store: store.stats()).tallies
    return sum(tally.n for tally in tallies if (tally.queue, tally.state) == (queue, state))
