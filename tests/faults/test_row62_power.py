"""Row 62: the power fails, around syncs and at some writes. What was acked is on the disk, whatever else got there.

And everything is killed at once: clients' server, workers, and the server of the store.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import App
from tests.faults import checker
from tests.faults.api_server import ApiProcess, Posters
from tests.faults.arena import Arena, completed
from tests.faults.checker import Fault
from tests.faults.conftest import full_only, on
from tests.faults.engines import PostgresEngine, RedisEngine, SqliteEngine
from tests.faults.load import Dice
from tests.faults.power import Event
from tests.faults.power_check import FILES, Cut, cuts, events_of, ledger_of, record
from tests.faults.report import Figures, Report, figures_of
from tests.faults.storm import CALM, WORKERS
from tests.faults.test_row20_api import durable
from tests.faults.workers import CLOCK, LEASE_S, poll, recovery_bound

JOBS = 30
BALLAST = 110_000
"""Bytes a job: together they fill the log, which is moved into the database on the way, and not only at the end."""


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[PostgresEngine | RedisEngine]:
    with durable(request.param) as engine:
        yield engine


def test_a_power_cut_around_syncs_and_at_some_writes_loses_nothing_that_was_acked(
    strace: str, tmp_path: Path, is_full: bool, report: Report
) -> None:
    dice = Dice()
    folder = tmp_path / "recorded"
    folder.mkdir()
    record(strace, folder, str(JOBS), str(BALLAST if is_full else BALLAST // 10), "work")
    events = events_of(folder)
    assert _moves(events, folder) > int(is_full), "the log was not moved into the database: this run shows nothing"
    places = _places(events, folder, dice, is_full)
    likely = [lambda: False, *([lambda: dice.draw() < 0.5] * (3 if is_full else 1)), lambda: dice.draw() < 0.9]

    found = list(cuts(events, folder, tmp_path / "cut", places, likely))

    assert _broken(found) == []
    assert sum(bool(cut.acked) for cut in found) > len(found) / 2, "cuts came before there was anything to lose"
    assert {len(cut.acked) for cut in found} >= {0, JOBS}
    report(
        "the power fails after a write or sync; what was not synced is lost, in whole or by sectors",
        injected=len(found),
        figures=Figures(acked=JOBS, lost=sum(len(cut.lost) for cut in found)),
        note=f"at {len(places)} of {len(events)} places, each {len(likely)} times; files damaged "
        f"{len(_damaged(found))}",
        seed=dice.seed,
    )


def test_after_a_power_cut_the_work_goes_on(strace: str, tmp_path: Path, report: Report) -> None:
    dice = Dice()
    folder, rest = tmp_path / "recorded", tmp_path / "rest"
    folder.mkdir()
    record(strace, folder, "10", "10", "work")
    events = events_of(folder)
    place = len(events) // 2 + dice.below(len(events) // 3)
    (cut,) = cuts(events, folder, rest, [place], [lambda: False])
    shutil.copy(folder / "effects", rest / "effects")

    with closing(Arena(rest, SqliteEngine(rest), is_audited=False)) as arena:
        arena.client = ledger_of(folder)
        arena.client.acked = sorted(cut.acked)
        began_s = CLOCK.monotonic()
        # The locks by which a machine knows its dead are lost with the power: what ran waits for the end of its lease.
        arena.quiesce(LEASE_S + 10, meanwhile=arena.app.run_until_idle)
        evidence = arena.evidence()

    assert cut.acked, "nothing had been promised: this run shows nothing"
    evidence.faults = [Fault("power cut", one.pid, 0.0, began_s) for one in evidence.effects]
    assert checker.check(evidence) == []
    assert completed(evidence) == len(cut.held)


def test_a_store_that_does_not_wait_for_the_disk_is_labelled_and_found_out(
    strace: str, tmp_path: Path, is_full: bool, report: Report
) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    record(strace, folder, "10", "10", "go", options="?synchronous=normal")
    events = events_of(folder)
    found = list(
        cuts(events, folder, tmp_path / "cut", range(1, len(events) + 1, 1 if is_full else 10), [lambda: False])
    )

    assert _damaged(found) == []
    lost = max(len(cut.lost) for cut in found)
    assert lost > 0, "a power cut lost nothing that was never synced: the model cannot find anything"
    with closing(App(f"sqlite:///{tmp_path / 'labelled.db'}?synchronous=normal")) as app:
        assert not app.store.capabilities.is_durable
    report(
        "the power fails, with synchronous=normal, which the store labels as not durable",
        injected=len(found),
        note=f"up to {lost} of 10 acked jobs lost, files damaged {len(_damaged(found))}",
    )


def test_syncs_that_are_left_out_are_found(strace: str, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    record(strace, folder, str(JOBS), str(BALLAST // 10), "go")
    events = [event for event in events_of(folder) if event.what != "sync" or event.path.endswith("-journal")]
    dice = Dice("planted")
    places = range(len(events) // 2, len(events) + 1, 40)
    found = cuts(events, folder, tmp_path / "cut", places, [lambda: False, lambda: dice.draw() < 0.9])
    assert _broken(list(found)) != []


@full_only
@on("postgres", "redis")
def test_everything_killed_at_once_loses_nothing_that_was_acked(
    arena: Arena, engine: PostgresEngine | RedisEngine, report: Report
) -> None:
    dice = Dice()
    jobs, strikes = 2_000, 5
    server = ApiProcess(arena.folder, engine.url)
    work = [{"number": number, "seconds": 0.02} for number in range(jobs)]
    posters = Posters(server, arena.client, work, over_s=20.0)
    faults: list[Fault] = []
    outages: list[float] = []
    with arena.fleet() as fleet, server, posters:
        pids = [fleet.start(CALM) for _ in range(WORKERS)]
        _await_work(arena, pids)
        for _ in range(strikes):
            CLOCK.sleep(dice.draw())
            assert posters.are_busy, "the load was over too soon"
            assert fleet.running == pids, f"a worker ended by itself: {fleet.log()}"
            at = CLOCK.monotonic()
            for pid in (*pids, server.pid):
                fleet.send(pid, signal.SIGKILL)
            engine.server.kill()
            for pid in pids:
                fleet.wait(pid)
            server.kill()
            faults += [Fault("kill", pid, at, CLOCK.monotonic()) for pid in pids]
            engine.server.start()
            pids = [fleet.start(CALM) for _ in range(WORKERS)]
            server.start()
            _await_work(arena, pids)
            outages.append(CLOCK.monotonic() - at)
        posters.join(90)
        arena.quiesce(60)
        fleet.stop()
        evidence = posters.explain(arena.evidence())

    evidence.faults = faults
    evidence.recovery_s = recovery_bound(blocked_s=max(outages))
    assert checker.check(evidence) == []
    assert completed(evidence) == len(evidence.acked) == jobs
    report(
        "everything killed at once (SIGKILL) under load, and started again: the API's server, workers, the store",
        injected=strikes,
        figures=figures_of(evidence),
        note=f"enqueued over HTTP, answers {posters.told}; working again within {max(outages):.1f} s"
        f"{checker.told_bound(evidence)}",
        seed=dice.seed,
    )


def _await_work(arena: Arena, pids: Sequence[int]) -> None:
    poll(lambda: all(map(arena.started, pids)), 60, "all workers work")


def _moves(events: list[Event], folder: Path) -> int:
    """How often the log was moved into the database: each time the database is synced."""
    return sum(event.what == "sync" and event.path == str(folder / FILES[0]) for event in events)


def _places(events: list[Event], folder: Path, dice: Dice, is_full: bool) -> list[int]:
    """After how many events the power fails: before and after syncs, and at random places."""
    names = {str(folder / name) for name in (*FILES, "client")} | {str(folder)}
    matter = [n for n, event in enumerate(events, start=1) if event.path in names]
    syncs = [n for n, event in enumerate(events, start=1) if event.what == "sync"]
    near = {n + step for n in syncs[:: 1 if is_full else max(1, len(syncs) // 10)] for step in (-1, 0)}
    return sorted({*near, *(matter[dice.below(len(matter))] for _ in range(150 if is_full else 15)), len(events)})


def _broken(found: list[Cut]) -> list[Cut]:
    return [cut for cut in found if cut.lost or cut.damage != "ok"]


def _damaged(found: list[Cut]) -> list[Cut]:
    return [cut for cut in found if cut.damage != "ok"]
