"""What a worker counts: how attempts ended, their times in buckets, and when each of it is sent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.ports import Count, Delivery
from holdfast.runtime.counts import BOUNDS_S, FLEET, RUN_LE, WAIT_LE, Counts, buckets_of, completion, percentile

NOW = 6000.0
MINUTE = 100


def delivery(attempt: int = 1, retries: int = 0, due_at: float = NOW) -> Delivery:
    return Delivery(
        id="x", task="mail", queue="q", payload=b"{}", token=b"t", attempt=attempt, retries=retries, due_at=due_at
    )


def taken(counts: Counts, *, with_slow: bool) -> Sequence[Count]:
    """What the next exchange takes along, and is answered."""
    batch = counts.take(with_slow=with_slow)
    counts.answered()
    return batch.counts


def sums(counts: Sequence[Count]) -> dict[tuple[int, str, str], int]:
    found = {(one.minute, one.task, one.name): one.n for one in counts}
    assert len(found) == len(counts)
    return found


def test_how_attempts_ended_goes_with_every_exchange_and_the_rest_only_when_asked_for() -> None:
    counts = Counts()
    counts.ended(NOW + 1.5, delivery(), NOW + 1.0, is_completed=True)
    counts.add(NOW + 1.5, "mail", "parked")
    assert sums(taken(counts, with_slow=False)) == {
        (minute, "mail", name): 1 for minute in (0, MINUTE) for name in ("completed", "parked")
    }
    assert taken(counts, with_slow=False) == []
    assert counts.has_slow
    run, wait = f"{RUN_LE}{BOUNDS_S.index(0.5)}", f"{WAIT_LE}{BOUNDS_S.index(1.0)}"
    assert sums(taken(counts, with_slow=True)) == {
        (0, "mail", "run_us"): 500_000,
        (0, "mail", "wait_us"): 1_000_000,
        (0, "mail", "received"): 1,
        (0, "mail", run): 1,
        (0, "mail", wait): 1,
        (MINUTE, FLEET, run): 1,
        (MINUTE, FLEET, wait): 1,
    }
    assert taken(counts, with_slow=True) == []


def test_a_retry_that_completes_is_healed_and_a_replay_that_does_is_not() -> None:
    counts = Counts()
    counts.ended(NOW, delivery(attempt=2, retries=1), NOW, is_completed=True)
    counts.ended(NOW, delivery(attempt=3, retries=0), NOW, is_completed=True)
    counts.ended(NOW, delivery(attempt=2, retries=1), NOW, is_completed=False)
    totals = sums(taken(counts, with_slow=True))
    assert totals[0, "mail", "healed"] == 1
    assert (0, "mail", "received") not in totals
    assert totals[0, "mail", "completed"] == 2
    assert totals[0, "mail", f"{RUN_LE}0"] == 3


def test_each_minute_keeps_what_was_counted_in_it() -> None:
    counts = Counts()
    counts.ended(NOW + 59.9, delivery(due_at=NOW + 59.9), NOW + 59.9, is_completed=True)
    counts.ended(NOW + 60.0, delivery(due_at=NOW + 60.0), NOW + 60.0, is_completed=True)
    counts.ended(NOW, delivery(), NOW, is_completed=True)  # the clock was set back
    found = sums(taken(counts, with_slow=True))
    assert (found[MINUTE, "mail", "completed"], found[MINUTE + 1, "mail", "completed"]) == (2, 1)
    assert (found[MINUTE, FLEET, f"{RUN_LE}0"], found[MINUTE + 1, FLEET, f"{RUN_LE}0"]) == (2, 1)
    assert found[0, "mail", "completed"] == 3


def test_a_job_that_began_before_it_was_due_has_not_waited() -> None:
    counts = Counts()
    counts.ended(NOW, delivery(due_at=NOW + 5.0), NOW, is_completed=True)
    found = sums(taken(counts, with_slow=True))
    assert (found[0, "mail", f"{WAIT_LE}0"], (0, "mail", "wait_us") in found) == (1, False)


def test_what_is_not_answered_goes_again_as_it_was_and_what_came_since_goes_after_it() -> None:
    counts = Counts()
    counts.ended(NOW + 0.5, delivery(), NOW, is_completed=True)
    lost = counts.take(with_slow=False)
    counts.ended(NOW + 0.5, delivery(), NOW, is_completed=True)
    assert counts.take(with_slow=True) is lost
    is_owing = [counts.has_ends]
    counts.answered()
    assert [*is_owing, counts.has_ends] == [True, False]
    later = counts.take(with_slow=False)
    assert (later.number, sums(later.counts)) == (lost.number + 1, sums(lost.counts))
    counts.answered()
    assert sums(taken(counts, with_slow=True))[0, "mail", "received"] == 2
    assert counts.taken == {"completed": 2}


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("first", [delivery(), delivery(attempt=2, retries=1), delivery(attempt=2)])
def test_what_did_not_take_effect_is_taken_back_once(first: Delivery, is_sent: bool) -> None:
    counts = Counts()
    counts.ended(NOW, first, NOW, is_completed=True)
    before = sums(counts.take(with_slow=True).counts) if is_sent else {}
    for _ in range(2):
        counts.correct(first.id)
    if is_sent:
        counts.answered()
    assert counts.has_ends
    after = sums(taken(counts, with_slow=True))
    names = {"completed", "received", "healed"}
    left = {key: before.get(key, 0) + after.get(key, 0) for key in {*before, *after} if key[2] in names}
    assert set(left.values()) <= {0}
    assert (counts.taken, counts.has_ends) == ({"completed": 0}, False)


def test_what_ended_otherwise_is_counted_so_in_the_minute_in_which_it_ended() -> None:
    counts = Counts()
    counts.ended_as(NOW + 59.0, delivery(), "retried", "failed:transient", has_run=False)
    counts.take(with_slow=False)
    counts.add(NOW + 61.0, "mail", "parked")
    counts.correct("x", "failed", "dead")
    counts.answered()
    assert sums(taken(counts, with_slow=False)) == {
        (minute, "mail", name): n
        for minute in (0, MINUTE)
        for name, n in (("retried", -1), ("failed:transient", -1), ("failed", 1), ("dead", 1))
    } | {(0, "mail", "parked"): 1, (MINUTE + 1, "mail", "parked"): 1}


def test_a_job_of_which_nothing_was_counted_is_not_taken_back() -> None:
    counts = Counts()
    counts.ended(NOW, delivery(), NOW, is_completed=True)
    counts.correct("another")
    assert sums(taken(counts, with_slow=False)) == {(minute, "mail", "completed"): 1 for minute in (0, MINUTE)}
    counts.correct("x")  # it is answered, and settled
    assert taken(counts, with_slow=False) == []


def test_a_job_that_its_own_transaction_completed_is_counted_there_and_only_its_times_here() -> None:
    counts = Counts()
    counts.completed_itself(NOW + 0.5, delivery(attempt=2, retries=1), NOW)
    assert taken(counts, with_slow=False) == []
    names = {name for _, _, name in sums(taken(counts, with_slow=True))}
    assert names == {"healed", "run_us", f"{RUN_LE}{BOUNDS_S.index(0.5)}", f"{WAIT_LE}0"}
    assert counts.taken == {"completed": 1}
    assert completion(NOW + 0.5, "mail") == (Count(MINUTE, "mail", "completed", 1), Count(0, "mail", "completed", 1))


def test_the_worker_knows_its_own_totals_before_and_after_they_are_taken() -> None:
    counts = Counts()
    counts.ended(NOW, delivery(), NOW, is_completed=True)
    counts.add(NOW, "mail", "retried")
    assert (counts.totals, counts.taken) == ({"completed": 1, "retried": 1}, {})
    counts.take(with_slow=False)
    assert counts.totals == counts.taken == {"completed": 1, "retried": 1}


def test_a_first_attempt_without_times_is_received_and_in_no_bucket() -> None:
    counts = Counts()
    counts.receive(NOW, "mail")
    assert counts.has_slow
    assert sums(taken(counts, with_slow=True)) == {(0, "mail", "received"): 1}


@pytest.mark.parametrize(
    ("run_s", "bucket"), [(0.0, 0), (0.004, 0), (0.25, 5), (0.2501, 6), (300.0, 13), (300.1, 14), (1e9, 14), (-1.0, 0)]
)
def test_a_bound_belongs_to_its_own_bucket(run_s: float, bucket: int) -> None:
    counts = Counts()
    counts.ended(NOW, delivery(), NOW - run_s, is_completed=True)
    buckets = buckets_of(taken(counts, with_slow=True), RUN_LE)
    assert [place for place, n in enumerate(buckets) if n] == [bucket]


def test_buckets_add_up_and_those_of_another_version_are_left_out() -> None:
    names = [("run_le:0", 1), ("run_le:0", 2), ("run_le:14", 4), ("run_le:99", 8), ("run_le:x", 8), ("wait_le:0", 8)]
    assert buckets_of([Count(0, "t", name, n) for name, n in names], RUN_LE) == [3, *[0] * 13, 4]


def test_percentiles_lie_on_a_line_through_their_bucket() -> None:
    buckets = [0] * 15
    assert percentile(buckets, 0.5) is None
    buckets[BOUNDS_S.index(1.0)] = 4  # from 0.5 to 1.0
    assert percentile(buckets, 0.5) == pytest.approx(0.75)
    assert percentile(buckets, 1.0) == pytest.approx(1.0)
    buckets[0] = 4
    assert percentile(buckets, 0.25) == pytest.approx(0.0025)
    buckets[14] = 92
    assert percentile(buckets, 0.95) == 300.0
