"""Who did what over HTTP: a line in the log at once, and the latest entries in the store for people to read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from holdfast.clock import SystemClock
from holdfast.errors import StoreError
from holdfast.ops.api.access import ADDRESS, PRINCIPAL
from holdfast.ops.redact import redacted_text
from holdfast.ops.text import short
from holdfast.ports import Exchange, Exchanged, ValueChange
from holdfast.runtime.shared.seen import Seen

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Scope

    from holdfast.ports import Clock, Store

AUDIT: Final = "holdfast.audit"
"""Where in a request's scope the trail is; also the name of the logger."""
KEPT: Final = 200
"""Entries in the store."""
KEPT_REFUSALS: Final = 100
"""Refusals among them: whoever is turned away must not push out of sight what was done."""

_LOG: Final = logging.getLogger("holdfast.audit")
_KEY: Final = "audit"
_EVERY_S: Final = 1.0
_CLOSE_WITHIN_S: Final = 2.0
_ATTEMPTS: Final = 20
_REFUSED: Final = "refused"
_SAFE: Final = "/:@=&;,+$!*()[]~%"


class Entry(Struct, frozen=True, array_like=True):
    """One thing that was done, or refused."""

    at: float
    who: str
    role: str
    address: str
    action: str
    target: str
    outcome: str
    who_id: str = ""
    """The id of the token: names may be given twice."""
    tenant: str | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether nothing was done."""
        return self.outcome.startswith(_REFUSED)


async def audit(request: Request, action: str, target: str, outcome: str = "done") -> None:
    """Write down that whoever sent this request did something: to whom or what, and how it ended."""
    trail: AuditTrail = request.scope[AUDIT]
    trail.record(request.scope, action, target, outcome)


class AuditTrail:
    """What was done, written into the log at once and into the store at most once a second.

    The entries are one value of the store, changed by compare and set, so several servers share it. It travels to all
    workers, as every value does: hence the few entries, and the batches. An entry that could not be written, because
    the store is away, is tried again; when the process dies first it is in the log alone.
    """

    def __init__(self, store: Store | None = None, *, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._pending: list[Entry] = []
        self._writer: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._kept: Sequence[Entry] = ()
        self._version = 0
        self._seen = Seen()
        self._ahead_s = 0.0

    def record(self, scope: Scope, action: str, target: str, outcome: str) -> None:
        """One entry; never waits."""
        principal = scope.get(PRINCIPAL)
        entry = Entry(
            at=self._clock.now(),
            who=principal.name if principal else "-",
            role=principal.role.value if principal else "-",
            address=_clean(scope.get(ADDRESS, ""), 64),
            action=_clean(action, 100),
            target=_clean(target, 200),
            outcome=_clean(outcome, 100),
            who_id=principal.token_id if principal else "",
            tenant=_clean(principal.tenant, 200) if principal and principal.tenant is not None else None,
        )
        fields = msgspec.structs.asdict(entry)
        level = logging.WARNING if entry.is_refusal else logging.INFO
        _LOG.log(
            level,
            "%s (%s) from %s: %s: %s",
            entry.who,
            entry.role,
            entry.address,
            f"{entry.action} {_quoted(entry.target)}" if entry.target else entry.action,
            entry.outcome,
            extra={name: value for name, value in fields.items() if name != "at"},
        )
        if self._store is None:
            return
        self._pending = _trimmed([*self._pending, entry])
        loop = asyncio.get_running_loop()
        if self._writer is None or self._writer.done() or self._writer.get_loop() is not loop:
            self._writer = loop.create_task(self._write(), name="holdfast-audit")

    def refused(self, scope: Scope, path: str, status: int) -> None:
        """A request that was turned away."""
        shown = quote(redacted_text(path), _SAFE, errors="replace")  # redacted first: escapes may hide a secret's name
        self.record(scope, f"{scope['method']} {shown}", "", f"{_REFUSED} {status}")

    async def entries(self) -> list[Entry]:
        """The latest entries, newest first, with those that are still to be written."""
        if self._store is not None:
            async with self._writing:
                await self._ask(self._store)
                if self._seen.version == 0:
                    await self._ask(self._store)
        return _newest_first([*self._kept, *self._moved(self._pending)])[:KEPT]

    async def aclose(self) -> None:
        """Write what is still to be written, within two seconds."""
        if self._writer is not None and self._writer.get_loop() is asyncio.get_running_loop():
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        if self._pending and self._store is not None:
            try:
                async with self._clock.timeout(_CLOSE_WITHIN_S):
                    await self._write_once(self._store)
            except (StoreError, TimeoutError) as error:
                _LOG.warning("%d entries are in this log alone: %s", len(self._pending), error)

    async def _write(self) -> None:
        """Until nothing is left: the first entry at once, those that come after it together a second later."""
        is_told = False
        while self._pending and self._store is not None:
            try:
                await self._write_once(self._store)
            except StoreError as error:
                if not is_told:
                    _LOG.warning("the audit entries cannot be written now, and are kept for later: %s", error)
                    is_told = True
            await self._clock.asleep(_EVERY_S)

    async def _write_once(self, store: Store) -> None:
        async with self._writing:
            if self._seen.version == 0:
                await self._ask(store)
            batch = self._pending
            for _ in range(_ATTEMPTS):
                wanted = _trimmed([*self._kept, *self._moved(batch)])
                change = ValueChange(_KEY, self._version, msgspec.json.encode(wanted))
                reply = await self._ask(store, change)
                if reply.changed[0]:
                    written = set(batch)
                    self._pending = [entry for entry in self._pending if entry not in written]
                    return
                if self._version == change.expected:  # refused by nothing newer: the store was set back
                    self._seen.doubt()
                    await self._ask(store)
        raise StoreError("the audit value is being changed by others all the time")

    async def _ask(self, store: Store, *changes: ValueChange) -> Exchanged:
        """What the store has by now, and how far its clock is ahead of ours."""
        asked = self._seen.version
        reply = await store.exchange(Exchange(changes=changes, seen=asked))
        if self._seen.hear(asked, reply):
            self._version, self._kept = 0, ()
        self._ahead_s = reply.now - self._clock.now()
        for value in reply.values:
            if value.key == _KEY:
                self._version = value.version if value.data is not None else 0
                self._kept = _decoded(value.data)
        return reply

    def _moved(self, entries: Iterable[Entry]) -> list[Entry]:
        """With instants on the store's clock."""
        return [msgspec.structs.replace(entry, at=entry.at + self._ahead_s) for entry in entries]


def _newest_first(entries: Sequence[Entry]) -> list[Entry]:
    """By their instants; of one instant, the last one written first."""
    latest = list(reversed(entries))
    latest.sort(key=lambda entry: entry.at, reverse=True)
    return latest


def _trimmed(entries: Sequence[Entry]) -> list[Entry]:
    """The latest ones, oldest first."""
    refusals = 0
    kept: list[Entry] = []
    for entry in _newest_first(entries):
        if entry.is_refusal:
            refusals += 1
            if refusals > KEPT_REFUSALS:
                continue
        kept.append(entry)
        if len(kept) == KEPT:
            break
    return kept[::-1]


def _decoded(data: bytes | None) -> Sequence[Entry]:
    """The entries of the value; what is no list of entries is nobody's trail, and is written over."""
    try:
        return msgspec.json.decode(data or b"[]", type=list[Entry])
    except (ValueError, RecursionError):
        return ()


def _quoted(text: str) -> str:
    """Text from outside within a line: where it ends is seen, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _clean(text: str, most: int) -> str:
    """Text from outside: one line, without control characters and secrets."""
    return short(redacted_text(text), most)
