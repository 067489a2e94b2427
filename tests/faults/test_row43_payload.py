"""Row 43: odd payloads. Each is refused, or comes back equal; what is spoilt in the store is buried."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest
from msgspec import json
from msgspec.structs import replace

from holdfast.errors import Invalid
from holdfast.runtime.runner import Room
from holdfast.types import FailureType, JobState
from tests.faults.arena import Arena
from tests.faults.conftest import busy, every_store
from tests.faults.engines import SqliteEngine
from tests.faults.report import Figures, Report
from tests.faults.workers import SETTINGS

pytestmark = busy


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


ODD: Final[dict[str, Any]] = {
    "64 MB": "x" * 64_000_000,
    "100,000 deep": deep(100_000),
    "NaN": math.nan,
    "NaN within": [{"a": math.nan}],
    "infinity": -math.inf,
    "lone surrogate": "a\ud800b",
    "surrogate as a key": {"\udfff": 1},
    "NUL": "a\x00b",
    "NUL as a key": {"\x00": ""},
    "2^63": 2**63,
    "2^64": 2**64,
    "-2^63 - 1": -(2**63) - 1,
    "2^53 + 1": 2**53 + 1,
    "largest float": 1.7976931348623157e308,
    "smallest float": 5e-324,
    "minus zero": -0.0,
    "line separators": "\u2028\u2029\x85\x7f",
    "beyond the BMP": "\U0001f980é",
    "quotes": "'\"\\%_;--",
    "a number as a key": {1: "a"},
    "empty": {"": [{}, [], "", None]},
}


def is_same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down."""
    return type(one) is type(other) and repr(one) == repr(other)


@every_store
def test_an_odd_argument_is_refused_or_comes_back_equal(arena: Arena, report: Report) -> None:
    came = {name: _came_of(arena, value) for name, value in ODD.items()}
    assert {name: what for name, what in came.items() if what not in {_REFUSED, _EQUAL}} == {}
    assert set(came.values()) == {_REFUSED, _EQUAL}
    equal = [name for name, what in came.items() if what == _EQUAL]
    refused = [name for name, what in came.items() if what == _REFUSED]
    report(
        "huge, deep and odd arguments",
        injected=len(came),
        note=f"{len(refused)} refused ({', '.join(refused)}), {len(equal)} came back equal ({', '.join(equal)})",
    )


_REFUSED: Final = "refused"
_EQUAL: Final = "comes back equal"


def _came_of(arena: Arena, value: Any) -> str:
    """What becomes of an argument, or what is wrong with that."""
    before = _jobs_in(arena)
    try:
        job = arena.app.tasks["echo"].enqueue(value)
    except Invalid as error:
        words = str(error)
        is_told = words.startswith("echo()") and len(words) < 1_000
        return _REFUSED if is_told and _jobs_in(arena) == before else f"{words[:100]}, {_jobs_in(arena) - before} jobs"
    arena.app.run_until_idle()
    result = job.refresh().result
    return _EQUAL if is_same(result, value) else f"{result!r:.100}"


def _jobs_in(arena: Arena) -> int:
    return sum(tally.n for tally in arena.stats().tallies)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_edit_of_a_dead_letter_is_refused_or_comes_back_equal(arena: Arena, name: str) -> None:
    value = ODD[name]
    job = arena.app.tasks["echo"].enqueue("before")
    SqliteEngine(arena.folder).sql("UPDATE holdfast_jobs SET payload = ?", (b"spoilt",))
    arena.app.run_until_idle()
    assert job.refresh().state is JobState.DEAD_LETTER
    try:
        arena.app.dead_letters.retry(job.id, {"value": value})
    except Invalid:
        assert job.refresh().state is JobState.DEAD_LETTER
        return
    arena.app.run_until_idle()

    assert is_same(job.refresh().result, value)


_EITHER = object()

# What somebody may have written into the file by hand, and what must come of it: a result, or VALIDATION (None).
BY_HAND: Final[dict[str, tuple[bytes | str, Any]]] = {
    "not JSON": (b"not JSON", None),
    "nothing": (b"", None),
    "cut off": (b'{"value": "ab', None),
    "two values": (b'{"value": 1}{"value": 2}', None),
    "no object": (b"[1]", None),
    "no such argument": (b'{"other": 1}', None),
    "NaN": (b'{"value": NaN}', None),
    "not UTF-8": (b'{"value": "\xff\xfe\xc3"}', None),
    "not UTF-8, cut off": (b'{"value": "\xe2\x82', None),
    "UTF-16": ('{"value": 1}'.encode("utf-16"), None),
    "byte order mark": (b'\xef\xbb\xbf{"value": 1}', None),
    "bare NUL": (b'{"value": "a\x00b"}', None),
    "only NULs": (bytes(20), None),
    "lone surrogate": (b'{"value": "\\ud800"}', _EITHER),
    "100,000 deep": (b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    "2^63": (b'{"value": 9223372036854775808}', 2**63),
    "a very long number": (b'{"value": ' + b"9" * 5_000 + b"}", _EITHER),
    "duplicate keys": (b'{"value": 1, "value": 2}', _EITHER),
    "as text": ('{"value": "äöü"}', "äöü"),
    "as text with a NUL": ('{"value": "a\x00b"}', None),
}


def test_what_was_spoilt_by_hand_is_buried_and_its_neighbours_are_not_touched(arena: Arena, report: Report) -> None:
    spoilt, neighbours = {}, {}
    calls = []
    for name in BY_HAND:
        calls += [arena.call("echo", "to be spoilt"), arena.call("echo", f"neighbour of {name}")]
        spoilt[name], neighbours[name] = calls[-2].job.id, calls[-1].job.id
    arena.enqueue(calls)
    for name, (payload, _) in BY_HAND.items():
        SqliteEngine(arena.folder).sql("UPDATE holdfast_jobs SET payload = ? WHERE id = ?", (payload, spoilt[name]))
    with arena.fleet() as fleet:
        fleet.start(replace(SETTINGS, room=Room(concurrency=100)))  # all of them in one claim
        arena.quiesce(20)
        fleet.stop()

    found = {name: _outcome(arena, one) for name, one in spoilt.items()}
    wrong = {
        name: found[name]
        for name, (_, wanted) in BY_HAND.items()
        if wanted is not _EITHER and found[name] != (("buried", None) if wanted is None else ("completed", wanted))
    }
    touched = {
        name: what
        for name, one in neighbours.items()
        if (what := _outcome(arena, one)) != ("completed", f"neighbour of {name}")
    }
    assert (wrong, touched) == ({}, {})
    buried = sum(what == "buried" for what, _ in found.values())
    report(
        "payloads spoilt in the file",
        injected=len(BY_HAND),
        figures=Figures(dead=buried),
        note=f"{buried} given up as VALIDATION, neighbours touched {len(touched)}",
    )


def _outcome(arena: Arena, one: str) -> tuple[str, Any]:
    (record,) = arena.get([one])
    if record.state is JobState.COMPLETED:
        return "completed", json.decode(record.result or b"null")
    if record.state is JobState.DEAD_LETTER and record.failure_type is FailureType.VALIDATION:
        assert (len(record.attempts), record.reason) == (1, "not retriable")
        return "buried", None
    return record.state.value, f"{record.error_name}: {record.message}"


def test_an_argument_of_the_wrong_type_is_buried_with_a_readable_reason(arena: Arena) -> None:
    job = arena.app.tasks["count"].enqueue(1)
    SqliteEngine(arena.folder).sql("UPDATE holdfast_jobs SET payload = ?", (b'{"value": "one"}',))
    arena.app.run_until_idle()

    record = job.refresh().record
    assert (record.state, record.failure_type) == (JobState.DEAD_LETTER, FailureType.VALIDATION)
    assert record.message == "count(): argument 'value': expected int, got str 'one'"
