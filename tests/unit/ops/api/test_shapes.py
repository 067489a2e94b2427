"""What goes out: without secrets, tracebacks in pieces, forms out of signatures, breakers in words."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import App, JobContext
from holdfast.errors import Invalid
from holdfast.ops.api.exporting import lines_of
from holdfast.ops.api.forms import arguments_schema
from holdfast.ops.api.frames import frames_of
from holdfast.ops.api.hiding import hidden, unhidden
from holdfast.ops.api.shapes import sample_of, whole_job_of, window_words
from holdfast.ops.commands.record import as_fields
from holdfast.policy.breaker import BreakerConfig
from holdfast.ports import Note, Query
from holdfast.stores.memory import MemoryStore
from holdfast.testing.store_suite.steps import bury, record_of, start
from holdfast.types import JobRecord, JobState

STORED = {
    "user": {"name": "ann", "password": "hunter2", "pin": ""},
    "cards": [{"card_number": "4111"}, {"card_number": "5500"}],
    "a/x~y": "plain",
    "url": "redis://:s3cret@host/0",
    "n": 1,
}


def test_secrets_are_hidden_however_deep_and_their_places_are_told() -> None:
    shown = hidden(json.dumps(STORED).encode())
    assert shown.pointers == ("/user/password", "/cards/0/card_number", "/cards/1/card_number", "/url")
    assert shown.value["user"] == {"name": "ann", "password": "[redacted]", "pin": ""}
    assert "s3cret" not in str(shown.value)
    assert hidden(json.dumps({"api_key/~": "x"}).encode()).pointers == ("/api_key~1~0",)


def test_what_is_no_json_is_shown_as_text_without_secrets() -> None:
    assert hidden(b"\xff password=hunter2").value == "\\xff password=[redacted]"
    assert hidden(None).value is None


async def test_what_a_job_has_remembered_goes_nowhere() -> None:
    store = MemoryStore()
    delivery = await start(store)
    await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b'"<html>"', step=("page", b"\xff")))
    await bury(store, delivery)
    record = await record_of(store, delivery.id)
    assert record.notes is not None
    (line,) = [json.loads(line) async for line in lines_of(store, Query())]
    for shown in (line, (await whole_job_of(record, None)).model_dump(), as_fields(record, has_attempts=True)):
        assert shown["attempts"]
        assert "notes" not in shown
        assert "<html>" not in str(shown)


def test_what_reads_as_it_was_shown_keeps_its_stored_value() -> None:
    data = json.dumps(STORED).encode()
    edited = hidden(data).value | {"n": 2}
    assert unhidden(edited, data) == STORED | {"n": 2}


def test_a_new_secret_replaces_the_stored_one() -> None:
    data = json.dumps(STORED).encode()
    edited = hidden(data).value
    edited["user"]["password"] = "new"
    assert unhidden(edited, data)["user"]["password"] == "new"


@pytest.mark.parametrize(
    "edited",
    [
        {"elsewhere": {"password": "[redacted]"}},
        {"user": {"secret": "[redacted]"}},
        {"cards": [{"card_number": "[redacted]"}]},
        {"cards": "[redacted]"},
        {"note": "the password is [redacted]"},
    ],
)
def test_a_hidden_value_in_another_place_is_refused(edited: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="write it out"):
        unhidden(edited, json.dumps(STORED).encode())


def test_a_letter_among_several_is_not_shown_with_a_megabyte() -> None:
    record = JobRecord(id="i", task="t", payload=b'"%s"' % (b"x" * 70_000), state=JobState.DEAD_LETTER)
    assert sample_of(record, None).arguments == "[70,002 bytes, left out here]"


TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.11/site-packages/httpx/_client.py", line 10, in send
    return self._send(request)
           ^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/orders.py", line 3, in charge
    pay()
ValueError: first
    with a second line

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/usr/lib/python3.11/asyncio/runners.py", line 190, in run
    return runner.run(main)
  File "/srv/shop/orders.py", line 5, in charge
KeyError: 'x'
"""


def test_frames_of_user_code_are_marked_and_nothing_is_lost() -> None:
    pieces = frames_of(TRACEBACK)
    assert "".join(text for text, _ in pieces) == TRACEBACK
    users = [text.splitlines()[0].strip() for text, is_users in pieces if is_users]
    assert users == ['File "/srv/shop/orders.py", line 3, in charge', 'File "/srv/shop/orders.py", line 5, in charge']
    assert any(text.startswith('  File "/srv/venv') and text.count("\n") == 3 for text, _ in pieces)


def test_frames_of_an_exception_group_are_found() -> None:
    text = '  + Exception Group:\n  |   File "/srv/shop/a.py", line 1, in f\n  |     raise x\n  | ValueError: y\n'
    assert [is_users for _, is_users in frames_of(text)] == [False, True, False]


def test_a_traceback_of_ten_thousand_lines_has_a_bounded_number_of_pieces() -> None:
    text = '  File "/srv/a.py", line 1, in f\n' * 10_000
    pieces = frames_of(text)
    assert len(pieces) == 200
    assert "".join(piece for piece, _ in pieces) == text


@dataclass
class Address:
    street: str


class Odd:
    """Nothing that JSON schema could describe."""


def test_a_form_has_the_types_defaults_and_required_arguments() -> None:
    app = App("memory://")

    @app.task
    def ship(job: JobContext, order: int, to: Address, *, when: datetime | None = None, tags: list[str] = []) -> None:  # noqa: B006
        """Is not called."""

    form = arguments_schema(ship.spec)
    assert list(form["properties"]) == ["order", "to", "when", "tags"]
    assert form["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert form["$defs"]["Address"]["properties"]["street"] == {"type": "string"}
    assert form["properties"]["tags"] == {"type": "array", "items": {"type": "string"}, "default": []}
    assert form["required"] == ["order", "to"]


def test_a_form_of_what_has_no_types_allows_anything() -> None:
    app = App("memory://")

    @app.task
    def loose(a, b=Odd(), *rest: int, **others: Any):  # type: ignore[no-untyped-def]  # noqa: B008
        """Is not called."""

    assert arguments_schema(loose.spec)["properties"] == {
        "a": {},
        "b": {},
        "rest": {"type": "array", "items": {"type": "integer"}},
        "others": {"type": "object"},
    }


@dataclass
class Login:
    user: str = "ada"
    password: str = "hunter2"


def test_a_form_has_no_secret_as_a_default() -> None:
    app = App("memory://")

    @app.task
    def connect(
        login: Login, api_key: str = "hunter2", url: str = "redis://:hunter2@h", n: int = 7, max_tokens: int = 100
    ) -> None:
        """Is not called."""

    form = arguments_schema(connect.spec)
    assert "hunter2" not in str(form)
    assert form["properties"]["api_key"] == form["properties"]["url"] == {"type": "string"}
    assert form["properties"]["n"] == {"type": "integer", "default": 7}
    assert form["properties"]["max_tokens"]["default"] == 100
    assert form["$defs"]["Login"]["properties"]["user"]["default"] == "ada"
    assert form["required"] == ["login"]


def test_keys_pairs_and_settings_are_hidden_and_restored_where_they_stand() -> None:
    stored = {
        "redis://:hunter2@h": 1,
        "headers": [["X-Api-Key", "hunter2"]],
        "env": {"name": "DB_PASSWORD", "value": "hunter2"},
        "n": 1,
    }
    data = json.dumps(stored).encode()
    shown = hidden(data)
    assert "hunter2" not in str(shown)
    assert shown.pointers == ("/redis:~1~1:[redacted]@h", "/headers/0/1", "/env/value")
    assert unhidden(shown.value | {"n": 2}, data) == stored | {"n": 2}
    for edited in (
        {"env": {"name": "NOTE", "value": "[redacted]"}},
        {"note": ["X", "[redacted]"]},
        {"headers": [["X-Note", "[redacted]"]]},
        {"mysql://:[redacted]@h": 1},
    ):
        with pytest.raises(Invalid, match="write it out"):
            unhidden(edited, data)


async def test_a_large_job_is_looked_through_without_holding_up_others() -> None:
    record = JobRecord(
        id="i", task="t", payload=json.dumps({"x": "password=1 " * 90_000}).encode(), state=JobState.QUEUED
    )
    looked = asyncio.ensure_future(whole_job_of(record, None))
    for _ in range(3):
        await asyncio.sleep(0)  # noqa: TID251 - lets others run
        assert not looked.done()
    assert "password=1" not in (await looked).arguments["x"]


def test_what_opens_a_breaker_is_said_in_words() -> None:
    assert window_words(BreakerConfig()) == "5 in a row"
    assert window_words(BreakerConfig(failure_rate=0.5, window=20)) == "50 % of 20 calls"
    assert window_words(BreakerConfig(failure_rate=0.25, window=timedelta(minutes=1))) == "25 % within 60 s"
    slow = BreakerConfig(failure_rate=0.5, slow_rate=0.1, slow_call=2.0, window=20)
    assert window_words(slow) == "50 % of 20 calls or 10 % slow of 20 calls"
