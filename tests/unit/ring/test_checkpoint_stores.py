"""Checkpoints in a store: the same promises on each of them, lost replies, and who is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from holdfast import App
from holdfast.clock import SystemClock
from holdfast.errors import CheckpointError, ConfigError, StoreAway
from holdfast.ports import Exchange, Value, ValueChange
from holdfast.ring import Disruptor
from holdfast.ring.checkpoint_store import StoreCheckpoints
from holdfast.ring.checkpoints import Checkpoint, list_stored, reset_stored, store_checkpoints
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore

KEY = "ring/prices/parquet"
NOW = 1_000_000_000.0


def at(offset: int) -> Checkpoint:
    return Checkpoint(offset=offset, batch=offset // 10, processed=offset, saved_at=NOW)


def opened(app: App, *, ring: str = "prices", consumer: str = "parquet") -> StoreCheckpoints:
    return store_checkpoints(app, ring=ring, consumer=consumer)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app on each store."""
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'ring.db'}"
        case name:
            url = request.getfixturevalue(f"{name}_url")
    with closing(App(url, clock=ManualClock())) as app:
        yield app


@pytest.fixture
def plain() -> Iterator[App]:
    """An app in memory, for what does not depend on the store."""
    with closing(App("memory://", clock=ManualClock())) as app:
        yield app


@pytest.fixture
def faulty(plain: App) -> FaultyStore:
    """The store of `plain`, which fails when it is told to."""
    store = FaultyStore(plain.store)
    plain._store = store
    return store


def values(app: App) -> dict[str, Value]:
    return {value.key: value for value in app.bridge.run(app.store.exchange(Exchange())).values}


def put(app: App, data: bytes | None, key: str = KEY) -> None:
    """Whatever is there becomes this."""
    found = values(app).get(key)
    expected = 0 if found is None or found.data is None else found.version
    (done,) = app.bridge.run(app.store.exchange(Exchange(changes=[ValueChange(key, expected, data)]))).changed
    assert done


# ---- on every store


def test_what_was_saved_is_loaded_by_the_next_process(app: App) -> None:
    first = opened(app)
    assert first.load() is None
    for offset in (10, 20):
        first.save(Checkpoint(offset=offset, batch=offset // 10, processed=offset))
    first.close()
    assert opened(app).load() == at(20)


def test_whoever_loads_it_fences_the_one_before(app: App) -> None:
    zombie, heir = opened(app), opened(app)
    zombie.load()
    zombie.save(at(10))
    assert heir.load() == at(10)
    for _ in range(2):  # and stays fenced
        with pytest.raises(CheckpointError, match="is another process's by now; this one must stop") as caught:
            zombie.save(at(50))
        assert caught.value.is_fenced
    heir.save(at(20))
    assert opened(app).load() == at(20)


def test_one_that_begins_is_known_before_its_first_save(app: App) -> None:
    zombie, heir = opened(app), opened(app)
    assert zombie.load() is None
    assert heir.load() is None
    with pytest.raises(CheckpointError):
        zombie.save(at(10))
    heir.save(at(5))
    assert opened(app).load() == at(5)


def test_consumers_and_rings_are_kept_apart(app: App) -> None:
    names = [("prices", "parquet"), ("prices", "alerts"), ("orders", "parquet")]
    all_of_them = [opened(app, ring=ring, consumer=consumer) for ring, consumer in names]
    for offset, one in enumerate(all_of_them):
        one.save(at(offset))
    assert [one.load() for one in all_of_them] == [at(0), at(1), at(2)]
    assert [(one.ring, one.consumer, one.checkpoint) for one in list_stored(app)] == [
        ("orders", "parquet", at(2)),
        ("prices", "alerts", at(1)),
        ("prices", "parquet", at(0)),
    ]


def test_a_removed_one_fences_and_begins_anew(app: App) -> None:
    first = opened(app)
    first.save(at(10))
    assert reset_stored(app, "prices") == ["parquet"]
    with pytest.raises(CheckpointError, match="was removed; this one must stop") as caught:
        first.save(at(20))
    assert caught.value.is_fenced
    assert opened(app).load() is None


def test_the_largest_offset_comes_back(app: App) -> None:
    opened(app).save(at(2**63 - 1))
    found = opened(app).load()
    assert found is not None
    assert found.offset == 2**63 - 1


# ---- what it costs, and what fails


def test_a_save_is_one_exchange(plain: App, faulty: FaultyStore) -> None:
    one = opened(plain)
    one.load()
    faulty.calls.clear()
    for offset in range(10):
        put(plain, b"news", f"breaker:{offset}")  # two more: others write in between
        one.save(at(offset))
    assert faulty.calls["exchange"] == 30


def test_news_of_others_are_not_read_twice(plain: App, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        put(plain, b"old", f"breaker:{number}")
    one = opened(plain)
    one.load()
    replies: list[int] = []
    real = faulty.exchange

    async def counting(exchange: Exchange) -> Any:
        reply = await real(exchange)
        replies.append(len(reply.values))
        return reply

    monkeypatch.setattr(faulty, "exchange", counting)
    one.save(at(1))
    one.save(at(2))
    assert replies == [1, 1]


def test_a_store_that_is_away_is_no_fence_and_the_same_save_works_later(plain: App, faulty: FaultyStore) -> None:
    one = opened(plain)
    one.load()
    faulty.fail("exchange")
    with pytest.raises(StoreAway):
        one.save(at(10))
    faulty.mend()
    one.save(at(10))
    assert opened(plain).load() == at(10)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("again", [10, 20])
def test_a_lost_reply_to_a_save_is_no_fence(plain: App, faulty: FaultyStore, times: int, again: int) -> None:
    one = opened(plain)
    one.save(at(5))
    faulty.fail("exchange", fault="lost")
    for _ in range(times):
        with pytest.raises(StoreAway):
            one.save(at(10))
    faulty.mend()
    assert [found.checkpoint for found in list_stored(plain)] == [at(10)], "the lost one had taken effect"
    one.save(at(again))
    one.save(at(again + 1))
    assert opened(plain).load() == at(again + 1)


def test_after_a_lost_reply_another_process_still_fences(plain: App, faulty: FaultyStore) -> None:
    one = opened(plain)
    one.load()
    faulty.fail("exchange", fault="lost")
    with pytest.raises(StoreAway):
        one.save(at(10))
    faulty.mend()
    assert opened(plain).load() == at(10)
    with pytest.raises(CheckpointError) as caught:
        one.save(at(10))
    assert caught.value.is_fenced


def test_a_lost_reply_to_a_load_is_made_good_by_the_next(plain: App, faulty: FaultyStore) -> None:
    opened(plain).save(at(10))
    one = opened(plain)
    faulty.fail("exchange", fault="lost")
    with pytest.raises(StoreAway):
        one.load()
    faulty.mend()
    assert one.load() == at(10)
    one.save(at(20))
    assert opened(plain).load() == at(20)


def test_a_store_that_lost_the_last_saves_gets_them_again(plain: App) -> None:
    """A failover brings back an older state, with versions that had been passed already."""
    one = opened(plain)
    one.save(at(10))
    earlier = values(plain)[KEY].data
    one.save(at(20))
    plain._store = App("memory://", clock=plain.clock).store
    put(plain, earlier)
    one.save(at(30))
    one.save(at(40))
    assert opened(plain).load() == at(40)


def test_in_a_store_that_lost_everything_a_load_and_a_save_cost_what_they_always_do(plain: App) -> None:
    one = opened(plain)
    for offset in range(5):
        one.save(at(offset))
    plain._store = store = FaultyStore(App("memory://", clock=plain.clock).store)
    assert one.load() is None
    one.save(at(9))
    assert store.calls["exchange"] == 3
    assert opened(plain).load() == at(9)


def test_a_loader_that_is_overtaken_tries_again(plain: App, monkeypatch: pytest.MonkeyPatch) -> None:
    other = opened(plain)
    other.load()
    late = opened(plain)
    real = plain.store.exchange

    async def overtaken(exchange: Exchange) -> Any:
        if exchange.changes:
            monkeypatch.setattr(plain.store, "exchange", real)
            await other._save(at(10))
        return await real(exchange)

    monkeypatch.setattr(plain.store, "exchange", overtaken)
    assert late.load() == at(10)
    with pytest.raises(CheckpointError):
        other.save(at(20))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is not to be read"),
        (b"nonsense", "is not to be read"),
        (b"[" * 60_000, "is not to be read"),
        (
            b'{"version": 1, "holder": "x", "checkpoint": {"offset": -1, "batch": 0, "processed": 0}}',
            "is not to be read",
        ),
        (b'{"version": 2, "other": []}', "is of format 2 and this Holdfast knows 1: run the newer one that wrote it"),
    ],
)
def test_what_cannot_be_read_is_told_and_never_written_over(plain: App, data: bytes, problem: str) -> None:
    put(plain, data)
    for act in (opened(plain).load, lambda: opened(plain).save(at(1))):
        with pytest.raises(CheckpointError) as caught:
            act()
        expected = (
            f"the checkpoint of consumer 'parquet' of ring 'prices' {problem}; to begin anew: holdfast rings reset"
        )
        assert str(caught.value) == f"{expected} prices parquet"
        assert not caught.value.is_fenced
    assert values(plain)[KEY].data == data
    (found,) = list_stored(plain)
    assert (found.ring, found.consumer, found.checkpoint, found.problem) == ("prices", "parquet", None, problem)
    opened(plain).reset()
    assert opened(plain).load() is None


def test_one_that_becomes_unreadable_under_a_running_ring_fences(plain: App) -> None:
    one = opened(plain)
    one.save(at(1))
    put(plain, b"nonsense")
    with pytest.raises(CheckpointError) as caught:
        one.save(at(2))
    assert caught.value.is_fenced


# ---- by people


def test_a_reset_takes_a_ring_or_one_consumer_and_nothing_else(plain: App) -> None:
    for ring, consumer in (("prices", "parquet"), ("prices", "parquet2"), ("prices2", "parquet"), ("a", "b")):
        opened(plain, ring=ring, consumer=consumer).save(at(1))
    put(plain, b"x", "ring/not one of ours")
    put(plain, b"x", "breaker:ring/prices/parquet")
    assert reset_stored(plain, "prices", "parquet") == ["parquet"]
    assert reset_stored(plain, "prices", "parquet") == []
    assert reset_stored(plain, "prices") == ["parquet2"]
    assert reset_stored(plain, "none") == []
    assert reset_stored(plain, "") == []
    assert [(one.ring, one.consumer) for one in list_stored(plain)] == [("a", "b"), ("prices2", "parquet")]
    left = {key for key, value in values(plain).items() if value.data is not None}
    assert left == {"ring/a/b", "ring/prices2/parquet", "ring/not one of ours", "breaker:ring/prices/parquet"}


def test_one_that_has_only_been_begun_is_not_listed_and_can_be_reset(plain: App) -> None:
    opened(plain).load()
    assert list_stored(plain) == []
    assert reset_stored(plain, "prices") == ["parquet"]


def test_a_reset_of_its_own_fences_nobody_and_begins_anew(plain: App) -> None:
    one = opened(plain)
    one.save(at(10))
    one.reset()
    assert one.load() is None
    one.save(at(1))
    assert opened(plain).load() == at(1)


@pytest.mark.parametrize("name", ["a/b", "", "x" * 1000, "two\nlines", 7])
def test_names_that_could_be_another_key_are_refused(plain: App, name: Any) -> None:
    with pytest.raises(ConfigError, match=r"^ring="):
        opened(plain, ring=name)
    with pytest.raises(ConfigError, match=r"^consumer="):
        opened(plain, consumer=name)


def test_the_command_in_the_message_can_be_pasted(plain: App) -> None:
    put(plain, b"", "ring/my ring/it's")
    with pytest.raises(CheckpointError) as caught:
        opened(plain, ring="my ring", consumer="it's").load()
    assert str(caught.value).endswith("""holdfast rings reset 'my ring' 'it'"'"'s'""")


def test_in_async_code_a_ring_goes_on_from_the_store(app: App) -> None:
    seen: list[list[int]] = []

    async def keep(elements: list[int]) -> None:
        seen.append(list(elements))

    async def run() -> int:
        async with Disruptor[int](name="prices", app=app, clock=SystemClock()) as ring:
            ring.register_consumer(keep, name="parquet", checkpoint=True)
            start = ring.start_offset
            await ring.aproduce([start, start + 1], offset=start)
        return start

    assert [asyncio.run(run()) for _ in range(2)] == [0, 2]
    assert [element for batch in seen for element in batch] == [0, 1, 2, 3]


def test_the_value_is_small_and_readable(plain: App) -> None:
    opened(plain).save(at(10))
    data = cast("bytes", values(plain)[KEY].data)
    assert len(data) < 300
    assert msgspec.json.decode(data)["checkpoint"]["offset"] == 10
