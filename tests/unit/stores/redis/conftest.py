"""A Redis store for each test, and the check of its books."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.state import STATES, Head, read_head
from holdfast.types import JobState
from tests.servers import RedisServer

CheckBooks = Callable[[], None]
READY = {JobState.QUEUED, JobState.RETRYING, JobState.WAITING}
GIVEN_UP = (JobState.FAILED, JobState.DEAD_LETTER, JobState.CANCELLED)


@pytest.fixture
def prefix(redis_server: RedisServer) -> str:
    return redis_server.fresh_prefix()


@pytest.fixture
async def store(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_server.dsn(), prefix=prefix)
    yield store
    await store.close()


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client
        client.flushall()


@pytest.fixture
def check_books(client: redis.Redis, prefix: str) -> CheckBooks:
    """Says whether what is written beside the jobs is what the jobs say."""

    def check() -> None:
        check_books_of(client, prefix)

    return check


def check_books_of(client: Any, prefix: str) -> None:
    start = f"{{{prefix}}}:"
    texts: dict[bytes, bytes] = client.hgetall(f"{start}state")
    jobs = {one: Head(*read_head(text)) for one, text in texts.items()}
    states = {one: STATES[job.state] for one, job in jobs.items()}
    assert set(client.hkeys(f"{start}job")) == set(jobs)
    assert scores(client, f"{start}all") == {one: job.seq for one, job in jobs.items()}
    for state in GIVEN_UP:
        found = scores(client, f"{start}{state.value}")
        assert found == {one: job.seq for one, job in jobs.items() if states[one] is state}

    tallies = {int(kind): int(n) for kind, n in client.hgetall(f"{start}tally").items() if int(n)}
    assert tallies == Counter(job.lane * 8 + job.state for job in jobs.values())
    check_lines(client, start, jobs, states)

    held = Counter(
        {key.rpartition(b":")[2]: int(client.hget(key, "held")) for key in client.scan_iter(f"{start}claim:*")}
    )
    assert +held == Counter(token_of(texts[one]) for one, state in states.items() if state is JobState.RUNNING)
    workers = client.scan_iter(f"{start}claims:*")
    tokens = {token for key in [*workers, f"{start}orphans"] for token in client.zrange(key, 0, -1)}
    assert tokens == set(held), "every claim is somebody's"

    kept = {one for packed in client.zrange(f"{start}kept", 0, -1) for one in msgspec.msgpack.decode(packed)}
    assert {one.decode() for one, job in jobs.items() if job.keep_until >= 0} <= kept
    check_letters(client, start, jobs, {one for one, state in states.items() if state is JobState.DEAD_LETTER})
    check_marks(client, start, jobs)
    for kind in ("more", "attempts"):
        owners = {key.removeprefix(f"{start}{kind}:".encode()) for key in client.scan_iter(f"{start}{kind}:*")}
        assert owners <= {one for one, job in jobs.items() if job.has_more}
    for one, job in jobs.items():
        names: list[bytes] = client.hkeys(f"{start}more:{one.decode()}")
        has_notes = any(name == b"checkpoint" or name.startswith(b"step:") for name in names)
        assert has_notes == bool(job.has_notes)


def check_letters(client: Any, start: str, jobs: dict[bytes, Head], dead: set[bytes]) -> None:
    """What is counted of dead letters is what the jobs say."""
    causes: dict[bytes, bytes] = client.hgetall(f"{start}cause_name")
    assert client.hgetall(f"{start}cause") == {name: number for number, name in causes.items()}
    cause_of = {one: client.hget(f"{start}more:{one.decode()}", "cause") for one in dead}
    assert set(cause_of.values()) == set(causes), "a cause goes with its last letter"
    hours = Counter((int(jobs[one].changed_at // 3600), cause) for one, cause in cause_of.items())
    counted = {
        (int(hour), cause): int(n)
        for hour in client.zrange(f"{start}letter_hours", 0, -1)
        for cause, n in client.hgetall(f"{start}letter_hour:{int(hour)}").items()
    }
    assert counted == dict(hours)
    fingerprints: dict[str, dict[bytes, float]] = {}
    for number, name in causes.items():
        ids = {one for one, cause in cause_of.items() if cause == number}
        at = {one: jobs[one].changed_at for one in ids}
        assert scores(client, f"{start}letters:{int(number)}") == {one: jobs[one].seq for one in ids}
        assert scores(client, f"{start}letters_at:{int(number)}") == at
        fingerprints.setdefault(msgspec.msgpack.decode(name)[0], {}).update(at)
    for fingerprint, letters in fingerprints.items():
        assert scores(client, f"{start}fingerprint_at:{fingerprint}") == letters
    for kind, names in (("letters", causes), ("letters_at", causes), ("fingerprint_at", fingerprints)):
        assert len(list(client.scan_iter(f"{start}{kind}:*"))) == len(names), kind


def check_marks(client: Any, start: str, jobs: dict[bytes, Head]) -> None:
    """Each job is marked where it is, under its lane and its owners."""
    wanted: set[bytes] = set()
    for one, job in jobs.items():
        text: bytes = client.hget(f"{start}job", one)
        facts = msgspec.msgpack.decode(text[4 : 4 + int.from_bytes(text[:4])])
        owners = [f"{kind}{owner}" for kind, owner in zip("tup", facts[3:6], strict=True) if owner]
        for name in (f"l{job.lane}", *owners):
            wanted.add(len(name.encode()).to_bytes(4) + name.encode() + (int(job.seq) // 256).to_bytes(4))
    assert wanted <= set(client.zrange(f"{start}marks", 0, -1))


def check_lines(client: Any, start: str, jobs: dict[bytes, Head], states: dict[bytes, JobState]) -> None:
    """Who can be claimed stands in its lane or is delayed, and nobody else does."""
    lined_up: dict[bytes, int] = {}
    lanes = {int(lane) for lane in client.zrange(f"{start}ready", 0, -1)}
    assert lanes == {int(key.rpartition(b":")[2]) for key in client.scan_iter(f"{start}ready:*")}
    for lane in lanes:
        lined_up |= {place[24:]: lane for place in client.zrange(f"{start}ready:{lane}", 0, -1)}
    delayed = {place[24:] for place in client.zrange(f"{start}delayed", 0, -1)}
    assert not delayed & set(lined_up)
    assert delayed | set(lined_up) == {one for one, state in states.items() if state in READY}
    assert all(jobs[one].lane == lane for one, lane in lined_up.items())


def scores(client: Any, key: str) -> dict[bytes, float]:
    return dict(client.zrange(key, 0, -1, withscores=True))


def token_of(text: bytes) -> bytes:
    return text[89 : 89 + text[88]]
