"""What the store remembers of a crawl beside its pages: its record, domains that asked to be left alone, its shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.crawl.urls import domain_of
from holdfast.errors import StoreError
from holdfast.ports import Exchange, Exchanged, Store, Value, ValueChange
from holdfast.runtime.crawls import VALUE, CrawlRecord, encode_record, read_record
from holdfast.runtime.shared.seen import Seen

_TRIES: Final = 20
_MOST_SEEDS: Final = 100
_MOST_DOMAINS: Final = 10_000
_SWEPT: Final = 100


class StoredHold(Struct, frozen=True, omit_defaults=True):
    """Until when nothing is to be asked of a domain, on the store's clock, and how often in a row it had refused."""

    until: float
    why: str = ""
    refusals: int = 0


_decode_hold: Final = msgspec.json.Decoder(StoredHold).decode
_encode: Final = msgspec.json.Encoder().encode


class Book:
    """The values of one crawl, as this process knows them; changed by compare-and-set. Used from one event loop."""

    def __init__(self, store: Store, crawl: str, on_value: Callable[[Value], None] | None = None) -> None:
        """on_value: is told of each value that is new."""
        self._store = store
        self._key = f"{VALUE}{crawl}"
        self._holds = f"{VALUE}{crawl}/hold/"
        self._on_value = on_value
        self._values: dict[str, Value] = {}
        self._held: dict[str, None] = {}
        """The domains with a hold, that of the oldest first."""
        self._seen = Seen()

    async def read(self) -> float:
        """Hear of everything; the store's clock."""
        return (await self.exchange()).now

    def all(self) -> list[Value]:
        """Every value of the crawl that is known."""
        return list(self._values.values())

    def absorb(self, values: Sequence[Value]) -> None:
        """Take over what the store says."""
        for value in values:
            if value.key != self._key and not value.key.startswith(f"{self._key}/"):
                continue
            known = self._values.get(value.key)
            if known is None or value.version > known.version:
                self._take(value)
                if self._on_value is not None:
                    self._on_value(value)

    async def exchange(self, *changes: ValueChange) -> Exchanged:
        """Send changes, and hear what is new."""
        asked = self._seen.version
        reply = await self._store.exchange(Exchange(changes=changes, seen=asked))
        if self._seen.hear(asked, reply):
            self._forget_past(reply.values)
        self.absorb(reply.values)
        refused = [change for change, is_done in zip(changes, reply.changed, strict=True) if not is_done]
        if any(self._expected(change.key) == change.expected for change in refused):
            self._forget_all()
        return reply

    # ---- the crawl itself

    @property
    def record(self) -> CrawlRecord | None:
        """What is known of it."""
        value = self._values.get(self._key)
        return None if value is None else read_record(value.data)

    async def begin(self, seeds: Sequence[str]) -> CrawlRecord:
        """It goes on, from these seeds too."""
        now = await self.read()

        def begun(record: CrawlRecord | None) -> CrawlRecord:
            known = record or CrawlRecord(started_at=now)
            merged = tuple(dict.fromkeys((*known.seeds, *seeds)))[:_MOST_SEEDS]
            return replace(_widened(known, map(domain_of, seeds)), seeds=merged, finished_at=None)

        return await self._change_record(begun)

    def is_record(self, value: Value) -> bool:
        """Whether this is what is stored of the crawl itself."""
        return value.key == self._key

    async def widen(self, domain: str) -> None:
        """Links within this domain too are followed: a seed redirects there."""
        now = await self.read()
        await self._change_record(lambda record: _widened(record or CrawlRecord(started_at=now), (domain,)))

    async def adopt(self, domains: Iterable[str]) -> None:
        """Pages of these domains come from elsewhere: a crawl that is not known yet begins with them."""
        now = await self.read()
        if self.record is None:
            await self._change_record(lambda record: _widened(record or CrawlRecord(started_at=now), sorted(domains)))

    async def finish(self) -> None:
        """Nothing is left to do."""
        now = await self.read()
        await self._change_record(lambda record: replace(record or CrawlRecord(), finished_at=now))

    async def _change_record(self, make: Callable[[CrawlRecord | None], CrawlRecord]) -> CrawlRecord:
        made = make(self.record)
        await self._set(self._key, lambda: encode_record(make(self.record)))
        return self.record or made

    # ---- domains that asked to be left alone

    def held_domain(self, value: Value) -> str | None:
        """Whose hold this value is; None where it is none."""
        return value.key.removeprefix(self._holds) if value.key.startswith(self._holds) else None

    def hold_of(self, domain: str) -> StoredHold | None:
        """Until when it asked to be left alone, though that may be over; None where nothing is known."""
        value = self._values.get(self._holds + domain)
        try:
            return None if value is None or value.data is None else _decode_hold(value.data)
        except (ValueError, RecursionError):
            return None

    def holds(self) -> dict[str, StoredHold]:
        """Of all domains, those that are over too."""
        found = ((domain, self.hold_of(domain)) for domain in self._held)
        return {domain: hold for domain, hold in found if hold is not None}

    async def hold(self, domain: str, until: float, why: str, refusals: int = 0) -> None:
        """Remember it, for whoever asks this domain next, unless a longer one is known."""
        key = self._holds + domain

        def longer() -> bytes | None:
            known, value = self.hold_of(domain), self._values.get(key)
            is_held = value is not None and known is not None and known.until >= until
            return value.data if is_held and value is not None else _encode(StoredHold(until, why, refusals))

        await self._set(key, longer)

    async def sweep(self, now: float, most: int = _SWEPT) -> int:
        """Remove holds that are over, some of those that were made first; how many. What is in use stays."""
        changes = []
        for domain in list(islice(self._held, most)):
            value, hold = self._values[self._holds + domain], self.hold_of(domain)
            if hold is None or hold.until <= now:
                changes.append(ValueChange(value.key, value.version, None))
            else:  # its turn comes again after the others
                self._held[domain] = self._held.pop(domain)
        if not changes:
            return 0
        return sum((await self.exchange(*changes)).changed)

    async def remove(self) -> None:
        """Forget everything of the crawl."""
        await self.read()
        for key in list(self._values):
            await self._set(key, lambda: None)

    # ---- inside

    def _expected(self, key: str) -> int:
        value = self._values.get(key)
        return 0 if value is None or value.data is None else value.version

    def _forget_all(self) -> None:
        """A change was refused although nothing newer came: the store was set back, so read it all again."""
        self._seen.doubt()
        self._forget_past(())

    def _forget_past(self, stored: Sequence[Value]) -> None:
        """These are all that the store has: what is known of others, or otherwise, is from before it was set back."""
        found = {value.key: value for value in stored}
        for value in [one for one in self._values.values() if one != found.get(one.key)]:
            del self._values[value.key]
            self._held.pop(self.held_domain(value) or "", None)
            if value.key not in found and value.data is not None and self._on_value is not None:
                self._on_value(Value(value.key, 0, None))

    def _take(self, value: Value) -> None:
        self._values[value.key] = value
        domain = self.held_domain(value)
        if domain is not None:
            self._held.pop(domain, None)
            if value.data is not None:
                self._held[domain] = None

    async def _set(self, key: str, make: Callable[[], bytes | None]) -> None:
        for _ in range(_TRIES):
            value = self._values.get(key)
            data = make()
            if data == (None if value is None else value.data):
                return
            reply = await self.exchange(ValueChange(key, self._expected(key), data))
            if all(reply.changed):
                return
        raise StoreError(f"{key} is changed by others all the time; try again")


def _widened(record: CrawlRecord, domains: Iterable[str]) -> CrawlRecord:
    return replace(record, domains=tuple(dict.fromkeys((*record.domains, *domains)))[:_MOST_DOMAINS])
