"""The Kafka part of bench-streams: whom it is measured with, and what is promised."""

from __future__ import annotations

from jobs_bars import Bar, at_least
from jobs_timing import PYTHON
from streams_results import Results
from streams_subject import Size, Subject

QUIX = PYTHON.parent.parent / "quix" / "bin" / "python"
"""Its own environment: it wants an older confluent-kafka."""
BARE = "bare loop, decoded"
EACH_KEY, EACH = "holdfast, async, per key", "holdfast, async, unordered"
SYNC_KEY, SYNC = "holdfast, sync, per key", "holdfast, sync, unordered"
BATCHES = "holdfast, batches of 500"
FASTSTREAM = (
    "FastStream, confluent, defaults",
    "FastStream, confluent, no log",
    "FastStream, confluent, acked after",
    "FastStream, aiokafka, no log",
    "FastStream, aiokafka, acked after",
)
QUIX_STREAMS = ("Quix Streams, defaults", "Quix Streams, commit each 500")
ONE_BY_ONE = (EACH_KEY, EACH, SYNC_KEY, SYNC)

_RAW, _OURS = "streams_raw_kafka", "streams_holdfast"
_FAST, _QUIX = "streams_peers.on_faststream", "streams_peers.on_quix"


def _ours(name: str, kind: str, order: str, size: Size = "some") -> Subject:
    arguments = {"scheme": "kafka", "kind": kind, "order": order}
    return Subject(name, _OURS, arguments, size, setting="commit each 0.1 s, only what is finished")


def _peer(name: str, module: str, setting: str, **arguments: object) -> Subject:
    size: Size = "some" if module == _QUIX or "is_batch" in arguments else "few"
    python = QUIX if module == _QUIX else PYTHON
    return Subject(name, module, arguments, size, python=python, setting=setting)


SUBJECTS = (
    Subject(BARE, _RAW, {"decodes": True}, size="many", setting="consume(500), commit each, not awaited"),
    Subject("bare loop, not decoded", _RAW, {"decodes": False}, size="many", setting="consume(500), commit each"),
    Subject(
        "bare loop, commits awaited",
        _RAW,
        {"decodes": True, "commit": "awaited"},
        size="many",
        setting="consume(500), decoded, commit each and wait",
    ),
    Subject(
        "bare loop, ten commits a second",
        _RAW,
        {"decodes": True, "commit": "timed"},
        size="many",
        setting="consume(500), decoded, commits as holdfast has them",
    ),
    Subject(
        "bare loop, client's defaults",
        _RAW,
        {"decodes": True, "is_tuned": False},
        size="many",
        setting="as the first, with fetch.queue.backoff.ms at 1 s",
    ),
    Subject(
        "aiokafka loop, decoded",
        "streams_peers.on_aiokafka",
        size="many",
        setting="getmany(500), commit each and wait",
    ),
    _ours(EACH_KEY, "async", "key"),
    _ours(EACH, "async", "none"),
    _ours(SYNC_KEY, "sync", "key"),
    _ours(SYNC, "sync", "none"),
    _ours(BATCHES, "batch", "key", "many"),
    _peer(
        FASTSTREAM[0],
        _FAST,
        "acked before the handler, pydantic, log lines",
        client="confluent",
        ack="default",
        is_plain=True,
    ),
    _peer(FASTSTREAM[1], _FAST, "acked before the handler, msgspec", client="confluent", ack="default"),
    _peer(FASTSTREAM[2], _FAST, "at least once: commit each message, msgspec", client="confluent", ack="after"),
    _peer(FASTSTREAM[3], _FAST, "acked before the handler, msgspec", client="aiokafka", ack="default"),
    _peer(FASTSTREAM[4], _FAST, "at least once: commit each message, msgspec", client="aiokafka", ack="after"),
    _peer(
        "FastStream, batches of 500",
        _FAST,
        "at least once: commit each batch, msgspec",
        client="confluent",
        ack="after",
        is_batch=True,
    ),
    _peer(QUIX_STREAMS[0], _QUIX, "at least once: commit each 5 s; no types"),
    _peer(QUIX_STREAMS[1], _QUIX, "at least once: commit each 500; no types", commit_every=500),
)


def bars(results: Results) -> list[Bar]:
    """What we committed, against what others handled: who commits by a long timer is not held up to it."""
    bare = results.handled(BARE)
    fast, quix = results.fastest(FASTSTREAM), results.fastest(QUIX_STREAMS)
    found = []
    for name in ONE_BY_ONE:
        rate = results.committed(name)
        found += [
            at_least(f"{name}: ahead of FastStream at its best", rate, fast, 1, is_strict=True),
            at_least(f"{name}: ahead of Quix Streams at its best", rate, quix, 1, is_strict=True),
            at_least(f"{name}: ≥ 0.04 × the bare loop that decodes", rate, bare, 0.04),
        ]
    return [
        *found,
        at_least(f"{BATCHES}: ≥ 0.4 × the bare loop that decodes", results.committed(BATCHES), bare, 0.4),
    ]
