"""What the store remembers of a crawl beside its pages: its record, domains that asked to be left alone, its shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import StoreError
from holdfast.ports import Exchange, Exchanged, Store, Value, ValueChange
from holdfast.runtime.crawls import VALUE, CrawlRecord, encode_record, read_record

_TRIES: Final = 20
_MOST_SEEDS: Final = 100


class _Hold(Struct):
    """Until when nothing is to be asked of a domain, on the store's clock."""

    until: float
    why: str = ""


_decode_hold: Final = msgspec.json.Decoder(_Hold).decode
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
        self._seen = 0

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
                self._values[value.key] = value
                if self._on_value is not None:
                    self._on_value(value)

    async def exchange(self, *changes: ValueChange) -> Exchanged:
        """Send changes, and hear what is new."""
        reply = await self._store.exchange(Exchange(changes=changes, seen=self._seen))
        if reply.values:
            self._seen = max(self._seen, reply.values[-1].version)
        self.absorb(reply.values)
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
            return replace(known, seeds=merged, finished_at=None)

        return await self._change_record(begun)

    async def add_seed(self, url: str) -> None:
        """One more place where it began, such as where a seed redirects to."""
        await self.begin((url,))

    async def finish(self) -> None:
        """Nothing is left to do."""
        now = await self.read()
        await self._change_record(lambda record: replace(record or CrawlRecord(), finished_at=now))

    async def _change_record(self, make: Callable[[CrawlRecord | None], CrawlRecord]) -> CrawlRecord:
        made = make(self.record)
        await self._set(self._key, lambda: encode_record(make(self.record)))
        return self.record or made

    # ---- domains that asked to be left alone

    def holds(self) -> dict[str, tuple[float, str]]:
        """Until when, and why, by domain."""
        found = {}
        for key, value in self._values.items():
            if key.startswith(self._holds) and value.data is not None:
                try:
                    hold = _decode_hold(value.data)
                except (ValueError, RecursionError):
                    continue
                found[key.removeprefix(self._holds)] = (hold.until, hold.why)
        return found

    async def hold(self, domain: str, until: float, why: str) -> None:
        """Remember it, for whoever asks this domain next, unless a longer one is known."""
        key = self._holds + domain

        def longer() -> bytes | None:
            known = self._values.get(key)
            is_held = known is not None and self.holds().get(domain, (0.0, ""))[0] >= until
            return known.data if is_held and known is not None else _encode(_Hold(until, why))

        await self._set(key, longer)

    async def let_go(self, domains: Sequence[str]) -> None:
        """What is known of these is over."""
        for domain in domains:
            await self._set(self._holds + domain, lambda: None)

    async def remove(self) -> None:
        """Forget everything of the crawl."""
        await self.read()
        for key in list(self._values):
            await self._set(key, lambda: None)

    # ---- inside

    async def _set(self, key: str, make: Callable[[], bytes | None]) -> None:
        for _ in range(_TRIES):
            value = self._values.get(key)
            data = make()
            if data == (None if value is None else value.data):
                return
            version = 0 if value is None or value.data is None else value.version
            reply = await self.exchange(ValueChange(key, version, data))
            if all(reply.changed):
                return
        raise StoreError(f"{key} is changed by others all the time; try again")
