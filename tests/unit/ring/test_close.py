"""How a ring ends: by `close`, by a block, by a signal, at exit, and when nobody wants it any more."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, HoldfastError, RingClosed, RingStuck
from holdfast.ring import Disruptor
from holdfast.testing import ManualClock
from tests.unit.ring.rings import PATIENCE_S, Box, Held, Kept, Marks, place, until


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """A thread that makes this call, and the error that it ended with."""
    told: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, told


def test_close_finishes_all_that_was_taken_and_closes_the_consumers_once() -> None:
    kept, ring = Kept(), Disruptor[int](name="prices")
    ring.register_consumer(kept, batch_size=3)
    for n in range(500):
        ring.produce([n])
    ring.close()
    ring.close()
    assert kept.elements == list(range(500))
    assert kept.closed == 1
    with pytest.raises(RingClosed, match=r"^ring 'prices' is closed$"):
        ring.produce([1])
    with pytest.raises(RingClosed):
        ring.produce(list(range(50)))
    with pytest.raises(RingClosed):
        ring.try_produce([1])


def test_close_wakes_producers_that_wait_and_loses_nothing_that_was_taken() -> None:
    held, ring = Held(), Disruptor[int](name="prices", size=4)
    ring.register_consumer(held, batch_size=2)
    ring.produce([0, 1, 2, 3])
    producers = [in_thread(lambda: ring.produce([4])) for _ in range(3)]
    until(lambda: ring.stats().blocked == 3)
    closer, closed = in_thread(ring.close)
    for thread, told in producers:
        thread.join(PATIENCE_S)
        [error] = told
        assert isinstance(error, RingClosed)
    assert held.elements == []
    held.go.set()
    closer.join(PATIENCE_S)
    assert closed == []
    assert held.elements == [0, 1, 2, 3], "and nothing of those that were told so"


def test_close_names_those_that_are_not_through_in_time_and_may_be_called_again(clock: ManualClock) -> None:
    held, ring = Held(), Disruptor[int](name="prices", clock=clock)
    ring.register_consumer(Kept(), name="quick")
    ring.register_consumer(held, name="slow", batch_size=10)
    ring.register_consumer(Kept(), name="behind it", after=["slow"])
    ring.produce(list(range(50)))
    assert held.has_begun.wait(PATIENCE_S)
    until(lambda: ring.stats().consumers[0].processed)
    closer, told = in_thread(lambda: ring.close(timeout=2.5))
    until(lambda: ring.stats().is_closing)
    while closer.is_alive():
        clock.advance(2.5)
        closer.join(0.01)
    [error] = told
    assert isinstance(error, RingStuck)
    assert error.left == {"slow": 50, "behind it": 50}
    assert str(error) == "ring 'prices' was not through after 2.5 s: 'slow' (50 left), 'behind it' (50 left)"
    held.go.set()
    ring.close()
    assert held.elements == list(range(50))


def test_a_time_limit_is_a_number() -> None:
    ring = Disruptor[int](name="prices")
    for wrong in (-1, "1", True):
        with pytest.raises(ConfigError, match=r"^timeout="):
            ring.close(wrong)  # type: ignore[arg-type]
    ring.close()


def test_a_ring_that_never_began_is_closed_at_once_with_its_consumers() -> None:
    kept, ring = Kept(), Disruptor[int](name="prices")
    ring.register_consumer(kept)
    ring.close(PATIENCE_S)
    assert kept.closed == 1
    Disruptor[int](name="empty").close(PATIENCE_S)


def test_a_consumer_may_close_its_ring_which_waits_for_nothing() -> None:
    seen: list[int] = []
    ring = Disruptor[int](name="prices")

    def consume(elements: Sequence[int]) -> None:
        seen.extend(elements)
        ring.close()

    ring.register_consumer(consume, batch_size=1)
    ring.produce([1, 2, 3])
    until(lambda: ring.stats().is_closing)
    ring.close(PATIENCE_S)
    assert seen == [1, 2, 3]


def test_what_a_consumer_raises_when_it_is_closed_is_raised_by_close_and_the_others_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Bad(Kept):
        def close(self) -> None:
            super().close()
            raise ValueError("cannot flush")

    bad, other, box, marks = Bad(), Kept(), Box(), Marks()
    place(monkeypatch, letters=box, marks=marks)
    ring = Disruptor[int](name="prices")
    ring.register_consumer(bad, dead_letters="letters", checkpoint="mark")
    ring.register_consumer(other)
    ring.produce([1], offset=0)
    with pytest.raises(ValueError, match="cannot flush"):
        ring.close()
    ring.close()
    assert (bad.closed, other.closed, box.closed, marks.closed) == (1, 1, 1, 1)
    assert marks.saved[-1].offset == 1


def test_several_may_close_at_the_same_time() -> None:
    held, ring = Held(), Disruptor[int](name="prices")
    ring.register_consumer(held)
    ring.produce([1])
    closers = [in_thread(ring.close) for _ in range(4)]
    held.go.set()
    for thread, told in closers:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert told == []


def test_a_block_closes_the_ring_also_when_it_raises() -> None:
    kept = Kept()
    with pytest.raises(ZeroDivisionError), Disruptor[int](name="prices") as ring:
        ring.register_consumer(kept)
        ring.produce([1])
        _ = 1 / 0
    assert kept.elements == [1]
    assert kept.closed == 1


def test_a_ring_that_never_begins_has_no_threads_and_is_forgotten_with_its_consumers() -> None:
    class Holds(Kept):
        ring: Disruptor[int]

    kept, ring = Holds(), Disruptor[int](name="forgotten")
    kept.ring = ring

    async def later(elements: Sequence[int]) -> None: ...

    ring.register_consumer(kept)
    ring.register_consumer(later)
    assert not [one for one in threading.enumerate() if one.name.startswith("holdfast-ring-forgotten")]
    gone = weakref.ref(ring)
    del ring, kept
    gc.collect()
    assert gone() is None


def test_a_ring_that_never_began_closes_its_consumers_all_the_same() -> None:
    with Disruptor[int](name="prices") as ring:
        kept = ring.register_consumer(Kept())
    assert kept.closed == 1


def test_a_consumer_that_dies_ends_the_ring_for_those_after_it_where_it_was() -> None:
    ring, after = Disruptor[int](name="prices"), Kept()
    elements = [1] * 40
    held = Held()
    ring.register_consumer(held, name="dies", batch_size=10)
    ring.register_consumer(after, after=["dies"])
    ring.produce([0])
    assert held.has_begun.wait(PATIENCE_S)
    ring.produce([2])
    ring.produce(elements)
    elements.clear()
    held.go.set()
    with pytest.raises(HoldfastError, match="a list was changed"):
        ring.close(PATIENCE_S)
    assert after.elements == [0, 2]
    assert after.closed == 1


# ---------------------------------------------------------------- processes

PROGRAM = """
import os, signal, sys
from concurrent.futures import thread as pools
from holdfast.ring import Disruptor

signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background jobs ignore it

class Slow:
    def __init__(self): self.seen = []
    def consume(self, elements): self.seen += elements
    def close(self):
        assert self.seen == list(range(3000)), len(self.seen)
        os.write(1, b"closed\\n")

def handler(consumer, elements, error):
    os.write(1, f"told {elements[:3]}\\n".encode())  # in one piece, beside what the other thread writes

async def fails(elements):
    while not pools._shutdown:  # from then on no more threads can be had
        pass
    raise ValueError("no")

ring = Disruptor(name="prices", consumer_error_handler=handler)
ring.register_consumer(Slow(), batch_size=10)
how = sys.argv[1]
if how == "exit":
    ring.register_consumer(fails, batch_size=3000)
    ring.produce(list(range(3000)))
else:
    with ring:
        for n in range(30):
            ring.produce(list(range(100 * n, 100 * n + 100)))
        os.kill(os.getpid(), getattr(signal, how))
        while True:
            signal.pause()
"""

ERRORS = "ring prices, consumer fails, batch 1: gave up 3000 elements: ValueError: no\n"


def run(how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parent,
    )


def test_a_ring_that_is_open_when_the_process_ends_is_closed_then() -> None:
    done = run("exit")
    assert sorted(done.stdout.splitlines()) == ["closed", "told [0, 1, 2]"], "the handler of async ones is told as well"
    assert (done.returncode, done.stderr) == (0, ERRORS)


@pytest.mark.usefixtures("in_background")
@pytest.mark.parametrize(("how", "code"), [("SIGTERM", 128 + signal.SIGTERM), ("SIGINT", -signal.SIGINT)])
def test_a_signal_inside_of_a_block_closes_the_ring(how: str, code: int) -> None:
    done = run(how)
    assert done.stdout == "closed\n"
    assert done.returncode == code, done.stderr
