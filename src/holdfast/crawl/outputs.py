"""Where the items of a crawl go: JSON lines, a SQLite database or standard output.

An output is a projection of the crawl's completed pages, whose results are in the store: each item of each of these
pages once, whoever fetched it, across kills and restarts. `Feed` writes one beside the running crawl.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from holdfast.crawl.json_lines_output import JsonLinesFile, StandardOutput
from holdfast.crawl.output_buffer import BufferedOutput, Sink
from holdfast.crawl.sqlite_output import SqliteItems
from holdfast.errors import ConfigError

STANDARD_OUTPUT: Final = "-"
LINES: Final = (".jsonl", ".ndjson")
DATABASES: Final = (".db", ".sqlite", ".sqlite3")


class Done(Struct, frozen=True):
    """A page that is completed: its completion and its items are committed in the store."""

    id: str
    """Of its job."""
    url: str
    items: Sequence[Any] = ()
    """JSON values; a `msgspec.Raw` is one that is encoded already."""


class Output(Protocol):
    """Where the items of one crawl are written, each once. From any thread; one at a time gets in.

    Errors: ConfigError where somebody must decide (the file is another crawl's, or was shortened); StoreError where it
    cannot be written now. After either nothing half-written counts, and the same call may be made again.
    """

    @property
    def path(self) -> str:
        """Where it is: an absolute path without links, or "-"."""

    @property
    def count(self) -> int:
        """Pages that are in it durably, those without items included; exact after `sync`."""

    def open(self, crawl: str, *, crawl_id: str = "") -> None:
        """Take it for this crawl and cut it back to what is durable.

        crawl_id: tells a crawl from an earlier one of the same name, which was removed since: the pages of that one are
            not taken for this one's. "" does not ask.
        """

    def add(self, pages: Sequence[Done]) -> int:
        """Take those that were not added yet; how many these were.

        They are gathered and not durable before the next `sync`, which comes by itself when there are many. After an
        error some of them may have been taken: add all of them again.
        """

    def sync(self) -> None:
        """Make durable what was added."""

    def has(self, ids: Collection[str]) -> set[str]:
        """Those of these pages that were added already."""

    def close(self) -> None:
        """Sync and give it back; given back in any case, also when the sync fails."""


def open_output(path: str | os.PathLike[str], crawl: str, *, crawl_id: str = "") -> Output:
    """The output of a crawl at this path, by its ending: .jsonl and .ndjson, or .db, .sqlite and .sqlite3.

    "-" is standard output: each start of the program writes all items of the crawl, those of earlier starts again.
    ConfigError where there cannot be one, where another process writes it, or where it is not this crawl's.
    """
    if not isinstance(path, str | os.PathLike) or "\0" in (text := str(os.fspath(path))):
        raise ConfigError(f"out={path!r}: must be a path of a file, or {STANDARD_OUTPUT!r}")
    output: Output = BufferedOutput(_sink(text))
    output.open(crawl, crawl_id=crawl_id)
    return output


def _sink(path: str) -> Sink:
    if path == STANDARD_OUTPUT:
        return StandardOutput()
    ending = os.path.splitext(path)[1].lower()
    if ending not in LINES + DATABASES:
        raise ConfigError(f"out={path!r}: must end in one of {', '.join(LINES + DATABASES)}, or be {STANDARD_OUTPUT!r}")
    if os.path.isdir(path):
        raise ConfigError(f"out={path!r}: is a folder; give the path of a file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError(f"out={path!r}: is not a regular file")
    own = os.path.realpath(path)  # or one file would have a ledger, and a lock, by each of its names
    if not os.path.isdir(os.path.dirname(own)):
        raise ConfigError(f"out={path!r}: there is no folder {os.path.dirname(own)}")
    return JsonLinesFile(own) if ending in LINES else SqliteItems(own)


if TYPE_CHECKING:
    _contract: type[Output] = BufferedOutput
