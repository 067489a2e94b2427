"""Disks for one test: a small one in memory, and one on a file that can fail; root makes them, and takes them away."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.servers import missing, program

_MB: Final = 1024 * 1024


@contextmanager
def small_disk(folder: Path, size_mb: int) -> Iterator[Path]:
    """Mount a file system of so many megabytes, in memory, over a folder."""
    _mount("-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


class FailingDisk:
    """An ext4 file system on a file, mounted over a folder; like most, it goes read-only when it finds an error."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self._folder = folder

    def mount(self) -> None:
        """Put it there."""
        _mount("-o", "loop,errors=remount-ro", str(self._image), str(self._folder))

    def fail(self) -> None:
        """Let the kernel find an error: from here on nothing can be written, by whoever has files open."""
        used = subprocess.run(
            ["losetup", "--noheadings", "-O", "NAME", "-j", self._image], capture_output=True, check=True
        )
        device = Path(used.stdout.decode().strip()).name
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("1")

    def repair(self) -> None:
        """Take it off, check it and put it back, as an operator does; nobody may have files open on it."""
        subprocess.run(["umount", self._folder], check=True)
        checked = subprocess.run([program("e2fsck", "e2fsprogs"), "-fy", self._image], check=False, capture_output=True)
        assert checked.returncode in {0, 1}, checked.stdout.decode()
        self.mount()


@contextmanager
def failing_disk(image: Path, folder: Path, size_mb: int) -> Iterator[FailingDisk]:
    """Make and mount one of so many megabytes."""
    make = program("mkfs.ext4", "e2fsprogs")
    with image.open("wb") as file:
        file.truncate(size_mb * _MB)
    subprocess.run([make, "-q", "-F", image], check=True)
    disk = FailingDisk(image, folder)
    disk.mount()
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _mount(*arguments: str) -> None:
    if os.geteuid() != 0:
        missing("A SMALL DISK CAN ONLY BE MOUNTED BY ROOT")
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True)
    if done.returncode != 0:
        missing(f"A SMALL DISK CANNOT BE MOUNTED HERE: {done.stderr.decode().strip()}")
