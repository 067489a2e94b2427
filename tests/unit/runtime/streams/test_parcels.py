"""Messages that run in a process of their own: what they are there, and what comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import json

from holdfast import App
from holdfast.clock import SystemClock
from holdfast.ports import Note
from holdfast.runtime import wire
from holdfast.runtime.isolates import Isolates
from holdfast.runtime.streams.deliveries import batch_of
from holdfast.runtime.streams.spec import MessageDelivery, Values
from holdfast.streams import Outputs
from holdfast.types import FailureType, Message, Outgoing
from tests.faults.stream_ledger import StreamLedger
from tests.faults.stream_shop import LEDGER, STREAMS, TARGET, Order, StreamPlan

PLAN = StreamPlan(url="memory://orders", kind="copy", copies_to="copies", batch=10)
ENTRY = (1_700_000_000_000 << 64) + 3
DISCARDING = """
from holdfast import App, Discard
from holdfast.streams import Outputs

app = App("memory://")

@app.stream("memory://orders", name="bill", group="billing")
async def bill(n: int, outputs: Outputs) -> Discard:
    outputs.send("copies", n)
    return Discard("nothing else to do")
"""


def _values(app: App) -> Values:
    @app.stream("memory://orders", name=PLAN.name, batch=10, group="billing")
    async def copy(orders: list[Order], messages: list[Message], outputs: Outputs) -> None: ...

    given = app.stream_specs[PLAN.name].task.given
    assert isinstance(given, Values)
    return given


def _delivery(*messages: Message) -> MessageDelivery:
    delivery = batch_of(PLAN.name, ("orders", 0), list(messages), 5.0)
    delivery.part = object()
    return delivery


async def _note(note: Note) -> bool:
    raise AssertionError(note)


@pytest.fixture
async def isolates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Isolates]:
    """One process, which has the stream of the plan."""
    monkeypatch.setenv(STREAMS, json.encode([PLAN]).decode())
    monkeypatch.setenv(LEDGER, str(tmp_path / "handled"))
    isolates = Isolates(1, TARGET, _note, SystemClock(), 1.0, "a worker")
    yield isolates
    await isolates.close()


def test_a_message_is_the_same_in_another_process() -> None:
    given = _values(App("memory://"))
    message = Message("orders", 2, ENTRY, b"\xff", None, (("a", b"\x00"), ("b", None)), 7.5, 2, deaths=3)
    sent = wire.encode(wire.Start(given.pack(_delivery(message)), "", 1.0, is_message=True))
    start = wire.decode_to_child(sent)
    assert isinstance(start, wire.Start)
    assert list(given.unpack(start.delivery).messages) == [message]
    assert given.unpack(start.delivery).retries == 2


async def test_a_handler_runs_there_and_what_it_sends_comes_back(isolates: Isolates, tmp_path: Path) -> None:
    given = _values(App("memory://"))
    orders = [Order("k", 1), Order("k", 2)]
    delivery = _delivery(*(Message("orders", 0, n, b"k", json.encode(one)) for n, one in enumerate(orders)))
    ended = await isolates.run(given.pack(delivery), 30.0, lambda: None, is_message=True)
    assert ended is not None
    assert ended.failure_type is None
    given.take_outputs(delivery, ended.outputs)
    assert delivery.outputs is not None
    assert delivery.outputs.messages == [Outgoing("copies", json.encode(one), b"k") for one in orders]
    assert [(one.n, one.what) for one in StreamLedger(tmp_path / "handled").read()] == [
        (1, "start"), (2, "start"), (1, "end"), (2, "end"),
    ]  # fmt: skip


async def test_what_a_run_sends_there_comes_back_if_it_is_discarded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "discarding_shop.py").write_text(DISCARDING)
    monkeypatch.syspath_prepend(str(tmp_path))
    given = _values(App("memory://"))
    delivery = _delivery(Message("orders", 0, 0, None, b"7"))
    isolates = Isolates(1, "discarding_shop:app", _note, SystemClock(), 1.0, "a worker")
    ended = await isolates.run(given.pack(delivery), 30.0, lambda: None, is_message=True)
    await isolates.close()
    assert ended is not None
    assert ended.discard == "nothing else to do"
    given.take_outputs(delivery, ended.outputs)
    assert delivery.outputs is not None
    assert delivery.outputs.messages == [Outgoing("copies", b"7")]


async def test_what_cannot_be_decoded_there_is_invalid_and_sends_nothing(isolates: Isolates) -> None:
    given = _values(App("memory://"))
    delivery = _delivery(Message("orders", 0, 0, b"k", b"{"))
    ended = await isolates.run(given.pack(delivery), 30.0, lambda: None, is_message=True)
    assert ended is not None
    assert (ended.failure_type, ended.delay_s, ended.outputs) == (FailureType.VALIDATION, None, b"")
