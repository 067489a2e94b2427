"""Rings as they are seen from elsewhere: out of heartbeats and the inbox."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.clock import new_id
from holdfast.errors import CheckpointError, ConfigError, NotFound, RingStuck
from holdfast.ports import Operation, Stats, Tally
from holdfast.runtime.rings import ConsumerView, ring_views
from holdfast.types import Change, JobState, NewJob
from tests.unit.ringed import consumer, process_with, ring_letter, ring_report, turning

STUCK = consumer("enrich", is_stuck=True, running_s=61.4, batch=12, lag=900)


def test_a_ring_is_there_once_for_each_process_that_has_it_by_name_and_process() -> None:
    stats = Stats(
        now=0.0,
        workers=[
            process_with(ring_report("b"), ring_report("a", used=256), pid=9, seen_at=4.0),
            process_with(ring_report("a"), pid=7),
            process_with(),
        ],
    )
    found = ring_views(stats)
    assert [(view.name, view.host, view.pid) for view in found] == [
        ("a", "mill", 7),
        ("a", "mill", 9),
        ("b", "mill", 9),
    ]
    assert (found[1].utilisation, found[1].seen_at) == (0.25, 4.0)


def test_a_consumer_has_its_letters_of_the_inbox_and_nobody_elses() -> None:
    dead = JobState.DEAD_LETTER
    stats = Stats(
        now=0.0,
        workers=[process_with(ring_report("prices", consumer("enrich", dead_letters=1), consumer("write")))],
        tallies=[
            Tally("ring:prices", "prices/enrich", dead, 3),
            Tally("ring:prices", "prices/enrich", JobState.QUEUED, 4),
            Tally("ring:prices", "prices/other", dead, 5),
        ],
    )
    enrich, write = ring_views(stats)[0].consumers
    assert (enrich.in_inbox, enrich.dead_letters, write.in_inbox) == (3, 1, 0)


@pytest.mark.parametrize(
    ("view", "state"),
    [
        (ConsumerView(name="c"), "idle"),
        (ConsumerView(name="c", running_s=0.1), "running"),
        (ConsumerView(name="c", running_s=9.0, doing="waiting for a retry"), "waiting"),
        (ConsumerView(name="c", running_s=99.0, doing="waiting for a retry", is_stuck=True), "stuck"),
    ],
)
def test_a_consumer_says_what_it_is_at(view: ConsumerView, state: str) -> None:
    assert view.state == state


def test_the_mean_time_of_batches_is_not_known_before_the_first() -> None:
    assert ConsumerView(name="c").mean_s is None
    assert ConsumerView(name="c", batches=4, batch_s=1.0).mean_s == 0.25


# ---------------------------------------------------------------- the desk


async def test_the_desk_lists_what_live_processes_report() -> None:
    app = App("memory://")
    assert await app.rings.alist() == []
    process = await turning(app, ring_report("prices", consumer("enrich", lag=4, after=("parse",), offset=7)))
    await app.store.enqueue([ring_letter("prices", "enrich", 1, 2)])
    (view,) = await app.rings.alist()
    assert (view.name, view.worker) == ("prices", process.id)
    (enrich,) = view.consumers
    assert (enrich.lag, enrich.after, enrich.offset, enrich.in_inbox) == (4, ("parse",), 7, 1)


def test_a_check_of_ones_own_asks_for_some_rings() -> None:
    app = App("memory://")
    app.bridge.run(turning(app, ring_report("prices", STUCK), ring_report("orders", consumer())))
    app.rings.check(["orders"])
    app.rings.check("orders")
    with pytest.raises(RingStuck) as caught:
        app.rings.check()
    assert caught.value.left == {"prices/enrich": 900}
    with pytest.raises(NotFound, match="no live process reports a ring 'none'"):
        app.rings.check(["none"])


# ---------------------------------------------------------------- health


async def test_an_app_without_rings_has_no_check_of_them() -> None:
    app = App("memory://")
    assert "rings" not in (await app.ahealth()).checks
    with pytest.raises(ConfigError, match="rings"):
        app.health_check("rings", lambda: None)


async def test_a_process_of_a_ring_is_no_worker_for_jobs_that_are_due() -> None:
    app = App("memory://")
    await turning(app, ring_report("prices"))
    assert (await app.ahealth()).reasons == ()
    letter = ring_letter("prices", "enrich", 1)
    await app.store.enqueue([letter])
    await app.store.change(Operation(change=Change.REPLAY, ids=[letter.id]))
    health = await app.ahealth()
    assert (health.reasons, health.workers) == ((), 0), "letters of its own it takes"
    await app.store.enqueue([NewJob(id=new_id(), task="charge", payload=b"{}")])
    assert (await app.ahealth()).reasons == ("jobs are due and no worker is alive",)


async def test_rings_that_move_are_well() -> None:
    app = App("memory://")
    await turning(
        app, ring_report("prices", consumer(running_s=29.0, doing="waiting for a retry"), blocked=3, used=1024)
    )
    assert (await app.ahealth()).checks["rings"].status == "ok"


async def test_a_stuck_consumer_makes_the_app_less_well_and_is_named() -> None:
    app = App("memory://")
    await turning(app, ring_report("prices", consumer("parse"), STUCK))
    health = await app.ahealth()
    assert health.checks["rings"].error == (
        "holdfast.errors.RingStuck: ring prices: consumer enrich has been at batch 12 for 61 s"
    )
    assert (health.status, health.healthy, health.reasons) == ("degraded", True, ("check rings failed",))


async def test_a_checkpoint_that_cannot_be_saved_is_told_in_one_line_without_secrets() -> None:
    app = App("memory://")
    error = "cannot write\npostgres://shop:canary-53@db/shop " + "x" * 500
    await turning(app, ring_report("prices", consumer("enrich", checkpoint_error=error)))
    told = (await app.ahealth()).checks["rings"].error or ""
    assert told.startswith(
        "holdfast.errors.CheckpointError: ring prices: the checkpoint of consumer enrich cannot be saved: cannot write "
    )
    assert "canary-53" not in told
    assert len(told) < 400
    with pytest.raises(CheckpointError, match=r"\Aring prices: .*consumer enrich .*\Z"):
        await app.rings.acheck()


async def test_of_many_troubles_the_longest_stuck_comes_first_and_the_rest_is_counted() -> None:
    app = App("memory://")
    stuck = [consumer(f"c{n}", is_stuck=True, running_s=100.0 + n, doing="waiting for the inbox") for n in range(5)]
    await turning(app, ring_report("prices", *stuck))
    told = (await app.ahealth()).checks["rings"].error or ""
    assert "RingStuck: ring prices: consumer c4 has been at batch 0 for 104 s, waiting for the inbox; " in told
    assert told.endswith("; and 2 more")
