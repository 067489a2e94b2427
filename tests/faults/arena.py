"""One run: a store with an audit trail inside, its ledgers, and the evidence that is left when it has come to rest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast import App
from holdfast.app.task import Call
from holdfast.errors import StoreError
from holdfast.ports import Query, Stats
from holdfast.types import JobRecord, JobState
from tests.faults import load
from tests.faults.checker import Evidence, Sample
from tests.faults.engines import Engine
from tests.faults.ledger import ClientLedger, Effect, EffectLedger
from tests.faults.shop import open_shop
from tests.faults.workers import CLOCK, LEASE_S, SWEEP_S, Fleet, poll

_PAGE = 500


class Arena:
    """A store and everything that is known about it from outside."""

    def __init__(self, folder: Path, engine: Engine, *, is_audited: bool = True) -> None:
        self.folder = folder
        self.engine = engine
        self._effects = folder / "effects"
        self.app: App = open_shop(engine.url, self._effects)
        self.client = ClientLedger(folder / "client")
        self.samples: list[Sample] = []
        self._is_audited = is_audited
        self.app.store.capabilities  # noqa: B018 - asking opens it
        if is_audited:
            engine.begin_audit()

    def fleet(self, *, source: Path | None = None, url: str | None = None) -> Fleet:
        """Worker processes for this store; `source` has another copy of the package, `url` is another way there."""
        return Fleet(url or self.engine.url, self._effects, self.folder, source=source)

    def call(self, task: str, *args: Any, **kwargs: Any) -> Call[Any]:
        """A job that has not been enqueued."""
        return self.app.tasks[task].bind(*args, **kwargs)

    def enqueue(self, calls: Sequence[Call[Any]], at_once: int = 100) -> list[str]:
        """Send these, a few at once; their ids."""
        for start in range(0, len(calls), at_once):
            load.enqueue(self.app, self.client, calls[start : start + at_once])
        return [call.job.id for call in calls]

    # ---- looking

    def effects(self) -> list[Effect]:
        """What the handlers have done so far."""
        return EffectLedger(self._effects).read()

    def started(self, pid: int | None = None) -> int:
        """How many runs have begun, in one process or in all."""
        return sum(1 for one in self.effects() if one.what == "start" and pid in {None, one.pid})

    def is_busy(self, pid: int) -> bool:
        """Whether a process is amid a job."""
        own = [one for one in self.effects() if one.pid == pid]
        return sum(one.what == "start" for one in own) > sum(one.what != "start" for one in own)

    def stats(self) -> Stats:
        """The store's own counts."""
        return self.app.bridge.run(self.app.store.stats())

    def sample(self) -> None:
        """Look whether the counts add up, while things go on."""
        acked = len(self.client.acked)
        counted = sum(tally.n for tally in self.stats().tallies)
        self.samples.append(Sample(acked, counted, len(self.client.attempted)))

    def sample_again(self, within_s: float) -> None:
        """The same as soon as the store answers again."""

        def is_sampled() -> bool:
            try:
                self.sample()
            except StoreError:
                return False
            return True

        poll(is_sampled, within_s, "the store's counts can be looked at")

    def unfinished(self) -> int:
        """Jobs that have not ended."""
        return sum(max(0, tally.n) for tally in self.stats().tallies if not tally.state.is_terminal)

    def get(self, ids: Sequence[str]) -> list[JobRecord]:
        """Whole records; all must be there."""
        records = self.app.bridge.run(self.app.store.get(ids))
        assert None not in records
        return [record for record in records if record is not None]

    def states(self, ids: Sequence[str]) -> Counter[str]:
        """How many of these are in each state."""
        return Counter(record.state.value for record in self.get(ids))

    def records(self) -> dict[str, JobRecord]:
        """Every job in the store."""
        found: dict[str, JobRecord] = {}
        query = Query(limit=_PAGE)
        while True:
            page = self.app.bridge.run(self.app.store.find(query))
            found.update((record.id, record) for record in page.items)
            if not page.cursor:
                return found
            query = replace(query, cursor=page.cursor)

    # ---- the end

    def quiesce(self, within_s: float, meanwhile: Callable[[], None] = lambda: None) -> float:
        """Wait until every job has ended; how long that took."""

        def is_done() -> bool:
            meanwhile()
            return self.unfinished() == 0

        try:
            return poll(is_done, within_s, "all jobs end")
        except AssertionError as error:
            left = [record for record in self.records().values() if not record.state.is_terminal]
            raise AssertionError(f"{error}: {len(left)} have not, such as {left[:3]}") from None

    def look_again(self) -> None:
        """A lease and a sweep later, while workers live, nothing goes on that had ended. The rest the checker sees.

        At full size: the suite has no time for it.
        """
        if os.environ.get("HOLDFAST_FAULTS") != "full":
            return
        CLOCK.sleep(LEASE_S + SWEEP_S)
        assert self.unfinished() == 0, "what had ended goes on"

    def evidence(self, fleet: Fleet | None = None) -> Evidence:
        """Everything that the checker may ask for."""
        tallies: Counter[str] = Counter()
        for tally in self.stats().tallies:
            tallies[tally.state.value] += tally.n
        return Evidence(
            attempted=list(self.client.attempted),
            acked=list(self.client.acked),
            effects=self.effects(),
            jobs=self.records(),
            transitions=self.engine.transitions() if self._is_audited else (),
            faults=list(fleet.faults) if fleet else (),
            samples=self.samples,
            tallies=tallies,
            max_retries={name: task.spec.retry.max_retries for name, task in self.app.tasks.items()},
        )

    def close(self) -> None:
        """Give the store back."""
        self.app.close()


def completed(evidence: Evidence) -> int:
    """How many jobs have completed."""
    return sum(1 for job in evidence.jobs.values() if job.state is JobState.COMPLETED)
