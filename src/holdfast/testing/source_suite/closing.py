# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a source promises when it is closed."""

from __future__ import annotations

import pytest

from holdfast.errors import SourceError
from holdfast.testing.source_suite.steps import Lab, join, own, send


class CloseSuite:
    """Whoever closes is done, and the others know at once."""

    async def test_a_closed_source_does_nothing_more(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await own(member)
        await member.source.close()
        with pytest.raises(SourceError):
            await member.look()
        with pytest.raises(SourceError):
            await send(member.source, topic, b"x")

    async def test_it_may_be_closed_twice_and_without_having_been_opened(self, lab: Lab) -> None:
        topic = await lab.topic()
        source = lab.source(topic, "billing")
        await source.close()
        await source.close()
        member = await join(lab, topic)
        await member.source.close()
        await member.source.close()

    async def test_what_it_can_do_is_said_without_opening(self, lab: Lab) -> None:
        capabilities = lab.source(await lab.topic(), "billing").capabilities
        assert capabilities.name
        assert capabilities.keeps_order
        assert ":" in capabilities.location
