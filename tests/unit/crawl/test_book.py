from __future__ import annotations

import asyncio
import copy

import pytest

from holdfast.crawl.book import Book, StoredHold
from holdfast.ports import Value
from holdfast.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def test_a_crawl_that_goes_on_keeps_its_beginning_and_adds_its_seeds(store: MemoryStore) -> None:
    first = await Book(store, "shop").begin(("https://a.org/",))
    again = await Book(store, "shop").begin(("https://b.org/", "https://a.org/"))
    assert again.seeds == ("https://a.org/", "https://b.org/")
    assert again.started_at == first.started_at
    assert again.finished_at is None


async def test_it_is_finished_until_it_goes_on(store: MemoryStore) -> None:
    book = Book(store, "shop")
    await book.begin(())
    await book.finish()
    assert book.record is not None
    assert book.record.finished_at is not None
    assert (await Book(store, "shop").begin(())).finished_at is None


async def test_a_hold_is_only_ever_lengthened(store: MemoryStore) -> None:
    book, other = Book(store, "shop"), Book(store, "shop")
    await book.hold("a.org", 50.0, "asked to wait")
    await book.hold("a.org", 20.0, "asked to wait")
    await other.read()
    assert other.holds() == {"a.org": StoredHold(50.0, "asked to wait")}
    await other.hold("a.org", 70.0, "asked to wait longer", 3)
    await book.read()
    assert book.hold_of("a.org") == StoredHold(70.0, "asked to wait longer", 3)


async def test_holds_that_are_over_are_removed_some_at_a_time(store: MemoryStore) -> None:
    book = Book(store, "shop")
    for n in range(6):
        await book.hold(f"{n}.org", 10.0 if n % 2 else 99.0, "")
    assert await book.sweep(50.0, most=4) == 2
    assert sorted(book.holds()) == ["0.org", "2.org", "4.org", "5.org"]
    assert await book.sweep(50.0, most=4) == 1, "those that are not over have gone to the end"
    assert sorted(book.holds()) == ["0.org", "2.org", "4.org"]
    assert await book.sweep(50.0) == 0


async def test_a_hold_that_another_has_lengthened_meanwhile_is_not_removed(store: MemoryStore) -> None:
    book, other = Book(store, "shop"), Book(store, "shop")
    await book.hold("a.org", 10.0, "")
    await other.read()
    await other.hold("a.org", 99.0, "")
    assert await book.sweep(50.0) == 0
    await other.read()
    assert other.holds() == {"a.org": StoredHold(99.0)}


async def test_the_domains_of_all_seeds_are_remembered_though_few_seeds_are_shown(store: MemoryStore) -> None:
    seeds = [f"https://{n}.org/" for n in range(300)]
    record = await Book(store, "shop").begin(seeds)
    assert len(record.seeds) == 100
    assert record.domains == tuple(f"{n}.org" for n in range(300))
    await Book(store, "shop").widen("www.7.org")
    assert (await Book(store, "shop").begin(())).domains[-1] == "www.7.org"


async def test_a_store_that_was_set_back_is_read_anew(store: MemoryStore) -> None:
    told: list[Value] = []
    book = Book(store, "shop", told.append)
    await book.begin(())
    await book.hold("a.org", 10.0, "")
    key = "crawl:shop/hold/a.org"
    ahead = Value(key, 10_000, b'{"until":5.0}')  # as the store has said before it failed over to an older copy
    book.absorb([ahead])
    told.clear()
    await book.hold("a.org", 20.0, "")
    assert told[0] == Value("crawl:shop", 0, None)
    assert book.hold_of("a.org") == StoredHold(20.0)
    assert book.record is not None


async def test_what_a_store_lost_when_it_was_set_back_is_forgotten(store: MemoryStore) -> None:
    told: list[Value] = []
    book = Book(store, "shop", told.append)
    await book.begin(())
    await book.hold("a.org", 10.0, "")
    standby = copy.deepcopy(store._values)
    await book.hold("a.org", 20.0, "")
    await book.hold("b.org", 20.0, "")
    store._values = standby
    told.clear()
    await book.read()
    assert set(book.holds()) == {"a.org", "b.org"}, "until all is read anew"
    await book.read()
    assert book.holds() == {"a.org": StoredHold(10.0)}
    assert [(value.key, value.data is None) for value in told] == [
        ("crawl:shop/hold/b.org", True),
        ("crawl:shop/hold/a.org", False),
    ]


async def test_what_a_store_that_was_set_back_says_otherwise_under_a_version_that_was_seen_is_taken(
    store: MemoryStore,
) -> None:
    standby = MemoryStore()
    await Book(standby, "shop").hold("a.org", 20.0, "")
    book = Book(store, "shop")
    await book.hold("a.org", 10.0, "")
    await book.hold("b.org", 10.0, "")
    store._values = standby._values
    await book.read()
    await book.read()
    assert book.holds() == {"a.org": StoredHold(20.0)}


async def test_changes_at_the_same_time_are_all_kept(store: MemoryStore) -> None:
    books = [Book(store, "shop") for _ in range(5)]
    await asyncio.gather(*(book.begin((f"https://{n}.org/",)) for n, book in enumerate(books)))
    record = await Book(store, "shop").begin(())
    assert sorted(record.seeds) == [f"https://{n}.org/" for n in range(5)]


async def test_one_book_may_be_asked_several_things_at_a_time(store: MemoryStore) -> None:
    book = Book(store, "shop")
    await asyncio.gather(*(book.hold(f"{n % 3}.org", float(n), "") for n in range(30)))
    assert {domain: hold.until for domain, hold in book.holds().items()} == {
        "0.org": 27.0,
        "1.org": 28.0,
        "2.org": 29.0,
    }


async def test_values_of_other_crawls_are_not_its_own(store: MemoryStore) -> None:
    await Book(store, "shop2").hold("a.org", 5.0, "")
    await Book(store, "shop2").begin(("https://a.org/",))
    book = Book(store, "shop")
    await book.read()
    assert (book.record, book.holds(), book.all()) == (None, {}, [])


async def test_what_cannot_be_read_is_taken_for_nothing(store: MemoryStore) -> None:
    book = Book(store, "shop")
    book.absorb([Value("crawl:shop", 3, b"{"), Value("crawl:shop/hold/a.org", 4, b"[]")])
    assert (book.record, book.holds()) == (None, {})


async def test_removing_it_leaves_nothing(store: MemoryStore) -> None:
    book = Book(store, "shop")
    await book.begin(("https://a.org/",))
    await book.hold("a.org", 5.0, "")
    await book.remove()
    fresh = Book(store, "shop")
    await fresh.read()
    assert all(value.data is None for value in fresh.all())


async def test_pages_from_elsewhere_begin_a_crawl_and_do_not_widen_one(store: MemoryStore) -> None:
    await Book(store, "shop").adopt(["b.org", "a.org"])
    record = await Book(store, "shop").begin(())
    assert record.domains == ("a.org", "b.org")
    assert record.started_at > 0.0
    await Book(store, "shop").adopt(["c.org"])
    assert (await Book(store, "shop").begin(())).domains == ("a.org", "b.org")
