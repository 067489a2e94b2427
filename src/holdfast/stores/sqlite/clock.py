"""The store's clock: seconds since 1970 that never jump, the same for every process of the machine."""

from __future__ import annotations

import apsw

from holdfast.clock import boot_time
from holdfast.ports import Clock
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, read_value

_SQL = load("clock.sql")


class StoreClock:
    """The time since the machine's boot, put on the wall time at which a process first used the file in that boot."""

    def __init__(self, base: float) -> None:
        self._base = base
        self.offset_s = 0.0
        """For tests: moves leases and due times."""

    def now(self) -> float:
        """The instant now."""
        return self._base + boot_time()[1] + self.offset_s


def agree_on_clock(db: apsw.Connection, wall: Clock) -> StoreClock:
    """Read this boot's base, or settle it for all who come later; never earlier than what the file has seen.

    Called inside of a write transaction. Where the machine does not name its boots, a clock that would go back is
    taken for a new boot.
    """
    boot, uptime_s = boot_time()
    last_at = read_value(db, _SQL["last_instant"])
    known = read_rows(db, _SQL["base_of"], (boot,))
    if known and (boot or known[0][0] + uptime_s >= last_at):
        return StoreClock(known[0][0])
    base = max(wall.now(), last_at) - uptime_s
    db.execute(_SQL["forget_bases"])
    db.execute(_SQL["set_base"], (boot, base))
    return StoreClock(base)


def save_instant(db: apsw.Connection, now: float) -> None:
    """Remember that the file has seen this instant."""
    db.execute(_SQL["set_closed_at"], (now,))
