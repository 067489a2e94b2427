"""Dead letters leave as lines of JSON with everything, and come into another store as queued jobs, once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import asdict

from holdfast.clock import new_id, new_token
from holdfast.errors import ConfigError
from holdfast.ports import Claim, Exchange, Query, Settlement, WorkerRecord
from holdfast.runtime import export
from holdfast.runtime.export import Imported, export_letters, export_lines, import_letters, import_lines
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import Attempt, Change, FailureType, JobRecord, JobState, NewJob, Notes, Severity

ID = "018d0000-0000-7000-8000-000000000001"
LETTER = JobRecord(
    id=ID,
    task="charge",
    payload=b'{\n "n": 12345678901234567890,\n "name": "J\xc3\xbcrgen\\n"\n}',
    state=JobState.DEAD_LETTER,
    queue="slow",
    priority=-3,
    tenant="blue",
    user="u",
    project="p",
    idempotency_key="order-1",
    created_at=1.0,
    ended_at=3.5,
    attempt=1,
    reason="not retriable",
    failure_type=FailureType.PERMANENT,
    severity=Severity.HIGH,
    error_name="ValueError",
    message='no "good"',
    fingerprint="1-a",
    original_payload=b'{"n":1}',
    trace="00-abc",
    attempts=(
        Attempt(
            number=1,
            started_at=2.0,
            ended_at=3.0,
            outcome=Change.BURY,
            failure_type=FailureType.PERMANENT,
            traceback="Traceback:\n  line",
        ),
    ),
    notes=Notes(b"a page, perhaps", {"fetch": b"\xff"}),
)


def line(**fields: Any) -> str:
    made: dict[str, Any] = json.loads(next(export_lines([LETTER])))
    return json.dumps({name: value for name, value in (made | fields).items() if value is not ...})


async def bury_all(store: MemoryStore) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=86_400.0))
    claim = Claim(worker="w", token=new_token(), limit=10_000)
    deliveries = (await store.exchange(Exchange(claim=claim))).deliveries
    attempt = Attempt(number=1, started_at=1.0, ended_at=2.0, traceback="Traceback …", outcome=Change.BURY)
    settlements = [Settlement(id=one.id, token=one.token, change=Change.BURY, attempt=attempt) for one in deliveries]
    await store.exchange(Exchange(settlements=settlements))


def test_a_line_has_everything_and_the_arguments_as_json() -> None:
    (text,) = export_lines([LETTER])
    assert "\n" not in text
    made = json.loads(text)
    assert made["holdfast"] == 1
    assert made["payload"] == {"n": 12345678901234567890, "name": "Jürgen\n"}
    assert made["original_payload"] == {"n": 1}
    assert made["result"] is None
    assert made["attempts"][0]["traceback"] == "Traceback:\n  line"
    assert (made["failure_type"], made["message"], made["reason"]) == ("permanent", 'no "good"', "not retriable")
    assert made["origin"] == {"kind": "job"}
    assert set(made) == set(asdict(LETTER)) - {"notes"} | {"holdfast", "origin"}


def test_arguments_that_are_no_json_are_exported_as_text() -> None:
    (text,) = export_lines([JobRecord(id=ID, task="t", payload=b"{broken \xff", state=JobState.DEAD_LETTER)])
    assert json.loads(text)["payload"] == "{broken \ufffd"


def test_an_imported_letter_is_a_new_job_with_the_same_id_and_owners() -> None:
    (job,) = import_lines(["", *export_lines([LETTER]), "  \n"], gates=lambda job: (f"breaker:{job.task}",))
    assert job == NewJob(
        id=ID,
        task="charge",
        payload=b'{"n":12345678901234567890,"name":"J\xc3\xbcrgen\\n"}',
        queue="slow",
        priority=-3,
        tenant="blue",
        user="u",
        project="p",
        idempotency_key="order-1",
        trace="00-abc",
        gates=("breaker:charge",),
    )


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "null",
        "[]",
        line(holdfast=2),
        line(holdfast=...),
        line(id="x"),
        line(id=ID.replace("-", "")),
        line(id=...),
        line(task=""),
        line(payload=...),
        line(payload=[1]),
        line(payload="{broken"),
        line(payload=None),
        line(priority=2**40),
        line(queue=5),
        b"\xff\xfe",
        '{"a":' * 100_000,
    ],
)
async def test_a_bad_line_is_refused_with_its_number_and_nothing_is_imported(clock: ManualClock, bad: Any) -> None:
    store = MemoryStore(clock)
    with pytest.raises(ConfigError, match=r"^line 3: "):
        await import_letters(store, [line(), line(id=new_id(), idempotency_key=None), bad, line()])
    assert (await store.find(Query())).items == []


async def test_letters_go_from_one_store_to_another_once(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "BATCH", 2)
    here, there = MemoryStore(clock), MemoryStore(clock)
    ids = [new_id() for _ in range(5)]
    await here.enqueue([NewJob(id=one, task="t", payload=b'{"n":1}') for one in ids])
    await bury_all(here)
    await here.enqueue([NewJob(id=new_id(), task="t", payload=b"{}")])
    lines = [text async for text in export_letters(here, Query(task="t"))]
    assert [json.loads(text)["id"] for text in lines] == ids[::-1]
    assert {json.loads(text)["attempts"][0]["traceback"] for text in lines} == {"Traceback …"}
    assert await import_letters(there, lines) == Imported(new=5, known=0)
    assert await import_letters(there, lines) == Imported(new=0, known=5)
    found = (await there.find(Query())).items
    assert {(one.id, one.state, one.payload) for one in found} == {(one, JobState.QUEUED, b'{"n":1}') for one in ids}


async def test_a_taken_idempotency_key_leaves_out_that_job_alone(clock: ManualClock) -> None:
    store = MemoryStore(clock)
    await store.enqueue([NewJob(id=new_id(), task="charge", payload=b"{}", tenant="blue", idempotency_key="order-1")])
    other = new_id()
    imported = await import_letters(store, [line(), line(id=other, idempotency_key=None)])
    assert imported == Imported(new=1, known=0, conflicts=(ID,))
    assert [one is not None for one in await store.get([ID, other])] == [False, True]
