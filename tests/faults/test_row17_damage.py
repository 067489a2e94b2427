"""Row 17: bytes of the database or of its log are not what was written. It is refused, and never smaller."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast import App
from holdfast.errors import StoreAway, StoreError
from tests.faults.arena import Arena
from tests.faults.engines import SqliteEngine
from tests.faults.load import Dice
from tests.faults.power_check import look
from tests.faults.report import Figures, Report

JOBS = 100
LOGGED = 40
"""Jobs that are in the log alone, each in a commit of its own."""
UNPROVED = 2
"""Of these, in the last commit and in the one before: what is spoilt there looks as if it had been cut short."""
SIZES = (1, 8, 512, 4096)
"""Bytes that are spoilt at once: a flipped one, a sector, a page."""


@pytest.fixture
def images(tmp_path: Path) -> tuple[Path, Path]:
    """Two stores as a crash leaves them: one all in its database, with a copy; and one with commits in its log."""
    calm, logged = tmp_path / "calm", tmp_path / "logged"
    for folder in (calm, logged):
        folder.mkdir()
    with closing(Arena(calm, SqliteEngine(calm), is_audited=False)) as arena:
        arena.enqueue([arena.call("work", n, ballast="x" * 200) for n in range(JOBS)])
        arena.enqueue([arena.call("echo", {"name": n}) for n in range(JOBS)])
        arena.app.run_until_idle()
        arena.enqueue([arena.call("work", n) for n in range(JOBS)])
        SqliteEngine(calm).sql(f"VACUUM INTO '{calm / 'copy.db'}'")
    source = tmp_path / "source"
    source.mkdir()
    with closing(Arena(source, SqliteEngine(source), is_audited=False)) as arena:
        arena.enqueue([arena.call("work", n) for n in range(LOGGED)], at_once=1)
        # Not by this process: closing a file of SQLite's here would drop the locks on it.
        subprocess.run(["cp", source / "shop.db", source / "shop.db-wal", logged], check=True)
    return calm, logged


def test_a_damaged_database_is_refused_or_has_every_job(
    images: tuple[Path, Path], tmp_path: Path, is_full: bool, report: Report
) -> None:
    calm, _ = images
    dice = Dice()
    whole, _ = look(calm / "shop.db")
    assert len(whole) == 3 * JOBS
    original = (calm / "shop.db").read_bytes()
    trials = 600 if is_full else 40
    refused, changed = 0, 0
    lost: set[str] = set()
    path = tmp_path / "damaged.db"
    for trial in range(trials):
        _remove(path)
        path.write_bytes(_spoilt(original, dice.below(len(original)), SIZES[trial % len(SIZES)], dice))
        if _is_refused(path):
            refused += 1
        else:
            held, _ = look(path)
            lost |= whole ^ held
            changed += _is_changed(path, calm / "shop.db")

    assert refused > trials / 10, "hardly anything was damaged that matters: this run shows nothing"
    assert lost == set()
    _remove(path)
    shutil.copy(calm / "copy.db", path)
    assert not _is_refused(path)
    assert not _is_changed(path, calm / "shop.db")
    report(
        "1 to 4,096 bytes of the database are spoilt",
        injected=trials,
        figures=Figures(acked=len(whole), lost=len(lost)),
        note=f"refused at the start {refused}; the others have every job, but {changed} of them other values in some, "
        "and nobody is told; restored from a copy with all",
        seed=dice.seed,
    )


def test_a_damaged_log_is_refused_unless_only_its_last_commit_is_hit(
    images: tuple[Path, Path], tmp_path: Path, is_full: bool, report: Report
) -> None:
    _, logged = images
    dice = Dice()
    original = (logged / "shop.db-wal").read_bytes()
    whole, _ = look(_copy(logged, tmp_path / "whole", original))
    assert len(whole) == LOGGED
    unproved = _start_of_last_commit(original)
    trials = 400 if is_full else 48
    outcomes: Counter[str] = Counter()
    cut_off: list[int] = []
    lost: set[str] = set()
    for trial in range(trials):
        at = trial if trial < 32 else dice.below(len(original))  # its header, byte by byte
        size = SIZES[trial % len(SIZES)] if trial >= 32 else 1
        spoilt = _spoilt(original, at, size, dice)
        path = _copy(logged, tmp_path / "damaged", spoilt)
        if _is_refused(path):
            assert path.with_name("shop.db-wal").read_bytes() == spoilt, "what could be rescued was written over"
            outcomes["refused"] += 1
        elif (held := look(path)[0]) == whole:
            outcomes["harmless"] += 1
        else:
            assert held < whole, "there is what nobody enqueued"
            if at + size > unproved:
                cut_off.append(len(whole - held))
            else:
                lost |= whole - held

    assert lost == set(), "fewer than there were, and nobody was told"
    assert max(cut_off, default=0) <= UNPROVED
    assert outcomes["refused"] > trials / 2
    report(
        "1 to 4,096 bytes of the write-ahead log are spoilt",
        injected=trials,
        figures=Figures(acked=LOGGED, lost=len(lost), forfeited=max(cut_off, default=None)),
        note=f"refused at the start {outcomes['refused']}, harmless {outcomes['harmless']}; hit the last commit or the "
        f"end of the one before, which are left out without a word as if they had been cut short, {len(cut_off)}, with "
        f"{max(cut_off, default=0)} jobs at most",
        seed=dice.seed,
    )


def test_a_worker_does_not_start_on_a_damaged_file(images: tuple[Path, Path], tmp_path: Path) -> None:
    calm, logged = images
    original = (logged / "shop.db-wal").read_bytes()
    folder = tmp_path / "damaged"
    _copy(logged, folder, _spoilt(original, len(original) // 2, 8, Dice("damage")))
    arena = Arena(calm, SqliteEngine(calm), is_audited=False)
    with closing(arena), arena.fleet(url=f"sqlite:///{folder / 'shop.db'}") as fleet:
        pid = fleet.start()
        assert fleet.wait(pid, 30) not in {0, None}
        assert "is damaged" in fleet.log(pid)


def _start_of_last_commit(log: bytes) -> int:
    """Where its frames begin, with the one before it, whose head proves that there was one before."""
    frames = range(32, len(log), 24 + 4096)
    commits = [at for at in frames if log[at + 4 : at + 8] != bytes(4)]
    return commits[-2]


def _copy(logged: Path, folder: Path, log: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    _remove(folder / "shop.db")
    shutil.copy(logged / "shop.db", folder)
    (folder / "shop.db-wal").write_bytes(log)
    return folder / "shop.db"


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _spoilt(data: bytes, at: int, size: int, dice: Dice) -> bytes:
    """Other bytes at this place."""
    end = min(len(data), at + size)
    other = bytes(one ^ (1 + dice.below(255)) for one in data[at:end])
    return data[:at] + other + data[end:]


def _is_refused(path: Path) -> bool:
    """Whether one who opens it is told, in one line, and need not wait for better times."""
    app = App(f"sqlite:///{path}")
    refusal: StoreError | None = None
    try:
        app.store.capabilities  # noqa: B018 - asking opens it
    except StoreError as error:
        refusal = error
    finally:
        app.close()
    if refusal is None:
        return False
    assert "\n" not in str(refusal)
    assert str(refusal).startswith(str(path))
    assert not isinstance(refusal, StoreAway), refusal  # a worker would wait for it
    return True


def _is_changed(path: Path, original: Path) -> bool:
    """Whether a job has another value than in the original, or is not in it."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    try:
        db.execute("ATTACH ? AS original", (f"file:{original}?immutable=1",))
        query = "SELECT * FROM main.holdfast_jobs EXCEPT SELECT * FROM original.holdfast_jobs"
        return bool(db.execute(f"SELECT count(*) FROM ({query})").get)
    finally:
        db.close()
