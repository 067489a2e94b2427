"""`breakers`, `queues`, `schedules` and `top`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.console import Console, RenderableType

from holdfast.clock import new_id
from holdfast.errors import StoreAway
from holdfast.ops.commands.top import Looker, Snapshot, drawn, sparkline
from holdfast.ports import WorkerRecord

if TYPE_CHECKING:
    from tests.unit.ops.conftest import Shop

top_module = importlib.import_module("holdfast.ops.commands.top")


@pytest.fixture
def open_shop(shop: Shop) -> Shop:
    """The shop with a job in its store."""
    shop.enqueue('{"order_id": 1}')
    return shop


def test_breakers_are_listed_alone_or_by_name(open_shop: Shop) -> None:
    assert open_shop.cli("breakers").stderr == "no breakers\n"
    keys = [one["key"] for one in open_shop.json("breakers", "--app", "shop:app")["items"]]
    assert keys == ["mailer", "shop.charge"]
    assert "mailer" in open_shop.cli("breakers", "list", "--app", "shop:app").stdout


def test_breakers_are_forced_open_disabled_and_reset(open_shop: Shop) -> None:
    told = open_shop.cli("breakers", "force-open", "mailer", "--app", "shop:app")
    assert told.stdout == "breaker mailer is forced_open\n"
    assert "reset it first" in open_shop.cli("breakers", "disable", "mailer", code=1).stderr
    assert open_shop.json("breakers", "reset", "mailer")["mode"] == "closed"
    assert open_shop.json("breakers", "disable", "mailer")["mode"] == "disabled"
    assert "disabled" in open_shop.cli("breakers").stdout


def test_a_breaker_that_nobody_has_is_not_made_by_a_slip(open_shop: Shop) -> None:
    done = open_shop.cli("breakers", "force-open", "mialer", "--app", "shop:app", code=1)
    assert "there is no breaker 'mialer': did you mean mailer?" in done.stderr
    assert open_shop.json("breakers")["items"] == []


def test_a_breaker_that_has_not_failed_yet_is_changed_by_its_key_alone(open_shop: Shop) -> None:
    done = open_shop.cli("breakers", "force-open", "mailer")
    assert done.stdout == "breaker mailer is forced_open\n"
    assert "no breaker 'mailer' was seen here before" in done.stderr
    assert open_shop.cli("breakers", "reset", "mailer").stderr == ""


def test_queues_are_listed_paused_and_resumed(open_shop: Shop) -> None:
    (queue,) = open_shop.json("queues")["items"]
    assert (queue["name"], queue["depth"], queue["states"]) == ("default", 1, {"queued": 1})
    assert open_shop.cli("queues", "pause", "default").stdout == "queue default is paused\n"
    assert "paused" in open_shop.cli("queues", "list").stdout.splitlines()[-1]
    open_shop.work()
    assert open_shop.json("queues")["items"][0]["states"] == {"queued": 1}
    assert open_shop.json("queues", "resume", "default") == {"name": "default", "is_paused": False}
    open_shop.work()
    assert open_shop.json("queues")["items"][0]["states"] == {"completed": 1}


def test_a_slip_in_a_queues_name_is_noticed(open_shop: Shop) -> None:
    assert "there are no jobs in a queue 'defualt'" in open_shop.cli("queues", "pause", "defualt").stderr
    assert "queue 'default' was not paused" in open_shop.cli("queues", "resume", "default").stderr


def test_schedules_are_listed_paused_and_resumed(open_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["shop:app"], ["shop.py"], ["list", "shop:app"]):
        (one,) = open_shop.json("schedules", *words)["items"]
        assert (one["name"], one["task"], one["is_paused"]) == ("nightly", "shop.charge", False)
    assert open_shop.cli("schedules", "pause", "shop:app", "nightly").stdout == "schedule nightly is paused\n"
    assert open_shop.json("schedules", "shop:app")["items"][0]["next_at"] is None
    assert open_shop.json("schedules", "resume", "shop:app", "nightly")["is_paused"] is False
    assert "did you mean nightly?" in open_shop.cli("schedules", "pause", "shop:app", "nighly", code=1).stderr
    assert "which app?" in open_shop.cli("schedules", code=2).stderr
    monkeypatch.setenv("HOLDFAST_APP", "shop:app")
    assert "nightly" in open_shop.cli("schedules").stdout


def test_top_looks_once_without_a_terminal(open_shop: Shop) -> None:
    told = open_shop.cli("top").stdout
    assert str(open_shop.folder / "shop.db") in told
    assert "queued 1" in told
    assert "no worker is running" in told
    seen = open_shop.json("top")
    assert (seen["jobs"]["queued"], seen["workers"], seen["groups"]) == (1, [], [])


def test_top_looks_as_often_as_it_is_told(open_shop: Shop) -> None:
    lines = open_shop.cli("top", "--json", "--count", "3", "--every", "0s").stdout.splitlines()
    assert [msgspec.json.decode(line)["jobs"]["queued"] for line in lines] == [1, 1, 1]


class Leaving(Looker):
    """The store is away at the second look."""

    looks = 0

    def look(self) -> Snapshot:
        self.looks += 1
        if self.looks == 2:
            raise StoreAway("db.example: cannot be reached")
        return super().look()


def test_top_goes_on_when_the_store_was_away(open_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_module, "Looker", Leaving)
    done = open_shop.cli("top", "--json", "--count", "3", "--every", "0s")
    assert [msgspec.json.decode(line)["jobs"]["queued"] for line in done.stdout.splitlines()] == [1, 1]
    assert done.stderr == "the store is away, and is asked again: db.example: cannot be reached\n"


def test_live_top_shows_the_last_numbers_until_the_store_is_back(
    open_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    screens: list[str] = []

    def draw(one: Snapshot, away: str = "") -> RenderableType:
        screens.append(text_of(one, away=away))
        return drawn(one, away)

    monkeypatch.setattr(top_module, "drawn", draw)
    app = open_shop.app
    top_module._live(app, Leaving(app), 0.0, 3)
    app.close()
    assert all("queued 1" in screen for screen in screens)
    assert ["the store is away" in screen for screen in screens] == [False, True, False]


def test_top_shows_what_is_wrong_and_no_markup_of_users(shop: Shop) -> None:
    shop.dead_letters(500, 700)
    shop.cli("breakers", "force-open", "mailer", "--app", "shop:app")
    told = shop.cli("top").stdout
    assert "forced_open" in told
    assert "declined \\x1b[31m[bold]" in told


def test_workers_and_rates_are_drawn(shop: Shop) -> None:
    shop.dead_letters(5)
    seen = Looker(shop.app).look()
    shop.app.close()
    minute = int(seen.now // 60)
    worker = WorkerRecord(id="w1", lease_s=30.0, host="[red]box", pid=7, running=3, seen_at=seen.now, started_at=0.0)
    busy = msgspec.structs.replace(
        seen,
        workers=[worker],
        minute={"completed": 1234},
        per_minute=[(minute - 1, {"completed": 8}), (minute, {"completed": 1})],
    )
    told = text_of(busy)
    assert "[red]box 7" in told
    assert "completed 1,234" in told
    assert "(the last full one)" in told
    assert sparkline(busy).endswith("█▂  completed a minute, at most 8")
    assert sparkline(msgspec.structs.replace(seen, per_minute=[])) == ""


@pytest.mark.parametrize("width", [80, 100])
def test_top_wraps_no_line_and_tears_no_number_from_its_name(shop: Shop, width: int) -> None:
    shop.dead_letters(*[500] * 3)
    seen = Looker(shop.app).look()
    shop.app.close()
    many = dict.fromkeys(seen.jobs, 1234567)
    worker = WorkerRecord(id=new_id(), lease_s=30.0, host="a-host-with-a-long-name.example", pid=7, queues=("a",) * 20)
    told = text_of(
        msgspec.structs.replace(seen, jobs=many, workers=[worker], store="/srv" * 50, minute=dict.fromkeys("ab", 5)),
        width,
    )
    assert max(map(len, told.splitlines())) <= width
    assert all(f"{name} 1,234,567" in told for name in many)
    assert sum("permanent" in line for line in told.splitlines()) == 1
    assert seen.groups[0].fingerprint[:10] in told
    assert worker.id[:13] in told


def text_of(snapshot: Snapshot, width: int = 200, away: str = "") -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(drawn(snapshot, away))
    return capture.get()
