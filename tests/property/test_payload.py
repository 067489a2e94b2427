"""Whatever is given: it comes back as it was, or it is refused; and no payload breaks the reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.runtime.payload import Arguments, decode_result, encode_result, merged


@dataclass
class Item:
    id: UUID
    price: float | None
    tags: frozenset[str]
    extra: Any = None


class Box(msgspec.Struct):
    items: list[Item]
    at: datetime
    sizes: tuple[int, ...] = ()


def typed(
    n: int,
    text: str,
    /,
    amount: Decimal,
    *days: date,
    box: Box | None = None,
    counts: dict[int, float] | None = None,
    wait: timedelta = timedelta(0),
    **others: Any,
) -> dict[str, Any]:
    return dict(locals())


def anything(value, *rest, **others):  # type: ignore[no-untyped-def]
    return value, rest, others


untyped: Callable[..., Any] = anything


TYPED = Arguments(typed, skip_first=False)
UNTYPED = Arguments(untyped, skip_first=False)

text = st.text() | st.text(st.characters(exclude_categories=()))
numbers = st.integers() | st.integers(-(2**70), 2**70) | st.floats()
scalars = st.none() | st.booleans() | numbers | text
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
odd = st.recursive(
    scalars | st.binary() | st.datetimes() | st.decimals() | st.uuids() | st.sets(st.integers()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(text | st.integers() | st.booleans() | st.none(), inner, max_size=4)
    ),
    max_leaves=20,
)
items = st.builds(Item, st.uuids(), st.none() | st.floats(), st.frozensets(text), odd)
boxes = st.builds(Box, st.lists(items, max_size=3), st.datetimes(timezones=st.timezones()), st.tuples(st.integers()))


def accepted(encode: Callable[[], bytes]) -> bytes | None:
    """The JSON, or None where it was refused, which takes one line."""
    try:
        return encode()
    except Invalid as error:
        line = str(error)
    assert "argument" in line
    assert "\n" not in line
    return None


def as_lists(value: Any) -> Any:
    """The value with a list for every tuple, and the words for its types: True is not 1, and 1 is not 1.0."""
    if type(value) in (list, tuple):
        return [as_lists(part) for part in value]
    if type(value) is dict:
        return {(type(key).__name__, key): as_lists(part) for key, part in value.items()}
    if isinstance(value, Item):
        return [value.id, as_lists(value.price), value.tags, as_lists(value.extra)]
    if isinstance(value, Box):
        return [as_lists(value.items), value.at.timestamp(), value.sizes]
    return type(value).__name__, repr(value) if isinstance(value, float | Decimal) else value


@given(odd, st.lists(odd, max_size=3), st.dictionaries(st.text(), odd, max_size=3))
def test_an_untyped_value_survives_or_is_refused(value: Any, rest: list[Any], others: dict[str, Any]) -> None:
    others.pop("value", None)
    if payload := accepted(lambda: UNTYPED.encode((value, *rest), others)):
        args, kwargs = UNTYPED.decode(payload)
        assert as_lists(untyped(*args, **kwargs)) == as_lists((value, rest, others))


@given(plain_json)
def test_plain_json_is_never_refused(value: Any) -> None:
    args, _ = UNTYPED.decode(UNTYPED.encode((value,), {}))
    assert as_lists(args[0]) == as_lists(value)
    assert as_lists(decode_result(encode_result(value))) == as_lists(value)


@given(
    st.tuples(st.integers(), text, st.decimals()),
    st.lists(st.dates(), max_size=2),
    st.fixed_dictionaries(
        {},
        optional={
            "box": st.none() | boxes,
            "counts": st.none() | st.dictionaries(st.integers(), st.floats(), max_size=3),
            "wait": st.timedeltas(),
            "more": odd,
        },
    ),
)
def test_a_typed_call_survives_or_is_refused(first: tuple[Any, ...], days: list[date], rest: dict[str, Any]) -> None:
    if payload := accepted(lambda: TYPED.encode((*first, *days), rest)):
        args, kwargs = TYPED.decode(payload)
        assert as_lists(typed(*args, **kwargs)) == as_lists(typed(*first, *days, **rest))


@given(odd)
def test_a_result_can_be_read_or_is_refused(value: Any) -> None:
    try:
        data = encode_result(value)
    except Invalid:
        return
    decode_result(data)


@given(st.binary() | plain_json.map(msgspec.json.encode))
def test_no_payload_breaks_the_reader(payload: bytes) -> None:
    for arguments in (TYPED, UNTYPED):
        try:
            args, kwargs = arguments.decode(payload)
        except Invalid:
            continue
        arguments.encode(args, kwargs)


objects = st.dictionaries(st.text(max_size=2), plain_json, max_size=4)


@given(objects, objects)
def test_a_patch_done_twice_is_a_patch_done_once(payload: dict[str, Any], patch: dict[str, Any]) -> None:
    change = msgspec.json.encode(patch)
    once = merged(msgspec.json.encode(payload), change)
    assert merged(once, change) == once
    result = msgspec.json.decode(once)
    for name in payload.keys() | patch.keys():
        if name not in patch:
            assert result[name] == payload[name]
        elif patch[name] is None:
            assert name not in result
        elif not isinstance(patch[name], dict):
            assert result[name] == patch[name]
