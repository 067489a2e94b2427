"""What this machine has left: space on a disk, and memory within the limits that a container sets."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

LEAST_FREE: Final = 500_000_000
"""Bytes that should be free on a disk; on a small disk LEAST_SHARE of it is enough."""
LARGEST_LOG: Final = 256_000_000
"""Bytes of a SQLite file's write-ahead log: a larger one is not emptied, as somebody reads on and on."""
LEAST_SHARE: Final = 0.05
"""The share of a disk, or of the memory, that should be free."""

_ROOT: Final = Path("/")
_MB: Final = 1_000_000


class Memory(Struct, frozen=True):
    """Bytes that can be had, out of how many."""

    free: int
    total: int


def check_disk(folder: Path) -> None:
    """Raise OSError where too little is free on a folder's disk."""
    usage = shutil.disk_usage(folder)
    least = min(LEAST_FREE, int(usage.total * LEAST_SHARE))
    if usage.free < least:
        raise OSError(f"only {usage.free / _MB:.0f} MB are free, of {least / _MB:.0f} MB that should be")


def check_file(path: Path) -> None:
    """Raise OSError where a SQLite file's disk or its log leaves too little room."""
    path = path.resolve()  # the log is beside the file itself, not beside a link to it
    check_disk(path.parent)
    log = path.with_name(f"{path.name}-wal")
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return
    if size > LARGEST_LOG:
        raise OSError(
            f"{log.name} has {size / _MB:.0f} MB and cannot begin anew: end what keeps on reading the file, such as a "
            "shell with an open transaction or a backup"
        )


def check_memory() -> None:
    """Raise MemoryError where too little is left to this process; where nothing is known, all is well."""
    memory = left_memory()
    if memory is not None and memory.free < memory.total * LEAST_SHARE:
        raise MemoryError(f"only {memory.free / _MB:.0f} MB are left, of {memory.total / _MB:.0f} MB")


def resident_bytes(root: Path = _ROOT) -> int:
    """What this process has in memory; 0 where it cannot be known."""
    words = _text(root / "proc/self/statm").split()
    return int(words[1]) * mmap.PAGESIZE if len(words) > 1 else 0


def left_memory(root: Path = _ROOT) -> Memory | None:
    """What is left on the machine or in the tightest of this process's cgroups; None where it cannot be known."""
    found = [memory for memory in (_of_machine(root), *_of_groups(root)) if memory is not None and memory.total > 0]
    return min(found, key=lambda memory: memory.free / memory.total, default=None)


def _of_machine(root: Path) -> Memory | None:
    lines = _text(root / "proc/meminfo").splitlines()
    sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if rest}
    if "MemAvailable" not in sizes:
        return None
    return Memory(sizes["MemAvailable"], sizes.get("MemTotal", 0))


def _of_groups(root: Path) -> Iterator[Memory | None]:
    """Of the process's cgroup and of those around it: each may have a limit."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, limit, used, cache = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        # Inside of a container the path may be that of the host, and not be there; the container's own is the base.
        inner = PurePosixPath(path.lstrip("/"))
        for part in (inner, *inner.parents):
            if ".." not in part.parts:
                yield _of_group(base / part, limit, used, cache)


def _of_group(folder: Path, limit: str, used: str, cache: str) -> Memory | None:
    total, taken = _text(folder / limit).strip(), _text(folder / used).strip()
    if not total.isdecimal() or not taken.isdecimal() or int(total) >= 1 << 60:
        return None  # "max", or version 1's number for none
    stat = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    return Memory(max(0, int(total) - int(taken) + int(stat.get(cache, 0))), int(total))


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
