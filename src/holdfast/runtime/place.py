"""Where in a user's code an error came from while that code was loaded."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Final

_PACKAGE: Final = str(Path(__file__).parents[1]) + os.sep
_BETWEEN: Final = (f"{os.sep}importlib{os.sep}", f"{os.sep}contextlib.py")
"""What stands between the code of a user and ours, and is of neither."""


def place_of(error: BaseException) -> str:
    """File and line in which it happened, as ` (shop.py, line 3)`; empty where it is in no code but our own."""
    if isinstance(error, SyntaxError):
        return ""  # its message has them
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith(_PACKAGE) and not any(part in frame.filename for part in _BETWEEN)
    ]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
