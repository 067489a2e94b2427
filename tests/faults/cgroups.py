"""Control groups of Linux, version 2 or 1: made below our own, to freeze processes or to leave them little memory.

A group is removed when its block is left, by which time everything in it must have ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from holdfast.clock import new_secret
from tests.faults.workers import poll
from tests.servers import missing

Controller = Literal["freezer", "memory"]

_WITHIN_S: Final = 10.0


class Group:
    """Some processes, and those that they start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, pid: int) -> None:
        """Put a process in, with all its threads."""
        self._write("cgroup.procs", pid)

    @property
    def pids(self) -> list[int]:
        """What is in it."""
        return [int(line) for line in (self._folder / "cgroup.procs").read_text().split()]

    # ---- the freezer

    def freeze(self) -> None:
        """Let everything in it stand still, and wait until it does."""
        if self._has("cgroup.freeze"):
            self._write("cgroup.freeze", 1)
            poll(lambda: "frozen 1" in self._read("cgroup.events"), _WITHIN_S, "the group is frozen")
        else:
            self._write("freezer.state", "FROZEN")
            poll(lambda: self._read("freezer.state").strip() == "FROZEN", _WITHIN_S, "the group is frozen")

    def thaw(self) -> None:
        """Let it go on."""
        if self._has("cgroup.freeze"):
            self._write("cgroup.freeze", 0)
        else:
            self._write("freezer.state", "THAWED")

    # ---- memory

    @property
    def used(self) -> int:
        """Bytes of memory that it has, without what the kernel can take back."""
        name = "memory.current" if self._has("memory.current") else "memory.usage_in_bytes"
        lines = (line.split() for line in self._read("memory.stat").splitlines())
        stat = {word: int(n) for word, n in lines}
        return int(self._read(name)) - stat.get("total_inactive_file", stat.get("inactive_file", 0))

    def limit(self, size: int) -> None:
        """Let it have so many bytes of memory; beyond that the kernel kills the largest process in it."""
        self._write("memory.max" if self._has("memory.max") else "memory.limit_in_bytes", size)

    # ---- the files

    def _has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def _read(self, name: str) -> str:
        return (self._folder / name).read_text()

    def _write(self, name: str, value: object) -> None:
        (self._folder / name).write_text(str(value))


@contextmanager
def group(controller: Controller) -> Iterator[Group]:
    """A new group of which this can be asked; without one the test is skipped, and fails when CI=true."""
    if os.geteuid() != 0:
        missing("A CONTROL GROUP CAN ONLY BE MADE BY ROOT")
    proof = {"freezer": ("cgroup.freeze", "freezer.state"), "memory": ("memory.max", "memory.limit_in_bytes")}
    for ours in _own_groups(controller):
        folder = ours / f"holdfast-{new_secret().hex()[:12]}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if any((folder / name).exists() for name in proof[controller]):
                yield Group(folder)
                return
        finally:
            _remove(folder)
    missing(f"NO CONTROL GROUP WITH {controller} CAN BE MADE HERE")


def _remove(folder: Path) -> None:
    poll(lambda: not (folder / "cgroup.procs").read_text(), _WITHIN_S, "all processes of the group have ended")
    folder.rmdir()


def _own_groups(controller: Controller) -> Iterator[Path]:
    """The folders of our own group, in version 2 and in version 1 with this controller."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for _, place, kind, options, *_ in mounts:
            is_v2 = not names and kind == "cgroup2"
            is_v1 = kind == "cgroup" and controller in names.split(",") and controller in options.split(",")
            if is_v2 or is_v1:
                yield Path(place) / path.lstrip("/")
