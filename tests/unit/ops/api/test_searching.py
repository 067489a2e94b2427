"""A search finds what is shown and never tells of what is hidden: not by a hit, a page, a cursor or a count."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.ops.api import searching
from holdfast.ops.api.searching import search
from holdfast.ports import Page, Query, Store
from holdfast.types import JobRecord, JobState
from tests.unit.ops.api.shopfront import Shopfront

LISTS = ("/jobs", "/dead-letters", "/retry/dead-letters")


@pytest.mark.parametrize("path", LISTS)
async def test_a_hidden_value_is_not_read_out_letter_by_letter(front: Shopfront, path: str) -> None:
    (dead,) = await front.letters(500, password="hunter2", note="see postgres://a:s3cret@b/c")
    for known in ('"password":"', "postgres://a:", "postgres://shop:"):
        for letter in string.ascii_lowercase + string.digits:
            assert await front.get(path, text=known + letter) == {"items": [], "cursor": ""}
    for text in ("hunter2", "s3cret"):
        assert (await front.get(path, text=text))["items"] == []
    for text in (
        "DECLINED by",
        "see postgres",
        "@b/c",
        '"password":"[redacted]"',
        dead[-12:],
        "shop.charge",
        "Permanent",
    ):
        assert [one["id"] for one in (await front.get(path, text=text))["items"]] == [dead], text


async def test_an_idempotency_key_is_searched_as_it_is_shown(front: Shopfront) -> None:
    job = await front.app.tasks["shop.charge"].options(idempotency_key="order-7 token=hunter2").aenqueue(1)
    assert [one["id"] for one in (await front.get("/jobs", text="order-7"))["items"]] == [job.id]
    assert (await front.get("/jobs", text="token=h"))["items"] == []


async def test_groups_and_exports_are_searched_as_they_are_shown(front: Shopfront) -> None:
    await front.letters(500, password="hunter2")
    for path in ("/dead-letters/export", "/dead-letters/export?format=csv"):
        lines = {}
        for text in ("hunter2", "s3cret", "declined"):
            answer = await front.client.get(path, params={"text": text, **({"format": "csv"} if "csv" in path else {})})
            lines[text] = len(answer.text.splitlines()) - ("csv" in path)
        assert lines == {"hunter2": 0, "s3cret": 0, "declined": 1}
    for text, n in {"s3cret": 0, "hunter2": 0, "declined": 1, "PERMANENT": 1, "shop.charge": 1, "nothing": 0}.items():
        inbox = await front.get("/dead-letters/groups", text=text)
        assert (len(inbox["items"]), inbox["total"]) == (n, n), text


@pytest.mark.parametrize("path", ["/replays", "/replays/preview"])
async def test_a_search_cannot_be_replayed_nor_counted_by_a_preview(front: Shopfront, path: str) -> None:
    await front.letters(500, password="hunter2")
    problem = await front.post(path, {"filter": {"text": "hunter2"}}, status=422)
    assert "a search by text cannot be replayed" in str(problem["errors"])
    assert (await front.get("/replays"))["items"] == []


async def test_pages_of_a_search_have_every_hit_once_and_no_more_than_asked_for(front: Shopfront) -> None:
    ids = await front.letters(*[500, 5] * 20, note="needle")
    pages, found, cursor = 0, [], ""
    while True:
        page = await front.get("/jobs", text="needle", state="dead_letter", limit=3, cursor=cursor)
        assert len(page["items"]) <= 3
        found += [one["id"] for one in page["items"]]
        pages, cursor = pages + 1, page["cursor"]
        if not cursor:
            break
    assert found == ids[::2][::-1]
    assert pages == 7


class Shelf:
    """A store of as many jobs as wanted, which writes down what it is asked."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._jobs = [
            JobRecord(id=f"i{n}", task="t", payload=data, state=JobState.QUEUED) for n, data in enumerate(payloads)
        ]
        self.asked: list[Query] = []

    async def find(self, query: Query) -> Page:
        self.asked.append(query)
        start = int(query.cursor or 0)
        end = start + query.limit
        return Page(self._jobs[start:end], cursor=str(end) if end < len(self._jobs) else "")


async def look(payloads: Sequence[bytes], text: str, limit: int = 50) -> tuple[Page, list[Query]]:
    shelf: Any = Shelf(payloads)
    store: Store = shelf
    return await search(store, Query(text=text, limit=limit)), shelf.asked


async def test_what_the_store_is_asked_and_where_a_page_ends_do_not_depend_on_what_is_hidden() -> None:
    payloads = [b'{"password":"hunter2"}'] * 3_000
    right, wrong = await look(payloads, "hunter2", limit=1), await look(payloads, "hunter3", limit=1)
    assert right[0] == wrong[0] == Page([], cursor=str(searching.LOOKED_AT))
    assert [(one.text, one.limit, one.cursor) for one in right[1]] == [
        ("", 500, cursor) for cursor in ("", "500", "1000", "1500")
    ]


async def test_a_page_ends_after_its_last_hit(front: Shopfront) -> None:
    payloads = [b'{"n":"%d"}' % (n % 10) for n in range(100)]
    page, _ = await look(payloads, '"7"', limit=2)
    assert [one.id for one in page.items] == ["i7", "i17"]
    assert page.cursor == "18"


async def test_a_search_through_large_jobs_is_bounded() -> None:
    large = b'{"x":"%s"}' % (b"a" * 60_000)
    page, asked = await look([large] * 300, "needle")
    assert page.items == []
    assert 100 < int(page.cursor) < 200
    assert len(asked) == 2
    larger = b'{"x":"needle%s"}' % (b"a" * 70_000)
    assert (await look([larger], "needle"))[0].items == []
