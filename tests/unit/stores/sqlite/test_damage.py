"""A damaged database, or a damaged log, is refused when it is opened; what only looks like one is not."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import apsw
import pytest

from holdfast.clock import new_id
from holdfast.errors import StoreAway, StoreError
from holdfast.stores.sqlite import SqliteStore, damage
from holdfast.stores.sqlite.store import Synchronous
from holdfast.types import NewJob

JOBS = 12
FRAME = 24 + 4096


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A store as a killed process leaves it, with a commit for each of its jobs in the log."""
    folder, source = tmp_path / "crashed", tmp_path / "source"
    folder.mkdir()
    source.mkdir()
    store = SqliteStore(source / "jobs.db")
    for _ in range(JOBS):
        store.enqueue_now([NewJob(id=new_id(), task="greet", payload=b"{}")])
    subprocess.run(["cp", source / "jobs.db", source / "jobs.db-wal", folder], check=True)
    asyncio.run(store.close())
    return folder / "jobs.db"


def log_of(path: Path) -> Path:
    return path.with_name("jobs.db-wal")


def spoil(path: Path, at: int, data: bytes = b"spoilt") -> bytes:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)
    return bytes(content)


def commits(log: Path) -> list[int]:
    """Where the frames that end a commit begin."""
    content = log.read_bytes()
    return [at for at in range(32, len(content), FRAME) if content[at + 4 : at + 8] != bytes(4)]


def open_store(path: Path, synchronous: Synchronous = "FULL") -> int:
    """How many jobs are there."""
    store = SqliteStore(path, synchronous=synchronous)
    try:
        _ = store.capabilities
    finally:
        asyncio.run(store.close())
    db = apsw.Connection(str(path))
    try:
        return int(db.execute("SELECT count(*) FROM holdfast_jobs").get)
    finally:
        db.close()


def test_a_sound_log_is_read(crashed: Path) -> None:
    assert open_store(crashed) == JOBS


@pytest.mark.parametrize("part", [0, 4, 16, 23, 24, 31])
def test_a_log_whose_header_is_spoilt_is_refused_and_left_alone(crashed: Path, part: int) -> None:
    content = spoil(log_of(crashed), part, b"\xa5")
    with pytest.raises(StoreError, match=r"jobs.db-wal is damaged behind frame 0, and commits after it cannot be read"):
        open_store(crashed)
    assert log_of(crashed).read_bytes() == content


@pytest.mark.parametrize("part", [0, 8, 16, 24, 2_000])
def test_a_log_that_is_spoilt_before_its_end_is_refused_and_left_alone(crashed: Path, part: int) -> None:
    content = spoil(log_of(crashed), commits(log_of(crashed))[JOBS // 2] + part)
    for _ in range(2):
        with pytest.raises(StoreError, match="is damaged behind frame") as caught:
            open_store(crashed)
        assert not isinstance(caught.value, StoreAway)  # nobody is to wait for it
        assert "\n" not in str(caught.value)
    assert log_of(crashed).read_bytes() == content


def test_a_last_commit_that_was_cut_short_is_left_out(crashed: Path) -> None:
    log = log_of(crashed)
    log.write_bytes(log.read_bytes()[:-100])
    assert open_store(crashed) == JOBS - 1


def test_what_failed_commits_have_left_behind_is_no_damage(crashed: Path) -> None:
    """Their frames are of the same round of the log, and end in commits; shorter ones were written over their front."""
    log = log_of(crashed)
    first, second, third = commits(log)[-3:]
    content = log.read_bytes()
    stale = content[second + FRAME : third + FRAME] + content[first + FRAME : second + FRAME]
    log.write_bytes(content + stale)
    assert open_store(crashed) == JOBS


def test_where_nobody_waits_for_the_disk_a_gap_may_be_a_power_cut(crashed: Path) -> None:
    spoil(log_of(crashed), commits(log_of(crashed))[JOBS // 2])
    assert open_store(crashed, "NORMAL") < JOBS


def test_frames_of_an_earlier_round_are_no_damage(crashed: Path) -> None:
    db = apsw.Connection(str(crashed))
    other = apsw.Connection(str(crashed))
    db.execute("PRAGMA journal_mode = WAL")
    other.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    db.execute("CREATE TABLE mine (x)")  # the log begins anew, with old frames behind
    assert log_of(crashed).stat().st_size > 10 * FRAME
    assert open_store(crashed) == JOBS
    other.close()
    db.close()


class Stuck(apsw.VFS):
    """Writes no more to a log once it is told so, as a process that is killed or a disk that fails."""

    def __init__(self) -> None:
        self.is_stuck = False
        super().__init__("stuck", "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's
        return StuckFile(self, name, flags)


class StuckFile(apsw.VFSFile):
    def __init__(self, disk: Stuck, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's
        if self._is_log and self._disk.is_stuck:
            raise apsw.IOError
        super().xWrite(data, offset)


def test_a_log_that_was_about_to_begin_anew_is_no_damage(crashed: Path) -> None:
    """All of it was moved, and its index begins anew, but whoever did that could not write the new header."""
    disk = Stuck()
    db = apsw.Connection(str(crashed), vfs="stuck")
    db.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
    assert db.wal_checkpoint()[0] > 2
    disk.is_stuck = True
    with pytest.raises(apsw.IOError):
        db.execute("CREATE TABLE mine (x)")
    other = apsw.Connection(str(crashed))
    assert other.execute("SELECT count(*) FROM holdfast_jobs").get == JOBS
    assert other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0] == 0
    assert open_store(crashed) == JOBS
    other.close()
    db.close()
    disk.unregister()


def test_a_first_commit_that_is_spoilt_behind_its_first_frame_is_refused(crashed: Path) -> None:
    log = log_of(crashed)
    assert commits(log)[0] > 32 + FRAME, "it is a commit of one frame: this shows nothing"
    spoil(log, 32 + FRAME + 100)
    with pytest.raises(StoreError, match="is damaged behind frame 0"):
        open_store(crashed)


def test_who_accepts_the_loss_opens_it_once_as_normal(crashed: Path) -> None:
    spoil(log_of(crashed), commits(log_of(crashed))[JOBS // 2])
    with pytest.raises(StoreError, match="restore a copy, or accept that they are lost: open and close it once with"):
        open_store(crashed)
    left = open_store(crashed, "NORMAL")
    assert 0 < left < JOBS
    assert open_store(crashed) == left


def test_a_database_with_a_spoilt_index_is_refused(crashed: Path) -> None:
    open_store(crashed)
    content = crashed.read_bytes()
    root = _root_of(crashed, "sqlite_autoindex_holdfast_jobs_1")
    spoil(crashed, (root - 1) * 4096 + 4_000, bytes(60))
    with pytest.raises(StoreError, match=r"the database is damaged \(.*\); restore a copy"):
        open_store(crashed)
    crashed.write_bytes(content)
    assert open_store(crashed) == JOBS


def test_a_large_database_is_not_read_as_a_whole(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(crashed)
    spoil(crashed, (_root_of(crashed, "sqlite_autoindex_holdfast_jobs_1") - 1) * 4096 + 4_000, bytes(60))
    monkeypatch.setattr(damage, "MOST_BYTES", 4096)
    assert open_store(crashed) == JOBS


def test_other_peoples_tables_are_not_judged(crashed: Path) -> None:
    db = apsw.Connection(str(crashed))
    db.execute("CREATE TABLE mine (x CHECK (x > 0)); PRAGMA ignore_check_constraints = 1; INSERT INTO mine VALUES (-1)")
    db.execute("PRAGMA ignore_check_constraints = 0")
    assert db.execute("PRAGMA integrity_check").get != "ok"
    db.close()
    assert open_store(crashed) == JOBS


def test_other_peoples_tables_whose_names_are_like_ours_are_not_judged(crashed: Path) -> None:
    db = apsw.Connection(str(crashed))
    for name in ("holdfast_o'x", "holdfast_mine"):
        db.execute(f'CREATE TABLE "{name}" (x CHECK (x > 0)); PRAGMA ignore_check_constraints = 1')
        db.execute(f'INSERT INTO "{name}" VALUES (-1)')
    db.close()
    assert open_store(crashed) == JOBS


def _root_of(path: Path, index: str) -> int:
    db = apsw.Connection(str(path))
    try:
        return int(db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,)).get)
    finally:
        db.close()
