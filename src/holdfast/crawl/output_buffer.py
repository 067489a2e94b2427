"""What is added to an output is gathered here, and written many pages at a time."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import Struct

from holdfast.errors import StoreError

if TYPE_CHECKING:
    from holdfast.crawl.outputs import Done

MOST_PAGES: Final = 1_000
MOST_BYTES: Final = 4 * 1024 * 1024
"""What is gathered at most, and one page more: then it is written without being asked."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Entry(Struct, frozen=True):
    """A page that is to be written."""

    key: bytes
    """Its id, as 16 bytes."""
    id: str
    url: str
    items: tuple[bytes, ...]
    """As JSON, each without a line break."""


class Sink(Protocol):
    """What an output writes to, and what it knows of what is in there. From one thread at a time."""

    @property
    def path(self) -> str:
        """Where it is: an absolute path, or "-"."""

    @property
    def count(self) -> int:
        """Pages that are written durably."""

    def open(self, crawl: str, crawl_id: str) -> None:
        """Take it for this crawl, and cut it back to what is durable."""

    def known(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of these pages that are written durably."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Write these, except for those that are known, durably and all or none.

        After an error nobody knows which of the two it was: writing the same again makes sure.
        """

    def close(self) -> None:
        """Give it back."""


class BufferedOutput:
    """An output over a sink: see `Output`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._entries: dict[bytes, Entry] = {}
        self._bytes = 0
        self._is_open = False

    @property
    def path(self) -> str:
        """Where it is: an absolute path, or "-"."""
        return self._sink.path

    @property
    def count(self) -> int:
        """Pages that are in it durably."""
        return self._sink.count

    def open(self, crawl: str, *, crawl_id: str = "") -> None:
        """Take it for this crawl."""
        with self._lock:
            self._sink.open(crawl, crawl_id)
            self._is_open = True

    def add(self, pages: Sequence[Done]) -> int:
        """Take those that were not added yet."""
        added = 0
        with self._lock:
            self._refuse_closed()
            for start in range(0, len(pages), MOST_PAGES):
                added += self._add(pages[start : start + MOST_PAGES])
        return added

    def sync(self) -> None:
        """Make durable what was added."""
        with self._lock:
            self._refuse_closed()
            self._sync()

    def has(self, ids: Collection[str]) -> set[str]:
        """Those of these pages that were added already."""
        keys = {_key(one): one for one in ids}
        with self._lock:
            self._refuse_closed()
            return {keys[key] for key in self._known(keys)}

    def close(self) -> None:
        """Sync and give it back."""
        with self._lock:
            if not self._is_open:
                return
            try:
                self._sync()
            finally:
                self._is_open = False  # or a thread that is late would open the sink again
                self._entries.clear()
                self._sink.close()

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise StoreError(f"{self.path}: the output is closed")

    def _add(self, pages: Sequence[Done]) -> int:
        keyed = {_key(page.id): page for page in pages}
        known = self._known(keyed)
        added = 0
        for key, page in keyed.items():
            if key in known:
                continue
            if len(self._entries) >= MOST_PAGES or self._bytes >= MOST_BYTES:
                self._sync()  # before, not after: while the sink takes nothing, nothing more is gathered
            entry = Entry(key, page.id, page.url, tuple(map(_line, page.items)))
            self._entries[key] = entry
            self._bytes += sum(map(len, entry.items))
            added += 1
        return added

    def _known(self, keys: Collection[bytes]) -> set[bytes]:
        return self._sink.known(keys) | (self._entries.keys() & keys)

    def _sync(self) -> None:
        if self._entries:
            self._sink.write(list(self._entries.values()))
            self._entries.clear()
            self._bytes = 0


def _key(page_id: str) -> bytes:
    key = bytes.fromhex(page_id.replace("-", ""))
    if len(key) != 16:
        raise ValueError(f"{page_id!r} is not the id of a page")
    return key


def _line(item: Any) -> bytes:
    line = _encode(item)
    if b"\n" in line or b"\r" in line:  # a Raw with white space of its own: within texts they are escaped
        line = _encode(_decode(line))
    return line
