"""Row 43 over HTTP: bodies that are huge, deep or odd are refused with 413 or 422, or the value comes back equal."""

from __future__ import annotations

import json
from typing import Any, Final

from holdfast.ops.api import build_api
from tests.faults.arena import Arena
from tests.faults.conftest import busy, every_store
from tests.faults.report import Report
from tests.faults.web import UNLIMITED, asking

pytestmark = busy

REFUSED: Final = object()

# What stands in the place of the argument, and what must come of it.
VALUES: Final[dict[str, tuple[bytes, Any]]] = {
    "1 byte": (b"1", 1),
    "just below the limit": (b'"' + b"x" * 1_000_000 + b'"', "x" * 1_000_000),
    "above the limit": (b'"' + b"x" * 1_048_576 + b'"', REFUSED),
    "50 deep": (b"[" * 50 + b"]" * 50, json.loads("[" * 50 + "]" * 50)),
    "100,000 deep": (b"[" * 100_000 + b"]" * 100_000, REFUSED),
    "100,000 deep, not closed": (b"[" * 100_000, REFUSED),
    "objects 100,000 deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, REFUSED),
    "NaN": (b"NaN", REFUSED),
    "infinity": (b"[-Infinity]", REFUSED),
    "beyond the largest float": (b"1e999", REFUSED),
    "lone surrogate": (b'"\\ud800"', REFUSED),
    "surrogate as a key": (b'{"\\udfff": 1}', REFUSED),
    "pair": (b'"\\ud83e\\udd80"', "\U0001f980"),
    "NUL": (b'"a\\u0000b"', "a\x00b"),
    "NUL as a key": (b'{"\\u0000": 1}', {"\x00": 1}),
    "bare NUL": (b'"a\x00b"', REFUSED),
    "2^53 + 1": (b"9007199254740993", 2**53 + 1),
    "2^63": (b"9223372036854775808", 2**63),
    "2^64": (b"18446744073709551616", 2**64),
    "a very long number": (b"9" * 5_000, REFUSED),
    "duplicate keys": (b'{"a": 1, "a": 2}', REFUSED),
    "not UTF-8": (b'"\xff"', REFUSED),
    "cut off": (b'"ab', REFUSED),
}
BODIES: Final = {
    "nothing": b"",
    "no object": b"[1]",
    "text": b"hello",
    "UTF-16": '{"task": "echo"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"task": "echo", "arguments": {"value": 1}}',
    "two values": b'{"task": "echo", "arguments": {"value": 1}} {}',
    "one key twice": b'{"task": "count", "arguments": {"value": 1}, "task": "echo"}',
    "unknown field": b'{"task": "echo", "arguments": {"value": 1}, "x": 1}',
}


@every_store
async def test_an_odd_value_is_refused_or_comes_back_equal(arena: Arena, report: Report) -> None:
    made: dict[str, str] = {}
    statuses: dict[str, int] = {}
    async with asking(build_api(arena.app, UNLIMITED)) as client:
        client.headers["Content-Type"] = "application/json"
        for name, (value, _) in VALUES.items():
            answer = await client.post("/jobs", content=b'{"task": "echo", "arguments": {"value": %s}}' % value)
            statuses[name] = answer.status_code
            if answer.status_code == 201:
                made[name] = answer.json()["id"]
        for name, body in BODIES.items():
            statuses[name] = (await client.post("/jobs", content=body)).status_code
    await arena.app.arun_until_idle()

    assert set(statuses.values()) == {201, 413, 422}
    assert {name for name in BODIES if statuses[name] != 422} == set()
    assert set(made) == {name for name, (_, wanted) in VALUES.items() if wanted is not REFUSED}
    for name, id_ in made.items():
        result = (await arena.app.jobs.aget(id_)).result
        assert (type(result), result) == (type(VALUES[name][1]), VALUES[name][1]), name
    broken = sum(status >= 500 for status in statuses.values())
    report(
        "huge, deep and odd bodies over HTTP",
        injected=len(statuses),
        note=f"{len(statuses) - len(made)} refused, {len(made)} came back equal, 5xx {broken}",
    )
