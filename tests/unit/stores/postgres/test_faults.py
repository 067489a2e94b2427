"""Connections that break, hang or lose an answer: what was asked for happens once, and every wait ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Final, Literal
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.clock import SystemClock, new_id, new_token
from holdfast.errors import StoreAway
from holdfast.ports import Claim, Enqueued, Exchange, Operation, Query, Settlement, WorkerRecord
from holdfast.stores.postgres import PostgresStore, people
from holdfast.stores.postgres.connection import address_of, connect
from holdfast.stores.postgres.faults import translated
from holdfast.testing import FaultProxy
from holdfast.testing.store_suite import enqueue
from holdfast.testing.store_suite.steps import dead_letter
from holdfast.types import Change, JobState, NewJob
from tests.unit.stores.postgres.conftest import CheckBooks, Plain

ANSWER_S = 1.0
BOUND_S = 8.0
DIRECTIONS: Final = ("both", "requests", "replies")


def by_proxy(url: str) -> FaultProxy:
    """A network between a store and its server."""
    port = urlsplit(url).port
    assert port is not None
    return FaultProxy("127.0.0.1", port)


def far_by(url: str, proxy: FaultProxy) -> PostgresStore:
    """The same store over a bad network."""
    store = PostgresStore(url.replace(f":{urlsplit(url).port}/", f":{proxy.port}/"), answer_s=ANSWER_S)
    assert store.capabilities
    return store


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[FaultProxy]:
    with by_proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def far(postgres_url: str, proxy: FaultProxy) -> AsyncIterator[PostgresStore]:
    store = far_by(postgres_url, proxy)
    yield store
    proxy.heal()
    await store.close()


def new_job(**options: str) -> NewJob:
    return NewJob(id=new_id(), task="greet", payload=b"{}", **options)  # type: ignore[arg-type]


async def claim(store: PostgresStore, limit: int = 10) -> list[Settlement]:
    """Claim as a worker that is alive; how to complete what it got."""
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=limit)))
    return [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in got.deliveries]


def end_all_connections(plain: Plain) -> int:
    """As an operator, or a server that is restarted, does it."""
    found = plain.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND application_name = 'holdfast'"
    ).fetchone()
    assert found is not None
    return int(found[0])


async def test_verbs_go_on_when_every_connection_was_ended(
    store: PostgresStore, plain: Plain, check_books: CheckBooks
) -> None:
    job = new_job()
    assert await store.enqueue([job]) == [Enqueued(job.id)]
    (done,) = await claim(store, 1)
    await store.get([job.id])
    assert end_all_connections(plain) >= 4
    other = new_job()
    assert store.enqueue_now([other]) == [Enqueued(other.id)]
    assert list((await store.exchange(Exchange(settlements=[done]))).settled) == [True]
    assert (await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))).is_alive
    assert len((await store.stats()).tallies) == 2
    assert [record and record.state for record in await store.get([job.id])] == [JobState.COMPLETED]
    check_books()


async def test_a_job_whose_answer_was_lost_is_one_job(
    far: PostgresStore, proxy: FaultProxy, check_books: CheckBooks
) -> None:
    await far.enqueue([new_job()])
    for _ in range(5):
        job = new_job()
        proxy.drop_reply(1, to=job.id.encode())
        assert far.enqueue_now([job]) == [Enqueued(job.id, is_new=False)]  # it was there already, from the first time
        assert [record and record.id for record in await far.get([job.id])] == [job.id]
    assert proxy.traffic.replies_dropped == 5
    check_books()


async def test_a_claim_and_a_settlement_whose_answers_were_lost_happen_once(
    far: PostgresStore, proxy: FaultProxy, check_books: CheckBooks
) -> None:
    jobs = [new_job() for _ in range(4)]
    await far.enqueue(jobs)
    await far.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    token = new_token()
    proxy.drop_reply(1, to=token)
    got = await far.exchange(Exchange(claim=Claim(worker="w", token=token, limit=2)))
    assert [one.id for one in got.deliveries] == [job.id for job in jobs[:2]]
    done = [Settlement(id=one.id, token=token, change=Change.COMPLETE) for one in got.deliveries]
    proxy.drop_reply(1, to=token)
    assert list((await far.exchange(Exchange(settlements=done))).settled) == [True, True]
    assert proxy.traffic.replies_dropped == 2
    records = await far.get([job.id for job in jobs])
    assert [(record.state, record.attempt) for record in records if record] == [
        (JobState.COMPLETED, 1),
        (JobState.COMPLETED, 1),
        (JobState.QUEUED, 0),
        (JobState.QUEUED, 0),
    ]
    check_books()


async def test_a_cancelled_job_is_told_though_a_reply_was_lost(
    far: PostgresStore, store: PostgresStore, proxy: FaultProxy
) -> None:
    worker = WorkerRecord(id="w", lease_s=60.0)
    await far.heartbeat(worker)  # the replies that are counted are not those of connecting
    for number in count(1):
        await store.enqueue([new_job()])
        (running,) = await claim(store, 1)
        await store.change(Operation(change=Change.CANCEL, ids=[running.id]))
        proxy.drop_reply(number)
        assert (await far.heartbeat(worker)).cancelled == (running.id,)
        if proxy.traffic.replies_dropped < number:
            break  # it gets fewer replies than that
        assert (await far.heartbeat(worker)).cancelled in {(), (running.id,)}  # that it was told may be what was lost
        assert (await far.heartbeat(worker)).cancelled == ()
    assert proxy.traffic.replies_dropped > 0


@pytest.mark.parametrize(
    ("change", "after"), [(Change.CANCEL, JobState.CANCELLED), (Change.REPLAY, JobState.QUEUED), (Change.REMOVE, None)]
)
async def test_what_people_do_is_done_once_and_said_to_be_though_a_reply_was_lost(
    far: PostgresStore,
    store: PostgresStore,
    proxy: FaultProxy,
    check_books: CheckBooks,
    change: Change,
    after: JobState | None,
) -> None:
    await far.get([])  # the replies that are counted are not those of connecting
    for number in count(1):
        (job_id,) = await enqueue(store) if change is Change.CANCEL else [await dead_letter(store)]
        proxy.drop_reply(number)
        changed = await far.change(Operation(change=change, ids=[new_id(), job_id], replay="r"))
        assert [(one.is_done, one.state) for one in changed] == [(False, None), (True, after)]
        (record,) = await store.get([job_id])
        found = record and (record.state, record.replays)
        assert found == (after and (after, int(change is Change.REPLAY)))
        if proxy.traffic.replies_dropped < number:
            break  # it gets fewer replies than that
        await store.change(Operation(change=Change.CANCEL, ids=[job_id]))  # out of the line
    assert proxy.traffic.replies_dropped > 1
    check_books()


FAIL_ONCE = """
CREATE SEQUENCE times;
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('times') = 1 THEN RAISE serialization_failure; END IF; RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON holdfast_replays DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION fail()
"""
YET_TO_COME = f"'{10**18}', id, seq, lane, priority, random()"


@pytest.mark.parametrize(
    ("name", "was", "instead"),
    [
        ("look", "due_at", "random()"),
        ("outcome", "pg_xact_status(%(number)s::xid8)", "'committed'"),
        ("look", "pg_current_xact_id()::text, id, seq, lane, priority, due_at", YET_TO_COME),
    ],
    ids=["it failed, and others have changed the job", "another has it", "it is yet to come"],
)
async def test_what_was_not_committed_is_done_whatever_became_of_the_transactions_number(
    store: PostgresStore,
    plain: Plain,
    check_books: CheckBooks,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    was: str,
    instead: str,
) -> None:
    """A server that lost it in a crash or a failover gives its number to another, or has not come to it yet."""
    job_id = await dead_letter(store)
    plain.execute(FAIL_ONCE.encode())
    assert was in people._SQL[name]
    monkeypatch.setattr(people, "_SQL", {**people._SQL, name: people._SQL[name].replace(was, instead)})
    (changed,) = await store.change(Operation(change=Change.REPLAY, ids=[job_id], replay="r"))
    assert plain.execute("SELECT last_value FROM times").fetchone() == (2,), "it did not fail"
    assert (changed.is_done, changed.state) == (True, JobState.QUEUED)
    (record,) = await store.get([job_id])
    assert (record and record.state, record and record.replays) == (JobState.QUEUED, 1)
    check_books()


async def test_a_network_that_swallows_everything_is_noticed_in_bounded_time(postgres_url: str) -> None:
    await asyncio.gather(*(_noticed(postgres_url, direction) for direction in DIRECTIONS))


async def _noticed(url: str, direction: Literal["both", "requests", "replies"]) -> None:
    """Over a network of its own that swallows what goes this way."""
    with by_proxy(url) as proxy:
        far = far_by(url, proxy)
        await far.enqueue([new_job()])
        await claim(far)
        proxy.blackhole(direction)
        machine = SystemClock()
        began_s = machine.monotonic()
        calls = [
            asyncio.to_thread(far.enqueue_now, [new_job()]),
            far.exchange(Exchange()),
            far.heartbeat(WorkerRecord(id="w", lease_s=60.0)),
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreAway] * 3, direction
        assert machine.monotonic() - began_s < BOUND_S, direction
        proxy.heal()
        job = new_job()
        assert await far.enqueue([job]) == [Enqueued(job.id)]
        await far.close()


async def test_nobody_who_reads_waits_long_for_a_server_that_hangs_however_many_they_are(
    far: PostgresStore, proxy: FaultProxy
) -> None:
    job = new_job()
    await far.enqueue([job])
    assert len((await far.find(Query())).items) == 1
    proxy.blackhole("both")
    machine = SystemClock()
    began_s = machine.monotonic()
    calls = [far.stats(), far.groups(Query()), *(far.get([job.id]) for _ in range(10)), far.find(Query())]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreAway}
    assert machine.monotonic() - began_s < 2 * ANSWER_S
    proxy.heal()
    assert await far.enqueue([new_job()])


async def test_a_server_that_is_away_is_said_to_be_so_and_comes_back_by_itself(
    far: PostgresStore, proxy: FaultProxy
) -> None:
    await far.enqueue([new_job()])
    proxy.refuse()
    proxy.reset()
    with pytest.raises(StoreAway, match="cannot be reached"):
        await far.enqueue([new_job()])
    with pytest.raises(StoreAway, match="cannot be reached"):
        await far.exchange(Exchange())
    proxy.heal()
    job = new_job()
    assert await far.enqueue([job]) == [Enqueued(job.id)]
    assert (await far.exchange(Exchange())).now > 0


async def test_an_outage_in_the_midst_of_a_round_trip_is_told_once_and_not_logged(
    far: PostgresStore, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    await far.enqueue([new_job()])
    await claim(far, 1)
    for _ in range(3):
        proxy.refuse()
        proxy.reset()
        with pytest.raises(StoreAway):
            await far.heartbeat(WorkerRecord(id="w", lease_s=60.0))
        with pytest.raises(StoreAway):
            await far.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=1)))
        proxy.heal()
        assert (await far.heartbeat(WorkerRecord(id="w", lease_s=60.0))).is_alive
        await far.exchange(Exchange())
    assert [record.getMessage() for record in caplog.records if record.name == "psycopg"] == []


async def test_a_failure_inside_of_a_pipeline_is_the_one_that_is_raised(
    store: PostgresStore, plain: Plain, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert store.capabilities
    line = connect(address_of(postgres_url, "", ANSWER_S))
    with pytest.raises(ZeroDivisionError), line.pipeline():
        line.execute("SELECT 1")
        plain.execute("SELECT pg_terminate_backend(%s)", (line.info.backend_pid,))
        while plain.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (line.info.backend_pid,)).fetchone():
            pass
        1 / 0  # noqa: B018
    assert line.closed
    line = connect(address_of(postgres_url, "", ANSWER_S))
    with pytest.raises(psycopg.errors.DivisionByZero), line.pipeline():
        line.execute("SELECT 1 / 0")
    assert line.execute("SELECT 1").fetchone() == (1,)
    line.close()
    assert [record.getMessage() for record in caplog.records if record.name == "psycopg"] == []


async def test_a_job_that_somebody_has_locked_is_passed_over_and_comes_later(
    store: PostgresStore, plain: Plain, check_books: CheckBooks
) -> None:
    jobs = [new_job() for _ in range(3)]
    await store.enqueue(jobs)
    with plain.transaction():
        plain.execute("SELECT 1 FROM holdfast_jobs ORDER BY seq LIMIT 1 FOR UPDATE")
        assert [one.id for one in await claim(store)] == [job.id for job in jobs[1:]]
    assert [one.id for one in await claim(store)] == [jobs[0].id]
    check_books()


async def test_an_orphan_that_somebody_has_locked_keeps_back_none_of_the_others(
    store: PostgresStore, plain: Plain
) -> None:
    locked, free = await store.enqueue([new_job(), new_job()])
    await claim(store)
    await store.heartbeat(WorkerRecord(id="w", lease_s=0.0))
    await store.heartbeat(WorkerRecord(id="heir", lease_s=60.0))
    with plain.transaction():
        plain.execute("SELECT FROM holdfast_jobs WHERE id = %s FOR UPDATE", (locked.id,))
        assert [one.id for one in await store.reclaim("heir", new_token(), 10)] == [free.id]
    assert [one.id for one in await store.reclaim("heir", new_token(), 10)] == [locked.id]


def test_each_kind_of_error_says_what_would_help() -> None:
    for kind, words, is_away in (
        (psycopg.errors.DiskFull, "disk is full", True),
        (psycopg.errors.TooManyConnections, "max_connections", True),
        (psycopg.errors.ReadOnlySqlTransaction, "read-only", True),
        (psycopg.errors.InvalidPassword, "password", False),
        (psycopg.errors.InvalidCatalogName, "no such database", False),
        (psycopg.errors.AdminShutdown, "told to end", True),
        (psycopg.errors.InsufficientPrivilege, "may not do this", False),
        (psycopg.errors.UndefinedColumn, "UndefinedColumn", False),
    ):
        told = translated(kind("some\nlines password=hunter2"), "postgresql://h/db")
        assert words in str(told)
        assert isinstance(told, StoreAway) is is_away
        assert "hunter2" not in str(told)
        assert "\n" not in str(told)


async def test_a_heartbeat_does_not_wait_for_connections_that_others_could_not_make(
    postgres_url: str, proxy: FaultProxy, far: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.postgres.pool.chance", lambda: 1.0)
    worker = WorkerRecord(id="w", lease_s=60.0)
    assert (await far.heartbeat(worker)).is_alive
    proxy.refuse()
    proxy.reset()
    for _ in range(6):
        with pytest.raises(StoreAway):
            await far.get([new_id()])
    proxy.heal()
    began_s = SystemClock().monotonic()
    assert (await far.heartbeat(worker)).is_alive
    assert SystemClock().monotonic() - began_s < 1.0
