"""Reads the Lua scripts out of the files beside this module."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from msgspec import Struct

_FOLDER: Final = Path(__file__).parent / "lua"
Word = str | bytes | int


class Script(Struct, frozen=True):
    """A script, and the name by which the server knows it once it has seen it."""

    text: bytes
    sha: bytes

    def call(self, keys: list[bytes], *words: Word) -> tuple[Word, ...]:
        """The command that runs it."""
        return (b"EVALSHA", self.sha, len(keys), *keys, *words)


def _script(name: str) -> Script:
    text = b"\n".join((_FOLDER / f"{file}.lua").read_bytes() for file in ("head", name))
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


BEAT: Final = _script("beat")
LEAVE: Final = _script("leave")
READ: Final = _script("read")
RESCUE: Final = _script("rescue")
ADOPT: Final = _script("adopt")
COMMIT: Final = _script("commit")
SEND: Final = _script("send")
TEXTS: Final = {script.sha: script.text for script in (BEAT, LEAVE, READ, RESCUE, ADOPT, COMMIT, SEND)}
