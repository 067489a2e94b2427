"""The Redis part of bench-streams: whom it is measured with, and what is promised."""

from __future__ import annotations

from jobs_bars import Bar, at_least
from streams_results import Results
from streams_subject import Size, Subject

RAW = "raw loop, 100 at a time"
RAW_LARGE = "raw loop, 500 at a time"
EACH_KEY, EACH = "holdfast, async, per key", "holdfast, async, unordered"
BATCHES = "holdfast, batches of 500"

_RAW, _OURS = "streams_raw_redis", "streams_holdfast"
_TEN = "XACKs each 0.1 s, only what is finished"


def _ours(name: str, kind: str, order: str, size: Size = "some") -> Subject:
    return Subject(name, _OURS, {"scheme": "redis", "kind": kind, "order": order}, size, setting=_TEN)


SUBJECTS = (
    Subject(RAW, _RAW, {"count": 100, "decodes": False}, size="many", setting="not decoded, one XACK for all 100"),
    Subject(RAW_LARGE, _RAW, {"count": 500, "decodes": False}, size="many", setting="not decoded, one XACK for all"),
    Subject(
        "raw loop, 500 at a time, decoded",
        _RAW,
        {"count": 500, "decodes": True},
        size="many",
        setting="one XACK for all 500",
    ),
    _ours(EACH_KEY, "async", "key"),
    _ours(EACH, "async", "none"),
    _ours(BATCHES, "batch", "key", "many"),
    Subject(
        "FastStream",
        "streams_peers.on_faststream",
        {"client": "redis", "ack": "after"},
        size="few",
        setting="one XACK for each message, msgspec, no log",
    ),
)


def bars(results: Results) -> list[Bar]:
    """The raw loop takes 100 at a time; what it does with 500 is told beside it."""
    raw, large = results.handled(RAW), results.handled(RAW_LARGE)
    return [
        at_least(f"Redis, {BATCHES}: ≥ 0.5 × the raw loop, 100 at a time", results.committed(BATCHES), raw, 0.5),
        at_least(f"Redis, {BATCHES}: ≥ 0.5 × the raw loop, 500 at a time", results.committed(BATCHES), large, 0.5),
        *[
            at_least(f"Redis, {name}: ≥ 0.5 × the raw loop, 100 at a time", results.committed(name), raw, 0.5)
            for name in (EACH_KEY, EACH)
        ],
        at_least(
            f"Redis, {EACH_KEY}: ahead of FastStream",
            results.committed(EACH_KEY),
            results.handled("FastStream"),
            1,
            is_strict=True,
        ),
    ]
