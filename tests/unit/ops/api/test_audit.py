from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from starlette.requests import Request

from holdfast.errors import StoreAway
from holdfast.ops.api.access import ADDRESS, PRINCIPAL
from holdfast.ops.api.audit import AUDIT, KEPT, KEPT_REFUSALS, AuditTrail, audit
from holdfast.ops.api.roles import Principal, Role
from holdfast.ops.api.settings import ApiSettings
from holdfast.ports import Exchange, Exchanged, ValueChange
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from tests.unit.ops.api.guarding import ADMIN, TOKENS, VIEWER, Caller


class Watched(MemoryStore):
    """A store that counts its writes, and can be away."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.writes = 0
        self.is_away = False

    async def exchange(self, exchange: Exchange) -> Exchanged:
        if self.is_away:
            raise StoreAway("gone fishing")
        self.writes += len(exchange.changes)
        return await super().exchange(exchange)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(auto=False)


@pytest.fixture
def store(clock: ManualClock) -> Watched:
    return Watched(clock)


@pytest.fixture
async def trail(store: Watched, clock: ManualClock) -> AsyncIterator[AuditTrail]:
    one = AuditTrail(store, clock=clock)
    yield one
    store.is_away = False
    await one.aclose()


def scope(who: str = "ada", more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "headers": [],
        PRINCIPAL: Principal(name=who, role=Role.ADMIN, tenant="acme", token_id="0a0a"),
        ADDRESS: "203.0.113.9",
        **(more or {}),
    }


async def settle() -> None:
    """Let the writer do what it can without the clock."""
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - lets the other coroutine run


async def test_what_was_done_is_in_the_log_at_once_with_its_fields(
    trail: AuditTrail, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "holdfast.audit"):
        await audit(Request(scope(more={AUDIT: trail})), "queue.pause", "mail")
    (record,) = caplog.records
    assert record.getMessage() == 'ada (admin) from 203.0.113.9: queue.pause "mail": done'
    names = ("who", "who_id", "tenant", "role", "address", "action", "target", "outcome")
    fields = {name: getattr(record, name) for name in names}
    assert fields == {
        "who": "ada",
        "who_id": "0a0a",
        "tenant": "acme",
        "role": "admin",
        "address": "203.0.113.9",
        "action": "queue.pause",
        "target": "mail",
        "outcome": "done",
    }


async def test_entries_are_read_back_newest_first_by_any_server(
    trail: AuditTrail, store: Watched, clock: ManualClock
) -> None:
    for number in range(3):
        trail.record(scope(), "queue.pause", f"q{number}", "done")
        clock.advance(1)
    await settle()
    other = AuditTrail(store, clock=clock)
    assert [entry.target for entry in await other.entries()] == ["q2", "q1", "q0"]
    assert (await other.entries())[0].at == clock.now() - 1


async def test_an_entry_that_is_still_to_be_written_is_read_too(trail: AuditTrail, store: Watched) -> None:
    trail.record(scope(), "queue.pause", "first", "done")
    await settle()
    trail.record(scope(), "queue.pause", "second", "done")
    assert [entry.target for entry in await trail.entries()] == ["second", "first"]
    assert store.writes == 1


async def test_many_entries_are_written_at_most_once_a_second(
    trail: AuditTrail, store: Watched, clock: ManualClock
) -> None:
    for _ in range(50):
        trail.record(scope(), "queue.pause", "mail", "done")
        await settle()
    assert store.writes == 1
    clock.advance(1)
    await settle()
    assert store.writes == 2
    assert len(await trail.entries()) == 50


async def test_two_servers_do_not_write_over_each_other(trail: AuditTrail, store: Watched, clock: ManualClock) -> None:
    other = AuditTrail(store, clock=clock)
    for number in range(4):
        trail.record(scope("one"), "queue.pause", str(number), "done")
        other.record(scope("two"), "queue.pause", str(number), "done")
        clock.advance(1)
        await settle()
    await other.aclose()
    await trail.aclose()
    assert sorted(entry.who for entry in await AuditTrail(store, clock=clock).entries()) == ["one"] * 4 + ["two"] * 4


async def test_only_so_many_are_kept_and_refusals_do_not_push_out_what_was_done(
    trail: AuditTrail, store: Watched, clock: ManualClock
) -> None:
    for number in range(150):
        trail.record(scope(), "queue.pause", str(number), "done")
    for _ in range(1000):
        trail.refused(scope(), "/jobs", 403)
    await trail.aclose()
    entries = await AuditTrail(store, clock=clock).entries()
    assert len(entries) == KEPT
    assert sum(entry.is_refusal for entry in entries) == KEPT_REFUSALS
    assert [entry.target for entry in entries if not entry.is_refusal][-1] == "50"


async def test_while_the_store_is_away_entries_are_kept_and_nobody_waits(
    trail: AuditTrail, store: Watched, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.is_away = True
    for _ in range(5):
        trail.record(scope(), "queue.pause", "mail", "done")
        clock.advance(1)
        await settle()
    assert sum("cannot be written" in line for line in caplog.messages) == 1
    store.is_away = False
    clock.advance(1)
    await settle()
    assert store.writes == 1
    assert len(await AuditTrail(store, clock=clock).entries()) == 5


async def test_closing_writes_what_is_left(trail: AuditTrail, store: Watched, clock: ManualClock) -> None:
    trail.record(scope(), "queue.pause", "one", "done")
    await settle()
    trail.record(scope(), "queue.pause", "two", "done")
    await trail.aclose()
    assert len(await AuditTrail(store, clock=clock).entries()) == 2


@pytest.mark.parametrize("data", [b"garbage", b"[[1]]", b'{"a": 1}', b"[" * 100_000])
async def test_a_trail_that_was_spoilt_in_the_store_is_begun_anew(
    trail: AuditTrail, store: Watched, clock: ManualClock, data: bytes
) -> None:
    await store.exchange(Exchange(changes=[ValueChange("audit", 0, data)]))
    trail.record(scope(), "queue.pause", "mail", "done")
    await settle()
    assert len(await AuditTrail(store, clock=clock).entries()) == 1


async def test_text_from_outside_cannot_forge_a_line_or_steer_a_terminal(
    trail: AuditTrail, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "holdfast.audit"):
        trail.record(scope(), "queue.pause", "x\nroot (admin) from ::1: all: done\x1b[31m\u202e\ud800", "done")
    assert all(one.isprintable() for one in caplog.messages)
    assert "\\x1b[31m" in caplog.messages[0]
    (entry,) = await trail.entries()
    assert entry.target.isprintable()


async def test_text_from_outside_cannot_look_like_the_end_of_a_line(
    trail: AuditTrail, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "holdfast.audit"):
        trail.record(scope(), "queue.pause", 'mail": done \\', "refused 403")
        trail.refused(scope(), "/queues/a: done\n/\ud800\x1b/pause", 403)
    assert [line.partition("203.0.113.9: ")[2] for line in caplog.messages] == [
        'queue.pause "mail\\": done \\\\": refused 403',
        "POST /queues/a:%20done%0A/%3F%1B/pause: refused 403",
    ]


async def test_an_entry_of_an_older_server_is_read_too(trail: AuditTrail, store: Watched, clock: ManualClock) -> None:
    older = b'[[1.0,"ada","admin","::1","queue.pause","mail","done"]]'
    await store.exchange(Exchange(changes=[ValueChange("audit", 0, older)]))
    (entry,) = await trail.entries()
    assert (entry.who, entry.who_id, entry.tenant) == ("ada", "", None)


async def test_secrets_in_what_is_written_down_are_left_out(trail: AuditTrail) -> None:
    trail.record(scope(), "breaker.reset", "postgresql://user:canary-1@db/x", "done")
    trail.record(scope(), "breaker.reset", f"Bearer {ADMIN.text}", "done")
    text = repr(await trail.entries())
    assert "canary-1" not in text
    assert ADMIN.text not in text


async def test_an_entry_is_never_long(trail: AuditTrail) -> None:
    trail.record(scope(more={ADDRESS: "9" * 10_000}), "a" * 10_000, "t" * 10_000, "o" * 10_000)
    (entry,) = await trail.entries()
    assert len(repr(entry)) < 700


# ---------------------------------------------------------------- what the guard writes down


async def test_refused_changes_and_wrong_credentials_are_written_down(caplog: pytest.LogCaptureFixture) -> None:
    caller = Caller(ApiSettings(tokens=TOKENS, read_only=True))
    await caller.call("POST", "/queues/a/pause", token=VIEWER.text)
    await caller.call("POST", "/queues/a/pause")
    await caller.call("GET", "/jobs", token="hf_guess", address="203.0.113.9")
    assert caplog.messages == [
        "vera (viewer) from 127.0.0.1: POST /queues/a/pause: refused 403",
        "- (-) from 127.0.0.1: POST /queues/a/pause: refused 401",
        "- (-) from 203.0.113.9: GET /jobs: refused 401",
    ]


async def test_looking_without_a_credential_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caller = Caller(ApiSettings(tokens=TOKENS))
    assert await caller.status("GET", "/jobs") == 401
    assert caplog.messages == []


async def test_a_trail_goes_on_after_its_store_was_set_back(
    trail: AuditTrail, store: Watched, clock: ManualClock
) -> None:
    trail.record(scope(), "pause", "queue mail", "done")
    await settle()
    standby = copy.deepcopy(store._values)
    clock.advance(1.0)
    await settle()
    trail.record(scope(), "resume", "queue mail", "done")
    await settle()
    assert [entry.action for entry in await trail.entries()] == ["resume", "pause"]
    store._values = standby
    clock.advance(1.0)
    await settle()
    trail.record(scope(), "stop", "replay a", "done")
    await settle()
    store.is_away = True  # what is still to be written is not asked for again
    assert [entry.action for entry in trail._kept] == ["pause", "stop"]
    assert not trail._pending
