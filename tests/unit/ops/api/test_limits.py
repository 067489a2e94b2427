from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.ops.api import limits
from holdfast.ops.api.limits import MAX_DEPTH, BadBody, Buckets, Places, caller_key, check_json
from holdfast.ops.api.settings import ApiSettings, is_loopback_host
from holdfast.policy.limiter import Rate

CLOCK = SystemClock()


def refusal(body: bytes) -> str:
    with pytest.raises(BadBody) as caught:
        check_json(body)
    return str(caught.value)


# ---------------------------------------------------------------- rates


def test_memory_is_bounded_and_the_longest_idle_caller_is_forgotten_first() -> None:
    buckets = Buckets(Rate(1, 60.0), max_keys=3)
    for key in "abc":
        assert buckets.take(key, 0.0) == 0.0
    assert buckets.take("a", 1.0) > 0
    assert buckets.take("d", 2.0) == 0.0
    assert len(buckets) == 3
    assert buckets.take("a", 3.0) > 0
    assert buckets.take("b", 4.0) == 0.0


def test_a_million_addresses_do_not_fill_the_memory() -> None:
    buckets = Buckets(Rate(1, 60.0))
    for number in range(30_000):
        buckets.take(str(number), 0.0)
    assert len(buckets) == 10_000


def test_no_rate_is_no_limit() -> None:
    buckets = Buckets(None)
    assert [buckets.take("a", 0.0) for _ in range(5)] == [0.0] * 5
    assert len(buckets) == 0


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_addresses_are_limited_by_what_one_caller_has(address: str, key: str) -> None:
    assert caller_key(address) == key


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": [1, 2.5, "x", null, true], "b": {"a": 1}}',
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH,
        b"[" + b"[]," * 5000 + b"{}]",
        b'["' + b"[{" * 5000 + b'", "\\"' + b"[" * 500 + b'"]',
        b'"\\ud83d\\ude00"',
        b'"\\u0000"',
        b"9223372036854775808",
        b"",
        b"{",
        b"[1,",
        b"nonsense",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_what_means_one_thing_is_left_to_the_route_and_so_is_what_is_no_json(body: bytes) -> None:
    check_json(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "deep"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "deep"),
        (b"[" * 100_000 + b"]" * 100_000, "deep"),
        (b"[" * 100_000, "deep"),
        (b'{"a":[' * 100_000, "deep"),
        (b"[],[{}]," * 100 + b"[" * 101 + b"]" * 101, "deep"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "twice"),
        (b'{"a": NaN}', "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "Infinity"),
        (b'["\\ud800"]', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'["\\ude00\\ud83d"]', "surrogate"),
        (b"[" + b"9" * 5000 + b"]", "too long"),
        (b'["\xff"]', "UTF-8"),
        (b'["\xed\xa0\x80"]', "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
    ],
    ids=lambda one: repr(one[:12]),
)
def test_what_readers_disagree_about_is_refused(body: bytes, said: str) -> None:
    assert said in refusal(body)


@pytest.mark.parametrize(
    "body",
    [b"[" * 500_000, b"[{" * 500_000, b'"x"[' * 250_000, b'"\\"" [{' * 100_000],
    ids=lambda body: repr(body[:12]),
)
def test_a_hostile_megabyte_is_looked_through_in_whole_passes(body: bytes) -> None:
    # Quadratic work would take hours here, and the time limit of a test would end it.
    assert "deep" in refusal(body)


def test_many_small_values_are_neither_counted_level_by_level_nor_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(text: str) -> None:
        raise AssertionError("half a million lists were built")

    monkeypatch.setattr(limits, "_decode", build)
    hostile = b"[" + b",".join([b"[" * 99 + b"]" * 99] * 5200) + b"]"
    began_s = CLOCK.monotonic()
    check_json(hostile)
    check_json(b"[" + b",".join([b"[]"] * 340_000) + b"]")
    assert CLOCK.monotonic() - began_s < 0.5  # level by level it was 0.4 s for the first alone, on an idle machine


@pytest.mark.parametrize("before", range(9))
@pytest.mark.parametrize("depth", range(MAX_DEPTH - 2, MAX_DEPTH + 3))
def test_the_deepest_place_is_found_wherever_it_is(before: int, depth: int) -> None:
    body = b"[" + b"[]," * before + b"[" * (depth - 1) + b"]" * (depth - 1) + b"]"
    if depth <= MAX_DEPTH:
        check_json(body)
    else:
        assert "deep" in refusal(body)


def test_a_place_is_given_back_and_none_is_taken_beyond_the_limits() -> None:
    places = Places(each=2, all_together=30)
    with places.taken("a", 10) as one, places.taken("a", 10) as two, places.taken("a", 10) as three:
        assert (one, two, three) == (True, True, False)
        with places.taken("b", 10) as other, places.taken("c", 1) as more:
            assert (other, more) == (True, False)
    with pytest.raises(KeyError), places.taken("a", 30) as again:
        assert again
        raise KeyError
    with places.taken("c", 30) as last:
        assert last


def test_a_text_without_an_end_is_looked_through_once() -> None:
    check_json(b'"' + b'\\"' * 500_000 + b"{[" * 100)


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_body", 0),
        ("max_body", 1.5),
        ("body_s", 0),
        ("max_clients", 0),
        ("rate", "often"),
        ("read_rate", "0/minute"),
        ("submit_rate", 5),
        ("login_rate", ""),
        ("hosts", "shop.example"),
        ("hosts", ["shop.example:80"]),
        ("hosts", ["http://shop.example"]),
        ("hosts", ["*.example"]),
        ("hosts", [""]),
        ("hosts", [None]),
        ("tokens", ["hf_text"]),
        ("read_only", 1),
        ("is_loopback", None),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        ApiSettings(**{field: value})


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_loopback_is_loopback(host: str, is_loopback: bool) -> None:
    assert is_loopback_host(host) is is_loopback


def test_settings_do_not_show_their_tokens_secrets_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    from tests.unit.ops.api.guarding import ADMIN

    with caplog.at_level(logging.INFO):
        logging.getLogger("holdfast.api").info("%r", ApiSettings(tokens=[ADMIN.token]))
    assert ADMIN.text.rpartition("_")[2] not in caplog.text
