"""`doctor`: every check can fail, and says what would help."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from msgspec.structs import replace

from holdfast.app.streams import StreamLag
from holdfast.errors import StoreAway
from holdfast.ops.checks import Check, Findings, machine_checks, store_checks, stream_checks, task_check
from holdfast.ports import Capabilities, Lag, Stats, Tally, WorkerRecord
from holdfast.stores.memory import MemoryStore
from holdfast.types import BreakerMode, JobState

if TYPE_CHECKING:
    from tests.unit.ops.conftest import Shop

NOW = 1_000_000.0
WORKER = WorkerRecord(id="w", lease_s=30.0, running=2)
WELL = Findings(
    capabilities=Capabilities(
        name="sqlite",
        location="/shop.db",
        is_durable=True,
        is_shared=True,
        has_transactions=True,
        version="SQLite 3.54",
        schema="tables holdfast_…, version 1",
        durability="all of it",
    ),
    stats=Stats(now=NOW, workers=[WORKER], oldest_ready_at={"default": NOW - 10}),
    breakers={"mailer": BreakerMode.CLOSED},
    apart_s=0.2,
    took_s=[0.001, 0.002, 0.5],
    free=10**10,
    log=1000,
)


def test_a_stream_says_how_far_behind_it_is_or_why_its_server_does_not() -> None:
    behind = Lag(topic="orders", partition=0, lag=7)
    well = StreamLag(name="bill", group="billing", topic="orders", location="kafka://shop/orders", partitions=[behind])
    ill = replace(well, name="ship", partitions=(), error="no broker answers")
    first, second = stream_checks([well, ill])
    assert (first.is_ok, first.text) == (True, "kafka://shop/orders as billing: 7 messages behind")
    assert (second.is_ok, second.name, second.text) == (False, "stream ship", "no broker answers")


def wrong(found: Findings) -> list[Check]:
    return [check for check in store_checks(found) if not check.is_ok]


def stats(**fields: Any) -> dict[str, Any]:
    return {"stats": replace(WELL.stats, **fields)}


def test_all_is_well() -> None:
    assert wrong(WELL) == []
    assert all(check.is_ok for check in machine_checks())


@pytest.mark.parametrize(
    ("change", "name", "text"),
    [
        ({"capabilities": replace(WELL.capabilities, is_durable=False)}, "durability", "not durable: all of it"),
        ({"took_s": [0.001, 0.2, 0.5]}, "latency", "p50 200.0 ms, max 500.0 ms"),
        ({"free": 10**8}, "disk", "100.0 MB free"),
        ({"log": 10**9}, "log", "1.0 GB of write-ahead log"),
        ({"apart_s": 3600.0}, "clock", "the store's clock is 1h ahead of this machine's"),
        ({"apart_s": -1.5}, "clock", "the store's clock is 2s behind this machine's"),
        (stats(workers=[], tallies=[Tally("q", "t", JobState.RETRYING, 3)]), "workers", "none, and 3 jobs to do"),
        (stats(oldest_ready_at={"mail": NOW - 600}), "stuck jobs", "in mail (due 10m ago)"),
        (stats(tallies=[Tally("q", "t", JobState.DEAD_LETTER, 4)]), "dead letters", "4"),
        ({"breakers": {"mailer": BreakerMode.OPEN}}, "breakers", "mailer (open)"),
        ({"breakers": {"mailer": BreakerMode.DISABLED}}, "breakers", "mailer (disabled)"),
        ({"paused": ("mail", "slow")}, "queues", "paused: mail, slow"),
    ],
)
def test_what_is_wrong_is_found_with_what_would_help(change: dict[str, Any], name: str, text: str) -> None:
    (check,) = wrong(replace(WELL, **change))
    assert (check.name, check.text.startswith(text)) == (name, True)
    assert check.help


def test_every_warning_of_a_store_is_told() -> None:
    found = replace(WELL, capabilities=replace(WELL.capabilities, warnings=("evicts", "no AOF")))
    assert [(check.name, check.text) for check in wrong(found)] == [("warning", "evicts"), ("warning", "no AOF")]


def test_no_workers_and_nothing_to_do_is_no_trouble() -> None:
    done = stats(workers=[], tallies=[Tally("q", "t", JobState.COMPLETED, 3)])
    assert wrong(replace(WELL, **done)) == []


def test_jobs_in_a_paused_queue_are_not_stuck() -> None:
    found = replace(WELL, paused=("mail",), **stats(oldest_ready_at={"mail": NOW - 600}))
    assert [check.name for check in wrong(found)] == ["queues"]


def test_an_old_sqlite_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.46.0")
    assert [check.name for check in machine_checks() if not check.is_ok] == ["SQLite"]


def test_jobs_of_unknown_tasks_are_found_unless_they_are_done() -> None:
    tallies = [Tally("q", "gone", JobState.QUEUED, 2), Tally("q", "old", JobState.COMPLETED, 5)]
    found = replace(WELL, **stats(tallies=[*tallies, Tally("q", "gone", JobState.DEAD_LETTER, 1)]))
    assert task_check(found, {"known"}).text == "the app does not know gone (3 jobs)"
    assert task_check(found, {"known", "gone"}).is_ok


def test_a_healthy_shop_is_well(shop: Shop) -> None:
    shop.enqueue('{"order_id": 1}')
    shop.work()
    seen = shop.json("doctor", "--app", "shop:app")
    assert seen["is_ok"] is True
    assert [one["name"] for one in seen["checks"]][:4] == ["Python", "SQLite", "app", "store"]
    told = shop.cli("doctor", "sqlite:///shop.db").stdout
    assert "✓ workers       none, and nothing to do\n" in told
    assert "✓ latency       p50 " in told
    assert f"{shop.folder}/shop.db (SQLite " in told
    assert "✓ durability    " in told
    assert "✓ schema        tables holdfast_…, version 4\n" in told


def test_a_sick_shop_is_told_and_ends_with_1(shop: Shop) -> None:
    shop.dead_letters(500)
    told = shop.cli("doctor", code=1).stdout
    assert "✗ dead letters  1\n" in told
    assert "→ holdfast dlq groups\n" in told


def test_what_cannot_be_looked_at_is_wrong_too(shop: Shop) -> None:
    (shop.folder / "bad.db").write_text("no database at all" * 1000)
    for words, name, text in (
        (["--url", "sqlite:///nothing.db"], "store", "there is no store at"),
        (["--url", "sqlite:///bad.db"], "store", "not a SQLite database"),
        (["--app", "nowhere:app"], "app", "No module named 'nowhere'"),
        (["mysql://u:secret@host/db"], "store", "mysql://u:…@host/db"),
        (["memory://"], "store", "lives and ends with one process"),
    ):
        seen = shop.json("doctor", *words, code=1)
        assert any(one["name"] == name and text in one["text"] for one in seen["checks"] if not one["is_ok"])
    assert not (shop.folder / "nothing.db").exists()


def test_the_store_is_given_once(shop: Shop) -> None:
    assert "give the store once" in shop.cli("doctor", "memory://", "--url", "memory://", code=2).stderr


def test_a_missing_package_is_told_with_the_line_to_type(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    told = shop.cli("doctor", "postgresql://u:secret@host/db", code=1).stdout
    assert "pip install 'holdfast[postgres]', or in a checkout pip install '.[postgres]'" in told
    assert "secret" not in told


class AwayStore(MemoryStore):
    """Cannot be reached."""

    @property
    def capabilities(self) -> Capabilities:
        raise StoreAway("db.example:5432: connection refused; is the server running?")


def test_a_server_that_is_away_is_told_in_its_own_line(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.app.app.open_store", lambda url, clock: AwayStore())
    seen = shop.json("doctor", "redis://db.example", code=1)
    (check,) = [one for one in seen["checks"] if not one["is_ok"]]
    assert not check["help"], "its own line says what would help"
    assert (check["name"], check["text"]) == ("store", "db.example:5432: connection refused; is the server running?")
