"""From the bytes of a message to the arguments of its handler; and what becomes of bytes that are not what it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from holdfast.errors import ConfigError, Invalid, MessageGone
from holdfast.ports import Outputs
from holdfast.runtime.streams.deliveries import batch_of, delivery_of
from holdfast.runtime.streams.spec import Collected, Values
from holdfast.types import FailureType, Message
from tests.unit.runtime.streams.stage import DLQ, staged

PLACE = ("orders", 0)
ORDER = b'{"id":7,"cents":1999}'


class Order(Struct):
    id: int
    cents: int


@dataclasses.dataclass
class Plain:
    id: int
    cents: int


class Model(BaseModel):
    id: int
    cents: int


def message(value: bytes | None, offset: int = 0, **fields: Any) -> Message:
    return Message("orders", 0, offset, b"k", value, (), 5.0, **fields)


def arguments(fn: Callable[..., Any], *values: bytes | None, batch: bool = False, decode: Any = None) -> Any:
    """What the handler is called with."""
    given = Values(fn, decode, is_batch=batch)
    messages = [message(value, n) for n, value in enumerate(values)]
    delivery = batch_of("t", PLACE, messages, 0.0) if batch else delivery_of("t", PLACE, messages[0], None, 0.0)
    args, kwargs = given.of(delivery)
    assert kwargs == {}
    return args


# ---------------------------------------------------------------- values


def of_struct(order: Order) -> None: ...
def of_dataclass(order: Plain) -> None: ...
def of_model(order: Model) -> None: ...
def of_dict(order: dict[str, int]) -> None: ...
def of_any(order: Any) -> None: ...
def of_nothing(order) -> None: ...  # type: ignore[no-untyped-def]
def of_bytes(order: bytes) -> None: ...
def of_text(order: str) -> None: ...


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (of_struct, Order(7, 1999)),
        (of_dataclass, Plain(7, 1999)),
        (of_model, Model(id=7, cents=1999)),
        (of_dict, {"id": 7, "cents": 1999}),
        (of_any, {"id": 7, "cents": 1999}),
        (of_nothing, {"id": 7, "cents": 1999}),
        (of_bytes, ORDER),
        (of_text, ORDER.decode()),
    ],
)
def test_a_value_is_what_the_annotation_says(fn: Callable[..., Any], expected: object) -> None:
    (value,) = arguments(fn, ORDER)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (of_struct, b"{"),
        (of_struct, b'{"id":7}'),
        (of_struct, b'{"id":"7","cents":1}'),
        (of_struct, b""),
        (of_dataclass, b"[]"),
        (of_model, b'{"id":7,"cents":"many"}'),
        (of_text, b"\xff"),
        (of_any, b"\xff\xfe"),
        (of_any, b"[" * 100_000),
    ],
)
def test_a_value_that_is_none_of_these_is_invalid_and_says_which_message_it_is(
    fn: Callable[..., Any], value: bytes | None
) -> None:
    with pytest.raises(Invalid, match=r"^message orders/0/0 is not what the handler takes: .+$") as caught:
        arguments(fn, value)
    assert "\n" not in str(caught.value)


def of_struct_or_none(order: Order | None) -> None: ...
def of_bytes_or_none(order: bytes | None) -> None: ...
def of_text_or_none(order: str | None) -> None: ...


@pytest.mark.parametrize("fn", [of_struct_or_none, of_bytes_or_none, of_text_or_none, of_any])
def test_a_tombstone_is_none_for_a_handler_that_takes_none(fn: Callable[..., Any]) -> None:
    assert arguments(fn, None) == (None,)


@pytest.mark.parametrize("fn", [of_struct, of_bytes, of_text])
def test_a_tombstone_is_invalid_for_a_handler_that_does_not(fn: Callable[..., Any]) -> None:
    with pytest.raises(
        Invalid, match=r"^message orders/0/0 has no value \(a tombstone\), and the handler does not take None$"
    ):
        arguments(fn, None)


def test_what_may_be_none_is_read_as_what_it_is_otherwise() -> None:
    assert arguments(of_struct_or_none, ORDER) == (Order(7, 1999),)
    assert arguments(of_bytes_or_none, b"YWI=") == (b"YWI=",)
    assert arguments(of_text_or_none, b"ab") == ("ab",)
    assert arguments(of_struct_or_none, b"null") == (None,)


def test_a_decoder_of_the_users_own_gets_the_message() -> None:
    def upper(message: Message) -> str:
        assert (message.key, message.offset) == (b"k", 0)
        return (message.value or b"").decode().upper()

    assert arguments(of_struct, b"abc", decode=upper) == ("ABC",)


def test_what_a_decoder_of_the_users_own_raises_is_invalid() -> None:
    def broken(message: Message) -> str:
        raise KeyError("schema 12")

    with pytest.raises(Invalid, match=r"^message orders/0/0 cannot be decoded: KeyError: 'schema 12'$"):
        arguments(of_struct, b"abc", decode=broken)


def test_a_message_that_the_server_has_deleted_is_said_to_be_gone() -> None:
    given = Values(of_bytes, None, is_batch=False)
    with pytest.raises(MessageGone, match="orders/0/0 was deleted"):
        given.decode(message(None, is_gone=True))
    assert given.decode_many([message(b"1"), message(None, 1, is_gone=True)]) is None


# ---------------------------------------------------------------- what else a handler may ask for


def value_message(order: Order, msg: Message) -> None: ...
def value_outputs(order: Order, out: Outputs) -> None: ...
def value_message_outputs(order: Order, msg: Message, out: Outputs) -> None: ...
def value_outputs_message(order: Order, out: Outputs, msg: Message) -> None: ...


@pytest.mark.parametrize(
    ("fn", "kinds"),
    [
        (value_message, [Message]),
        (value_outputs, [Collected]),
        (value_message_outputs, [Message, Collected]),
        (value_outputs_message, [Collected, Message]),
    ],
)
def test_the_message_and_outputs_come_where_they_are_asked_for(fn: Callable[..., Any], kinds: list[type]) -> None:
    value, *others = arguments(fn, ORDER)
    assert value == Order(7, 1999)
    assert [type(one) for one in others] == kinds


def test_every_run_has_outputs_of_its_own() -> None:
    delivery = delivery_of("t", PLACE, message(ORDER), None, 0.0)
    given = Values(value_outputs, None, is_batch=False)
    ((_, first), _), ((_, second), _) = given.of(delivery), given.of(delivery)
    assert first is not second
    assert delivery.outputs is second


def test_outputs_take_bytes_text_and_anything_that_is_json() -> None:
    outputs = Collected()
    outputs.send("a", b"\xff", key="k", headers={"h": b"1"})
    outputs.send("b", "text")
    outputs.send("c", Order(1, 2))
    assert [(one.topic, one.value, one.key) for one in outputs.messages] == [
        ("a", b"\xff", b"k"),
        ("b", b"text", None),
        ("c", b'{"id":1,"cents":2}', None),
    ]


# ---------------------------------------------------------------- batches


def many(orders: list[Order]) -> None: ...
def many_in_a_row(orders: Sequence[Order]) -> None: ...
def many_of_any(orders: list) -> None: ...  # type: ignore[type-arg]
def many_with_all(orders: list[Order], out: Outputs, msgs: list[Message]) -> None: ...


@pytest.mark.parametrize("fn", [many, many_in_a_row])
def test_a_batch_is_a_list_of_what_the_annotation_says(fn: Callable[..., Any]) -> None:
    assert arguments(fn, ORDER, ORDER, batch=True) == ([Order(7, 1999), Order(7, 1999)],)
    assert arguments(many_of_any, b"1", b"[2]", batch=True) == ([1, [2]],)


def test_a_batch_comes_with_its_messages_in_the_same_order() -> None:
    orders, _, messages = arguments(many_with_all, ORDER, ORDER, ORDER, batch=True)
    assert len(orders) == 3
    assert [one.offset for one in messages] == [0, 1, 2]


# ---------------------------------------------------------------- signatures


def test_annotations_may_name_what_is_defined_further_down() -> None:
    given = Values(of_later, None, is_batch=False)
    assert given.decode(message(b'{"n":1}')) == Later(1)


def of_later(value: Later) -> None: ...


class Later(Struct):
    n: int


def no_parameter() -> None: ...
def by_name_alone(*, order: Order) -> None: ...
def any_number(*orders: Order) -> None: ...
def named_rest(order: Order, **rest: Any) -> None: ...


@pytest.mark.parametrize("fn", [no_parameter, by_name_alone, any_number, named_rest])
def test_a_handler_that_cannot_be_given_a_value_is_refused_at_once(fn: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^{fn.__name__}\(\): a handler takes the value first"):
        Values(fn, None, is_batch=False)


def two_values(order: Order, other: int) -> None: ...
def bare_second(order: Order, msg) -> None: ...  # type: ignore[no-untyped-def]
def unknown_name(order: Odrer) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def not_json(order: Callable[[], None]) -> None: ...
def one_message_of_many(orders: list[Order], msg: Message) -> None: ...


@pytest.mark.parametrize(
    ("fn", "batch", "why"),
    [
        (two_values, False, r"^two_values\(\): the parameter 'other' must be annotated Message or Outputs"),
        (bare_second, False, r"^bare_second\(\): the parameter 'msg' must be annotated Message or Outputs"),
        (unknown_name, False, r"^unknown_name\(\): an annotation cannot be found: name 'Odrer'"),
        (not_json, False, r"first parameter of not_json\(\)"),
        (of_struct, True, r"^of_struct\(\): with batch= the parameter 'order' must be a list"),
        (one_message_of_many, True, r"'msg' must be annotated list\[Message\] or Outputs"),
    ],
)
def test_an_annotation_that_cannot_work_is_refused_in_one_line(fn: Callable[..., Any], batch: bool, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        Values(fn, None, is_batch=batch).check()
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- what is not decodable, in a stream


S1 = {
    "original-topic": b"orders",
    "original-partition": b"0",
    "original-offset": b"1",
    "consumer-group": b"billing",
    "error-type": b"holdfast.errors.Invalid",
    "failure-type": b"validation",
    "failed-at": b"1970-01-12T13:46:40.000Z",
    "retry-count": b"0",
}


@pytest.mark.parametrize("options", [{}, {"batch": 10}, {"blocking": False}])
async def test_what_cannot_be_decoded_goes_straight_to_the_inbox_and_the_dlq(options: dict[str, Any]) -> None:
    async with staged() as stage:
        runs: list[Any] = []

        async def one(order: Order) -> None:
            runs.append(order.id)

        async def some(orders: list[Order]) -> None:
            runs.extend(order.id for order in orders)

        raw = b'\xff{"id":1'
        for n, value in enumerate([ORDER, raw, b'{"id":8,"cents":1}']):
            stage.send(value, "key", headers=(("trace", b"\x00\x01"), ("mine", None)) if n == 1 else ())
        stage.consuming(some if "batch" in options else one, **options)
        await stage.rest()
        assert runs == [7, 8]
        (letter,) = await stage.letters()
        assert (letter.failure_type, letter.reason) == (FailureType.VALIDATION, "not retriable")
        assert len(letter.attempts) == 1
        (copy,) = stage.messages(DLQ)
        assert (copy.key, copy.value) == (b"key", raw)
        assert copy.headers[:2] == (("trace", b"\x00\x01"), ("mine", None))
        assert {name: copy.header(name) for name in S1} == S1
        assert b"orders/0/1 is not what the handler takes" in (copy.header("error-message") or b"")
        assert b"Invalid" in (copy.header("error-stack") or b"")
        assert stage.position() == 3
