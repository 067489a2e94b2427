"""A file on a network file system is refused in one line, before anything is made there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from holdfast.stores.sqlite import SqliteStore, mounts
from holdfast.stores.sqlite.mounts import network_disk


def mounted(folder: Path, kind: str, *, is_same: bool = True) -> Path:
    """A list of mounts in which this folder's device is one of this kind."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device) + (0 if is_same else 1)}"
    path = folder / "mountinfo"
    path.write_text(
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        f"36 35 {number} /a\\040b /mnt\\040x rw master:1 shared:2 - {kind} server:/share rw,vers=4.2\n"
        "37 35 0:99 / /proc rw - proc proc rw\n"
        "what is this\n"
    )
    return path


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.sshfs", "fuse.s3fs"])
def test_a_network_file_system_is_known_by_its_type(kind: str, tmp_path: Path) -> None:
    assert network_disk(str(tmp_path), mounted(tmp_path, kind)) == kind


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuse", "fuseblk", "zfs", "9p", "virtiofs"]
)
def test_a_disk_of_this_machine_is_not_taken_for_one(kind: str, tmp_path: Path) -> None:
    assert network_disk(str(tmp_path), mounted(tmp_path, kind)) == ""


def test_a_network_file_system_elsewhere_on_the_machine_says_nothing(tmp_path: Path) -> None:
    assert network_disk(str(tmp_path), mounted(tmp_path, "nfs4", is_same=False)) == ""


def test_where_nobody_knows_nothing_is_refused(tmp_path: Path) -> None:
    assert network_disk(str(tmp_path), tmp_path / "none") == ""
    assert network_disk(str(tmp_path / "none"), mounted(tmp_path, "nfs4")) == ""
    assert network_disk(str(tmp_path)) == ""


def test_a_store_there_is_refused_and_no_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "MOUNTS", mounted(tmp_path, "nfs4"))
    with pytest.raises(StoreError, match=r"shop\.db: it is on a network file system \(nfs4\).*local disk"):
        SqliteStore(tmp_path / "shop.db").capabilities  # noqa: B018 - asking opens it
    assert not (tmp_path / "shop.db").exists()
