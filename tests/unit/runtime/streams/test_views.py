"""Streams over all of their workers, from what those have reported last."""

from __future__ import annotations

from holdfast.ports import Count, Stats, Tally
from holdfast.runtime.streams.views import line_of, rate_minute, stream_views
from holdfast.types import JobState
from tests.unit.reported import part, stream_report, stream_spec, worker_with

NOW = 6_030.0


def test_what_workers_report_is_put_together() -> None:
    old = worker_with(
        stream_report("bill", part(1, lag=5), in_flight=2, last_error="old", last_error_at=10.0, away="gone"),
        seen_at=1.0,
    )
    new = worker_with(
        stream_report("bill", part(0, lag=7), in_flight=3, last_error="new", last_error_at=20.0), seen_at=2.0
    )
    (view,) = stream_views(Stats(now=NOW, workers=[old, new]), ())
    assert (view.workers, view.lag, view.in_flight) == (2, 12, 5)
    assert (view.last_error, view.last_error_at, view.away) == ("new", 20.0, "gone")
    assert [(one.partition, one.worker) for one in view.partitions] == [(0, new.id), (1, old.id)]


def test_a_partition_that_two_workers_report_counts_once() -> None:
    workers = [worker_with(stream_report("bill", part(0, lag=lag), part(1, lag=1))) for lag in (5, 7)]
    (view,) = stream_views(Stats(now=NOW, workers=workers), ())
    assert view.lag == 8
    assert len(view.partitions) == 4


def test_a_lag_that_nobody_knows_is_not_taken_for_none() -> None:
    worker = worker_with(stream_report("bill", part(0), part(1)))
    (view,) = stream_views(Stats(now=NOW, workers=[worker]), ())
    assert view.lag is None
    worker = worker_with(stream_report("bill", part(0), part(1, lag=0)))
    (view,) = stream_views(Stats(now=NOW, workers=[worker]), ())
    assert view.lag == 0


def test_the_rate_is_that_of_the_last_full_minute() -> None:
    minute = rate_minute(NOW)
    counts = [Count(minute + n, task, "processed", 60 * (n + 2) // 2) for n in (-1, 0, 1) for task in ("bill", "other")]
    (view,) = stream_views(
        Stats(now=NOW, counts=[Count(minute, "bill", "completed", 1), *counts]), [stream_spec("bill")]
    )
    assert view.rate_per_s == 1.0


def test_its_letters_are_those_under_its_name_that_are_dead() -> None:
    tallies = [
        Tally("stream:bill", "bill", JobState.DEAD_LETTER, 2),
        Tally("stream:bill", "bill", JobState.COMPLETED, 4),
        Tally("stream:other", "other", JobState.DEAD_LETTER, 8),
    ]
    (view,) = stream_views(Stats(now=NOW, tallies=tallies), [stream_spec("bill")])
    assert view.dead_letters == 2


def test_what_an_app_has_registered_wins_over_what_an_older_worker_says() -> None:
    worker = worker_with(stream_report("bill", group="old", topic="old", location="kafka://old/old"))
    known, foreign = stream_views(
        Stats(now=NOW, workers=[worker, worker_with(stream_report("ship", group="ship"))]), [stream_spec("bill")]
    )
    assert (known.group, known.topic, known.location) == ("billing", "orders", "kafka://127.0.0.1:1/orders")
    assert (foreign.name, foreign.group) == ("ship", "ship")


def test_a_message_that_waits_for_its_time_is_not_stuck() -> None:
    resting = part(0, topic="orders.billing.retry.1", paused="not due", rest_s=900.0, stuck_id="x", stuck_s=900.0)
    held = part(1, paused="the gap is full", in_flight=1, stuck_id="orders/1/7", stuck_key="A", stuck_s=900.0)
    (view,) = stream_views(Stats(now=NOW, workers=[worker_with(stream_report("bill", resting, held))]), ())
    assert [(one.stuck_id, one.stuck_key, one.stuck_s) for one in view.partitions] == [
        ("orders/1/7", "A", 900.0),
        ("", "", 0.0),
    ]


def test_a_message_that_waits_for_longer_than_any_retry_would_is_stuck() -> None:
    waiting = part(0, topic="orders.billing.retry.1", paused="not due", rest_s=900.0, stuck_id="x", stuck_s=901.0)
    (view,) = stream_views(Stats(now=NOW, workers=[worker_with(stream_report("bill", waiting))]), ())
    assert [(one.stuck_id, one.stuck_s) for one in view.partitions] == [("x", 901.0)]


def test_a_process_tells_of_the_partitions_that_are_furthest_behind() -> None:
    line = line_of(stream_report("bill", *(part(n, lag=n) for n in range(500)), away="gone", in_flight=4))
    assert (line.in_flight, line.is_away, len(line.partitions)) == (4, True, 200)
    assert {one.lag for one in line.partitions} == set(range(300, 500))
