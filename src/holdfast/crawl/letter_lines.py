"""Dead letters of a crawl as lines of JSON, in the format of `runtime/export.py` with what pages have; and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from holdfast.clock import new_id
from holdfast.crawl.frontier import Found
from holdfast.crawl.urls import canonical
from holdfast.errors import ConfigError
from holdfast.runtime.crawl_origins import QUEUE as CRAWLS
from holdfast.runtime.crawl_origins import decode_page
from holdfast.runtime.export import FORMAT, export_lines
from holdfast.types import JobRecord

Depth = Annotated[int, Meta(ge=0, lt=2**31)]
Priority = Annotated[int, Meta(ge=-(2**31), lt=2**31)]


class _PageFields(Struct, kw_only=True):
    """What makes a page of a line. Of those that are not at its top, its payload's count."""

    url: str = ""
    depth: Depth = 0
    referrer: str = ""
    data: dict[str, Any] = {}
    priority: Priority = 0


class _Line(_PageFields, kw_only=True):
    """What an import reads; the rest is for people."""

    holdfast: int = FORMAT
    queue: str = ""
    payload: Raw = Raw(b"{}")
    redacted: list[str] = []
    """JSON pointers to what was left out, as secrets are over HTTP."""


def page_lines(records: Iterable[JobRecord]) -> Iterator[str]:
    """Each letter as one line, without its end: the URL, what went wrong and what its link gave it come first."""
    for record in records:
        about = _about(record)
        for line in export_lines((record,)):
            rest = msgspec.json.decode(line, type=dict[str, Raw])
            yield msgspec.json.encode(about | rest).decode()


def found_in(lines: Iterable[str | bytes]) -> list[Found]:
    """The pages of these lines; empty lines are passed over. ConfigError for the first one that is no page."""
    return [_found(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """A file that is there once the block has ended well, and then whole: what was at its place stays until then."""
    place = Path(path)
    if not place.parent.is_dir():
        raise ConfigError(f"{str(path)!r}: there is no folder {str(place.parent)!r}")
    half = place.with_name(f".{place.name}.{new_id()}.half")
    try:
        with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        half.replace(place)
    finally:
        half.unlink(missing_ok=True)


def _about(record: JobRecord) -> dict[str, Any]:
    error = f"{record.error_name}: {record.message}" if record.error_name else record.reason
    for payload in (record.payload, record.original_payload):  # an edit may have spoiled it
        with suppress(ValueError, RecursionError):
            page = decode_page(payload or b"")
            return {"url": page.url, "error": error, "depth": page.depth, "referrer": page.referrer, "data": page.data}
    return {"error": error}


def _found(number: int, text: str | bytes) -> Found:
    try:
        line = msgspec.json.decode(text, type=_Line)
        page = line if line.url else msgspec.json.decode(line.payload, type=_PageFields)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"line {number}: is no page: {error}") from error
    if line.holdfast != FORMAT:
        raise ConfigError(f"line {number}: has the format {line.holdfast}, which cannot be read; here it is {FORMAT}")
    if line.queue and not line.queue.startswith(CRAWLS):
        raise ConfigError(f"line {number}: is no page: it is of the queue {line.queue!r}")
    url = canonical(page.url) if page.url else None
    if url is None:
        raise ConfigError(f"line {number}: is no page: its URL is {page.url!r}")
    if left_out := [one for one in line.redacted if one.split("/", 2)[1:2] in (["payload"], ["url"], ["data"])]:
        raise ConfigError(
            f"line {number}: {left_out[0]} was left out as a secret; `holdfast crawl letters export` leaves nothing out"
        )
    return Found(url, page.depth, page.referrer, line.priority or page.priority, page.data)
