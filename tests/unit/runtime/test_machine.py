"""What is left of disk and memory, as files and the kernel tell it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.runtime import machine
from holdfast.runtime.machine import LARGEST_LOG, Memory, check_disk, check_file, check_memory, left_memory


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MACHINE = {"proc/meminfo": "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\nHugePages_Total:       0\n"}


def test_the_machine_says_what_is_left(tmp_path: Path) -> None:
    assert left_memory(write(tmp_path, MACHINE)) == Memory(400 * 1024, 1000 * 1024)


def test_where_nothing_is_told_nothing_is_known(tmp_path: Path) -> None:
    assert left_memory(tmp_path) is None


def test_a_containers_limit_counts_where_it_is_tighter(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/app.slice/shop"
    files = {
        "proc/self/cgroup": "0::/app.slice/shop\n",
        f"{group}/memory.max": "100000\n",
        f"{group}/memory.current": "90000\n",
        f"{group}/memory.stat": "anon 5\ninactive_file 20000\n",
        "sys/fs/cgroup/app.slice/memory.max": "max\n",
        "sys/fs/cgroup/app.slice/memory.current": "95000\n",
    }
    assert left_memory(write(tmp_path, MACHINE | files)) == Memory(30_000, 100_000), "a cache can be given back"


def test_a_limit_around_the_container_counts_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/memory.max": "1000\n",
        "sys/fs/cgroup/outer/memory.current": "1001\n",
    }
    assert left_memory(write(tmp_path, MACHINE | files)) == Memory(0, 1000)


def test_the_older_kind_of_limit_counts_too(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/shop"
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/shop\n0::/\n",
        f"{group}/memory.limit_in_bytes": "1000\n",
        f"{group}/memory.usage_in_bytes": "900\n",
        f"{group}/memory.stat": "inactive_file 7\ntotal_inactive_file 50\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "99\n",
    }
    assert left_memory(write(tmp_path, MACHINE | files)) == Memory(150, 1000)


def test_a_path_that_leads_out_of_the_groups_is_not_followed(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/../../../secret\n",
        "secret/memory.max": "1000\n",
        "secret/memory.current": "1000\n",
    }
    assert left_memory(write(tmp_path, MACHINE | files)) == Memory(400 * 1024, 1000 * 1024)


@pytest.mark.parametrize(("free", "is_well"), [(49, False), (50, True)])
def test_memory_fails_when_little_is_left(free: int, is_well: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "left_memory", lambda: Memory(free * 1_000_000, 1_000_000_000))
    if is_well:
        check_memory()
        return
    with pytest.raises(MemoryError, match="only 49 MB are left, of 1000 MB"):
        check_memory()


@pytest.mark.parametrize(
    ("total", "free", "is_well"),
    [
        (10**12, 500_000_000, True),
        (10**12, 499_999_999, False),
        (10**9, 50_000_000, True),
        (10**9, 49_999_999, False),
    ],
)
def test_a_disk_fails_when_little_is_free(
    total: int, free: int, is_well: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, total - free, free))
    if is_well:
        check_disk(tmp_path)
        return
    with pytest.raises(OSError, match=r"only \d+ MB are free, of \d+ MB that should be"):
        check_disk(tmp_path)


def test_a_folder_that_is_not_there_fails(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_disk(tmp_path / "gone")


def test_a_log_that_grows_and_grows_fails(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    check_file(path)
    with open(tmp_path / "shop.db-wal", "wb") as log:
        log.truncate(LARGEST_LOG)
        check_file(path)
        log.truncate(LARGEST_LOG + 1)
        with pytest.raises(OSError, match=r"shop\.db-wal has 256 MB and cannot begin anew: end what keeps on reading"):
            check_file(path)


def test_the_log_of_a_file_behind_a_link_is_found(tmp_path: Path) -> None:
    real = tmp_path / "data" / "shop.db"
    real.parent.mkdir()
    real.touch()
    (tmp_path / "link.db").symlink_to(real)
    with open(f"{real}-wal", "wb") as log:
        log.truncate(LARGEST_LOG + 1)
    with pytest.raises(OSError, match=r"shop\.db-wal has 256 MB"):
        check_file(tmp_path / "link.db")


def test_a_log_that_goes_away_under_the_look_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.db"
    monkeypatch.setattr(Path, "exists", lambda self: True)  # it was there a moment ago
    check_file(path)
