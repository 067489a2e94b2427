"""What people type: lengths of time, instants, JSON objects, and the beginnings of ids."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click
import msgspec

from holdfast.app import App
from holdfast.ops.commands.lazy import Failed, Unusable
from holdfast.ports import Page
from holdfast.types import Group, JobRecord

MOST: Final = 1000
"""Rows on one page."""
_LENGTH: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)?")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_START: Final = re.compile(r"[0-9a-f-]{4,36}")
_PAGE: Final = 500


def length_of(text: str | float) -> float:
    """A length of time in seconds: `30`, `30s`, `5m`, `2h`, `7d`."""
    if isinstance(text, int | float):
        return float(text)  # a default
    found = _LENGTH.fullmatch(text.strip().lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is no length of time; write 30s, 5m, 2h or 7d")
    return float(found[1]) * _UNITS[found[2] or "s"]


def when_of(text: str) -> timedelta | datetime:
    """A point in time: so long ago (`2h`), or a date with or without its time (`2025-11-16T10:00`, local)."""
    if _LENGTH.fullmatch(text.strip().lower()):
        return timedelta(seconds=length_of(text))
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise click.BadParameter(
            f"{text!r} is no point in time; write 2h for two hours ago, or 2025-11-16T10:00"
        ) from error


def object_of(text: str) -> dict[str, Any]:
    """A JSON object, such as `{"order_id": 42}`; `-` reads it from standard input."""
    try:
        return msgspec.json.decode(sys.stdin.read() if text == "-" else text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"must be a JSON object, such as '{{\"order_id\": 42}}': {error}") from error


limit_option = click.option(
    "--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="At most so many."
)
"""`--limit`."""
cursor_option = click.option("--cursor", default="", help="Where the last page ended, as it said.")
"""`--cursor`."""


def gathered(read: Callable[[int, str], Page], limit: int, cursor: str = "") -> Page:
    """A full page: a search by text may stop short of its limit and still have more."""
    items: list[JobRecord] = []
    while True:
        page = read(limit - len(items), cursor)
        items += page.items
        cursor = page.cursor
        if not cursor or len(items) >= limit:
            return Page(items, cursor)


def full_id(app: App, start: str, *, is_dead: bool = False) -> str:
    """The id of a job or dead letter by its beginning; Failed when there is none, or more than one."""
    start = start.strip().lower()
    if _ID.fullmatch(start):
        return start
    if not _ID_START.fullmatch(start):
        raise Unusable(f"{start!r} is no id, and no beginning of one: at least 4 of its characters are needed")
    states = ("dead_letter",) if is_dead else ()
    found: list[str] = []
    cursor = ""
    while True:
        page = app.jobs.list(states=states, text=start, limit=_PAGE, cursor=cursor)
        found += [record.id for record in page.items if record.id.startswith(start)]
        cursor = page.cursor
        if not cursor or len(found) > 5:
            break
    return only_one(start, found, "dead letter" if is_dead else "job")


def full_group(groups: Sequence[Group], start: str) -> str:
    """The fingerprint of a group by its beginning, with or without the version in front."""
    fingerprints = [group.fingerprint for group in groups]
    if start in fingerprints:
        return start
    found = [one for one in fingerprints if one.startswith(start) or one.partition(":")[2].startswith(start)]
    if found:
        return only_one(start, found, "group")
    there = f"there are: {_few(fingerprints)}" if fingerprints else "there are no dead letters"
    raise Failed(f"there is no group {start}; {there}")


def full_task(app: App, name: str) -> str:
    """The task of this name, or whose name ends so, among those the store has jobs of and those the app has.

    Failed when there is none, or more than one. In a store without any jobs every name will do.
    """
    stored = app.stats(0).by_task
    known = {*stored, *app.tasks}
    if not stored or name in known:
        return name
    ending = sorted(one for one in known if one.endswith(f".{name}"))
    if len(ending) > 1:
        raise Failed(f"{name!r} could be several tasks: {' or '.join(ending)}")
    if not ending:
        raise Failed(f"no task {name!r}; {near(name, known)}")
    return ending[0]


def only_one(start: str, found: Sequence[str], what: str) -> str:
    """The one that was meant."""
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failed(f"there is no {what} {start}")
    raise Failed(f"{start} is the beginning of several: {_few(found)}")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def near(name: str, names: Iterable[str], most: int = 5) -> str:
    """In words: which names were perhaps meant, or which there are."""
    known = sorted(names)
    by_last = {one.rpartition(".")[2]: one for one in known}
    close = difflib.get_close_matches(name, [*known, *by_last], n=most, cutoff=0.7)
    found = list(dict.fromkeys(by_last.get(one, one) for one in close))
    if found:
        return f"did you mean {' or '.join(found)}?"
    if not known:
        return "there are none"
    return f"there are: {', '.join(known[:10])}" + (" …" if len(known) > 10 else "")
