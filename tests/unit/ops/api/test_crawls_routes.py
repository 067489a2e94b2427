"""Crawls over HTTP: what is stored of them, what their processes said last, without secrets; and pages as letters."""

from __future__ import annotations

import asyncio
import json

from holdfast.ops.api.live import LOOK_S
from holdfast.testing import ManualClock
from tests.unit.crawled import begun, crawl_report, crawling, domain, page, page_letter
from tests.unit.ops.api.shopfront import Shopfront, listening, new_app, two_tenants

SECRET = "https://ann:canary-53@example.org/?token=canary-54"


async def test_a_crawl_is_shown_with_its_processes_and_domains(front: Shopfront) -> None:
    await begun(front.app, "shop", "https://example.org/")
    await front.app.store.enqueue([page(url=f"https://example.org/{n}") for n in range(4)])
    await front.app.store.enqueue([page_letter()])
    await front.app.breakers.aforce_open("shop/slow.example")
    busy = domain(in_flight=3, fetched=90, failed=2, refused=1, latency_s=0.25, interval_s=0.5)
    held = domain("slow.example", held_s=30.0, why="it asked to wait", interval_s=2.0)
    report = crawl_report(
        "shop",
        busy,
        held,
        in_flight=3,
        fetched=90,
        failed=2,
        skipped=1,
        items=80,
        found=120,
        bytes=10**6,
        rate_per_s=2.0,
        output="pages.jsonl",
        held=1,
    )
    process = await crawling(front.app, report)
    found = await front.get("/crawls/shop")
    slow, fast = found.pop("domains")
    (told,) = found.pop("processes")
    assert found == {
        "name": "shop",
        "state": "running",
        "task": "crawl:shop",
        "started_at": 1000.0,
        "finished_at": None,
        "done": 0,
        "pending": 4,
        "waiting": 0,
        "dead": 1,
        "skipped": 0,
        "in_flight": 0,
        "rate_per_s": 2.0,
        "eta_s": 2.0,
        "seeds": ["https://example.org/"],
    }
    seen_at = told.pop("seen_at")
    assert told == {
        "worker": process.id,
        "host": "mill",
        "pid": 7,
        "in_flight": 3,
        "fetched": 90,
        "failed": 2,
        "skipped": 1,
        "items": 80,
        "found": 120,
        "bytes": 10**6,
        "rate_per_s": 2.0,
        "held": 1,
        "output": "pages.jsonl",
        "output_error": "",
    }
    assert fast == {
        "domain": "example.org",
        "worker": process.id,
        "in_flight": 3,
        "fetched": 90,
        "failed": 2,
        "refused": 1,
        "latency_s": 0.25,
        "interval_s": 0.5,
        "held_until_at": None,
        "why": "",
        "breaker": "shop/example.org",
        "breaker_state": "closed",
    }
    assert (slow["domain"], slow["why"], slow["breaker_state"]) == ("slow.example", "it asked to wait", "forced_open")
    assert slow["held_until_at"] == seen_at + 30.0


async def test_a_list_has_crawls_of_every_state_and_no_domains(front: Shopfront) -> None:
    await begun(front.app, "done", finished_at=2000.0)
    await begun(front.app, "left", finished_at=2000.0)
    await front.app.store.enqueue([page("left")])
    await crawling(front.app, crawl_report("busy", domain()))
    found = {one["name"]: one for one in (await front.get("/crawls"))["items"]}
    assert {name: one["state"] for name, one in found.items()} == {
        "busy": "running",
        "done": "finished",
        "left": "stopped",
    }
    assert found["done"]["finished_at"] == 2000.0
    assert found["left"]["finished_at"] is None, "there is work again"
    assert (found["busy"]["started_at"], found["busy"]["eta_s"]) == (None, None)
    assert "domains" not in found["busy"]
    refused = await front.get("/crawls/none", status=404)
    assert refused["detail"] == "there is no crawl 'none'"


async def test_what_crawls_say_is_shown_without_secrets_and_not_at_any_length(front: Shopfront) -> None:
    long = SECRET + " " + "x" * 1000
    await begun(front.app, "shop", SECRET)
    await crawling(
        front.app, crawl_report("shop", domain(long, why=long, held_s=1.0), output=long, output_error=long, held=1)
    )
    for path in ("/crawls", "/crawls/shop"):
        answer = await front.client.get(path)
        assert answer.status_code == 200
        assert "canary" not in answer.text
        assert "x" * 501 not in answer.text
    assert answer.json()["seeds"] == ["https://ann:[redacted]@example.org/?token=[redacted]"]


async def test_crawls_are_the_whole_fleets() -> None:
    app = new_app()
    await crawling(app, crawl_report("shop"))
    _, clients = two_tenants(app)
    for path in ("/crawls", "/crawls/shop"):
        assert (await clients["a"].get(path)).status_code == 403
        assert (await clients["viewer"].get(path)).status_code == 200
    await app.aclose()


async def test_a_change_is_told_to_whoever_listens() -> None:
    still = ManualClock(auto=False)
    app = new_app(clock=still)
    front = Shopfront(app)
    async with listening(front) as stream, asyncio.timeout(5):
        told = b""
        while b"event: crawls" not in told:
            told += await anext(stream)
        await crawling(app, crawl_report("shop", fetched=41))
        still.advance(LOOK_S)
        told = b""
        while b"event: crawls" not in told:
            told += await anext(stream)
    line = told.decode().partition("event: crawls\ndata: ")[2].partition("\n")[0]
    assert json.loads(line)["items"][0]["processes"][0]["fetched"] == 41
    await app.aclose()


async def test_a_process_on_a_crawl_is_no_worker_and_open_domains_are_no_alarm(front: Shopfront) -> None:
    await crawling(front.app, crawl_report("shop"))
    for key in ("shop/example.org", "mail/er"):
        await front.app.breakers.aforce_open(key)
    found = await front.get("/overview")
    assert (found["workers"], found["open_breakers"]) == (0, ["mail/er"])
    assert {one["key"] for one in (await front.get("/breakers"))["items"]} >= {"shop/example.org", "mail/er"}


# ---------------------------------------------------------------- letters that are pages


async def test_a_page_says_which_it_is_wherever_it_is_shown_and_without_secrets(front: Shopfront) -> None:
    letter = page_letter("shop", SECRET, depth=2, referrer=SECRET)
    await front.app.store.enqueue([letter])
    shown = "https://ann:[redacted]@example.org/?token=[redacted]"
    origin = {
        "kind": "page",
        "crawl": "shop",
        "url": shown,
        "domain": "example.org",
        "depth": 2,
        "referrer": shown,
    }
    (listed,) = (await front.get("/dead-letters", task="crawl:shop"))["items"]
    whole = await front.get(f"/dead-letters/{letter.id}")
    lines = (await front.client.get("/dead-letters/export")).text
    table = (await front.client.get("/dead-letters/export", params={"format": "csv"})).text
    assert listed["origin"] == whole["origin"] == json.loads(lines)["origin"] == origin
    assert whole["arguments"]["url"] == shown
    for text in (lines, table, json.dumps([listed, whole])):
        assert "canary" not in text
    assert "notes" not in json.loads(lines), "what is kept of a page is not shown"


async def test_a_record_of_a_crawls_queue_that_cannot_be_read_is_a_job(front: Shopfront) -> None:
    odd = page_letter()
    await front.app.store.enqueue([type(odd)(id=odd.id, task=odd.task, queue=odd.queue, payload=b"[1]", end=odd.end)])
    assert (await front.get(f"/dead-letters/{odd.id}"))["origin"] == {"kind": "job"}


async def test_a_pages_data_is_edited_and_which_page_it_is_stays_hidden_and_as_it_was(front: Shopfront) -> None:
    letter = page_letter("shop", SECRET, depth=2, data={"sku": 1})
    await front.app.store.enqueue([letter])
    arguments = (await front.get(f"/dead-letters/{letter.id}"))["arguments"]
    for name, value in {"url": "https://elsewhere.example/", "depth": 3, "referrer": "https://example.org/"}.items():
        refused = await front.post(f"/dead-letters/{letter.id}/retry", {"arguments": arguments | {name: value}}, 422)
        assert refused["detail"] == f"the {name} of a page cannot be edited: it says which page it is"
        refused = await front.post("/replays", {"filter": {"task": "crawl:shop"}, "edit": {name: value}}, 422)
        assert f"the {name} of a page cannot be edited" in refused["detail"]
    refused = await front.post(f"/dead-letters/{letter.id}/retry", {"arguments": arguments | {"data": 1}}, 422)
    assert "the page cannot be read" in refused["detail"]
    await front.post(f"/dead-letters/{letter.id}/retry", {"arguments": arguments | {"data": {"sku": 2}}})
    (record,) = await front.app.store.get([letter.id])
    assert record is not None
    assert json.loads(record.payload) == {"url": SECRET, "depth": 2, "data": {"sku": 2}}
