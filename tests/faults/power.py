"""Power cuts: what a disk would hold if the machine lost its power after any of the writes that were recorded.

strace records every write and sync of a program, with its bytes. A disk promises what was synced, and no more: all else
may be lost, in whole or in sectors. So the files can be made as they would be found after a cut at any place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

CALLS: Final = "openat,pwrite64,write,ftruncate,fdatasync,fsync,unlink,rename,pwritev,writev,fallocate"
"""What can change a file, or make it durable; SQLite maps only the index of its log, which it can make anew."""
SECTOR: Final = 512
"""A disk writes so many bytes in whole, or not at all."""

_LINE: Final = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed>)(.*)")
_UNFINISHED: Final = "<unfinished ...>"
_RESULT: Final = re.compile(r"\) += (-?\d+)[^=]*$")
_HEX: Final = r"((?:\\x[0-9a-f]{2})*)"
_FD: Final = re.compile(rf"\d+<{_HEX}>")
_TEXT: Final = re.compile(rf'"{_HEX}"')
_OFFSET: Final = re.compile(r", (\d+)\)?$")
_GONE: Final = " (deleted)"
What = Literal["create", "write", "append", "truncate", "sync", "unlink", "rename"]
_SYNCS: Final = frozenset({"fsync", "fdatasync"})


class Event(Struct, frozen=True, kw_only=True):
    """One call that has succeeded, or a sync that has not."""

    what: What
    path: str
    data: bytes = b""
    at: int = 0
    """The offset of a write, or the size that is left by a truncate."""
    target: str = ""
    """The new name."""
    begun: int = 0
    """How many events were over when it began: a sync promises nothing that came later."""
    is_ok: bool = True


def strace_options(log: Path) -> tuple[str, ...]:
    """What strace has to be told."""
    return ("-f", "-qq", "-y", "-xx", "-s", "100000000", "-o", str(log), "-e", f"trace={CALLS}")


def recorded(log: Path, folder: Path) -> list[Event]:
    """Everything that happened to files of a folder, in the order in which it was over."""
    events: list[Event] = []
    begun: dict[str, tuple[str, str, int]] = {}
    with log.open() as lines:
        for line in lines:
            if not (match := _LINE.match(line)):
                continue
            thread, name, rest = match.groups()
            rest = rest.rstrip()
            if "resumed>" in line[:60]:
                name, head, since = begun.pop(thread)
                rest = head + rest
            elif rest.endswith(_UNFINISHED):
                begun[thread] = (name, rest.removesuffix(_UNFINISHED).rstrip(), len(events))
                continue
            else:
                since = len(events)
            event = _event(name, rest, since)
            if event is not None and Path(event.path).is_relative_to(folder):
                events.append(event)
    return events


def _event(name: str, rest: str, begun: int) -> Event | None:
    result = _RESULT.search(rest)
    if result is None:
        return None  # it was killed on the way
    number, arguments = int(result[1]), rest[: result.start() + 1]
    texts = [_bytes(one) for one in _TEXT.findall(arguments)]
    if name in {"openat", "unlink", "rename"}:
        if number < 0 or (name == "openat" and "O_CREAT" not in arguments):
            return None
        what: What = "create" if name == "openat" else "unlink" if name == "unlink" else "rename"
        return Event(what=what, path=texts[0].decode(), target=texts[-1].decode() if what == "rename" else "")
    if not (opened := _FD.match(arguments)):
        return None  # no file at all
    path = _bytes(opened[1]).decode()
    if path.endswith(_GONE) or (number < 0 and name not in _SYNCS):
        return None
    match name:
        case "fsync" | "fdatasync":
            return Event(what="sync", path=path, begun=begun, is_ok=number == 0)
        case "ftruncate":
            return Event(what="truncate", path=path, at=_offset(arguments))
        case "pwrite64":
            return Event(what="write", path=path, data=texts[0][:number], at=_offset(arguments))
        case "write":
            return Event(what="append", path=path, data=texts[0][:number])
        case _:
            raise AssertionError(f"{name} of {path}: this is not understood")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _offset(arguments: str) -> int:
    found = _OFFSET.search(arguments)
    assert found is not None, arguments[-40:]
    return int(found[1])


# ---------------------------------------------------------------- the disk


class _Pending(Struct, frozen=True):
    """A change that the disk has not promised to keep."""

    number: int
    """Of its event."""
    at: int
    data: bytes | None
    """None: the file is cut off here."""


class _File:
    """What the disk has of a file, and what it was told since."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[_Pending] = []
        self.size = 0
        """With everything that is pending."""

    def change(self, number: int, at: int, data: bytes | None) -> None:
        self.pending.append(_Pending(number, at, data))
        self.size = at if data is None else max(self.size, at + len(data))

    def sync(self, before: int) -> None:
        for one in self.pending:
            if one.number < before:
                _apply(self.durable, one.at, one.data)
        self.forget(before)

    def forget(self, before: int) -> None:
        self.pending = [one for one in self.pending if one.number >= before]

    def after(self, keeps: Callable[[], bool]) -> bytes:
        """With so much of what is pending as chance would have it, sector by sector."""
        found = bytearray(self.durable)
        for one in self.pending:
            for at, data in _sectors(one):
                if keeps():
                    _apply(found, at, data)
        return bytes(found)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    if data is None:
        del content[at:]
    else:
        content[at : at + len(data)] = data


def _sectors(change: _Pending) -> Iterator[tuple[int, bytes | None]]:
    if change.data is None:
        yield change.at, None
        return
    start = change.at
    end = change.at + len(change.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield start, change.data[start - change.at : stop - change.at]
        start = stop


class Disk:
    """The files of one folder, on a disk that keeps its promises and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._pending_names: list[tuple[int, str, _File | None]] = []
        self._number = 0

    def do(self, event: Event) -> None:
        """Let this happen."""
        number, path = self._number, event.path
        self._number += 1
        if event.what != "create" and path != self._folder and path not in self._names:
            return  # it was there before, as the log of a process is
        match event.what:
            case "create":
                if path not in self._names:
                    self._name(number, path, _File())
            case "unlink":
                self._name(number, path, None)
            case "rename":
                file = self._names[path]
                self._name(number, event.target, file)
                self._name(number, path, None)
            case "sync" if path == self._folder:
                self._sync_names(event)
            case "sync":
                file = self._names[path]
                # A kernel that could not write pages takes them for clean: no later sync will write them again.
                (file.sync if event.is_ok else file.forget)(event.begun)
            case "truncate":
                self._names[path].change(number, event.at, None)
            case "append":
                self._names[path].change(number, self._names[path].size, event.data)
            case "write":
                self._names[path].change(number, event.at, event.data)

    def _name(self, number: int, path: str, file: _File | None) -> None:
        self._pending_names.append((number, path, file))
        _rename(self._names, path, file)

    def _sync_names(self, event: Event) -> None:
        if event.is_ok:
            for number, path, file in self._pending_names:
                if number < event.begun:
                    _rename(self._durable_names, path, file)
            self._pending_names = [one for one in self._pending_names if one[0] >= event.begun]

    def after_cut(self, keeps: Callable[[], bool], wanted: Container[str]) -> dict[str, bytes]:
        """What is found under these names when the power is back.

        Names come in order: which one is the first to be lost is chance.
        """
        names = dict(self._durable_names)
        for _, path, file in self._pending_names:
            if not keeps():
                break
            _rename(names, path, file)
        return {path: file.after(keeps) for path, file in names.items() if path in wanted}

    def now(self) -> dict[str, bytes]:
        """What programs see, with the power on; only where no sync has failed."""
        return {path: file.after(lambda: True) for path, file in self._names.items()}


def _rename(names: dict[str, _File], path: str, file: _File | None) -> None:
    if file is None:
        names.pop(path, None)
    else:
        names[path] = file


def replay(events: Iterable[Event], folder: Path) -> Iterator[tuple[Event, Disk]]:
    """Each event, and the disk after it; it is the same disk all the way."""
    disk = Disk(folder)
    for event in events:
        disk.do(event)
        yield event, disk


def put(files: Mapping[str, bytes], folder: Path, names: Iterable[str]) -> None:
    """Write these files into a folder, where of these names nothing else is left."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for path, data in files.items():
        (folder / Path(path).name).write_bytes(data)
