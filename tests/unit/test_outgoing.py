"""What a program gives becomes the bytes of a message, or is refused in one line."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from msgspec import Struct

from holdfast.errors import Invalid
from holdfast.outgoing import outgoing


@dataclasses.dataclass
class Point:
    x: int
    y: Decimal


class Order(Struct):
    id: UUID
    at: datetime


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abc"), b"abc"),
        ("grüße", "grüße".encode()),
        ("", b""),
        (None, None),
        (42, b"42"),
        (True, b"true"),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (Point(1, Decimal("2.50")), b'{"x":1,"y":"2.50"}'),
        (
            Order(UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC)),
            b'{"id":"00000000-0000-0000-0000-000000000007","at":"2026-01-02T00:00:00Z"}',
        ),
    ],
)
def test_bytes_go_as_they_are_text_as_utf8_and_anything_else_as_json(value: Any, data: bytes | None) -> None:
    assert outgoing("orders", value).value == data


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "object cannot be stored as JSON"),
        ({"a": math.nan}, "nan cannot be stored"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_a_value_that_would_not_arrive_is_refused(value: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words) as caught:
        outgoing("orders", value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "data"),
    [(None, None), (b"k", b"k"), ("é", "é".encode()), (42, b"42"), (-1, b"-1"), (10**30, b"1" + b"0" * 30)],
)
def test_a_key_is_bytes_text_or_a_whole_number(key: Any, data: bytes | None) -> None:
    assert outgoing("orders", b"", key).key == data


@pytest.mark.parametrize("key", [True, 1.5, ("a",), "\udfff"])
def test_any_other_key_is_refused(key: Any) -> None:
    with pytest.raises(Invalid, match="the key"):
        outgoing("orders", b"", key)


def test_headers_keep_their_order_and_a_name_may_be_there_twice() -> None:
    pairs: Any = [("b", "ü"), ("a", b"\xff"), ("b", None), ("c", bytearray(b"x"))]
    assert outgoing("orders", b"", headers=pairs).headers == (
        ("b", "ü".encode()),
        ("a", b"\xff"),
        ("b", None),
        ("c", b"x"),
    )
    assert outgoing("orders", b"", headers={"a": "1"}).headers == (("a", b"1"),)
    assert outgoing("orders", b"", headers=iter([("a", "1")])).headers == (("a", b"1"),)


@pytest.mark.parametrize(
    "headers", [{"": "x"}, {"a\0b": "x"}, {1: "x"}, {"a": 1}, {"a": "\ud800"}, ["ab", "c"], 7, [("a",)]]
)
def test_headers_that_cannot_be_written_are_refused(headers: Any) -> None:
    with pytest.raises(Invalid, match="header"):
        outgoing("orders", b"", headers=headers)


@pytest.mark.parametrize("partition", [-1, 1.0, True, "1"])
def test_a_partition_is_a_whole_number(partition: Any) -> None:
    with pytest.raises(Invalid, match="partition="):
        outgoing("orders", b"", partition=partition)
    assert outgoing("orders", b"", partition=3).partition == 3
