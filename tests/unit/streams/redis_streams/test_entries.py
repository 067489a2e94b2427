"""Messages as entries, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.streams.redis_streams.entries import Batch, offset_of, read_entries, read_rows, words_of
from holdfast.types import Message, Outgoing, entry_id, entry_offset

_BYTES = st.none() | st.binary(max_size=20)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=4).map(tuple)


@given(key=_BYTES, value=_BYTES, headers=_HEADERS)
def test_a_message_comes_back_as_it_was_written(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    words = words_of(Outgoing("orders", value, key, headers), b"value")
    batch = Batch()
    read_entries("orders", 2, [[b"1700000000123-7", words]], b"value", batch)
    offset = entry_offset("1700000000123-7")
    assert batch.messages == [Message("orders", 2, offset, key, value, headers, 1700000000.123)]
    assert batch.ids == {offset: b"1700000000123-7"}


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_an_offset_is_an_id_in_one_number(first: int, second: int) -> None:
    text = f"{first}-{second}"
    assert entry_id(offset_of(text.encode())) == text
    assert offset_of(text.encode()) == entry_offset(text)


def test_what_was_taken_from_others_has_its_attempts_or_is_gone() -> None:
    batch = Batch()
    rows = [
        [b"5-1", [b"value", b"x"], b"3", None],
        [b"5-2", [b"value", b"y"], None, b"2"],
        [b"5-3", None, b"1", None],
    ]
    read_rows("orders", 0, rows, b"value", batch)
    assert [(one.value, one.retries, one.deaths, one.is_gone) for one in batch.messages] == [
        (b"x", 3, 0, False),
        (b"y", 0, 2, False),
        (None, 1, 0, True),
    ]
