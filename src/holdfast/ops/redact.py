"""What is stored, as it may be shown: without secrets. The rules are `redact.py`'s."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.ports import CrawlReport, RingReport
from holdfast.redact import (
    HIDDEN,
    NAME_KEYS,
    hidden_items,
    hidden_keys,
    hides,
    is_secret,
    redacted,
    redacted_text,
)
from holdfast.runtime.origins import origin_fields
from holdfast.types import JobRecord

__all__ = [
    "HIDDEN",
    "NAME_KEYS",
    "crawl_shown",
    "hidden_items",
    "hidden_keys",
    "hides",
    "is_secret",
    "origin_shown",
    "redacted",
    "redacted_text",
    "ring_shown",
    "shown",
    "without_secrets",
]

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=RingReport)
C = TypeVar("C", bound=CrawlReport)
_TEXTS: Final = ("message", "reason", "traceback", "cause", "user", "project", "idempotency_key")


def shown(data: bytes | None) -> Any:
    """Stored JSON as it may be shown: without secrets; what is no JSON, as text."""
    if data is None:
        return None
    try:
        return redacted(msgspec.json.decode(data))
    except (ValueError, RecursionError):
        return redacted_text(data.decode("utf-8", "backslashreplace"))


def without_secrets(record: T) -> T:
    """The same job, attempt, group or breaker, with its texts as they may be shown."""
    texts = {name: getattr(record, name, None) for name in _TEXTS}
    changes: dict[str, Any] = {name: redacted_text(text) for name, text in texts.items() if isinstance(text, str)}
    if attempts := getattr(record, "attempts", ()):
        changes["attempts"] = [without_secrets(one) for one in attempts]
    return replace(record, **changes)


def origin_shown(record: JobRecord) -> dict[str, Any]:
    """Where a record came from, as it may be shown: the URLs of a page are user-made, and may hold a secret."""
    fields = origin_fields(record)
    if fields["kind"] != "page":
        return fields
    return fields | {name: redacted_text(fields[name]) for name in ("url", "domain", "referrer")}


def crawl_shown(crawl: C) -> C:
    """The same crawl in one process, with its texts as they may be shown."""
    domains = tuple(replace(one, domain=redacted_text(one.domain), why=redacted_text(one.why)) for one in crawl.domains)
    output, error = redacted_text(crawl.output), redacted_text(crawl.output_error)
    return replace(crawl, output=output, output_error=error, domains=domains)


def ring_shown(ring: R) -> R:
    """The same ring, with what its consumers say as it may be shown."""
    consumers = tuple(
        replace(one, doing=redacted_text(one.doing), checkpoint_error=redacted_text(one.checkpoint_error))
        for one in ring.consumers
    )
    return replace(ring, consumers=consumers)
