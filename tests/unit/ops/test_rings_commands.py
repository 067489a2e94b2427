"""`holdfast rings`, and what `holdfast dlq` shows of elements that were given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.ops.checks import store_checks, task_check
from holdfast.ports import ConsumerReport, Exchange, Stats, Tally, ValueChange
from holdfast.ring.checkpoints import Checkpoint, file_checkpoints, store_checkpoints
from holdfast.testing import ManualClock
from holdfast.types import JobState
from tests.unit.ops.conftest import Shop
from tests.unit.ops.test_doctor import WELL, stats
from tests.unit.ringed import consumer, process_with, ring_letter, ring_report, turning

AT = Checkpoint(offset=4100, batch=12, processed=4000)


def report(shop: Shop) -> None:
    """A process with a ring: one consumer well, one stuck with a secret in its words."""
    secret = "postgres://shop:canary-53@db/shop"
    ring = ring_report(
        "prices",
        consumer("parse", batches=4, batch_s=0.001, slowest_s=1.5, lag=7, rate_per_s=1234.5),
        consumer("enrich", after=("parse",), is_stuck=True, running_s=61.0, batch=12, checkpoint_error=f"no {secret}"),
        used=512,
        blocked=2,
    )
    app = shop.app
    app.bridge.run(turning(app, ring))
    app.close()


def save(shop: Shop, *consumers: str, ring: str = "prices") -> None:
    """Checkpoints in the shop's store."""
    app = shop.app
    for name in consumers:
        kept = store_checkpoints(app, ring=ring, consumer=name)
        kept.load()
        kept.save(AT)
        kept.close()
    app.close()


def save_file(path: Path) -> None:
    kept = file_checkpoints(path, ring="prices", consumer="enrich", clock=ManualClock())
    kept.load()
    kept.save(AT)
    kept.close()


# ---------------------------------------------------------------- list


def test_every_consumer_has_a_line_without_secrets(shop: Shop) -> None:
    report(shop)
    text = shop.cli("rings").stdout
    head, _, parse, enrich = text.splitlines()
    assert head.split()[:3] == ["ring", "process", "full"]
    assert parse.split()[3:6] == ["50%", "2", "parse"]
    assert parse.split()[6:] == ["7", "1234", "250µs", "1.5s", "0", "0", "0", "0", "idle"]
    assert "stuck at batch 12 for 1m; checkpoint: no postgres://shop:[redacted]@db/shop" in enrich
    (ring,) = shop.json("rings", "list")["items"]
    assert (ring["name"], ring["utilisation"], ring["host"]) == ("prices", 0.5, "mill")
    one, two = ring["consumers"]
    assert (one["state"], one["mean_s"], two["state"], two["after"]) == ("idle", 0.00025, "stuck", ["parse"])
    for words in (["rings", "--json"], ["top", "--json"], ["doctor", "--json"]):
        text = shop.cli(*words, code=int(words[0] == "doctor")).stdout
        assert "[redacted]" in text
        assert "canary-53" not in text


def test_without_rings_it_says_how_to_get_one(shop: Shop) -> None:
    shop.enqueue('{"order_id": 1}')
    assert "Disruptor(…, app=app)" in shop.cli("rings").stderr
    assert shop.json("rings") == {"items": []}
    assert "--file shows one" in shop.cli("rings", "checkpoints").stderr


def test_without_a_store_it_says_which_rings_would_show_here(shop: Shop) -> None:
    told = "shop.db: check --url or --app; a ring shows here where it was given the app: Disruptor(…, app=app)\n"
    for words in (["rings"], ["rings", "list", "--app", "shop:app"], ["rings", "--url", "sqlite:///shop.db", "list"]):
        assert shop.cli(*words, code=1).stderr.endswith(told)
    assert not (shop.folder / "shop.db").exists()


# ---------------------------------------------------------------- checkpoints


def test_checkpoints_of_the_store_are_shown(shop: Shop) -> None:
    save(shop, "parse", "enrich")
    enrich, parse = shop.json("rings", "checkpoints")["items"]
    assert enrich.pop("saved_at") > 0
    assert enrich == {
        "ring": "prices",
        "consumer": "enrich",
        "offset": 4100,
        "batch": 12,
        "processed": 4000,
        "problem": "",
    }
    assert parse["consumer"] == "parse"
    assert "4100" in shop.cli("rings", "checkpoints").stdout


def test_a_checkpoint_in_a_file_is_shown_and_no_store_is_looked_for(shop: Shop) -> None:
    save_file(Path("p.checkpoint"))
    (found,) = shop.json("rings", "checkpoints", "--file", "p.checkpoint")["items"]
    assert (found["ring"], found["consumer"], found["offset"]) == ("prices", "enrich", 4100)
    assert not Path("shop.db").exists()
    assert "there is no file none" in shop.cli("rings", "checkpoints", "--file", "none", code=1).stderr


def test_a_torn_file_is_one_line_and_exit_code_1(shop: Shop) -> None:
    path = Path("p.checkpoint")
    save_file(path)
    path.write_bytes(path.read_bytes()[:-20])
    (line,) = shop.cli("rings", "checkpoints", "--file", str(path), code=1).stderr.splitlines()
    assert "p.checkpoint" in line


def test_one_in_the_store_that_cannot_be_read_is_shown_beside_the_others_with_exit_code_1(shop: Shop) -> None:
    save(shop, "parse")
    app = shop.app
    torn = ValueChange("ring/prices/enrich", 0, b"{")
    app.bridge.run(app.store.exchange(Exchange(changes=(torn,))))
    app.close()
    enrich, parse = shop.json("rings", "checkpoints", code=1)["items"]
    assert (enrich["offset"], parse["offset"], parse["problem"]) == (None, 4100, "")
    assert enrich["problem"]
    assert enrich["problem"] in shop.cli("rings", "checkpoints", code=1).stdout


# ---------------------------------------------------------------- reset


def test_a_reset_asks_first_and_removes_what_was_named(shop: Shop) -> None:
    save(shop, "parse", "enrich")
    save(shop, "write", ring="orders")
    done = shop.cli("rings", "reset", "prices", "enrich", code=1, text="n\n")
    assert "Remove the checkpoints of ring prices: enrich?" in done.stderr
    assert "nothing was removed" in done.stderr
    assert shop.json("rings", "reset", "prices", "enrich", "--yes") == {"removed": ["enrich"]}
    left = [(one["ring"], one["consumer"]) for one in shop.json("rings", "checkpoints")["items"]]
    assert left == [("orders", "write"), ("prices", "parse")]
    assert shop.cli("rings", "reset", "prices", text="y\n").stdout == "1 checkpoint removed\n"


def test_a_reset_says_that_the_ring_runs(shop: Shop) -> None:
    save(shop, "enrich")
    report(shop)
    assert "It runs in 1 process, and stops." in shop.cli("rings", "reset", "prices", code=1, text="n\n").stderr


def test_a_reset_of_a_torn_file_removes_it(shop: Shop) -> None:
    path = Path("p.checkpoint")
    save_file(path)
    path.write_bytes(path.read_bytes()[:-20])
    asked = shop.cli("rings", "reset", "--file", "p.checkpoint", code=1, text="n\n")
    assert "which cannot be read" in asked.stderr
    assert path.exists()
    assert shop.cli("rings", "reset", "--file", "p.checkpoint", "--yes").stdout == "1 checkpoint removed\n"
    assert not path.exists()
    assert "there is no file" in shop.cli("rings", "reset", "--file", "p.checkpoint", "--yes", code=1).stderr


def test_a_file_that_is_in_use_is_left_alone(shop: Shop) -> None:
    kept = file_checkpoints("p.checkpoint", ring="prices", consumer="enrich", clock=ManualClock())
    kept.load()
    kept.save(AT)
    done = shop.cli("rings", "reset", "--file", "p.checkpoint", "--yes", code=1)
    assert "in use" in done.stderr
    assert Path("p.checkpoint").exists()
    kept.close()


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ([], 2, "whose checkpoints? Give RING, or RING and CONSUMER, or --file PATH"),
        (["prices", "--file", "x"], 2, "whose checkpoints?"),
        (["price", "--yes"], 1, "no checkpoint of 'price' is in this store; did you mean prices?"),
        (
            ["prices", "enric", "--yes"],
            1,
            "no checkpoint of 'prices/enric' is in this store; did you mean prices/enrich?",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(shop: Shop, words: list[str], code: int, line: str) -> None:
    save(shop, "enrich")
    done = shop.cli("rings", "reset", *words, code=code)
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ---------------------------------------------------------------- letters and the doctor


def test_elements_are_shown_with_where_they_were_given_up(shop: Shop) -> None:
    app = shop.app
    letter = ring_letter("prices", "enrich", {"sku": 1}, {"sku": 2}, offset=4100)
    app.bridge.run(app.store.enqueue([letter]))
    app.close()
    text = shop.cli("dlq", "show", letter.id).stdout
    assert "prices, consumer enrich" in text
    assert "12, offset 4100, 2 elements" in text
    (found,) = shop.json("dlq", "list")["items"]
    assert found["origin"]["kind"] == "ring"


def test_the_doctor_tells_of_rings_where_there_are_some() -> None:
    def told(*consumers: ConsumerReport) -> tuple[bool, str] | None:
        rings = [ring_report("prices", *consumers)] if consumers else []
        checks = store_checks(replace(WELL, **stats(workers=[process_with(*rings)])))
        return next(((one.is_ok, one.text) for one in checks if one.name == "rings"), None)

    assert told() is None
    assert told(consumer()) == (True, "1 ring, every consumer moves")
    stuck = consumer(is_stuck=True, running_s=61.0, batch=3)
    assert told(stuck) == (False, "ring prices: consumer enrich has been at batch 3 for 61 s")


def test_letters_of_rings_are_no_unknown_tasks() -> None:
    tally = Tally("ring:prices", "prices/enrich", JobState.DEAD_LETTER, 1)
    found = replace(WELL, stats=Stats(now=0.0, tallies=[tally]))
    assert task_check(found, ()).is_ok


def test_the_doctor_says_what_takes_up_letters_that_wait_for_a_ring() -> None:
    def told(*queues: str) -> str:
        late = dict.fromkeys(queues, 0.0)
        found = replace(WELL, stats=Stats(now=1e6, oldest_ready_at=late, workers=[process_with()]))
        return next(one.help for one in store_checks(found) if one.name == "stuck jobs")

    assert told("ring:prices") == "start the program that has the ring prices: no worker takes its letters"
    assert "more workers" in told("ring:prices", "default")
    assert "ring" not in told("default")
