from __future__ import annotations

import email.message
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import multidict
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.retry_after import LONGEST_S, retry_after, tells_limit

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        ("+3", 3.0),
        ("-5", 0.0),
        ("86401", LONGEST_S),
        ("99999999999999999999", LONGEST_S),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("Sun Nov  6 08:50:37 1994", 60.0),
        ("Sun, 06 Nov 1994 09:50:37 +0100", 60.0),
        ("Sun, 06 Nov 1994 08:48:37 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_S),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("1_000", None),
        ("9" * 400, None),
        ("Sun, 99 Nov 1994 08:50:37 GMT", None),
        ("Sun, 06 Nov 99999999999999999999 08:50:37 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_is_bounded(value: str, expected: float | None) -> None:
    assert retry_after({"Retry-After": value}, 503, now=NOW) == expected


def test_a_date_is_measured_from_the_responses_own_clock() -> None:
    headers = {"Retry-After": "Sun, 06 Nov 1994 08:50:37 GMT", "Date": "Sun, 06 Nov 1994 08:50:07 GMT"}
    assert retry_after(headers, now=NOW) == 30.0
    assert retry_after(headers, now=0.0) == 30.0
    assert retry_after(headers | {"Date": "yesterday"}, now=NOW) == 60.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ms-retry-after-ms": "20"}, 0.02),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-1"}, 0.0),
        ({"grpc-retry-pushback-ms": "250"}, 0.25),
        ({"retry-pushback-ms": "250"}, 0.25),
        ({"grpc-retry-pushback-ms": "-1"}, None),
        ({"retry-after": "9", "x-ratelimit-reset-after": "5"}, 9.0),
    ],
)
def test_a_wait_said_outright_counts_whatever_the_status(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, 503, now=NOW) == expected
    assert retry_after(headers, now=NOW) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"RateLimit-Reset": "30"}, 30.0),
        ({"X-RateLimit-Reset": "30"}, 30.0),
        ({"X-Rate-Limit-Reset": "30"}, 30.0),
        ({"X-RateLimit-Reset": str(NOW + 30)}, LONGEST_S),  # before 2001, and so a length
        ({"X-RateLimit-Reset-After": "0.75"}, 0.75),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "12ms"}, 0.012),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset-tokens": "1d"}, 86_400.0),
        ({"x-ratelimit-reset-tokens": "500us"}, 0.0005),
        ({"x-ratelimit-reset-tokens": "6m0"}, None),
        ({"x-ratelimit-reset-tokens": "m6"}, None),
        ({"RateLimit": '"default";r=50;t=12'}, 12.0),
        ({"RateLimit": "limit=100, remaining=50, reset=12"}, 12.0),
        ({"RateLimit": "nonsense"}, None),
        ({"X-RateLimit-Reset": "soon"}, None),
        ({"X-RateLimit-Remaining": "5"}, None),
        ({}, None),
    ],
)
def test_a_reset_counts_for_a_429(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, 429, now=NOW) == expected
    assert retry_after(headers, 503, now=NOW) is None
    assert retry_after(headers, now=NOW) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1700000030", 30.0),
        ("1700000030000", 30.0),
        ("1700000030.5", 30.5),
        ("1699999000", 0.0),
        ("1800000000", LONGEST_S),
    ],
)
def test_a_reset_is_an_instant_in_seconds_or_milliseconds_when_it_is_large(value: str, expected: float) -> None:
    assert retry_after({"X-RateLimit-Reset": value}, 429, now=1_700_000_000.0) == expected
    dated = {"X-RateLimit-Reset": value, "Date": "Tue, 14 Nov 2023 22:13:20 GMT"}
    assert retry_after(dated, 429, now=5.0) == expected


def test_a_billion_is_the_first_number_that_is_an_instant() -> None:
    assert retry_after({"X-RateLimit-Reset": "1000000000"}, 429, now=999_999_990.0) == 10.0
    assert retry_after({"X-RateLimit-Reset": "999999999"}, 429, now=999_999_990.0) == LONGEST_S


def test_a_date_without_a_zone_is_in_utc_wherever_the_machine_is() -> None:
    code = (
        "from holdfast.policy.retry_after import retry_after;"
        f"print(retry_after({{'retry-after': 'Sun Nov  6 08:50:37 1994'}}, now={NOW}))"
    )
    far_east = os.environ | {"TZ": "EAST-9"}
    done = subprocess.run([sys.executable, "-c", code], env=far_east, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "60.0"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}, 30.0),
        ({"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "30"}, None),
        ({"X-Rate-Limit-Remaining": "0", "X-Rate-Limit-Reset": "30"}, 30.0),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "30"}, 30.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "3"}, 3.0),
        ({"X-RateLimit-Remaining": "0"}, None),
        ({"RateLimit": '"default";r=0;t=12'}, 12.0),
        ({"RateLimit": '"burst";r=0;t=5, "day";r=9;t=80000'}, 5.0),
        ({"RateLimit": "limit=9, remaining=0, reset=7"}, 7.0),
    ],
)
def test_a_reset_counts_for_any_status_when_nothing_remains(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, 403, now=NOW) == expected


def test_of_several_limits_the_one_that_is_used_up_decides_else_the_longest() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    assert retry_after(headers, 429, now=NOW) == 360.0
    assert retry_after(headers | {"x-ratelimit-remaining-requests": "0"}, 429, now=NOW) == 360.0
    swapped = headers | {"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "9"}
    assert retry_after(swapped, 429, now=NOW) == 1.0
    assert retry_after(headers | {"x-ratelimit-remaining-tokens": "9"}, 429, now=NOW) == 360.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "5"}, True),
        ({"X-RateLimit-Remaining": "0"}, True),
        ({"RateLimit": '"a";r=0;t=9'}, True),
        ({"X-RateLimit-Remaining": "3"}, False),
        ({"X-RateLimit-Reset": "3"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_headers_tell_whether_a_limit_is_used_up(headers: object, expected: bool) -> None:
    assert tells_limit(headers) is expected


def message() -> email.message.Message:
    made = email.message.Message()
    made["ReTrY-AfTeR"] = "7"
    return made


class Raising:
    def items(self) -> object:
        raise RuntimeError


def endless() -> Iterator[tuple[str, str]]:
    yield "retry-after", "7"
    while True:
        yield "other", "x"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"RETRY-AFTER": "7"}, 7.0),
        ({"retry-after": 7}, 7.0),
        ({"retry-after": 7.5}, 7.5),
        ({b"Retry-After": b"7"}, 7.0),
        ([("Retry-After", "7"), ("Retry-After", "9")], 7.0),
        ((("retry-after", "7"),), 7.0),
        ([(b"retry-after", b"7")], 7.0),
        (message(), 7.0),
        (multidict.CIMultiDict({"rEtry-After": "7"}), 7.0),
        (httpx.Headers({"Retry-After": "7"}), 7.0),
        (endless(), 7.0),
        (None, None),
        (5, None),
        ("retry-after: 7", None),
        (b"retry-after: 7", None),
        (["retry-after"], None),
        ([("retry-after",)], None),
        ({1: 2, None: object()}, None),
        (object(), None),
        (Raising(), None),
        (dict, None),
    ],
)
def test_headers_may_be_anything(headers: object, expected: float | None) -> None:
    assert retry_after(headers, 429, now=NOW) == expected


NAMES = st.sampled_from(
    "Retry-After retry-after-ms RateLimit RateLimit-Reset X-RateLimit-Reset X-RateLimit-Remaining Date"
    " x-ratelimit-reset-tokens x-ratelimit-remaining-tokens grpc-retry-pushback-ms".split()
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.text(), st.binary(), st.floats().map(str), st.integers().map(str), st.floats(), st.none(), st.just("0")
)


@given(st.lists(st.tuples(NAMES, VALUES)), st.integers(400, 599) | st.none(), st.floats(0, 4e9))
def test_whatever_the_headers_say_the_wait_is_none_or_within_a_day(
    headers: list[tuple[str, Any]], status: int | None, now: float
) -> None:
    wait = retry_after(headers, status, now=now)
    assert wait is None or 0.0 <= wait <= LONGEST_S


@pytest.mark.parametrize("text", ["1" * 65_536, "1m" * 30_000 + "!", "1." * 30_000, "1" * 299 + "x" + "1" * 60_000])
def test_a_long_header_that_is_no_time_costs_no_time(text: str) -> None:
    def took_s() -> float:
        began_s = time.thread_time()
        assert retry_after({"Retry-After": text}, 429, now=0.0) is None
        return time.thread_time() - began_s

    assert min(took_s() for _ in range(3)) < 0.05
