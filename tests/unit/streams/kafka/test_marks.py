"""Counted attempts as text beside a committed offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.streams.kafka import marks

_POSITION = 1_000_000_000_000


@given(st.dictionaries(st.integers(0, 300), st.integers(1, 1000), max_size=100))
def test_what_was_written_is_read(counts: dict[int, int]) -> None:
    retries = {_POSITION + delta: count for delta, count in counts.items()}
    assert marks.read(_POSITION, marks.written(_POSITION, retries)) == retries


def test_nothing_tried_is_no_text() -> None:
    assert marks.written(5, {}) == ""
    assert marks.written(5, {4: 1, 6: 0}) == ""


def test_of_more_than_fit_the_oldest_stay() -> None:
    text = marks.written(0, dict.fromkeys(range(10_000), 3))
    assert len(text) <= 2000
    read = marks.read(0, text)
    assert len(read) > 300
    assert sorted(read) == list(range(len(read)))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "somebody else's",
        "holdfast1",
        "holdfast1 ",
        "holdfast1 x:1",
        "holdfast1 -1:1",
        "holdfast1 1:",
        "holdfast1 1:1x",
    ],
)
def test_what_somebody_else_wrote_says_nothing(text: str | None) -> None:
    assert marks.read(7, text) == {}


def test_a_text_that_was_cut_off_says_what_it_can() -> None:
    assert marks.read(10, "holdfast1 0:2,3:1,17") == {10: 2, 13: 1}
