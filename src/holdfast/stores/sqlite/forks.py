"""Which files the parent of this process had open when it forked: SQLite is not used on them here.

SQLite keeps account of its locks by process, and a child inherits that account as it stood. It waits for ever for locks
that another thread held in that instant, and takes those for its own that the parent has: the log may then be removed
under it, with all that it commits from there on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from holdfast.errors import StoreError
from holdfast.stores.sqlite.files import Identity, identity_of

if TYPE_CHECKING:
    from holdfast.stores.sqlite.opened import Opened

_here: Final[WeakSet[Opened]] = WeakSet()
_inherited: Final[dict[Identity, list[Opened]]] = {}
"""They are kept: to close them here would harm the parent, and other files might get the numbers of theirs."""


def note_opened(opened: Opened) -> None:
    """This process is about to open a file; StoreError when its parent had it open."""
    if identity_of(opened.path) in _inherited:
        raise StoreError(
            f"{opened.path}: this process was forked from one that has the file open, which SQLite does not "
            "survive; start it afresh (multiprocessing's spawn method), or close the app before the fork"
        )
    _here.add(opened)


def note_closed(opened: Opened) -> None:
    """It is closed, and a child may open it."""
    _here.discard(opened)


def _after_fork() -> None:
    for opened in list(_here):
        database = opened.database or identity_of(opened.path)  # it may have been about to be opened
        if database is not None:
            _inherited.setdefault(database, []).append(opened)
        _here.discard(opened)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
