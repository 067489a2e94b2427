"""Notices on their way: to each target in order, by one server at a time.

A target that fails holds up its own notices, and nobody else's: "resolved" never comes before its "firing".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

HOLD_S: Final = 120.0
"""For how long a sender has a target to itself; then another one may send the same again."""
AGAIN_S: Final = 60.0
"""After so long a notice that a target did not take is sent to it again."""
MOST_TRIES: Final = 10
"""After so many tries a notice is dropped."""
KEEP_S: Final = 3600.0
"""After so long a notice is dropped, however often it was tried: its target may be nobody's any more."""
_MOST_PENDING: Final = 10


class Notice(Struct, frozen=True, kw_only=True):
    """What is told when an alert fires, is still firing, or is resolved."""

    id: str
    """The same however often it is sent: who has seen it needs it no more."""
    name: str
    state: Literal["firing", "resolved"]
    value: float | None
    threshold: float
    text: str
    """The same in words."""
    at: float
    """When it came to be, in seconds since 1970 on the store's clock."""
    app: str = ""
    is_reminder: bool = False
    metrics: Mapping[str, float] = {}
    """How the app was at that time."""


class Pending(Struct, frozen=True, kw_only=True):
    """A notice that has not been sent to all who should get it."""

    notice: Notice
    left: tuple[str, ...]
    """The targets that do not have it yet."""


class Lane(Struct, frozen=True, kw_only=True):
    """The way to one target: what waits for it is one server's to send."""

    by: str
    until_at: float
    """Until then it is that server's alone."""
    tries: int = 1
    """Of the first notice that waits."""


class Outbox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The notices of one alert that are not with all who should get them."""

    pending: tuple[Pending, ...] = ()
    """Oldest first."""
    lanes: Mapping[str, Lane] = {}
    """For each target that something waits for."""


def told(outbox: Outbox, notice: Notice, to: Collection[str], by: str, now: float) -> Outbox:
    """With a notice for these targets; its maker sends it to those for whom nothing else waits."""
    free = {target: Lane(by=by, until_at=now + HOLD_S) for target in to if target not in outbox.lanes}
    pending = (*outbox.pending, Pending(notice=notice, left=tuple(to)))[-_MOST_PENDING:]
    return _tidy(outbox, pending, {**outbox.lanes, **free})


def waiting(outbox: Outbox, target: str) -> Notice | None:
    """The notice that a target is to get next."""
    return next((one.notice for one in outbox.pending if target in one.left), None)


def taken(
    outbox: Outbox, targets: Iterable[str], by: str, now: float, *, is_patient: bool = False
) -> tuple[Outbox, tuple[str, ...]]:
    """Take over what waits for these targets and is nobody's to send any more; which targets that are.

    A notice that was tried often enough, or is too old, is dropped. is_patient: none is.
    """
    if not is_patient:
        pending = tuple(one for one in outbox.pending if now - one.notice.at < KEEP_S)
        outbox = _tidy(outbox, pending, outbox.lanes)
    mine = []
    for target in targets:
        lane = outbox.lanes.get(target)
        # One that is held for longer than anybody may hold it was dated by a clock that has been set back.
        if lane is None or now < lane.until_at <= now + HOLD_S:
            continue
        tries = lane.tries + 1
        if tries > MOST_TRIES and not is_patient:
            outbox, tries = _without_first(outbox, target), 1
        if target in outbox.lanes:
            outbox = replace(outbox, lanes={**outbox.lanes, target: Lane(by=by, until_at=now + HOLD_S, tries=tries)})
            mine.append(target)
    return outbox, tuple(mine)


def given(outbox: Outbox, target: str, id: str, by: str, now: float) -> Outbox:  # noqa: A002
    """A target has this notice; if another one waits for it, that is this server's to send as well."""
    has_it = any(one.notice.id == id and target in one.left for one in outbox.pending)
    pending = tuple(_less(one, target) if one.notice.id == id else one for one in outbox.pending)
    lane = outbox.lanes.get(target)
    lanes = outbox.lanes
    if has_it and lane is not None and lane.by == by:
        lanes = {**lanes, target: Lane(by=by, until_at=now + HOLD_S)}
    return _tidy(outbox, pending, lanes)


def refused(outbox: Outbox, target: str, by: str, now: float) -> Outbox:
    """A target did not take its notice from this server: anybody tries again, after a while."""
    return _let_go(outbox, target, by, now + AGAIN_S, 0)


def left_over(outbox: Outbox, target: str, by: str, now: float) -> Outbox:
    """This server goes, and its try does not count: anybody may go on at once."""
    return _let_go(outbox, target, by, now, 1)


def _let_go(outbox: Outbox, target: str, by: str, until_at: float, untried: int) -> Outbox:
    lane = outbox.lanes.get(target)
    if lane is None or lane.by != by:
        return outbox
    lane = Lane(by="", until_at=until_at, tries=lane.tries - untried)
    return replace(outbox, lanes={**outbox.lanes, target: lane})


def _less(one: Pending, target: str) -> Pending:
    return replace(one, left=tuple(other for other in one.left if other != target))


def _without_first(outbox: Outbox, target: str) -> Outbox:
    first = waiting(outbox, target)
    pending = tuple(_less(one, target) if one.notice is first else one for one in outbox.pending)
    return _tidy(outbox, pending, outbox.lanes)


def _tidy(outbox: Outbox, pending: tuple[Pending, ...], lanes: Mapping[str, Lane]) -> Outbox:
    """Without notices that all have, and lanes that nothing waits in."""
    pending = tuple(one for one in pending if one.left)
    used = {target for one in pending for target in one.left}
    return replace(outbox, pending=pending, lanes={target: lane for target, lane in lanes.items() if target in used})
