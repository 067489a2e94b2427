"""Alerts of several servers over one store: one notice each, none lost with its sender, and the store's own absence."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, Permanent
from holdfast.alerts import (
    BreakerOpen,
    DeadLetterGrowth,
    DeadLetters,
    ErrorRate,
    HealthScore,
    Lag,
    Notice,
    NoWorker,
    Webhook,
)
from holdfast.app.alerts import named_targets
from holdfast.errors import ConfigError, HoldfastError
from holdfast.ops.alerts import AWAY_S, EVERY_S, AlertLoop
from holdfast.policy.notices import AGAIN_S, HOLD_S
from holdfast.policy.rules import Rule
from holdfast.ports import Count, Exchange, RingReport, ValueChange, WorkerRecord
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore

ALIVE = WorkerRecord(id="w1", lease_s=80_000.0)


class Server:
    """A server of the app: its own loop and its own way to the store they share."""

    def __init__(
        self, store: MemoryStore, clock: ManualClock, rule: Rule, *, targets: int = 1, **settings: Any
    ) -> None:
        self.app = App("memory://", clock=clock)
        self.app._store = self.store = FaultyStore(store, clock)
        self.got: list[Notice] = []
        self.refuses: set[int] = set()
        self.app.alert("a", when=rule, to=[self.target(place) for place in range(targets)], **settings)
        self.loop = AlertLoop(self.app, clock, name="shop")

    def target(self, place: int) -> Callable[[Notice], Any]:
        async def take(notice: Notice) -> None:
            if place in self.refuses:
                raise ConnectionError("password=hunter2")
            self.got.append(notice)

        return take

    async def look(self) -> None:
        await self.loop.once()
        await self.loop.sent()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


async def set_workers(store: MemoryStore, is_alive: bool) -> None:
    await store.heartbeat(ALIVE if is_alive else WorkerRecord(id="w1", lease_s=0.0))


def states(servers: list[Server]) -> list[str]:
    return [notice.state for server in servers for notice in server.got]


# ---------------------------------------------------------------- one notice


async def test_the_process_of_a_ring_is_no_worker(store: MemoryStore, clock: ManualClock) -> None:
    server = Server(store, clock, NoWorker())
    await store.heartbeat(WorkerRecord(id="ring", lease_s=80_000.0, rings=(RingReport(name="prices", size=8),)))
    await server.look()
    await set_workers(store, True)
    await server.look()
    assert [(one.state, one.metrics["workers"]) for one in server.got] == [("firing", 0), ("resolved", 1)]


async def test_of_many_servers_one_tells(store: MemoryStore, clock: ManualClock) -> None:
    servers = [Server(store, clock, NoWorker()) for _ in range(5)]
    for _ in range(3):
        await asyncio.gather(*(server.look() for server in servers))
        clock.advance(EVERY_S)
    assert states(servers) == ["firing"]
    await set_workers(store, True)
    for _ in range(3):
        await asyncio.gather(*(server.look() for server in servers))
        clock.advance(EVERY_S)
    assert sorted(states(servers)) == ["firing", "resolved"]
    assert [server.app.alerts.watches["a"].alert.name for server in servers] == ["a"] * 5


async def test_a_server_that_was_slower_tells_nothing(store: MemoryStore, clock: ManualClock) -> None:
    slow, quick = Server(store, clock, NoWorker()), Server(store, clock, NoWorker())
    real = slow.store.exchange

    async def overtaken(exchange: Exchange) -> Any:
        if exchange.changes:
            await quick.look()
        return await real(exchange)

    slow.store.exchange = overtaken  # type: ignore[method-assign]
    await slow.look()
    assert (len(slow.got), len(quick.got)) == (0, 1)


async def test_a_notice_says_what_is_wrong_and_how_the_app_is(store: MemoryStore, clock: ManualClock) -> None:
    server = Server(store, clock, NoWorker())
    await server.look()
    (notice,) = server.got
    assert (notice.name, notice.state, notice.value, notice.threshold) == ("a", "firing", 0, 1)
    assert (notice.text, notice.at, notice.app) == ("no worker is alive", clock.now(), "shop")
    wanted = "jobs_received jobs_completed jobs_failed jobs_dead_lettered attempts successful_retries breaker_trips"
    assert {*wanted.split(), "dead_letters", "workers"} <= set(notice.metrics)


async def test_a_notice_has_the_totals_of_the_store(store: MemoryStore, clock: ManualClock) -> None:
    totals = {"received": 9, "completed": 7, "failed": 3, "dead": 2, "retried": 4, "healed": 1}
    for task in ("a", "b"):
        await store.exchange(Exchange(counts=[Count(0, task, name, n) for name, n in totals.items()]))
    await count(store, clock, completed=3, failed=1)
    server = Server(store, clock, NoWorker())
    server.app.alert("score", when=HealthScore(under=0.1))
    await server.look()
    metrics = dict(server.got[0].metrics)
    assert metrics.pop("score") == 0.85
    assert metrics == {
        "jobs_received": 18,
        "jobs_completed": 14,
        "jobs_failed": 6,
        "jobs_dead_lettered": 4,
        "attempts": 28,
        "successful_retries": 2,
        "breaker_trips": 0,
        "dead_letters": 0,
        "open_breakers": 0,
        "workers": 0,
        "lag_s": 0,
        "success_rate": 0.75,
    }


async def test_a_notice_whose_sender_died_is_sent_by_another_with_the_same_id(
    store: MemoryStore, clock: ManualClock
) -> None:
    dying, other = Server(store, clock, NoWorker()), Server(store, clock, NoWorker())
    begun = asyncio.Event()

    async def hang(_: Notice) -> None:
        begun.set()
        await asyncio.Event().wait()

    hang.__qualname__ = other.app.alerts.watches["a"].to[0].__qualname__  # type: ignore[union-attr]
    dying.app.alerts.watches.clear()
    dying.app.alert("a", when=NoWorker(), to=[hang])
    running = asyncio.create_task(dying.loop.run())
    await begun.wait()
    dying.store.fail()  # it cannot tell anybody any more
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await other.look()
    assert other.got == [], "it may still be on its way"
    clock.advance(HOLD_S)
    await other.look()
    assert [notice.state for notice in other.got] == ["firing"]
    clock.advance(2 * HOLD_S)
    await other.look()
    assert len(other.got) == 1


async def test_a_notice_that_was_sent_but_not_marked_comes_again_with_its_id(
    store: MemoryStore, clock: ManualClock
) -> None:
    first, other = Server(store, clock, NoWorker()), Server(store, clock, NoWorker())
    await first.loop.once()
    first.store.fail("exchange")
    await first.loop.sent()
    clock.advance(HOLD_S)
    await other.look()
    assert [notice.id for notice in other.got] == [notice.id for notice in first.got]


async def test_a_server_that_could_not_mark_what_it_sent_marks_it_later_and_does_not_send_it_again(
    store: MemoryStore, clock: ManualClock
) -> None:
    server, other = Server(store, clock, NoWorker()), Server(store, clock, NoWorker())
    await server.loop.once()
    server.store.fail("exchange")
    await server.loop.sent()
    server.store.mend()
    for _ in range(3):
        clock.advance(EVERY_S)
        await server.look()
    clock.advance(HOLD_S)
    await other.look()
    assert (states([server]), states([other])) == (["firing"], [])


async def test_a_notice_that_arrives_while_the_store_is_looked_at_is_not_sent_again(
    store: MemoryStore, clock: ManualClock
) -> None:
    server, got, free = Server(store, clock, NoWorker(), targets=0), list[str](), asyncio.Event()

    async def slow(notice: Notice) -> None:
        await free.wait()
        got.append(notice.id)

    server.app.alert("slow", when=NoWorker(), to=[slow])
    await server.loop.once()
    real = server.app.alerts.look

    async def outdated() -> Any:
        look = await real()
        free.set()
        await server.loop.sent()
        return look

    server.app.alerts.look = outdated  # type: ignore[method-assign]
    await server.look()
    assert len(got) == 1


@pytest.mark.parametrize("later_s", [EVERY_S, HOLD_S])
async def test_a_change_whose_answer_was_lost_is_told_at_the_next_look(
    store: MemoryStore, clock: ManualClock, later_s: float
) -> None:
    server = Server(store, clock, NoWorker())
    real = server.store.exchange

    async def loses(exchange: Exchange) -> Any:
        if exchange.changes:
            server.store.fail("exchange", fault="lost")
        return await real(exchange)

    server.store.exchange = loses  # type: ignore[method-assign]
    await server.look()
    assert server.got == []
    server.store.exchange = real  # type: ignore[method-assign]
    server.store.mend()
    clock.advance(later_s)
    await server.look()
    assert states([server]) == ["firing"]
    clock.advance(2 * HOLD_S)
    await server.look()
    assert states([server]) == ["firing"]


async def test_a_target_that_fails_gets_it_again_and_the_others_do_not(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(store, clock, NoWorker(), targets=3)
    server.refuses = {1}
    await server.look()
    assert len(server.got) == 2
    assert "hunter2" not in caplog.text
    assert "ConnectionError" in caplog.text
    server.refuses = set()
    clock.advance(AGAIN_S - 1)
    await server.look()
    assert len(server.got) == 2
    clock.advance(1)
    await server.look()
    assert len(server.got) == 3
    assert len({notice.id for notice in server.got}) == 1
    clock.advance(HOLD_S)
    await server.look()
    assert len(server.got) == 3
    assert "dropped" not in caplog.text


async def test_a_target_gets_firing_before_resolved_however_late(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    servers = [Server(store, clock, NoWorker(), targets=2) for _ in range(2)]
    for server in servers:
        server.refuses = {0}
    await servers[0].look()
    clock.advance(20)
    await set_workers(store, True)
    await servers[1].look()
    got = [notice for server in servers for notice in server.got]
    assert [notice.state for notice in got] == ["firing", "resolved"], "the other target does not wait"
    for server in servers:
        server.refuses = set()
        server.got.clear()
    for _ in range(30):
        for server in servers:
            await server.look()
        clock.advance(EVERY_S)
    assert sorted(states(servers)) == ["firing", "resolved"]
    assert states([server for server in servers if server.got]) == ["firing", "resolved"], "one sent both, in order"
    lines = [line for line in caplog.messages if " is " in line and line.startswith("alert a is")]
    assert len(lines) == 2, "each is in the log once, however often it was sent"


async def test_a_notice_that_comes_while_another_is_on_its_way_waits_for_it(
    store: MemoryStore, clock: ManualClock
) -> None:
    server, got, free = Server(store, clock, NoWorker(), targets=0), list[str](), asyncio.Event()

    async def slow(notice: Notice) -> None:
        if notice.state == "firing":
            await free.wait()
        got.append(notice.state)

    server.app.alert("slow", when=NoWorker(), to=[slow])
    await server.loop.once()
    await set_workers(store, True)
    for _ in range(3):
        await server.loop.once()
        clock.advance(EVERY_S)
    assert got == []
    free.set()
    await server.loop.sent()
    assert got == ["firing", "resolved"]


async def test_a_server_that_stops_leaves_what_it_sends_to_the_next_at_once(
    store: MemoryStore, clock: ManualClock
) -> None:
    stopping, other = Server(store, clock, NoWorker()), Server(store, clock, NoWorker())
    begun, ended = asyncio.Event(), list[bool]()

    async def hang(_: Notice) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    hang.__qualname__ = other.app.alerts.watches["a"].to[0].__qualname__  # type: ignore[union-attr]
    stopping.app.alerts.watches.clear()
    stopping.app.alert("a", when=NoWorker(), to=[hang])
    running = asyncio.create_task(stopping.loop.run())
    await begun.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert ended == [True], "nothing goes on behind its back"
    await other.look()
    assert states([other]) == ["firing"]


async def test_who_has_a_notice_is_known_by_name_and_not_by_place(store: MemoryStore, clock: ManualClock) -> None:
    got: list[str] = []

    async def first(_: Notice) -> None:
        got.append("first")

    async def second(_: Notice) -> None:
        got.append("second")
        if got.count("second") == 1:
            raise ConnectionError

    old, new = (Server(store, clock, NoWorker()) for _ in range(2))
    for server, to in ((old, [first, second]), (new, [second, first])):
        server.app.alerts.watches.clear()
        server.app.alert("a", when=NoWorker(), to=to)
    await old.look()
    clock.advance(AGAIN_S)
    await new.look()
    assert sorted(got) == ["first", "second", "second"]


def test_targets_have_names_that_hold_over_processes() -> None:
    def hook(url: str) -> Webhook:
        return Webhook(url, "0123456789abcdef")

    names = list(named_targets([hook("https://a.example/hunter2"), hook("https://a.example/x"), print, print]))
    assert len(set(names)) == 4
    assert names[2:] == ["builtins.print", "builtins.print#2"]
    assert names[:2] == list(named_targets([hook("https://a.example/hunter2"), hook("https://a.example/x")]))
    assert "hunter2" not in "".join(names)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("is_sync", [True, False])
async def test_a_callback_that_wants_to_end_the_server_has_failed(
    store: MemoryStore, clock: ManualClock, error: BaseException, is_sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server, calls = Server(store, clock, NoWorker(), targets=0), 0

    def leaves(_: Notice) -> None:
        nonlocal calls
        calls += 1
        raise error

    async def aleaves(notice: Notice) -> None:
        leaves(notice)

    server.app.alert("leaves", when=NoWorker(), to=[leaves if is_sync else aleaves])
    for _ in range(3):
        await server.look()
    assert calls == 1
    assert "failed: " in caplog.text
    clock.advance(AGAIN_S)
    await server.look()
    assert calls == 2


async def test_a_notice_that_cannot_be_sent_is_dropped_with_a_line(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(store, clock, NoWorker())
    server.refuses = {0}
    for _ in range(12):
        await server.look()
        clock.advance(HOLD_S)
    assert "is dropped, as it could not be sent" in caplog.text
    server.refuses = set()
    await server.look()
    assert server.got == []


async def test_a_spoilt_state_is_begun_anew(store: MemoryStore, clock: ManualClock) -> None:
    await store.exchange(Exchange(changes=[ValueChange("alert:a", 0, b'{"is_firing":')]))
    server = Server(store, clock, NoWorker())
    await server.look()
    assert states([server]) == ["firing"]


async def test_an_alert_that_is_well_leaves_nothing_in_the_store(store: MemoryStore, clock: ManualClock) -> None:
    await set_workers(store, True)
    server = Server(store, clock, NoWorker())
    await server.look()
    assert [value for value in (await store.exchange(Exchange())).values if value.key.startswith("alert:")] == []


async def test_versions_of_an_app_do_not_fire_and_resolve_an_alert_in_turns(
    store: MemoryStore, clock: ManualClock
) -> None:
    old, new = Server(store, clock, DeadLetterGrowth(over=10)), Server(store, clock, DeadLetterGrowth(over=100))
    await count(store, clock, dead=50)
    for _ in range(24):
        for server in (old, new):
            await server.look()
        clock.advance(EVERY_S)
    assert states([old, new]) == ["firing"]
    for _ in range(24):
        await new.look()
        clock.advance(EVERY_S)
    assert (states([old]), states([new])) == (["firing"], ["resolved"])


# ---------------------------------------------------------------- rules on a real store


async def count(store: MemoryStore, clock: ManualClock, **names: int) -> None:
    minute = int(clock.now() // 60)
    await store.exchange(Exchange(counts=[Count(minute, "t", name, n) for name, n in names.items()]))


@pytest.mark.parametrize(
    ("rule", "quiet", "loud"),
    [
        (ErrorRate(over=0.10), {"completed": 90, "failed": 5, "retried": 5}, {"failed": 1}),
        (ErrorRate(over=0.10), {"failed": 9}, {"failed": 1}),
        (DeadLetterGrowth(over=50), {"dead": 50}, {"dead": 1}),
        (HealthScore(under=0.5), {"completed": 9, "failed": 45}, {"failed": 1}),
    ],
    ids=str,
)
async def test_rules_over_counts(
    store: MemoryStore, clock: ManualClock, rule: Rule, quiet: dict[str, int], loud: dict[str, int]
) -> None:
    server = Server(store, clock, rule)
    await count(store, clock, **quiet)
    await server.look()
    assert server.got == []
    await count(store, clock, **loud)
    await server.look()
    assert states([server]) == ["firing"]
    clock.advance(3600)
    await server.look()
    assert states([server]) == ["firing", "resolved"]


@pytest.mark.parametrize("window", [60, 90, 300])
@pytest.mark.parametrize("for_s", [0, 30])
async def test_a_steady_trouble_is_one_alert_however_short_the_window(
    store: MemoryStore, clock: ManualClock, window: float, for_s: float
) -> None:
    server = Server(store, clock, ErrorRate(window=window), for_s=for_s)
    server.app.alert("dead", when=DeadLetterGrowth(over=30, window=window), for_s=for_s, to=[server.target(0)])
    for _ in range(240):  # 36 a minute
        await count(store, clock, failed=3, dead=3)
        await server.look()
        clock.advance(EVERY_S)
    assert sorted((notice.name, notice.state) for notice in server.got) == [("a", "firing"), ("dead", "firing")]


@pytest.mark.parametrize("second", [0, 1, 30, 58, 59])
async def test_what_happens_at_once_counts_for_the_whole_window(
    store: MemoryStore, clock: ManualClock, second: int
) -> None:
    clock.advance(60 - clock.now() % 60 + second)
    server = Server(store, clock, ErrorRate(window=60))
    server.app.alert("dead", when=DeadLetterGrowth(over=50, window=60), to=[server.target(0)])
    await count(store, clock, failed=10, dead=51)
    clock.advance(4)
    for _ in range(11):
        await server.look()
        assert sorted(notice.name for notice in server.got) == ["a", "dead"], "and nothing is over"
        clock.advance(EVERY_S)
    clock.advance(120)
    await server.look()
    assert sorted(states([server])) == ["firing", "firing", "resolved", "resolved"]


async def test_rules_over_what_there_is(store: MemoryStore, clock: ManualClock) -> None:
    server = Server(store, clock, DeadLetters(over=0))
    server.app.alert("lag", when=Lag(over=60), to=[server.target(0)])
    server.app.alert("mail", when=Lag(over=60, queue="mail"), to=[server.target(0)])
    server.app.alert("breaker", when=BreakerOpen(longer_than=60), to=[server.target(0)])
    server.app.alert("other", when=BreakerOpen(longer_than=60, key="other"), to=[server.target(0)])

    @server.app.task(name="fails", breaker=None)
    def fails() -> None:
        raise Permanent("no")

    await fails.aenqueue()
    await server.app.arun_until_idle()
    await fails.aenqueue()
    await server.app.breakers.aforce_open("db")
    await server.look()
    assert [notice.name for notice in server.got] == ["a"]
    clock.advance(61)
    await server.look()
    assert sorted(notice.name for notice in server.got) == ["a", "breaker", "lag"]
    views = {view.name: view for view in await server.app.alerts.alist()}
    assert {name: view.is_firing for name, view in views.items()} == {
        "a": True,
        "breaker": True,
        "lag": True,
        "mail": False,
        "other": False,
    }
    assert (views["breaker"].value, views["breaker"].text) == (61, "not closed for 61 s: db; the limit is 60 s")
    assert views["lag"].since_at == clock.now()
    assert views["mail"].since_at is None


async def test_an_app_without_alerts_asks_nothing(store: MemoryStore, clock: ManualClock) -> None:
    server = Server(store, clock, NoWorker())
    server.app.alerts.watches.clear()
    await server.look()
    assert await server.app.alerts.alist() == []
    assert server.store.calls == {}


# ---------------------------------------------------------------- the store away


@pytest.mark.parametrize("fault", ["away", "hang"])
async def test_every_server_tells_by_itself_that_the_store_is_away(
    store: MemoryStore, clock: ManualClock, fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await set_workers(store, True)
    server = Server(store, clock, NoWorker())
    server.store.fail(fault=fault)

    async def look() -> None:
        looking, is_over = asyncio.create_task(server.loop.once()), False
        while not looking.done():
            if server.store.waiting["exchange"] and not is_over:
                clock.advance(EVERY_S)
                is_over = True
            await asyncio.sleep(0)  # noqa: TID251 - only lets others run
        await server.loop.sent()
        if not is_over:
            clock.advance(EVERY_S)

    await look()
    assert server.got == [], "its last answer could have come 5 s ago"
    await look()
    await look()
    (notice,) = server.got
    assert notice.value == AWAY_S
    assert (notice.name, notice.state, notice.threshold) == ("store away", "firing", AWAY_S)
    why = {"away": "holdfast.errors.StoreAway: no connection", "hang": "no answer within 5 s"}[fault]
    assert re.fullmatch(rf"the store has not answered for \d+ s: {why}", notice.text)
    began_s = clock.monotonic()
    server.store.mend()
    clock.advance(100)
    await look()
    await look()
    assert states([server]) == ["firing", "resolved"]
    assert 100 <= (server.got[1].value or 0) <= began_s + 100
    assert "alert store away is firing" in caplog.text


async def test_a_store_is_away_ten_seconds_after_its_last_answer(store: MemoryStore, clock: ManualClock) -> None:
    server = Server(store, clock, NoWorker())
    await server.look()
    server.got.clear()
    server.store.fail()
    for seconds in (5.0, 4.9):
        clock.advance(seconds)
        await server.look()
        assert server.got == []
    clock.advance(0.1)
    await server.look()
    assert [(notice.name, notice.value) for notice in server.got] == [("store away", AWAY_S)]


async def test_what_is_told_of_the_store_is_tried_until_it_is_taken_and_in_order(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await set_workers(store, True)
    server = Server(store, clock, NoWorker(), targets=2)
    server.store.fail()
    server.refuses = {0}
    for _ in range(400):
        await server.look()
        clock.advance(EVERY_S)
    assert [notice.state for notice in server.got] == ["firing"], "the other target has it"
    assert caplog.text.count("ConnectionError") == 34, "after 10 s, and every minute from then on to 1990 s"
    server.store.mend()
    await server.look()
    assert [notice.state for notice in server.got] == ["firing", "resolved"]
    server.refuses = set()
    clock.advance(AGAIN_S)
    await server.look()
    assert [notice.state for notice in server.got] == ["firing", "resolved"] * 2
    assert len({notice.id for notice in server.got}) == 2
    assert caplog.text.count("alert store away is") == 2, "each is in the log once"


async def test_a_store_that_stays_away_is_reminded_of(store: MemoryStore, clock: ManualClock) -> None:
    await set_workers(store, True)
    server = Server(store, clock, NoWorker(), repeat_s=600)
    server.app.alert("b", when=NoWorker(), repeat_s=100)
    server.app.alert("c", when=NoWorker())
    server.store.fail()
    for _ in range(45):
        await server.look()
        clock.advance(EVERY_S)
    assert [notice.is_reminder for notice in server.got] == [False, True, True]
    assert [notice.value for notice in server.got] == [10, 110, 210]
    silent = Server(store, clock, NoWorker())
    silent.store.fail()
    for _ in range(45):
        await silent.look()
        clock.advance(EVERY_S)
    assert len(silent.got) == 1


async def test_a_slow_health_check_delays_no_other_rule_and_is_no_store_that_is_away(store: MemoryStore) -> None:
    clock = ManualClock(auto=False)
    server = Server(store, clock, NoWorker())
    begun, free = 0, asyncio.Event()

    @server.app.health_check("slow", timeout=120.0, critical=True)
    async def slow() -> bool:
        nonlocal begun
        begun += 1
        await free.wait()
        return False

    server.app.alert("score", when=HealthScore(), to=[server.target(0)])
    for _ in range(5):
        began_s, looking = clock.monotonic(), asyncio.create_task(server.loop.once())
        while not looking.done():
            await asyncio.sleep(0)  # noqa: TID251 - only lets others run
            clock.advance(0.001)
        await server.loop.sent()
        assert clock.monotonic() - began_s < 2.5
        assert [notice.name for notice in server.got] == ["a"]
        clock.advance(EVERY_S)
    assert begun == 1
    free.set()
    await server.look()
    assert [(notice.name, notice.value) for notice in server.got] == [("a", 0), ("score", 0)]


async def test_a_score_that_is_not_known_yet_does_not_end_an_alert(store: MemoryStore) -> None:
    clock = ManualClock(auto=False)
    server = Server(store, clock, HealthScore())
    free = asyncio.Event()
    free.set()

    @server.app.health_check("ill", timeout=120.0, critical=True)
    async def ill() -> bool:
        await free.wait()
        return False

    await server.look()
    free.clear()
    looking = asyncio.create_task(server.loop.once())
    while not looking.done():
        await asyncio.sleep(0)  # noqa: TID251 - only lets others run
        clock.advance(0.001)
    assert states([server]) == ["firing"]
    free.set()
    await server.look()
    assert states([server]) == ["firing"]


# ---------------------------------------------------------------- callbacks and the loop


async def test_a_sync_callback_runs_on_a_thread(store: MemoryStore, clock: ManualClock) -> None:
    server = Server(store, clock, NoWorker(), targets=0)
    where: list[threading.Thread] = []
    server.app.alert("sync", when=NoWorker(), to=[lambda _: where.append(threading.current_thread())])
    await server.look()
    assert len(where) == 1
    assert where[0] is not threading.main_thread()


@pytest.mark.parametrize("is_sync", [True, False])
async def test_a_callback_that_hangs_is_given_up_and_only_an_async_one_is_called_again(
    store: MemoryStore, clock: ManualClock, is_sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server, begun, free = Server(store, clock, NoWorker(), targets=0), [], threading.Event()

    def hangs(notice: Notice) -> None:
        begun.append(notice.id)
        free.wait(60)

    async def ahangs(notice: Notice) -> None:
        begun.append(notice.id)
        await asyncio.Event().wait()

    server.app.alert("slow", when=NoWorker(), to=[hangs if is_sync else ahangs])

    async def look(times: int) -> None:
        await server.loop.once()
        while len(begun) < times:
            await asyncio.sleep(0)  # noqa: TID251 - only lets others run
        clock.advance(90)
        await server.loop.sent()
        clock.advance(AGAIN_S)

    await look(1)
    assert "did not end" in caplog.text
    await look(1 if is_sync else 2)
    free.set()
    assert len(begun) == (1 if is_sync else 2)
    assert len(set(begun)) == 1


async def test_the_log_gets_every_notice(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(store, clock, NoWorker(), targets=0)
    caplog.set_level(logging.INFO)
    await server.look()
    await set_workers(store, True)
    await server.look()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "holdfast.alerts"]
    assert lines == [
        ("WARNING", "alert a is firing: no worker is alive"),
        ("INFO", "alert a is resolved: workers alive: 1"),
    ]


async def test_the_loop_goes_on_after_anything(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(store, clock, NoWorker())
    real, told = server.app.alerts.look, asyncio.Event()
    server.got = _Telling(told)

    async def breaks() -> Any:
        server.app.alerts.look = real  # type: ignore[method-assign]
        raise ZeroDivisionError("once")

    server.app.alerts.look = breaks  # type: ignore[method-assign]
    running = asyncio.create_task(server.loop.run())
    await told.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "the alerts could not be looked at" in caplog.text


class _Telling(list[Notice]):
    def __init__(self, told: asyncio.Event) -> None:
        super().__init__()
        self._told = told

    def append(self, notice: Notice) -> None:
        super().append(notice)
        self._told.set()


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": ""}, "name='': must be printable text"),
        ({"name": "store away"}, "name='store away': this alert is there by itself"),
        ({"when": 7}, "when=7: must be a rule of holdfast.alerts: ErrorRate, HealthScore"),
        ({"to": "https://example.com"}, "to='https://example.com': must be a list of functions and Webhooks"),
        ({"to": ["https://example.com"]}, "to='https://example.com': must be a function of a notice, or a Webhook"),
        ({"for_s": -1}, "for_s=-1: must be a number"),
    ],
)
def test_an_alert_that_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"name": "a", "when": NoWorker(), **settings}
    with pytest.raises(ConfigError) as caught:
        App("memory://").alert(given.pop("name"), **given)
    assert str(caught.value).startswith(words)


def test_a_name_is_taken_once() -> None:
    app = App("memory://")
    app.alert("a", when=NoWorker())
    app.alert("a", when=NoWorker())  # a module that is loaded again
    with pytest.raises(HoldfastError, match="two alerts are named 'a'"):
        app.alert("a", when=DeadLetters())
