"""Row 16: a process is killed at its N-th write or sync of the file. The file is whole, and what was acked is in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Fault
from tests.faults.engines import SqliteEngine
from tests.faults.ledger import ClientLedger
from tests.faults.load import Dice
from tests.faults.report import Figures, Report, figures_of, summed
from tests.faults.shop import EFFECTS
from tests.faults.workers import CLOCK, Fleet

JOBS = 10
# How many such calls one thread makes at least, from opening a new file to the last enqueue.
CALLS = {"pwrite64": 60, "fdatasync": 9}


def test_a_kill_at_any_write_or_sync_leaves_the_file_whole(
    strace: str, tmp_path: Path, is_full: bool, report: Report
) -> None:
    dice = Dice()
    points = [(call, n) for call, most in CALLS.items() for n in _places(most, dice, is_full)]
    killed = 0
    found: list[Figures] = []
    for start in range(0, len(points), 2):
        pair = [(_folder(tmp_path, *point), *point) for point in points[start : start + 2]]
        # Every other file is new, so that the kill may hit its making; the others have an audit trail already.
        arenas = {folder: Arena(folder, SqliteEngine(folder)) for folder, _, n in pair if n % 2}
        with Fleet("memory://", tmp_path, tmp_path) as fleet:
            pids = [_run(fleet, strace, *one) for one in pair]
            codes = [fleet.wait(pid, 60) for pid in pids]
        killed += sum(code == -9 for code in codes)
        assert set(codes) <= {0, -9}, fleet.log()
        for (folder, _, _), code in zip(pair, codes, strict=True):
            arena = arenas.get(folder) or Arena(folder, SqliteEngine(folder), is_audited=False)
            found.append(_check(arena, is_killed=code == -9))
    assert killed >= len(points) / 2, "too few of the kills hit anything: this run shows nothing"
    report(
        "a process killed at its n-th write or sync of the file",
        injected=killed,
        figures=replace(summed(found), recoveries=()),  # nobody was there to run them
        note=f"{len(points)} places tried, {killed} hit, every file passed SQLite's integrity check",
        seed=dice.seed,
    )


def _places(most: int, dice: Dice, is_full: bool) -> Sequence[int]:
    """Every call and some beyond, or one in each quarter."""
    part = most // 4
    return range(1, 2 * most + 1) if is_full else [1 + n * part + dice.below(part) for n in range(4)]


def _folder(tmp_path: Path, call: str, n: int) -> Path:
    folder = tmp_path / f"{call}-{n}"
    folder.mkdir()
    return folder


def _run(fleet: Fleet, strace: str, folder: Path, call: str, n: int) -> int:
    """Enqueue and work in a process that is killed by the n-th such call of one of its threads."""
    # Not with --seccomp-bpf, which is quicker: strace 6.1 then injects nothing, and does not say so.
    tracer = (strace, "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}")
    inject = ("-e", f"inject={call}:signal=KILL:when={n}")
    env = {"HOLDFAST_URL": f"sqlite:///{folder / 'shop.db'}", EFFECTS: str(folder / "effects")}
    arguments = (str(folder / "client"), str(JOBS))
    return fleet.run("tests.faults.load", *arguments, prefix=(*tracer, *inject), env=env)


def _check(arena: Arena, *, is_killed: bool) -> Figures:
    """The figures of one file; what was done by a process that has ended by itself, no fault explains."""
    killed_s = CLOCK.monotonic()
    assert SqliteEngine(arena.folder).sql("PRAGMA integrity_check") == [("ok",)]
    arena.client = ClientLedger(arena.folder / "client")
    arena.app.run_until_idle()
    evidence = arena.evidence()
    last = {one.pid: one.at for one in evidence.effects if one.pid != os.getpid()}
    faults = [Fault("kill", pid, at, killed_s) for pid, at in last.items() if is_killed]
    evidence = replace(evidence, faults=faults)
    assert checker.check(evidence) == []
    arena.close()
    return figures_of(evidence)
