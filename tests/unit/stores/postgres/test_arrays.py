"""What goes to the server comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.postgres.arrays import blobs, bools, escaped, floats, ints, plain, register, texts
from tests.unit.stores.postgres.conftest import Plain


@given(st.text(st.characters(codec="utf-8")) | st.text("\x00\x01\x02012"))
def test_an_escaped_text_has_no_zero_character_and_comes_back(text: str) -> None:
    assert "\x00" not in escaped(text)
    assert plain(escaped(text)) == text


@given(st.text("\x00\x01a0"), st.text("\x00\x01a0"))
def test_no_two_texts_are_escaped_to_one(one: str, other: str) -> None:
    assert (escaped(one) == escaped(other)) == (one == other)


@pytest.mark.parametrize(
    ("make", "kind", "items"),
    [
        (bools, "boolean[]", [True, False, True]),
        (ints, "bigint[]", [0, -1, 2**63 - 1, -(2**63)]),
        (ints, "bigint[]", [1, None, 3]),
        (floats, "float8[]", [0.0, -1.5, 1e308, None]),
        (floats, "float8[]", [1.25]),
        (texts, "text[]", ["", "a", "ß🦀", "'\",{}\\", "NULL", None]),
        (blobs, "bytea[]", [b"", bytes(range(256)), None]),
        *((make, kind, []) for make, kind in ((bools, "boolean[]"), (ints, "bigint[]"), (texts, "text[]"))),
    ],
)
def test_arrays_arrive_as_they_are(plain: Plain, make: Any, kind: str, items: list[Any]) -> None:
    register(plain.adapters)
    cursor = plain.execute(f"SELECT %s::{kind}".encode(), (make(items),), binary=True)
    assert cursor.fetchall() == [(items,)]
