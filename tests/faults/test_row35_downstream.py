"""Row 35: a service that jobs call is dead, then flaps, then hangs, then is well. The shared breaker spares it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import full_only, waits
from tests.faults.downstream import Downstream, Mode, Seen, most_in_flight
from tests.faults.downstream_shop import PORT, RECOVERY_S, TARGET, THRESHOLD, TRIALS, add_call
from tests.faults.engines import Engine
from tests.faults.load import Dice
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, SETTINGS, poll

pytestmark = waits
ROOM = Room(concurrency=4, threads=4, isolates=1)
_BLUR_S = 0.02
"""By so much the store's clock and ours may be read apart."""
FAULTY: tuple[Mode, ...] = ("fail", "hang")
stores = pytest.mark.parametrize(
    "engine", ["sqlite", *(pytest.param(name, marks=full_only) for name in ("postgres", "redis"))], indirect=True
)


@pytest.fixture
def dice() -> Dice:
    """Chance that a seed repeats."""
    return Dice()


@pytest.fixture
def downstream(dice: Dice) -> Iterator[Downstream]:
    """The service."""
    with closing(Downstream(dice)) as downstream:
        yield downstream


@pytest.fixture
def arena(tmp_path: Path, engine: Engine, downstream: Downstream) -> Iterator[Arena]:
    """With jobs that call it."""
    with closing(Arena(tmp_path, engine)) as arena:
        add_call(arena.app, tmp_path / "effects", downstream.port)
        yield arena


class Watch:
    """What is seen of the breaker meanwhile: when, by the store's account, the first trials of a mode may begin."""

    def __init__(self, arena: Arena, downstream: Downstream) -> None:
        self._arena, self._downstream = arena, downstream
        self._ahead_s = arena.stats().now - CLOCK.monotonic()
        self._trips = 0
        self.began_s: dict[Mode, float] = {}
        self.opens_at: dict[Mode, float] = {}

    def begin(self, mode: Mode) -> None:
        """From now on the service is like this."""
        self._trips = self._look(mode)
        self._downstream.mode = mode
        self.began_s[mode] = CLOCK.monotonic()

    def trials(self, mode: Mode) -> int:
        """How many calls there were after it had opened in this mode, and its time was over."""
        self._look(mode)
        return len(self.split(mode)[1]) if mode in self.opens_at else 0

    def split(self, mode: Mode) -> tuple[list[Seen], list[Seen]]:
        """The calls of a mode before the first trials could begin, and those after."""
        calls, at = self._downstream.calls(mode), self.opens_at[mode] - _BLUR_S
        return [one for one in calls if one.at < at], [one for one in calls if one.at >= at]

    def _look(self, mode: Mode) -> int:
        """How often it has opened by now."""
        views = [view for view in self._arena.app.breakers.list() if view.key == "downstream"]
        calls = self._downstream.calls(mode) if mode in self.began_s else []
        failed_s = min((one.until for one in calls if one.until is not None and not one.is_good), default=None)
        for view in views:
            if view.trips > self._trips and view.until is not None and failed_s is not None:
                opens_at = view.until - self._ahead_s
                if opens_at - RECOVERY_S > failed_s - _BLUR_S:  # and not by a call of the mode before
                    self.opens_at.setdefault(mode, opens_at)
        return views[0].trips if views else 0


@stores
def test_a_shared_breaker_spares_a_service_that_is_down_and_no_job_is_lost(
    arena: Arena, downstream: Downstream, dice: Dice, is_full: bool, report: Report
) -> None:
    jobs, workers, trials = (2_000, 3, 20) if is_full else (100, 2, 2)
    watch = Watch(arena, downstream)
    with arena.fleet() as fleet:
        settings = msgspec.json.encode(replace(SETTINGS, room=ROOM)).decode()
        for _ in range(workers):
            fleet.run("holdfast.runtime.process", TARGET, settings, env={PORT: str(downstream.port)})
        poll(lambda: len(arena.stats().workers) == workers, 30, "all workers register")
        watch.begin("fail")
        arena.enqueue([arena.call("call", number) for number in range(jobs)])
        poll(lambda: watch.trials("fail") >= trials, 120, "trials while it fails")
        watch.begin("flap")
        poll(lambda: len(downstream.calls("flap")) >= 2 * trials, 120, "calls while it flaps")
        watch.begin("hang")
        poll(lambda: watch.trials("hang") >= trials, 120, "trials while it hangs")
        watch.begin("ok")
        arena.quiesce(120)
        fleet.stop()
        evidence = arena.evidence(fleet)
    calls = downstream.calls()

    assert checker.check(evidence) == []
    assert completed(evidence) == jobs
    # Each call is an attempt, and nothing else is: what the breaker kept back cost none.
    assert Counter(one.job for one in calls) == Counter(one.job for one in evidence.effects if one.what == "start")
    assert {one.job: one.attempt for one in sorted(evidence.effects, key=lambda one: one.attempt)} == Counter(
        one.job for one in calls
    )
    while_open = 0
    through: dict[Mode, int] = {}
    in_flight: dict[Mode, int] = {}
    for mode in FAULTY:
        first, then = watch.split(mode)
        opened_at = watch.opens_at[mode] - RECOVERY_S
        while_open += sum(one.at > opened_at for one in first)
        through[mode] = len(first)
        in_flight[mode] = most_in_flight(then)
        # Those that are in flight, and before them one less than opens it: of each worker, while all that they have to
        # tell each other is on its way.
        assert through[mode] <= workers * (THRESHOLD - 1 + ROOM.threads), f"in mode {mode}: {first}"
        assert in_flight[mode] <= TRIALS, f"in mode {mode}: {then}"
    opened_s = watch.opens_at["fail"] - RECOVERY_S - downstream.calls("fail")[0].at
    closed_s = _ended(downstream.calls("ok"), TRIALS) - watch.began_s["ok"]
    report(
        "the service that jobs call answers 500, then every other time, then never, then well again",
        injected=3,
        figures=figures_of(evidence),
        note=(
            f"calls of {workers} workers that came through before they were kept back: {through['fail']} that failed, "
            f"{through['hang']} that hung (threshold {THRESHOLD}), {while_open} of them begun after it had opened; "
            f"open after {opened_s:.2f} s; trials in flight at most {max(in_flight.values())}; closed {closed_s:.2f} s "
            "after it was well"
        ),
        seed=dice.seed,
    )


def _ended(calls: list[Seen], count: int) -> float:
    """When so many of them had ended."""
    return sorted(one.until for one in calls if one.until is not None)[count - 1]
