"""A message that is handled again after its record has ended, and fails again, is in the inbox again."""

from __future__ import annotations

from holdfast.errors import Permanent
from holdfast.runtime.worker import WorkerSettings
from holdfast.types import JobState
from tests.unit.runtime.streams.stage import GROUP, TOPIC, staged
from tests.unit.runtime.streams.test_carrier import Shop, dead_letter, record_of

CARRIES_ONLY = WorkerSettings(lease_s=80_000.0, sweep_s=1.0, grace_s=30.0, streams=())


async def test_one_that_was_cancelled_on_its_way_to_the_retry_topic_and_fails_there_is_a_letter() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        await stage.app.dead_letters.aretry(letter.id)
        async with stage.working(CARRIES_ONLY):
            await stage.wait(5)
        assert (await record_of(stage, letter)).state is JobState.WAITING
        await stage.app.jobs.acancel(letter.id)
        shop.error = Permanent("still no such account")
        await stage.idle()
        (again,) = await stage.letters()
        assert (again.id, again.message) == (letter.id, "still no such account")


async def test_one_that_was_completed_and_fails_after_the_offsets_were_set_back_is_a_letter() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        assert (await record_of(stage, letter)).state is JobState.COMPLETED
        stage.broker.group(GROUP)._positions[TOPIC, 0] = 0
        shop.error = Permanent("the bug is back")
        await stage.idle()
        (again,) = await stage.letters()
        assert (again.id, again.message) == (letter.id, "the bug is back")
        assert len((await record_of(stage, letter)).attempts) == len(letter.attempts) + 1
