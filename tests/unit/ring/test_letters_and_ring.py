"""Dead letters and checkpoints beside a ring that runs, and what whoever closes it hears."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, FailureType, RetryPolicy
from holdfast.errors import CheckpointError, HoldfastError
from holdfast.ring import Disruptor
from holdfast.ring.checkpoint_file import read_file
from holdfast.ring.core import SLEEP
from holdfast.ring.json_lines import append_lines
from holdfast.ring.lane import Errand, Lane
from holdfast.ring.whole_file import write_whole
from holdfast.testing import ManualClock
from holdfast.types import JobState
from tests.unit.ring.rings import Kept, core_of, produce


def refuse(elements: Sequence[Any]) -> None:
    """A consumer that can do nothing."""
    raise ValueError("no such price")


def test_elements_and_letters_are_taken_by_turns_and_letters_alone_where_there_are_no_elements() -> None:
    lane = Lane("keep", (), 2)
    core = core_of(64, lane)
    produce(core, [1, 2, 3, 4])
    for n in (10, 20, 30, 40):
        core.hand(lane, [n])
    taken = [core.turn(lane) for _ in range(6)]
    kinds = [one.elements if isinstance(one, Errand) else tuple(one) for one in taken]
    assert kinds == [[10], (1, 2), [20], (3, 4), [30], [40]]
    assert core.turn(lane) is SLEEP


def test_what_a_retry_raises_is_classified_by_itself_and_not_by_the_error_before_it() -> None:
    app = App("memory://", clock=(clock := ManualClock()))
    errors = [TimeoutError("slow"), RuntimeError("odd")]

    def fail(elements: Sequence[Any]) -> None:
        raise errors.pop(0)

    with Disruptor[int](name="prices", app=app, clock=clock) as ring:
        ring.register_consumer(fail, retry=RetryPolicy(max_retries=1, jitter=False), dead_letters=True)
        ring.produce([1])
    (letter,) = app.dead_letters.list().items
    first, second = app.dead_letters.get(letter.id).attempts
    assert (first.failure_type, second.failure_type) == (FailureType.NETWORK, FailureType.SYSTEM)
    assert "slow" not in second.traceback
    app.close()


async def test_reprocessing_on_the_loop_of_its_consumers_is_refused_and_works_on_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(refuse, name="keep", dead_letters=path)
        ring.produce([1])
    kept: list[int] = []

    async def keep(elements: Sequence[int]) -> None:
        kept.extend(elements)

    async with Disruptor[int](name="prices") as ring:
        ring.register_consumer(keep)
        with pytest.raises(HoldfastError, match=r"asyncio\.to_thread"):
            ring.reprocess(path)
        assert (await asyncio.to_thread(ring.reprocess, path)).done == 1
    assert kept == [1]


def test_a_letter_whose_consumer_is_cancelled_with_its_loop_waits_for_the_next_run() -> None:
    app = App("memory://")
    with Disruptor[int](name="prices", app=app) as ring:
        ring.register_consumer(refuse, name="keep", dead_letters=True)
        ring.produce([1])
    (letter,) = app.dead_letters.list().items

    async def end_in_the_middle() -> Disruptor[int]:
        has_begun = asyncio.Event()

        async def keep(elements: Sequence[int]) -> None:
            has_begun.set()
            await asyncio.Event().wait()

        ring = Disruptor[int](name="prices", app=app)
        ring.register_consumer(keep)
        ring.start()
        await app.dead_letters.aretry(letter.id)
        await has_begun.wait()
        return ring

    ring = asyncio.run(end_in_the_middle())
    with pytest.raises(HoldfastError, match="was cancelled before the ring was closed"):
        ring.close()
    (record,) = app.bridge.run(app.store.get([letter.id]))
    assert record is not None
    assert (record.state, record.reason) == (JobState.WAITING, "consumer 'keep' was cancelled")
    assert len(record.attempts) == 1
    app.close()


def test_a_consumer_that_reprocesses_letters_of_its_own_ring_is_refused(tmp_path: Path) -> None:
    told: list[BaseException] = []
    ring = Disruptor[int](name="prices", consumer_error_handler=lambda *given: told.append(given[2]))
    ring.register_consumer(lambda elements: ring.reprocess(tmp_path / "dead.jsonl"), name="keep")
    ring.produce([1])
    ring.close()
    assert "it would wait for itself" in str(told[0])


def test_closing_tells_that_the_last_checkpoint_was_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    ring = Disruptor[int](name="prices")
    kept = ring.register_consumer(Kept(), checkpoint=tmp_path / "keep.checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.ring.checkpoint_file.write_whole", full)
        ring.produce([1, 2], offset=0)
        with pytest.raises(CheckpointError, match=r"last checkpoint of consumer 'Kept' was not saved.*No space left"):
            ring.close()
    assert kept.elements == [1, 2]
    assert kept.closed == 1


def test_a_checkpoint_that_is_saved_at_the_end_after_all_is_nothing_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.ENOSPC, "No space left on device")]

    def full_once(path: str, data: bytes) -> None:
        if failures:
            raise failures.pop()
        write_whole(path, data)

    monkeypatch.setattr("holdfast.ring.checkpoint_file.write_whole", full_once)
    path = tmp_path / "keep.checkpoint"
    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(Kept(), checkpoint=path)
        ring.produce([1, 2], offset=0)
    saved = read_file(path)
    assert saved is not None
    assert saved.checkpoint is not None
    assert saved.checkpoint.offset == 2


def test_a_disk_that_is_full_names_the_file_of_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*dead.jsonl'"):
        append_lines(tmp_path / "dead.jsonl", [b"{}"])
