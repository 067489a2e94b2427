"""What headers say in words, within their bounds."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.runtime.streams.texts import (
    HISTORY_BYTES,
    bounded_text,
    finite,
    history_in,
    history_of,
    instant_of,
    instant_text,
    offset_of,
)
from holdfast.types import Attempt, Change, FailureType, Severity, entry_offset, offset_text


def attempt(number: int, *, traceback: str = "", message: str = "no") -> Attempt:
    return Attempt(
        number=number,
        started_at=1_700_000_000.25 + number,
        ended_at=1_700_000_000.5 + number,
        worker="w1",
        outcome=Change.RETRY,
        failure_type=FailureType.NETWORK,
        severity=Severity.MEDIUM,
        error_name="ConnectionError",
        message=message,
        traceback=traceback,
        fingerprint="1:abc",
        delay_s=1.5,
        breaker="closed",
    )


def numbers(history: tuple[Attempt, ...]) -> list[int]:
    return [one.number for one in history]


# ---------------------------------------------------------------- history


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_short_history_comes_back_whole(count: int) -> None:
    attempts = tuple(attempt(number, traceback="Traceback …\n" * 20) for number in range(1, count + 1))
    assert history_in(history_of(attempts)) == attempts


def test_tracebacks_between_the_first_and_the_last_go_first_the_oldest_before_the_others() -> None:
    attempts = [attempt(number, traceback=f"{number}" * 16_000) for number in range(1, 7)]
    history = history_in(history_of(attempts))
    assert numbers(history) == [1, 2, 3, 4, 5, 6]
    assert [len(one.traceback) for one in history] == [16_000, 0, 0, 0, 16_000, 16_000]


def test_then_the_oldest_attempts_go() -> None:
    attempts = [attempt(number, message="m" * 2_000, traceback="t" * 16_000) for number in range(1, 101)]
    data = history_of(attempts)
    history = history_in(data)
    assert HISTORY_BYTES - 20_000 < len(data) <= HISTORY_BYTES
    assert numbers(history) == list(range(101 - len(history), 101))
    assert history[-1] == attempts[-1]


def test_a_history_that_just_fits_is_left_as_it_is() -> None:
    attempts = [attempt(number, traceback="t" * 100) for number in range(1, 4)]
    size = len(msgspec.json.encode(attempts))
    assert len(history_of(attempts, size)) == size
    assert len(history_of(attempts, size - 1)) == size - 100


def test_no_more_attempts_go_than_must() -> None:
    attempts = [attempt(number) for number in range(10, 30)]
    size = len(msgspec.json.encode(attempts[-5:]))
    assert numbers(history_in(history_of(attempts, size))) == [25, 26, 27, 28, 29]
    assert numbers(history_in(history_of(attempts, size - 1))) == [26, 27, 28, 29]


def test_however_long_all_texts_of_an_attempt_are_it_fits() -> None:
    long = "\x01" * 100_000
    texts = dict.fromkeys(("worker", "error_name", "message", "traceback", "fingerprint", "breaker"), long)
    data = history_of([replace(attempt(1), **texts)])
    assert HISTORY_BYTES // 2 < len(data) <= HISTORY_BYTES
    assert numbers(history_in(data)) == [1]


def test_an_attempt_too_long_by_itself_is_cut() -> None:
    data = history_of([attempt(1), attempt(2, traceback="\x01" * 16_000 + "the end", message="\x02" * 2_000)])
    (only,) = history_in(data)
    assert len(data) <= HISTORY_BYTES
    assert only.number == 2
    assert "bytes left out" in only.traceback
    assert only.traceback.endswith("the end")


def test_a_history_that_cannot_fit_is_empty() -> None:
    assert history_of([attempt(1)], 0) == b"[]"


def test_half_of_a_surrogate_pair_does_not_stop_a_history() -> None:
    (only,) = history_in(history_of([attempt(1, message="bad \ud800 text")]))
    assert only.message == "bad ? text"


@pytest.mark.parametrize("data", [None, b"", b"[", b"{}", b"[{}]", b"\xff", b"[" * 100_000, b'[{"number": "one"}]'])
def test_a_damaged_history_is_none(data: bytes | None) -> None:
    assert history_in(data) == ()


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("text", ["", "short", "é" * 50])
def test_a_text_within_its_bound_stays(text: str) -> None:
    assert bounded_text(text, 100) == text


@pytest.mark.parametrize("letter", ["a", "é", "€", "😀"])
@pytest.mark.parametrize("most", [0, 3, 48, 49, 100, 1_000])
def test_no_text_is_longer_than_its_bound(letter: str, most: int) -> None:
    assert len(bounded_text(letter * 1_001, most).encode()) <= most


def test_of_a_long_text_more_of_the_end_is_kept() -> None:
    text = bounded_text("a" * 5_000 + "b" * 5_000, 1_048)
    assert text == "a" * 250 + "\n… 9,000 bytes left out …\n" + "b" * 750


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(("number", "back"), [(1.5, 1.5), (-1.0, -1.0), (float("nan"), 0.0), (float("inf"), 0.0)])
def test_what_json_has_no_number_for_is_zero(number: float, back: float) -> None:
    assert finite(number) == back


def test_an_instant_is_written_in_utc_to_the_millisecond() -> None:
    assert instant_text(1_700_000_000.123) == "2023-11-14T22:13:20.123Z"
    assert instant_of("2023-11-14T22:13:20.123Z") == 1_700_000_000.123
    assert instant_of("2023-11-14T23:13:20.123+01:00") == 1_700_000_000.123


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (-5.0, "1970-01-01T00:00:00.000Z"),
        (1e300, "9999-12-31T23:59:59.000Z"),
        (float("nan"), "1970-01-01T00:00:00.000Z"),
    ],
)
def test_an_instant_that_no_calendar_has_is_the_nearest(at: float, text: str) -> None:
    assert instant_text(at) == text


@pytest.mark.parametrize("text", ["", "soon", "2023-11-14T22:13:20", "1700000000"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        instant_of(text)


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (0, "0"),
        (2**63 - 1, "9223372036854775807"),
        (2**64 - 1, "18446744073709551615"),
        (2**64, "1-0"),
        (entry_offset("1700000000000-0"), "1700000000000-0"),
        (entry_offset("18446744073709551615-18446744073709551615"), "18446744073709551615-18446744073709551615"),
    ],
)
def test_an_offset_is_written_as_its_server_does(offset: int, text: str) -> None:
    assert offset_text(offset) == text
    assert offset_of(text) == offset


@pytest.mark.parametrize(
    "text", ["", "-1", "1-", "-", "01", "1_0", " 1", "1\n", "0-5", "1-18446744073709551616", "٣", "1-2-3", "9" * 5_000]
)
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no offset$"):
        offset_of(text)
