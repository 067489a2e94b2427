# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a source promises of transactions, where it has them."""

from __future__ import annotations

import pytest

from holdfast.errors import LeaseLost, SourceError
from holdfast.ports import Progress
from holdfast.testing.source_suite.sending import all_of
from holdfast.testing.source_suite.steps import Lab, join, numbers, send, values
from holdfast.types import Outgoing


class TransactSuite:
    """Messages and progress, all or nothing."""

    async def test_messages_and_progress_are_written_together(self, lab: Lab) -> None:
        topic, out = await lab.topic(), await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(4))
        messages = await member.take(4)
        member.note_finished(messages[:3])
        sent = [Outgoing(out, b"made of %s" % (message.value or b"")) for message in messages[:3]]
        if not member.source.capabilities.has_transactions:
            with pytest.raises(SourceError):
                await member.source.transact(sent, member.progress())
            assert values(await all_of(lab, out)) == []
            return
        await member.source.transact(sent, member.progress())
        assert values(await all_of(lab, out)) == [b"made of 0", b"made of 1", b"made of 2"]
        await member.source.close()
        after = await join(lab, topic)
        assert values(await after.take(1)) == [b"3"]
        await after.nothing()

    async def test_several_in_a_row(self, lab: Lab) -> None:
        topic, out = await lab.topic(), await lab.topic()
        member = await join(lab, topic)
        if not member.source.capabilities.has_transactions:
            pytest.skip("this source has no transactions")
        await send(member.source, topic, *numbers(5))
        for message in await member.take(5):
            member.note_finished([message])
            await member.source.transact([Outgoing(out, message.value)], member.progress())
        assert values(await all_of(lab, out)) == numbers(5)

    async def test_nothing_is_written_for_a_partition_that_is_not_ours(self, lab: Lab) -> None:
        topic, out = await lab.topic(), await lab.topic()
        member = await join(lab, topic)
        if not member.source.capabilities.has_transactions:
            pytest.skip("this source has no transactions")
        await send(member.source, topic, b"x")
        messages = await member.take(1)
        other = await lab.topic()
        with pytest.raises(LeaseLost):
            await member.source.transact([Outgoing(out, b"y")], {(other, 0): Progress(position=1, finished=(0,))})
        assert values(await all_of(lab, out)) == []
        member.note_finished(messages)
        await member.source.transact([Outgoing(out, b"z")], member.progress())
        assert values(await all_of(lab, out)) == [b"z"]
