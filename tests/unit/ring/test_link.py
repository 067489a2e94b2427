"""A running ring and its app's store: its reports get there, and its letters come back when they are replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app import App
from holdfast.clock import SystemClock
from holdfast.errors import RingClosed, StoreAway
from holdfast.ports import Beat, Exchange, Exchanged, RingReport, Store, WorkerRecord
from holdfast.ring.given_up import Decode, Hand, Unhandled
from holdfast.ring.letters import inbox_letters
from holdfast.ring.link import Link
from holdfast.types import JobRecord, JobState
from tests.unit.ring.given_ups import given_up

WAIT_S = 20.0
REPORT = RingReport(name="prices", size=8, used=3)


@pytest.fixture
def app() -> Iterator[App]:
    app = App("memory://")
    yield app
    app.close()


class Consumer:
    """A consumer that remembers what it was handed; `then` is done with it."""

    def __init__(self, then: Callable[[tuple[Any, ...]], None] = lambda _: None) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self._then = then

    def __call__(self, elements: tuple[Any, ...]) -> None:
        self.seen.append(elements)
        self._then(elements)


@contextmanager
def linked(app: App, report: Callable[[], RingReport] = lambda: REPORT, **consumers: Hand) -> Iterator[Link]:
    link = Link(app, "prices", report, consumers)
    link.start()
    try:
        yield link
    finally:
        link.close()
    assert not link._thread.is_alive()


def bury(app: App, *elements: Any, consumer: str = "enrich") -> str:
    """A letter of this consumer; its id."""
    known = {one.id for one in app.dead_letters.list(limit=100).items}
    letters = inbox_letters(app, ring="prices", consumer=consumer, encode=None)
    letters.write([given_up(*elements, at=app.clock.now())])
    (new,) = {one.id for one in app.dead_letters.list(limit=100).items} - known
    return new


def record_of(app: App, id: str) -> JobRecord:  # noqa: A002
    (record,) = app.bridge.run(app.store.get([id]))
    assert record is not None
    return record


def until(app: App, is_so: Callable[[], bool]) -> None:
    """Look again and again; the link works on threads of its own."""
    clock = SystemClock()
    end_s = clock.monotonic() + WAIT_S
    while not is_so():
        assert clock.monotonic() < end_s, [record.state for record in app.dead_letters.list().items]
        clock.wait(threading.Event(), 0.005)


def ended(app: App, id: str) -> JobRecord:  # noqa: A002
    until(app, lambda: record_of(app, id).state.is_terminal)
    return record_of(app, id)


# ---------------------------------------------------------------- letters


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/ring.db"])
def test_a_letter_that_is_retried_is_handed_to_its_consumer_and_completed(url: str, tmp_path: Path) -> None:
    app = App(url.format(tmp_path))
    enrich, other = Consumer(), Consumer()
    letter = bury(app, {"id": 1}, 2)
    with linked(app, enrich=Hand(enrich), other=Hand(other)):
        app.dead_letters.retry(letter)
        assert ended(app, letter).state is JobState.COMPLETED
    assert (enrich.seen, other.seen) == ([({"id": 1}, 2)], [])
    assert [one.outcome.value for one in record_of(app, letter).attempts] == ["bury", "complete"]
    app.close()


def test_edited_elements_are_decoded_before_they_are_handed_over(app: App) -> None:
    enrich = Consumer()
    letter = bury(app, "1", "x")
    payload = msgspec.json.decode(app.dead_letters.get(letter).payload)
    with linked(app, enrich=Hand(enrich, int)):
        app.dead_letters.retry(letter, payload | {"elements": ["1", "2"]})
        assert ended(app, letter).state is JobState.COMPLETED
    assert enrich.seen == [(1, 2)]


def fails(_: tuple[Any, ...]) -> None:
    raise ConnectionError("the database is still down")


def cannot_decode(_: Any) -> Any:
    raise LookupError("what is that?")


@pytest.mark.parametrize(
    ("elements", "consumer", "then", "decode", "error", "message"),
    [
        ((1,), "enrich", fails, None, "ConnectionError", "the database is still down"),
        ((1,), "enrich", fails, cannot_decode, "holdfast.Invalid", "element 0 cannot be decoded: LookupError: what is"),
        ((b"raw",), "enrich", fails, None, "holdfast.Invalid", "element 0 was not kept as JSON (bytes would come back"),
        ((1,), "old", fails, None, "holdfast.Invalid", "the ring prices has no consumer 'old' any more; it has enrich"),
    ],
)
def test_one_that_fails_again_is_buried_again_at_once_with_its_whole_history(
    app: App,
    elements: tuple[Any, ...],
    consumer: str,
    then: Callable[[tuple[Any, ...]], None],
    decode: Decode | None,
    error: str,
    message: str,
) -> None:
    letter = bury(app, *elements, consumer=consumer)
    with linked(app, enrich=Hand(Consumer(then), decode)):
        app.dead_letters.retry(letter)
        until(app, lambda: len(record_of(app, letter).attempts) == 2)
        record = ended(app, letter)
    assert record.state is JobState.DEAD_LETTER
    assert [one.error_name for one in record.attempts] == ["KeyError", record.error_name]
    assert record.error_name.rpartition(".")[2] == error.rpartition(".")[2]
    assert record.message.startswith(message)


def test_a_replay_of_a_group_is_driven_by_the_ring_s_own_process(app: App) -> None:
    enrich = Consumer()
    letters = [bury(app, n) for n in range(5)]
    with linked(app, enrich=Hand(enrich)):
        app.dead_letters.replay(task="prices/enrich", canary=1)
        for letter in letters:
            assert ended_as(app, letter) is JobState.COMPLETED
    assert sorted(enrich.seen) == [(n,) for n in range(5)]


def ended_as(app: App, id: str) -> JobState:  # noqa: A002
    until(app, lambda: record_of(app, id).state is JobState.COMPLETED)
    return record_of(app, id).state


def test_a_consumer_that_is_stuck_holds_up_no_letter_of_another(app: App) -> None:
    go_on = threading.Event()
    stuck, quick = Consumer(lambda _: held(go_on)), Consumer()
    of_stuck = [bury(app, n, consumer="stuck") for n in range(30)]
    of_quick = [bury(app, n, consumer="quick") for n in range(3)]
    for letter in of_stuck:
        app.dead_letters.retry(letter)
    with linked(app, stuck=Hand(stuck), quick=Hand(quick)):
        try:
            until(app, lambda: len(stuck.seen) == 2)
            for letter in of_quick:
                app.dead_letters.retry(letter)
            for letter in of_quick:
                assert ended_as(app, letter) is JobState.COMPLETED
            states = [record_of(app, letter).state for letter in of_stuck]
            assert (states.count(JobState.RUNNING), states.count(JobState.QUEUED)) == (2, 28), "others may have them"
        finally:
            go_on.set()
        for letter in of_stuck:
            assert ended_as(app, letter) is JobState.COMPLETED


def held(go_on: threading.Event) -> None:
    assert go_on.wait(WAIT_S)


def test_letters_wait_for_a_ring_that_is_not_running_and_are_not_another_ring_s(app: App) -> None:
    enrich = Consumer()
    letter = bury(app, 1)
    app.dead_letters.retry(letter)
    trades = Link(app, "trades", lambda: REPORT, {"enrich": Hand(fails)})
    trades.start()
    until(app, lambda: bool(app.stats(0).workers))
    trades.close()
    assert record_of(app, letter).state is JobState.QUEUED
    with linked(app, enrich=Hand(enrich)):
        assert ended(app, letter).state is JobState.COMPLETED
    assert enrich.seen == [(1,)]


def test_the_jobs_of_the_app_are_not_the_link_s_and_it_does_not_pass_for_a_worker(app: App) -> None:
    @app.task(name="job")
    def job() -> None: ...

    id = job.enqueue().id  # noqa: A001
    letter = bury(app, 1)
    with linked(app, enrich=Hand(Consumer())):
        app.dead_letters.retry(letter)
        ended(app, letter)
        assert any("no worker" in reason for reason in app.health().reasons)
    assert record_of(app, id).state is JobState.QUEUED


# ---------------------------------------------------------------- reports


def test_the_ring_s_report_goes_with_the_heartbeats_and_ends_with_the_link(app: App) -> None:
    with linked(app, enrich=Hand(Consumer())):
        until(app, lambda: bool(app.stats(0).workers))
        (worker,) = app.stats(0).workers
        assert (worker.rings, worker.queues) == ((REPORT,), ("ring:prices",))
    assert list(app.stats(0).workers) == []


def test_a_report_that_raises_keeps_no_letter(app: App, caplog: pytest.LogCaptureFixture) -> None:
    def report() -> RingReport:
        raise ZeroDivisionError

    letter = bury(app, 1)
    with linked(app, report, enrich=Hand(Consumer())):
        app.dead_letters.retry(letter)
        assert ended(app, letter).state is JobState.COMPLETED
    assert caplog.text.count("cannot say how it is") == 1


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("grace_s", [0.0, 20.0])
def test_close_waits_for_a_consumer_that_is_at_a_letter_however_long_the_grace_is(
    app: App, monkeypatch: pytest.MonkeyPatch, grace_s: float
) -> None:
    monkeypatch.setattr("holdfast.ring.link._GRACE_S", grace_s)
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: tuple[Any, ...]) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)

    letter = bury(app, 1)
    link = Link(app, "prices", lambda: REPORT, {"enrich": Hand(wait)})
    link.start()
    app.dead_letters.retry(letter)
    assert begun.wait(WAIT_S)
    link.close(timeout=0.05)  # it is not through: the consumer has it
    assert record_of(app, letter).state is JobState.RUNNING
    closing = threading.Thread(target=link.close)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive()
    go_on.set()
    closing.join(WAIT_S)
    assert record_of(app, letter).state is JobState.COMPLETED
    assert list(app.stats(0).workers) == []


def test_a_letter_that_a_closing_ring_does_not_handle_waits_for_the_next_one(app: App) -> None:
    asked = threading.Event()

    def closed(_: tuple[Any, ...]) -> None:
        asked.set()
        raise Unhandled("the ring is closing")

    letter = bury(app, 1)
    app.dead_letters.retry(letter)
    link = Link(app, "prices", lambda: REPORT, {"enrich": Hand(closed)})
    link.start()
    assert asked.wait(WAIT_S)
    link.close()
    record = record_of(app, letter)
    assert (record.state, record.reason, len(record.attempts)) == (JobState.WAITING, "the ring is closing", 1)
    app.store.clock_offset_s = 5.0  # type: ignore[attr-defined]
    with linked(app, enrich=Hand(Consumer())):
        assert ended(app, letter).state is JobState.COMPLETED


def test_a_letter_whose_consumer_finds_another_ring_closed_has_failed(app: App) -> None:
    def feed(_: tuple[Any, ...]) -> None:
        raise RingClosed("ring 'next' is closed")

    letter = bury(app, 1)
    with linked(app, enrich=Hand(feed)):
        app.dead_letters.retry(letter)
        until(app, lambda: len(record_of(app, letter).attempts) == 2)
        record = ended(app, letter)
    assert (record.state, record.message) == (JobState.DEAD_LETTER, "ring 'next' is closed")


class Away:
    """A store that is away until it is told to be back."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = threading.Event()
        self.is_back = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def exchange(self, exchange: Exchange) -> Exchanged:
        self.asked.set()
        if not self.is_back:
            raise StoreAway("nobody answers")
        return await self._store.exchange(exchange)


def test_a_store_that_is_away_is_waited_for_and_keeps_no_ring_from_closing(app: App) -> None:
    letter = bury(app, 1)
    app.dead_letters.retry(letter)
    away = Away(app.store)
    app._store = away
    with linked(app, enrich=Hand(Consumer())):
        assert away.asked.wait(WAIT_S)
    with linked(app, enrich=Hand(Consumer())):
        assert away.asked.wait(WAIT_S)
        away.is_back = True
        assert ended(app, letter).state is JobState.COMPLETED


def test_a_store_that_cannot_be_used_is_told_and_tried_again(app: App, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Away):
        async def exchange(self, exchange: Exchange) -> Exchanged:
            self.asked.set()
            if not self.is_back:
                raise AssertionError("nobody thought of that")
            return await self._store.exchange(exchange)

    odd = Odd(app.store)
    app._store = odd
    with linked(app, enrich=Hand(Consumer())):
        assert odd.asked.wait(WAIT_S)
        odd.is_back = True
        until(app, lambda: bool(app.stats(0).workers))
    assert "has no link to its store, and tries again" in caplog.text


def test_one_that_cannot_take_leave_says_so_in_one_line_and_tries_nothing_again(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    class AtExit(Away):
        async def heartbeat(self, worker: WorkerRecord) -> Beat:
            if not worker.lease_s:
                raise RuntimeError("cannot schedule new futures after shutdown")
            return await self._store.heartbeat(worker)

    app._store = store = AtExit(app.store)
    store.is_back = True
    with linked(app, enrich=Hand(Consumer())) as link:
        until(app, lambda: bool(app.stats(0).workers))
    assert not link._thread.is_alive()
    (line,) = [one for one in caplog.records if one.name == "holdfast.ring"]
    assert line.getMessage().startswith("the ring prices could not take leave, and is shown for a while: RuntimeError")
    assert line.exc_info is None


def test_it_can_be_closed_before_it_has_begun(app: App) -> None:
    link = Link(app, "prices", lambda: REPORT, {})
    link.start()
    link.close()
    link.close()
    assert not link._thread.is_alive()
    assert list(app.stats(0).workers) == []
