"""A recorded program and its power cuts: SQLite's files as each cut would leave them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import apsw
from msgspec import Struct

from holdfast.errors import StoreError
from holdfast.stores.sqlite.damage import check_log
from tests.faults.ledger import ClientLedger
from tests.faults.power import Event, put, recorded, replay, strace_options
from tests.faults.shop import EFFECTS
from tests.faults.workers import Fleet

FILES: Final = ("shop.db", "shop.db-wal", "shop.db-journal")
"""What a disk has of a database; the index of the log, shop.db-shm, is made anew."""
_LEDGER: Final = "client"


class Cut(Struct, frozen=True, kw_only=True):
    """One power cut, and what was found when the power was back."""

    after: int
    """So many events."""
    acked: frozenset[str]
    """What had been promised by then."""
    held: frozenset[str]
    """What is in the store."""
    damage: str
    """What is found wrong with the file; "ok" where nothing is."""

    @property
    def lost(self) -> frozenset[str]:
        """What had been promised, and is not there."""
        return self.acked - self.held


def record(strace: str, folder: Path, *arguments: str, options: str = "", inject: Sequence[str] = ()) -> str:
    """Run a producer on a new file in this folder under strace's eyes, to its end; what it has printed."""
    url = f"sqlite:///{folder / 'shop.db'}{options}"
    with Fleet(url, folder / "effects", folder) as fleet:
        # Injections do not work with --seccomp-bpf in strace 6.1, which is quicker.
        speed = () if inject else ("--seccomp-bpf",)
        tracer = (strace, *strace_options(folder / "trace"), *speed, *inject)
        env = {EFFECTS: str(folder / "effects")}
        pid = fleet.run("tests.faults.insistent", str(folder / _LEDGER), *arguments, prefix=tracer, env=env)
        assert fleet.wait(pid, 120) == 0, fleet.log()
        return fleet.log()


def events_of(folder: Path) -> list[Event]:
    """What was recorded, once it is sure that nothing was missed: played to its end it makes the very files."""
    events = recorded(folder / "trace", folder)
    if all(event.is_ok for event in events):
        *_, (_, disk) = replay(events, folder)
        found = disk.now()
        for name in FILES:
            path = folder / name
            assert found.get(str(path)) == (path.read_bytes() if path.exists() else None), f"{name}: a write was missed"
        ledger = found[str(folder / _LEDGER)]
        assert ledger == (folder / _LEDGER).read_bytes()
    return events


def cuts(
    events: Sequence[Event], folder: Path, scratch: Path, places: Sequence[int], chance: Sequence[Callable[[], bool]]
) -> Iterator[Cut]:
    """Cut the power after each of these events, with each of these chances that something unsynced is kept."""
    scratch.mkdir(exist_ok=True)
    wanted = frozenset(places)
    names = frozenset(str(folder / name) for name in FILES)
    ledger = str(folder / _LEDGER)
    told = b""
    for number, (event, disk) in enumerate(replay(events, folder), start=1):
        if event.path == ledger:
            told += event.data
        if number not in wanted:
            continue
        acked = frozenset(_acked(told))
        for keeps in chance:
            put(disk.after_cut(keeps, names), scratch, (*FILES, "shop.db-shm"))
            held, damage = look(scratch / FILES[0])
            yield Cut(after=number, acked=acked, held=held, damage=damage)


def _acked(told: bytes) -> list[str]:
    return [line.removeprefix("acked ") for line in told.decode().splitlines() if line.startswith("acked ")]


def look(database: Path) -> tuple[frozenset[str], str]:
    """The ids of all jobs in a file, and what SQLite's own check and ours say of it."""
    if not database.exists():
        return frozenset(), "ok"
    db = apsw.Connection(str(database))
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the files are left as they were found
    try:
        damage = str(db.execute("PRAGMA integrity_check").get)
        is_made = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_jobs'").get
        ids = db.execute("SELECT id FROM holdfast_jobs").fetchall() if is_made else []
        check_log(db, str(database))
    except (apsw.CorruptError, apsw.NotADBError, apsw.IOError, StoreError) as error:
        return frozenset(), str(error)
    finally:
        db.close()
    return frozenset(str(one) for (one,) in ids), damage


def ledger_of(folder: Path) -> ClientLedger:
    """What the recorded program was promised in all."""
    return ClientLedger(folder / _LEDGER)
