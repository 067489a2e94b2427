"""Clocks that a test sets while programs run by them, and servers that go by such a clock.

Not by faketime: Redis does not start with it, and it makes Python's sleeps fail.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.faults.workers import CLOCK
from tests.servers import PostgresServer, RedisServer, program

_SOURCE: Final = Path(__file__).with_name("stepped_clock.c")
_SETTING: Final = struct.Struct("=qqq")


class SteppedClock:
    """The wall clock of the programs that are started with its environment; all others stay as they are."""

    def __init__(self, folder: Path) -> None:
        library, self._path = folder / "stepped_clock.so", folder / "stepped_clock"
        command = [
            program("cc", "gcc"),
            "-O1",
            "-Wall",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            str(library),
            str(_SOURCE),
        ]
        subprocess.run(command, check=True, timeout=60)
        self._path.write_bytes(bytes(_SETTING.size))
        for path in (library, self._path):
            path.chmod(0o644)
        self.env: Mapping[str, str] = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._path)}

    def step(self, ahead_s: float) -> float:
        """Set it so much ahead of the machine's; what it says now."""
        self._set(ahead_s, 1, 0.0)
        return CLOCK.now() + ahead_s

    def run_from(self, instant: float, rate: int) -> None:
        """Let it go from this instant, so many times as fast."""
        now = CLOCK.now()
        self._set(instant - now, rate, now)

    def _set(self, ahead_s: float, rate: int, since: float) -> None:
        with self._path.open("r+b") as file, mmap.mmap(file.fileno(), _SETTING.size) as setting:
            setting[:] = _SETTING.pack(round(ahead_s * 1e6), rate - 1, round(since * 1e6))

    @property
    def prefix(self) -> list[str]:
        """What goes before a command that is to go by it."""
        return ["env", *(f"{name}={value}" for name, value in self.env.items())]


class SteppedRedis(RedisServer):
    """A Redis server that goes by such a clock."""

    def __init__(self, options: Mapping[str, str] = {}) -> None:
        super().__init__(options)
        self.clock = SteppedClock(self.folder)

    def command(self) -> list[str]:
        """The program and its arguments, by its clock."""
        return [*self.clock.prefix, *super().command()]


class SteppedPostgres(PostgresServer):
    """A PostgreSQL server that goes by such a clock."""

    def __init__(self, options: Mapping[str, str] = {}) -> None:
        super().__init__(options)
        self.clock = SteppedClock(self.folder)

    def command(self) -> list[str]:
        """The program and its arguments, by its clock."""
        return [*self.clock.prefix, *super().command()]
