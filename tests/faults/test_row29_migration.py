"""Row 29: many processes open a new store at once, or one that another version has made. One migrates; none guesses."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from holdfast.errors import StoreError
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.checker import Sample
from tests.faults.conftest import every_store, full_only, on
from tests.faults.edited import copied, edit
from tests.faults.engines import Engine, PostgresEngine, SqliteEngine
from tests.faults.ledger import ClientLedger
from tests.faults.report import Report, figures_of
from tests.faults.shop import open_shop
from tests.faults.workers import CLOCK, LEASE_S, Fleet, poll

STARTERS = 6
EACH = 3
LAST: Final = {"sqlite": "004_notes.sql", "postgres": "003_counted.sql"}
"""The newest migration of each store: a copy of the package without it is the version before."""
UNUSED: Final = {
    "postgres/values.py": ("if counted is None:", "if counted is None or True:"),
    "postgres/prune.py": ('        db.run(_SQL["delete_counted"])\n', ""),
}
"""Code of this version that needs what the newest migrations make, and what the version before had there."""
_NOTED: Final = """
INSERT INTO holdfast_notes SELECT seq, 'c', x'31' FROM holdfast_jobs WHERE state = 'completed';
UPDATE holdfast_jobs SET has_notes = 1 WHERE state = 'completed';
"""
_VERSION: Final = "SELECT value FROM holdfast_meta WHERE key = 'schema_version'"


@every_store
def test_one_of_many_starters_makes_the_store_and_the_others_wait(
    tmp_path: Path, engine: Engine, report: Report
) -> None:
    began_s = CLOCK.monotonic()
    with Fleet(engine.url, tmp_path / "effects", tmp_path) as fleet:
        # Each of them enqueues its jobs, and then works until nothing is left.
        ledgers = [tmp_path / f"client-{n}" for n in range(STARTERS)]
        pids = [fleet.run("tests.faults.load", str(path), str(EACH)) for path in ledgers]
        codes = [fleet.wait(pid, 60) for pid in pids]
        took_s = CLOCK.monotonic() - began_s
        assert codes == [0] * STARTERS, fleet.log()
    arena = Arena(tmp_path, engine, is_audited=False)
    for path in ledgers:
        ledger = ClientLedger(path)
        arena.client.attempt(ledger.attempted)
        arena.client.ack(ledger.acked)
    evidence = arena.evidence()
    arena.close()

    assert checker.check(evidence) == []
    assert completed(evidence) == STARTERS * EACH
    report(
        "processes open a new store at once",
        injected=STARTERS,
        figures=figures_of(evidence),
        note=f"opened by {codes.count(0)} of {STARTERS}, all done in {took_s:.1f} s",
    )


@every_store
def test_a_store_of_a_newer_version_is_left_alone_and_old_workers_go_on(
    arena: Arena, tmp_path: Path, report: Report
) -> None:
    arena.enqueue([arena.call("work", n, seconds=0.05) for n in range(60)])
    with arena.fleet() as fleet:
        fleet.start()
        poll(lambda: arena.started() >= 10, 20, "a worker is busy")
        arena.engine.set_version(99)
        late = open_shop(arena.engine.url, tmp_path / "effects")
        with pytest.raises(StoreError, match="99"):
            late.tasks["work"].enqueue(1)
        late.close()
        pid = fleet.start()
        code = fleet.wait(pid)
        assert "99" in fleet.log(pid)
        arena.quiesce(30)
        fleet.stop()
        evidence = arena.evidence(fleet)

    assert checker.check(evidence) == []
    assert code == 2
    report(
        "somebody opens a store of a newer version",
        injected=2,
        figures=figures_of(evidence),
        note=f"a producer and a worker refused in words, exit {code}; the worker that had it open went on",
    )


@on("redis")
def test_redis_leaves_keys_of_an_older_version_alone_and_says_what_to_do(
    arena: Arena, tmp_path: Path, report: Report
) -> None:
    ids = arena.enqueue([arena.call("work", n) for n in range(5)])
    arena.engine.set_version(1)
    late = open_shop(arena.engine.url, tmp_path / "effects")
    with pytest.raises(StoreError, match=r"jobs of schema 1 .* remove them, or use another prefix"):
        late.tasks["work"].enqueue(1)
    late.close()
    with arena.fleet() as fleet:
        pid = fleet.start()
        code = fleet.wait(pid)
        assert "remove them, or use another prefix" in fleet.log(pid)
    assert code == 2
    assert arena.states(ids) == {"queued": 5}
    report(
        "somebody opens a store of an older version",
        injected=2,
        note=f"a producer and a worker refused in words, exit {code}; nothing was removed",
    )


# ---------------------------------------------------------------- from the version before to this one


class Clients:
    """Producers as their ledgers show them: when each asked, and when it was told yes."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._sizes = dict.fromkeys(paths, 0)
        self._changed_s = dict.fromkeys(paths, CLOCK.monotonic())
        self.waited_s = dict.fromkeys(paths, 0.0)
        """The longest time that each had no answer."""

    def look(self) -> None:
        """To be called again and again."""
        now = CLOCK.monotonic()
        for path in self._paths:
            size = path.stat().st_size if path.exists() else 0
            if size != self._sizes[path] or not size:
                self._sizes[path], self._changed_s[path] = size, now
            self.waited_s[path] = max(self.waited_s[path], now - self._changed_s[path])


def _ledgers(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    """What all of them asked for, and what they were told yes for."""
    read = [ClientLedger(path) for path in paths]
    return [id_ for one in read for id_ in one.attempted], [id_ for one in read for id_ in one.acked]


def version_before(folder: Path, name: str) -> Path:
    """A copy of the package as it was before the newest migration of a store."""
    source = copied(folder)
    stores = source / "holdfast" / "stores"
    newest = max((stores / name / "migrations").glob("*.sql"))
    assert newest.name == LAST[name], "there is a newer migration: say here what the version before it was like"
    newest.unlink()
    for path, (now, before) in UNUSED.items():
        if path.startswith(name):
            edit(stores / path, re.escape(now), before)
    return source


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=full_only)], indirect=True)
def test_new_processes_find_a_store_of_the_version_before_in_use_and_nobody_stands_still(
    tmp_path: Path, engine: SqliteEngine | PostgresEngine, is_full: bool, report: Report
) -> None:
    name = "sqlite" if isinstance(engine, SqliteEngine) else "postgres"
    source = version_before(tmp_path, name)
    first, busy = tmp_path / "client-first", tmp_path / "client-busy"
    starters = [tmp_path / f"client-{n}" for n in range(STARTERS if is_full else 2)]
    paths = [first, busy, *starters]
    effects = tmp_path / "effects"
    with (
        Fleet(engine.url, effects, tmp_path, source=source) as olds,
        Fleet(engine.url, effects, _folder(tmp_path / "news")) as news,
    ):
        assert olds.wait(olds.run("tests.faults.load", str(first), "3000" if is_full else "40"), 120) == 0, olds.log()
        newest = int(LAST[name][:3])
        assert _version(engine) == newest - 1
        engine.begin_audit()
        if isinstance(engine, SqliteEngine):
            engine.sql(_NOTED)
        worker = olds.start()
        producer = olds.run("tests.faults.load", str(busy), "1000000")
        poll(lambda: len(_ledgers([busy])[1]) > 20, 30, "the version before is busy")

        clients = Clients([busy, *starters])
        began_s = CLOCK.monotonic()
        pids = [news.run("tests.faults.load", str(path), str(EACH)) for path in starters]

        def are_all_in() -> bool:
            clients.look()
            assert all(news.wait(pid) == 0 for pid in pids if pid not in news.running), news.log()
            return len(_ledgers(starters)[1]) == len(starters) * EACH

        poll(are_all_in, 60, "all are let in")
        took_s = CLOCK.monotonic() - began_s
        assert _version(engine) == newest
        arena = Arena(tmp_path, engine, is_audited=False)
        acked = len(_ledgers(paths)[1])
        counted = sum(tally.n for tally in arena.stats().tallies)
        sample = Sample(acked, counted, len(_ledgers(paths)[0]))
        olds.kill(producer)
        codes = [news.wait(pid, 60) for pid in pids]
        assert codes == [0] * len(starters), news.log()
        arena.quiesce(60)
        assert olds.running == [worker], f"the worker of the version before has ended: {olds.log()}"
        late = olds.start()
        assert olds.wait(late) == 2
        assert "upgrade Holdfast" in olds.log(late)
        olds.send(worker, signal.SIGTERM)
        assert olds.wait(worker) == 0
        arena.client.attempted, arena.client.acked = _ledgers(paths)
        evidence = replace(arena.evidence(olds), transitions=engine.transitions(), samples=[sample])
        arena.close()

    assert checker.check(evidence) == []
    assert {one.pid for one in evidence.effects} >= {worker}, "the worker of the version before had nothing to do"
    if isinstance(engine, SqliteEngine):
        assert engine.sql("SELECT count(*) FROM holdfast_notes") == [(0,)], "the migration was not done"
    stood_s = clients.waited_s[busy]
    waited_s = max(clients.waited_s[path] for path in starters)
    assert stood_s < LEASE_S, "nobody could enqueue for so long that leases were lost"
    report(
        "processes open a store of the version before at once, while that version enqueues and works",
        injected=len(starters),
        figures=figures_of(evidence),
        note=f"brought from schema {newest - 1} to {newest} with {len(evidence.jobs):,} jobs in it; downtime: the "
        f"producer of the version before waited at most {stood_s:.2f} s, the new ones {waited_s:.2f} s until they were "
        f"in; all done in {took_s:.1f} s; the old worker went on, and another old one was refused in words",
    )


def _version(engine: SqliteEngine | PostgresEngine) -> int:
    return int(engine.sql(_VERSION)[0][0])


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
