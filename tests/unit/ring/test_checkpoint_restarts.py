"""A ring that begins with checkpoints: each consumer gets what it has not done, in order, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import CheckpointError, ConfigError
from holdfast.ring import Disruptor
from holdfast.ring.checkpoints import Checkpoint, file_checkpoints, read_file
from holdfast.ring.core import SLEEP, Core, Waiter
from holdfast.ring.lane import Lane
from holdfast.testing import ManualClock

WITHIN_S = 20.0


class Kept:
    """A consumer that keeps the batches it was given."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def consume(self, elements: list[int]) -> None:
        self.batches.append(list(elements))

    @property
    def elements(self) -> list[int]:
        return [element for batch in self.batches for element in batch]


def save(path: Path, consumer: str, offset: int, batch: int = 0) -> None:
    checkpoints = file_checkpoints(path, ring="numbers", consumer=consumer, clock=ManualClock())
    checkpoints.save(Checkpoint(offset=offset, batch=batch, processed=offset))
    checkpoints.close()


def saved_offset(path: Path) -> int:
    found = read_file(path)
    assert found is not None
    assert found.checkpoint is not None
    return found.checkpoint.offset


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(
    size=st.sampled_from([4, 16, 64]),
    begun=st.lists(st.tuples(st.integers(0, 100), st.sampled_from([3, 100]), st.booleans()), min_size=1, max_size=3),
    lists=st.lists(st.integers(1, 40), max_size=8),
    every=st.sampled_from([1, 20]),
)
def test_each_consumer_goes_on_where_it_was(
    size: int, begun: list[tuple[int, int, bool]], lists: list[int], every: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(number)) for number in range(len(begun))]
        consumers = [Kept() for _ in begun]
        ring: Disruptor[int] = Disruptor(name="numbers", size=size)
        for path, consumer, (offset, batch_size, is_after) in zip(paths, consumers, begun, strict=True):
            save(path, path.name, offset)
            ring.register_consumer(
                consumer,
                name=path.name,
                after=consumers[: 1 if is_after and consumer is not consumers[0] else 0],
                batch_size=batch_size,
                checkpoint=path,
                checkpoint_every=every,
            )
        start = end = ring.start_offset
        assert start == min(offset for offset, _, _ in begun)
        for n in lists:
            ring.produce(list(range(end, end + n)), offset=end, timeout=WITHIN_S)
            end += n
        ring.close(WITHIN_S)
        for path, consumer, (offset, _, _) in zip(paths, consumers, begun, strict=True):
            assert consumer.elements == list(range(offset, end))
            assert [] not in consumer.batches
            assert saved_offset(path) == max(offset, end)


def test_one_that_skips_to_the_end_of_what_is_gathered_finds_the_next_element() -> None:
    core, ahead, behind = Core(16), Lane("ahead", (), 100), Lane("behind", (), 100)
    ahead.skip_to = 3
    core.join(ahead)
    core.join(behind)
    assert core.take_in([0, 1, 2], 0)
    assert core.turn(ahead) is SLEEP
    assert core.turn(behind) == [0, 1, 2]  # closes the piece that the other one stands at the end of
    assert core.take_in([3, 4], 3)
    assert core.turn(ahead) == [3, 4]


def test_one_that_makes_room_by_skipping_sees_what_comes_in_then() -> None:
    core, ahead = Core(4), Lane("ahead", (), 100)
    ahead.skip_to = 4
    core.join(ahead)
    assert core.take_in([0, 1, 2, 3], 0)
    waiter = Waiter([4, 5, 6, 7], 4, lambda: None)
    assert not core.wait(waiter)
    assert core.turn(ahead) == [4, 5, 6, 7]
    assert waiter.is_taken


def test_a_reset_ring_begins_anew(tmp_path: Path) -> None:
    path, consumer = tmp_path / "one", Kept()
    save(path, "kept", 10, batch=4)
    with Disruptor[int](name="numbers") as ring:
        ring.register_consumer(consumer, name="kept", checkpoint=path)
        assert ring.start_offset == 10
        ring.reset_checkpoints()
        assert ring.start_offset == 0
        ring.produce([0, 1], offset=0)
    assert consumer.elements == [0, 1]
    assert saved_offset(path) == 2


def test_batches_are_counted_on_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "one"
    for run in range(3):
        with Disruptor[int](name="numbers") as ring:
            ring.register_consumer(Kept(), name="kept", checkpoint=path)
            ring.produce([run], offset=ring.start_offset)
    found = read_file(path)
    assert found is not None
    assert found.checkpoint is not None
    assert (found.checkpoint.offset, found.checkpoint.batch, found.checkpoint.processed) == (3, 3, 3)


def test_two_consumers_of_a_ring_cannot_share_a_file(tmp_path: Path) -> None:
    with Disruptor[int](name="numbers") as ring:
        ring.register_consumer(Kept(), name="one", checkpoint=tmp_path / "shared")
        with pytest.raises(CheckpointError, match="in use by this process, and every consumer needs a file of its own"):
            ring.register_consumer(Kept(), name="two", checkpoint=tmp_path / "shared")


def test_an_offset_that_no_checkpoint_can_keep_is_refused_when_it_is_produced(tmp_path: Path) -> None:
    with Disruptor[int](name="numbers") as ring:
        ring.register_consumer(Kept(), name="kept", checkpoint=tmp_path / "one")
        with pytest.raises(ConfigError, match="offset="):
            ring.produce([1], offset=2**63)
