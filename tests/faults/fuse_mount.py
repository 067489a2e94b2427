"""A file system of any type that FUSE can be mounted as: an empty folder, served by a thread of this process."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.servers import missing

_HEADER: Final = struct.Struct("<IIQQIIII")
_REPLY: Final = struct.Struct("<IiQ")
_LOOKUP, _FORGET, _GETATTR, _STATFS, _INIT, _OPENDIR, _RELEASEDIR, _ACCESS, _DESTROY, _FORGETS = (
    1, 2, 3, 17, 26, 27, 29, 34, 38, 42,
)  # fmt: skip
_ROOT: Final = struct.pack("<QI4x", 0, 0) + struct.pack(
    "<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFDIR | 0o777, 2, 0, 0, 0, 512, 0
)
_VERSION: Final = (7, 31)


@contextmanager
def fuse_folder(folder: Path, kind: str) -> Iterator[Path]:
    """An empty folder on a file system of this type, such as fuse.sshfs; unmounted in the end."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        missing("FUSE CAN ONLY BE MOUNTED BY ROOT, WITH /dev/fuse")
    folder.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR)
    try:
        _mount(folder, kind, device)
        server = threading.Thread(target=_serve, args=(device,), name="fuse", daemon=True)
        server.start()
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
            server.join(10)
    finally:
        os.close(device)


def _mount(folder: Path, kind: str, device: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"server:/share", os.fsencode(folder), kind.encode(), 0, options.encode()) != 0:
        missing(f"{kind} CANNOT BE MOUNTED HERE: {os.strerror(ctypes.get_errno())}")


def _serve(device: int) -> None:
    """Answer the kernel until the file system is unmounted."""
    while True:
        try:
            asked = os.read(device, 1 << 20)
        except OSError as error:
            if error.errno in {errno.EINTR, errno.ENOENT, errno.EAGAIN}:
                continue
            return
        _, opcode, unique, *_ = _HEADER.unpack_from(asked)
        if opcode in {_FORGET, _FORGETS}:
            continue
        code, body = _answer(opcode)
        try:
            os.write(device, _REPLY.pack(_REPLY.size + len(body), -code, unique) + body)
        except OSError:  # whoever asked is gone
            continue


def _answer(opcode: int) -> tuple[int, bytes]:
    if opcode == _INIT:
        return 0, struct.pack("<IIIIHHIIHH8I", *_VERSION, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8)
    if opcode == _GETATTR:
        return 0, _ROOT
    if opcode == _OPENDIR:
        return 0, bytes(16)
    if opcode == _STATFS:
        return 0, bytes(80)
    if opcode in {_ACCESS, _DESTROY, _RELEASEDIR}:
        return 0, b""
    return (errno.ENOENT if opcode == _LOOKUP else errno.ENOSYS), b""
