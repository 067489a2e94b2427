"""What becomes of batches that fail: retries, bisecting, dead letters, the error handler; and of checkpoints."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import RetryPolicy
from holdfast.errors import CheckpointError, Permanent, RingClosed, Transient
from holdfast.ring import Disruptor
from holdfast.ring.work import OUTAGE
from holdfast.testing import ManualClock
from holdfast.types import Change
from tests.unit.ring.rings import PATIENCE_S, Box, Failing, Held, Kept, Marks, Told, mark_at, place, until

RETRY = RetryPolicy(max_retries=3, strategy="exponential", initial_delay=1.0, multiplier=3.0, jitter=False)


def ring_of(clock: ManualClock, told: Told | None = None, size: int = 65_536) -> Disruptor[Any]:
    return Disruptor(name="prices", size=size, consumer_error_handler=told, clock=clock)


def bad(*wrong: int, error: type[Exception] = Permanent) -> Failing:
    """A consumer that can handle all elements but these."""

    def error_of(elements: list[Any], call: int) -> BaseException | None:
        found = [one for one in elements if one in wrong]
        return error(f"bad {found}") if found else None

    return Failing(error_of)


def first(n: int, error: type[BaseException] = Transient) -> Failing:
    """A consumer whose first n calls fail."""
    return Failing(lambda elements, call: error(f"call {call}") if call <= n else None)


# ---------------------------------------------------------------- without a policy


def test_without_a_policy_the_handler_gets_the_batch_and_the_ring_goes_on(clock: ManualClock) -> None:
    told, failing, other = Told(), bad(3), Kept()
    ring = ring_of(clock, told)
    ring.register_consumer(failing, batch_size=5)
    ring.register_consumer(other)
    ring.produce(list(range(100)))
    ring.close()
    [(consumer, elements, error)] = told.calls
    assert consumer is failing
    assert elements == [0, 1, 2, 3, 4]
    assert isinstance(error, Permanent)
    assert len(failing.calls) == 20
    assert failing.elements == list(range(5, 100))
    assert other.elements == list(range(100))
    assert clock.sleeps == []


def test_those_that_come_after_a_consumer_see_what_it_gave_up_as_well(clock: ManualClock) -> None:
    ring, after = ring_of(clock), Kept()
    ring.register_consumer(bad(3), name="fails")
    ring.register_consumer(after, after=["fails"])
    ring.produce([1, 2, 3])
    ring.close()
    assert after.elements == [1, 2, 3]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_an_error_of_any_kind_is_a_failure_like_others(clock: ManualClock, error: type[BaseException]) -> None:
    told, failing = Told(), first(1, error)
    ring = ring_of(clock, told)
    ring.register_consumer(failing, batch_size=1)
    ring.produce([1, 2])
    ring.close()
    [(_, elements, given)] = told.calls
    assert elements == [1]
    assert isinstance(given, error)
    assert failing.elements == [2]


def test_a_handler_that_raises_is_contained_and_logged(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    def handler(consumer: Any, elements: Sequence[Any], error: BaseException) -> None:
        raise SystemExit("no")

    failing = bad(1)
    ring = Disruptor[int](name="prices", consumer_error_handler=handler, clock=clock)
    ring.register_consumer(failing, batch_size=1)
    ring.produce([1, 2])
    ring.close()
    assert failing.elements == [2]
    assert "the error handler raised, and the ring goes on: SystemExit('no')" in caplog.text


def test_log_lines_carry_the_consumer_and_the_batch(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.ring"):
        ring = ring_of(clock)
        ring.register_consumer(bad(5, error=Transient), name="enrich", batch_size=1, retry=RETRY)
        ring.produce([4, 5])
        ring.close()
    assert len(caplog.records) == 4
    for record in caplog.records:
        assert record.getMessage().startswith("ring prices, consumer enrich, batch 2: ")
        assert (record.__dict__["ring"], record.__dict__["consumer"], record.__dict__["batch"]) == (
            "prices",
            "enrich",
            2,
        )


# ---------------------------------------------------------------- retries


def test_a_batch_is_tried_again_with_the_delays_of_its_policy(clock: ManualClock) -> None:
    told, failing = Told(), first(3)
    ring = ring_of(clock, told)
    ring.register_consumer(failing, retry=RETRY)
    ring.produce([1, 2])
    ring.close()
    assert clock.sleeps == [1.0, 3.0, 9.0]
    assert failing.calls == [[1, 2]] * 4
    assert failing.elements == [1, 2]
    assert told.calls == []
    [report] = ring.stats().consumers
    assert (report.errors, report.retries, report.given_up, report.processed, report.batches) == (3, 3, 0, 2, 1)
    assert report.batch_s == report.slowest_s == 13.0


def test_a_batch_whose_retries_are_used_up_is_given_up(clock: ManualClock) -> None:
    told, failing = Told(), first(4)
    ring = ring_of(clock, told)
    ring.register_consumer(failing, retry=RETRY, batch_size=2)
    ring.produce([1, 2, 3])
    ring.close()
    assert clock.sleeps == [1.0, 3.0, 9.0]
    [(_, elements, error)] = told.calls
    assert elements == [1, 2]
    assert str(error) == "call 4"
    assert failing.elements == [3]


def test_an_error_that_will_never_heal_is_not_tried_again(clock: ManualClock) -> None:
    told, failing = Told(), first(1, Permanent)
    ring = ring_of(clock, told)
    ring.register_consumer(failing, retry=RETRY)
    ring.produce([1])
    ring.close()
    assert clock.sleeps == []
    assert len(told.calls) == 1


def test_other_consumers_go_on_while_one_waits_for_its_retry() -> None:
    clock = ManualClock(auto=False)
    kept, ring = Kept(), ring_of(clock)
    ring.register_consumer(first(1), retry=RETRY, name="waits")
    ring.register_consumer(kept)
    ring.produce([1])
    until(lambda: clock.sleeps and ring.stats().consumers[1].processed)
    waits = ring.stats().consumers[0]
    assert waits.doing == "waits for retry 1"
    assert waits.lag == 1
    clock.advance(1.0)
    ring.close()
    assert kept.elements == [1]
    assert ring.stats().consumers[0].doing == ""


# ---------------------------------------------------------------- isolating


def test_with_isolate_only_the_bad_elements_are_given_up_and_the_rest_go_through_in_order(clock: ManualClock) -> None:
    told, failing = Told(), bad(17, 500, 501, 999)
    ring = ring_of(clock, told)
    ring.register_consumer(failing, isolate=True)
    ring.produce(list(range(1000)))
    ring.close()
    assert [elements for _, elements, _ in told.calls] == [[17], [500], [501], [999]]
    assert failing.elements == [n for n in range(1000) if n not in {17, 500, 501, 999}]
    [report] = ring.stats().consumers
    assert (report.given_up, report.processed, report.batches) == (4, 1000, 1)


@pytest.mark.parametrize("wrong", [(0,), (199,), (99, 100), tuple(range(0, 200, 20)), tuple(range(200))])
def test_the_calls_of_a_bisected_batch_are_bounded(clock: ManualClock, wrong: tuple[int, ...]) -> None:
    failing = bad(*wrong)
    ring = ring_of(clock)
    ring.register_consumer(failing, isolate=True)
    ring.produce(list(range(200)))
    ring.close()
    assert len(failing.calls) <= min(2 * len(wrong) * math.ceil(math.log2(200)) + 1, 2 * 200)
    assert failing.elements == [n for n in range(200) if n not in wrong]


def test_a_batch_is_tried_again_as_a_whole_before_it_is_bisected(clock: ManualClock) -> None:
    failing = bad(2, error=Transient)
    ring = ring_of(clock)
    ring.register_consumer(failing, isolate=True, retry=RETRY)
    ring.produce([0, 1, 2, 3])
    ring.close()
    assert failing.calls == [[0, 1, 2, 3]] * 4 + [[0, 1], [2, 3], [2], [2], [3]], "and a bad one once more by itself"
    assert clock.sleeps == [1.0, 3.0, 9.0, 1.0]


def test_an_element_that_heals_by_itself_is_not_given_up(clock: ManualClock) -> None:
    told = Told()
    failing = Failing(lambda elements, call: Transient("busy") if 2 in elements and call < 8 else None)
    ring = ring_of(clock, told)
    ring.register_consumer(failing, isolate=True, retry=RETRY)
    ring.produce([0, 1, 2, 3])
    ring.close()
    assert failing.calls[4:] == [[0, 1], [2, 3], [2], [2], [3]]
    assert failing.elements == [0, 1, 2, 3]
    assert told.calls == []


def test_a_bad_element_that_will_never_heal_is_not_tried_again_by_itself(clock: ManualClock) -> None:
    failing = bad(2)
    ring = ring_of(clock)
    ring.register_consumer(failing, isolate=True, retry=RETRY)
    ring.produce([0, 1, 2, 3])
    ring.close()
    assert failing.calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
    assert clock.sleeps == []


@pytest.mark.parametrize(("wrong", "told"), [([1], "gave up 1 element: "), ([1, 2], "gave up 2 elements: ")])
def test_the_log_says_how_many_were_given_up(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, wrong: list[int], told: str
) -> None:
    ring = ring_of(clock)
    ring.register_consumer(bad(1))
    ring.produce(wrong)
    ring.close()
    assert told in caplog.text


def test_a_batch_of_one_is_not_called_again_to_be_bisected(clock: ManualClock) -> None:
    failing = bad(1)
    ring = ring_of(clock)
    ring.register_consumer(failing, isolate=True)
    ring.produce([1])
    ring.close()
    assert failing.calls == [[1]]


def test_an_outage_is_not_taken_for_bad_elements(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    box, failing = Box(), bad(*range(1000), error=Transient)
    place(monkeypatch, letters=box)
    ring = ring_of(clock)
    ring.register_consumer(failing, isolate=True, dead_letters="letters")
    ring.produce(list(range(1000)))
    ring.close()
    assert [len(one.elements) for one in box.letters] == [1] * OUTAGE + [1000 - OUTAGE]
    assert [one for letter in box.letters for one in letter.elements] == list(range(1000)), "the rest, in order"
    assert len(failing.calls) < 3 * OUTAGE + math.log2(1000)
    *tried, rest = box.letters
    assert rest.reason.startswith(f"not tried alone, as {OUTAGE} elements before had failed: holdfast.errors.Transient")
    assert not [one for one in tried if "not tried" in one.reason]
    [attempt] = rest.attempts
    assert attempt == tried[-1].attempts[0], "the batch's, and none that these were not in"
    assert rest.failure.message == attempt.message


def test_one_that_goes_through_says_that_it_is_no_outage(clock: ManualClock) -> None:
    wrong = [n for n in range(64) if n % OUTAGE]
    told, failing = Told(), bad(*wrong, error=Transient)
    ring = ring_of(clock, told)
    ring.register_consumer(failing, isolate=True)
    ring.produce(list(range(64)))
    ring.close()
    assert [elements for _, elements, _ in told.calls] == [[n] for n in wrong]


def test_bad_elements_that_will_never_heal_are_told_apart_however_many(clock: ManualClock) -> None:
    told, failing = Told(), bad(*range(60))
    ring = ring_of(clock, told)
    ring.register_consumer(failing, isolate=True)
    ring.produce(list(range(64)))
    ring.close()
    assert [elements for _, elements, _ in told.calls] == [[n] for n in range(60)]
    assert failing.elements == [60, 61, 62, 63]


# ---------------------------------------------------------------- dead letters


def test_a_letter_has_the_elements_their_offset_and_every_attempt(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, began_at = Box(), clock.now()
    place(monkeypatch, letters=box)
    ring = ring_of(clock)
    ring.register_consumer(bad(7, error=Transient), name="enrich", retry=RETRY, isolate=True, dead_letters="letters")
    ring.produce([5, 6, 7, 8], offset=105)
    ring.close()
    [letter] = box.letters
    assert (letter.ring, letter.consumer, letter.batch, letter.offset) == ("prices", "enrich", 1, 107)
    assert letter.elements == (7,)
    assert letter.reason == "holdfast.errors.Transient: bad [7]"
    assert [one.outcome for one in letter.attempts] == [Change.RETRY] * 3 + [Change.BURY] * 4
    assert [one.number for one in letter.attempts] == [1, 2, 3, 4, 5, 6, 7]
    assert [one.delay_s for one in letter.attempts] == [1.0, 3.0, 9.0, None, None, None, None]
    assert [one.started_at - began_at for one in letter.attempts] == [0.0, 1.0, 4.0, 13.0, 13.0, 13.0, 14.0]
    assert letter.at == clock.now()
    assert box.closed == 1
    [report] = ring.stats().consumers
    assert (report.dead_letters, report.given_up) == (1, 1)


def test_a_place_for_dead_letters_that_is_away_is_waited_for(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, told = Box(OSError("disk full"), OSError("disk full")), Told()
    place(monkeypatch, letters=box)
    ring, failing = ring_of(clock, told), bad(1)
    ring.register_consumer(failing, batch_size=1, dead_letters="letters")
    ring.produce([1, 2])
    ring.close()
    assert [one.elements for one in box.letters] == [(1,)]
    assert box.writes[0] == box.writes[1] == box.writes[2], "the same objects, so that none is doubled"
    assert len(clock.sleeps) == 2
    assert [elements for _, elements, _ in told.calls] == [[1]]
    assert failing.elements == [2]


def test_what_a_consumer_waits_for_is_shown() -> None:
    clock = ManualClock(auto=False)
    with pytest.MonkeyPatch.context() as patch:
        place(patch, letters=Box(OSError("disk full")))
        ring = ring_of(clock)
        ring.register_consumer(bad(1), dead_letters="letters")
    ring.produce([1])
    until(lambda: clock.sleeps)
    assert ring.stats().consumers[0].doing == "waits to write dead letters: disk full"
    clock.advance(60.0)
    ring.close()
    assert ring.stats().consumers[0].doing == ""


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_is_saved_after_each_batch(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, kept = mark_at(5), Kept()
    place(monkeypatch, marks=marks)
    ring = ring_of(clock)
    ring.register_consumer(kept, batch_size=10, checkpoint="mark")
    assert ring.start_offset == 5
    ring.produce(list(range(5, 45)), offset=5)
    ring.close()
    assert [one.offset for one in marks.saved] == [15, 25, 35, 45, 45]
    assert [one.batch for one in marks.saved] == [6, 7, 8, 9, 9]
    assert [one.processed for one in marks.saved] == [15, 25, 35, 45, 45]
    assert marks.closed == 1
    assert ring.stats().consumers[0].offset == 45


def test_a_checkpoint_is_saved_after_some_batches_and_at_the_end(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = Marks()
    place(monkeypatch, marks=marks)
    ring = ring_of(clock)
    ring.register_consumer(Kept(), batch_size=10, checkpoint="mark", checkpoint_every=3)
    ring.produce(list(range(50)), offset=100)
    ring.close()
    assert [one.offset for one in marks.saved] == [130, 150]


def test_a_batch_that_was_given_up_is_done(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, box = Marks(), Box()
    place(monkeypatch, marks=marks, letters=box)
    ring = ring_of(clock)
    ring.register_consumer(bad(3), checkpoint="mark", dead_letters="letters")
    ring.produce([3], offset=7)
    ring.close()
    assert marks.saved[0].offset == 8
    assert box.letters[0].offset == 7


def test_a_checkpoint_that_cannot_be_saved_is_shown_and_the_ring_goes_on(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, held = Marks(errors=[CheckpointError("read-only"), CheckpointError("read-only")]), Held()
    place(monkeypatch, marks=marks)
    ring = ring_of(clock)
    ring.register_consumer(Kept(), name="first", batch_size=1, checkpoint="mark")
    ring.register_consumer(held, after=["first"])
    ring.produce([1, 2], offset=0)
    assert held.has_begun.wait(PATIENCE_S)
    until(lambda: not ring.stats().consumers[0].lag)
    report = ring.stats().consumers[0]
    assert report.checkpoint_error == "read-only"
    assert report.offset is None
    assert report.processed == 2
    held.go.set()
    ring.close()
    assert [one.offset for one in marks.saved] == [2]
    assert ring.stats().consumers[0].checkpoint_error == ""


def test_a_consumer_whose_checkpoint_was_moved_by_another_ends_the_ring(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, failing, told = Marks(errors=[CheckpointError("moved", is_fenced=True)]), first(0), Told()
    place(monkeypatch, marks=marks)
    ring = ring_of(clock, told, size=2)
    ring.register_consumer(failing, name="fenced", batch_size=1, checkpoint="mark")
    ring.produce([1, 2], offset=0)
    with pytest.raises(RingClosed, match="takes no more elements: consumer 'fenced' cannot go on: CheckpointError"):
        for n in range(2, 1_000_000):
            ring.produce([n], offset=n)
    with pytest.raises(CheckpointError, match="moved"):
        ring.close()
    assert failing.calls == [[1]], "what comes after is the other's"
    assert marks.saved == []
    assert marks.closed == 1
    assert told.calls == []
    ring.close()


def test_resetting_forgets_what_was_done(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, kept = mark_at(5), Kept()
    place(monkeypatch, marks=marks)
    ring = ring_of(clock)
    ring.register_consumer(kept, checkpoint="mark")
    ring.reset_checkpoints()
    assert ring.start_offset == 0
    assert marks.resets == 1
    ring.produce([0, 1], offset=0)
    ring.close()
    assert kept.elements == [0, 1]
    assert (marks.saved[-1].processed, marks.saved[-1].batch) == (2, 1)
