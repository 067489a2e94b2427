"""A traceback's text in pieces, with those of the users' own code marked."""

from __future__ import annotations

import re
from typing import Final

from holdfast.fingerprint import is_users

_FILE: Final = re.compile(r'[ |]*File "([^"\n]+)", line \d+')
_SOURCE: Final = re.compile(r"[ |]* {4,}\S")
_ELSEWHERE: Final = re.compile(r"[/\\]lib(?:64)?[/\\]python3\.\d+[/\\]|[/\\]holdfast[/\\](?:runtime|app)[/\\]")
_MOST: Final = 200


def frames_of(traceback: str) -> list[tuple[str, bool]]:
    """The pieces of a traceback in order: a frame with its source lines, or the lines between two frames.

    Each with whether it is of user code: the fingerprint's rule, and for workers elsewhere what their paths say. Put
    together they are the text again.
    """
    pieces: list[tuple[list[str], bool]] = []
    is_frame = False
    for line in traceback.splitlines(keepends=True):
        found = _FILE.match(line)
        if len(pieces) >= _MOST:
            pieces[-1][0].append(line)
        elif found is not None:
            pieces.append(([line], is_users(found[1]) and _ELSEWHERE.search(found[1]) is None))
            is_frame = True
        elif pieces and is_frame == (_SOURCE.match(line) is not None):
            pieces[-1][0].append(line)
        else:
            pieces.append(([line], False))
            is_frame = False
    return [("".join(lines), is_user) for lines, is_user in pieces]
