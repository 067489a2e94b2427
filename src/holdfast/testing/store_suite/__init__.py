"""The conformance suite: what every store promises, test by test. It ships, for those who write stores.

A test file of a store needs two fixtures and one class:

    from holdfast.testing.store_suite import Advance, StoreSuite

    @pytest.fixture
    async def store() -> AsyncIterator[Store]: ...      # a fresh store, with the default key window

    @pytest.fixture
    def advance(store) -> Advance: ...                  # moves the store's clock by so many seconds

    class TestMyStore(StoreSuite): ...

The tests are coroutines: pytest needs a plugin that runs them on asyncio, such as anyio's in auto mode.
"""

from __future__ import annotations

import pytest

_SUBJECTS = (
    "any_ids",
    "claiming",
    "counting",
    "crowds",
    "ended_again",
    "ends",
    "enqueueing",
    "fencing",
    "grouping",
    "known_ends",
    "leases",
    "living",
    "operating",
    "orphans",
    "querying",
    "remembering",
    "settling",
    "sharing",
    "steps",
)
pytest.register_assert_rewrite(*(f"{__name__}.{subject}" for subject in _SUBJECTS))

from holdfast.testing.store_suite.any_ids import AnyIdSuite  # noqa: E402
from holdfast.testing.store_suite.claiming import CapSuite, ClaimSuite  # noqa: E402
from holdfast.testing.store_suite.counting import CountOnceSuite, CountSuite  # noqa: E402
from holdfast.testing.store_suite.crowds import CrowdSuite  # noqa: E402
from holdfast.testing.store_suite.ended_again import EndedAgainSuite  # noqa: E402
from holdfast.testing.store_suite.ends import EndBatchSuite, NewEndSuite  # noqa: E402
from holdfast.testing.store_suite.enqueueing import EnqueueSuite, IdempotencySuite  # noqa: E402
from holdfast.testing.store_suite.fencing import FenceSuite  # noqa: E402
from holdfast.testing.store_suite.grouping import GroupFactSuite, LetterCountSuite  # noqa: E402
from holdfast.testing.store_suite.known_ends import KnownEndSuite  # noqa: E402
from holdfast.testing.store_suite.leases import HeartbeatSuite  # noqa: E402
from holdfast.testing.store_suite.living import LifeSuite, TransactionSuite, WaitSuite  # noqa: E402
from holdfast.testing.store_suite.operating import ChangeSuite, PruneSuite, ReplaySuite  # noqa: E402
from holdfast.testing.store_suite.orphans import ReclaimSuite  # noqa: E402
from holdfast.testing.store_suite.querying import FindSuite, GroupSuite, SearchSuite, StatsSuite  # noqa: E402
from holdfast.testing.store_suite.remembering import NoteSuite, ValueSuite  # noqa: E402
from holdfast.testing.store_suite.settling import SettleSuite  # noqa: E402
from holdfast.testing.store_suite.sharing import PerLaneSuite  # noqa: E402
from holdfast.testing.store_suite.steps import Advance, claim, enqueue, new_job, settle  # noqa: E402


class StoreSuite(
    EnqueueSuite,
    AnyIdSuite,
    IdempotencySuite,
    NewEndSuite,
    KnownEndSuite,
    EndedAgainSuite,
    EndBatchSuite,
    ClaimSuite,
    CapSuite,
    PerLaneSuite,
    SettleSuite,
    FenceSuite,
    HeartbeatSuite,
    ReclaimSuite,
    NoteSuite,
    ValueSuite,
    CountSuite,
    CountOnceSuite,
    ChangeSuite,
    ReplaySuite,
    PruneSuite,
    FindSuite,
    CrowdSuite,
    SearchSuite,
    GroupSuite,
    LetterCountSuite,
    GroupFactSuite,
    StatsSuite,
    WaitSuite,
    TransactionSuite,
    LifeSuite,
):
    """Everything that a store promises."""


__all__ = ["Advance", "StoreSuite", "claim", "enqueue", "new_job", "settle"]
