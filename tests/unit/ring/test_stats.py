"""What a ring tells of itself: exact counts, who is behind, and who is stuck."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from holdfast.errors import CheckpointError, RingStuck
from holdfast.ports import BATCH_BOUNDS_S
from holdfast.ring import Disruptor
from holdfast.ring.meter import Meter
from holdfast.testing import ManualClock
from tests.unit.ring.rings import PATIENCE_S, Failing, Held, Kept, Marks, place, until


def test_counts_are_exact_after_batches_of_every_length() -> None:
    kept, small = Kept(), Kept()
    failing = Failing(lambda elements, call: ValueError("no") if call % 3 == 0 else None)
    ring = Disruptor[int](name="prices", size=512)
    ring.register_consumer(kept, name="kept")
    ring.register_consumer(small, name="small", batch_size=7, after=["kept"])
    ring.register_consumer(failing, name="failing", batch_size=50)
    produced = 0
    for n in range(400):
        some = list(range(1 + n * 7919 % 97))
        ring.produce(some)
        produced += len(some)
    ring.close()
    report = ring.stats()
    assert (report.produced, report.used, report.utilisation, report.blocked) == (produced, 0, 0.0, 0)
    assert report.is_closing
    assert report.memory_bytes > 1_000_000
    for one, consumer in zip(report.consumers, (kept, small, failing), strict=True):
        calls = consumer.calls if isinstance(consumer, Failing) else consumer.batches
        assert one.processed == produced
        assert one.lag == 0
        assert one.batches == one.batch == len(calls) == sum(one.batch_le)
        assert len(one.batch_le) == len(BATCH_BOUNDS_S) + 1
        assert one.given_up == produced - len(consumer.elements)
        assert one.errors == len(calls) - len(consumer.batches)
    assert report.consumers[1].after == ("kept",)


def test_lag_and_use_are_what_is_left_to_do() -> None:
    held, quick = Held(), Kept()
    ring = Disruptor[int](name="prices", size=100)
    ring.register_consumer(quick, name="quick")
    ring.register_consumer(held, name="slow", batch_size=4)
    ring.produce([1] * 32)
    assert held.has_begun.wait(PATIENCE_S)
    until(lambda: not ring.stats().consumers[0].lag)
    report = ring.stats()
    assert (report.size, report.used, report.produced) == (128, 32, 32)
    assert report.utilisation == 0.25
    assert [one.lag for one in report.consumers] == [0, 32]
    assert not report.is_closing
    held.go.set()
    ring.close()


def test_a_consumer_that_is_stuck_is_named_by_the_check(clock: ManualClock) -> None:
    held = Held()
    ring = Disruptor[int](name="prices", stuck_after=30.0, clock=clock)
    ring.register_consumer(Kept(), name="quick")
    ring.register_consumer(held, name="slow", batch_size=1)
    ring.check()
    ring.produce([1, 2])
    assert held.has_begun.wait(PATIENCE_S)
    until(lambda: not ring.stats().consumers[0].lag)
    clock.advance(30.0)
    ring.check()
    clock.advance(1.0)
    with pytest.raises(RingStuck, match=r"^ring 'prices': 'slow' has been at batch 1 for 31 s$") as told:
        ring.check()
    assert told.value.left == {"slow": 2}
    assert [one.is_stuck for one in ring.stats().consumers] == [False, True]
    held.go.set()
    ring.close()
    ring.check()


def test_a_checkpoint_that_cannot_be_saved_is_found_by_the_check_until_it_can(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(monkeypatch, marks=Marks(errors=[CheckpointError("read-only")]))
    ring = Disruptor[int](name="prices", clock=clock)
    ring.register_consumer(Kept(), name="keep", checkpoint="mark")
    ring.produce([1], offset=0)
    until(lambda: not ring.stats().used)
    with pytest.raises(
        CheckpointError, match=r"^ring prices: the checkpoint of consumer keep cannot be saved: read-only$"
    ):
        ring.check()
    ring.produce([2], offset=1)
    until(lambda: not ring.stats().used)
    ring.check()
    ring.close()


def test_an_idle_consumer_is_never_stuck(clock: ManualClock) -> None:
    ring = Disruptor[int](name="prices", stuck_after=1.0, clock=clock)
    ring.register_consumer(Kept())
    ring.produce([1])
    until(lambda: not ring.stats().used)
    clock.advance(1_000.0)
    ring.check()
    assert ring.stats().consumers[0].running_s == 0.0
    ring.close()


def test_batch_times_are_counted_in_their_bounds(clock: ManualClock) -> None:
    times = iter([0.0, 0.0001, 0.0002, 0.05, 0.05, 5.0, 100.0])
    ring = Disruptor[int](name="prices", clock=clock)

    def consume(elements: Sequence[int]) -> None:
        clock.advance(next(times))

    ring.register_consumer(consume, batch_size=1)
    ring.produce(list(range(7)))
    ring.close()
    [report] = ring.stats().consumers
    assert sum(report.batch_le) == report.batches == 7
    assert report.batch_le[0] >= 1
    assert report.batch_le[3:] == (2, 0, 1, 0, 1)
    assert report.batch_s == pytest.approx(105.1003)
    assert report.slowest_s == pytest.approx(100.0)


def test_rates_are_those_of_the_last_half_minute() -> None:
    meter = Meter(0.0)
    assert meter.rate(0.0, 0) == 0.0
    assert meter.rate(10.0, 1_000) == 100.0
    assert meter.rate(20.0, 1_000) == 50.0
    assert meter.rate(40.0, 1_000) == 0.0
    assert meter.rate(50.0, 4_000) == 100.0


def test_a_ring_tells_its_rates(clock: ManualClock) -> None:
    ring = Disruptor[int](name="prices", clock=clock)
    ring.register_consumer(Kept())
    ring.produce([1] * 100)
    until(lambda: not ring.stats().used)
    clock.advance(10.0)
    report = ring.stats()
    assert report.rate_per_s == report.consumers[0].rate_per_s == 10.0
    ring.close()


def test_a_look_from_another_thread_never_fails_while_elements_go_through() -> None:
    ring = Disruptor[int](name="prices", size=64)
    ring.register_consumer(Kept())
    is_over = threading.Event()
    wrong: list[object] = []

    def look() -> None:
        while not is_over.is_set():
            report = ring.stats()
            [one] = report.consumers
            if not (0 <= report.used <= 64 and 0 <= one.lag <= report.produced and one.processed <= 3_000):
                wrong.append(report)

    thread = threading.Thread(target=look)
    thread.start()
    for n in range(3_000):
        ring.produce([n])
    is_over.set()
    thread.join(PATIENCE_S)
    ring.close()
    assert wrong == []
