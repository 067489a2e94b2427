"""The conformance suite of sources: what each promises, test by test. It ships, for those who write sources.

A test file of a source needs one fixture and one class:

    from holdfast.testing.source_suite import Lab, SourceSuite

    @pytest.fixture
    async def lab() -> AsyncIterator[Lab]: ...          # makes topics and consumers; see `Lab`

    class TestMySource(SourceSuite): ...

The tests are coroutines: pytest needs a plugin that runs them on asyncio, such as anyio's in auto mode. They wait for
what a server does by itself, for at most `Lab.patience_s`, and never sleep.
"""

from __future__ import annotations

import pytest

_SUBJECTS = ("closing", "committing", "grouping", "looking", "pausing", "receiving", "sending", "steps", "transacting")
pytest.register_assert_rewrite(*(f"{__name__}.{subject}" for subject in _SUBJECTS))

from holdfast.testing.source_suite.closing import CloseSuite  # noqa: E402
from holdfast.testing.source_suite.committing import CommitSuite  # noqa: E402
from holdfast.testing.source_suite.grouping import GroupSuite  # noqa: E402
from holdfast.testing.source_suite.looking import LagSuite, ReadSuite  # noqa: E402
from holdfast.testing.source_suite.pausing import PauseSuite  # noqa: E402
from holdfast.testing.source_suite.receiving import ReceiveSuite  # noqa: E402
from holdfast.testing.source_suite.sending import SendSuite  # noqa: E402
from holdfast.testing.source_suite.steps import Lab, Member  # noqa: E402
from holdfast.testing.source_suite.transacting import TransactSuite  # noqa: E402

__all__ = ["Lab", "Member", "SourceSuite"]


class SourceSuite(
    ReceiveSuite,
    PauseSuite,
    CommitSuite,
    GroupSuite,
    SendSuite,
    TransactSuite,
    LagSuite,
    ReadSuite,
    CloseSuite,
):
    """Everything that a source promises."""
