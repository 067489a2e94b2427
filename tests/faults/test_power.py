"""The model of power cuts can find what it is there for: writes that no sync has covered, failed syncs, lost names."""

from __future__ import annotations

from pathlib import Path

from tests.faults.power import SECTOR, Disk, Event, put, recorded

FOLDER = Path("/disk")
FILE = "/disk/file"
CREATED = Event(what="create", path=FILE)


def disk_after(*events: Event) -> Disk:
    """Syncs promise everything before them."""
    disk = Disk(FOLDER)
    for number, event in enumerate(events):
        disk.do(Event(what=event.what, path=event.path, data=event.data, at=event.at, target=event.target,
                      begun=event.begun or number, is_ok=event.is_ok))  # fmt: skip
    return disk


def write(data: bytes, at: int = 0) -> Event:
    return Event(what="write", path=FILE, data=data, at=at)


def sync(path: str = FILE, *, is_ok: bool = True, begun: int = 0) -> Event:
    return Event(what="sync", path=path, is_ok=is_ok, begun=begun)


def found(disk: Disk, *, keeps: bool = False) -> bytes | None:
    return disk.after_cut(lambda: keeps, {FILE}).get(FILE)


def test_what_was_synced_is_kept_and_what_was_not_is_lost() -> None:
    disk = disk_after(CREATED, write(b"old"), sync(), sync("/disk"), write(b"new", at=3))
    assert found(disk) == b"old"
    assert found(disk, keeps=True) == b"oldnew"
    assert disk.now() == {FILE: b"oldnew"}


def test_a_file_whose_folder_was_not_synced_has_no_name() -> None:
    disk = disk_after(CREATED, write(b"old"), sync())
    assert found(disk) is None
    assert found(disk, keeps=True) == b"old"


def test_a_name_that_was_removed_or_changed_comes_back_until_the_folder_is_synced() -> None:
    begin = (CREATED, write(b"old"), sync(), sync("/disk"))
    assert found(disk_after(*begin, Event(what="unlink", path=FILE))) == b"old"
    assert found(disk_after(*begin, Event(what="unlink", path=FILE), sync("/disk"))) is None
    moved = disk_after(*begin, Event(what="rename", path=FILE, target="/disk/other"), sync("/disk"))
    assert moved.after_cut(lambda: False, {FILE, "/disk/other"}) == {"/disk/other": b"old"}


def test_a_failed_sync_promises_nothing_and_no_later_one_makes_up_for_it() -> None:
    disk = disk_after(CREATED, sync("/disk"), write(b"old"), sync(is_ok=False), sync())
    assert found(disk) == b""
    again = disk_after(CREATED, sync("/disk"), write(b"old"), sync(is_ok=False), write(b"old"), sync())
    assert found(again) == b"old"


def test_a_sync_promises_nothing_that_was_written_after_it_began() -> None:
    disk = disk_after(CREATED, sync("/disk"), write(b"old"), write(b"new", at=3), sync(begun=3))
    assert found(disk) == b"old"


def test_a_write_is_torn_between_sectors_and_nowhere_else() -> None:
    disk = disk_after(CREATED, sync("/disk"), write(b"a" * SECTOR + b"b" * SECTOR, at=SECTOR // 2))
    kept = iter([False, True, False])
    torn = disk.after_cut(lambda: next(kept), {FILE})[FILE]
    assert torn == bytes(SECTOR) + b"a" * (SECTOR // 2) + b"b" * (SECTOR // 2)


def test_a_file_that_is_cut_off_keeps_its_end_until_it_is_synced() -> None:
    cut_off = Event(what="truncate", path=FILE, at=2)
    begin = (CREATED, sync("/disk"), write(b"long"), sync(), cut_off)
    assert found(disk_after(*begin)) == b"long"
    assert found(disk_after(*begin, sync())) == b"lo"


def test_files_of_an_earlier_cut_are_gone(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"left over")
    put({FILE: b"found"}, tmp_path, ("file", "other"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"found"


def _hex(text: str) -> str:
    return "".join(f"\\x{one:02x}" for one in text.encode())


def test_calls_of_several_threads_are_in_the_order_in_which_they_were_over(tmp_path: Path) -> None:
    name, other = _hex(FILE), _hex("/elsewhere/file")
    log = tmp_path / "trace"
    log.write_text(
        f'1 openat(AT_FDCWD<{_hex("/")}>, "{name}", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 3<{name}>\n'
        f'1 openat(AT_FDCWD<{_hex("/")}>, "{name}", O_RDONLY) = 4<{name}>\n'
        f"2 fdatasync(3<{name}> <unfinished ...>\n"
        f'1 pwrite64(3<{name}>, "{_hex("abc")}", 3, 7) = 2\n'
        f'1 pwrite64(5<{other}>, "{_hex("abc")}", 3, 7) = 3\n'
        f'1 write(3<{name}>, "{_hex("d")}", 1) = -1 ENOSPC (No space left on device)\n'
        "2 <... fdatasync resumed>) = 0\n"
        f"1 ftruncate(3<{name}>, 1) = 0\n"
        f"1 fdatasync(3<{name}>) = -1 EIO (Input/output error) (INJECTED)\n"
        f'1 unlink("{name}") = 0\n'
        f'1 write(3<{_hex(FILE + " (deleted)")}>, "{_hex("d")}", 1) = 1\n'
        f"1 fdatasync(3<{name}> <unfinished ...>\n"
        "+++ killed by SIGKILL +++\n"
    )
    assert recorded(log, FOLDER) == [
        CREATED,
        Event(what="write", path=FILE, data=b"ab", at=7),
        Event(what="sync", path=FILE, begun=1),
        Event(what="truncate", path=FILE, at=1),
        Event(what="sync", path=FILE, begun=4, is_ok=False),
        Event(what="unlink", path=FILE),
    ]
