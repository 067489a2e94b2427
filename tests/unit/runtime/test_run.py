"""How a verdict becomes a settlement that every store can write."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.policy.classify import classify
from holdfast.policy.judge import Bury, Drop, Park, Release, RetryAt, Verdict
from holdfast.ports import Delivery
from holdfast.runtime.run import encoded, settlement_of, storable
from holdfast.types import Change

DELIVERY = Delivery(id="1", task="t", queue="q", payload=b"{}", token=b"t", attempt=2, elapsed_s=10.0)


@pytest.mark.parametrize(
    ("text", "stored"), [("plain", "plain"), ("naïve ✓", "naïve ✓"), ("half \ud800 pair", "half ? pair"), ("", "")]
)
def test_text_that_no_store_can_hold_is_made_so_that_it_can(text: str, stored: str) -> None:
    assert storable(text) == stored
    assert storable(text).encode().decode() == stored


@pytest.mark.parametrize(
    ("verdict", "change"),
    [(Drop("user \ud800 gone"), Change.DISCARD), (Bury("user \ud800 gone"), Change.BURY)],
)
def test_a_reason_with_half_a_character_is_kept_as_far_as_it_can_be(verdict: Verdict, change: Change) -> None:
    one = settlement_of(DELIVERY, None, verdict, worker="w", began_at=None, ended_at=1.0)
    assert (one.change, one.reason) == (change, "user ? gone")


def test_a_reason_that_is_no_text_becomes_one() -> None:
    not_text: Any = 404
    one = settlement_of(DELIVERY, None, Drop(not_text), worker="w", began_at=None, ended_at=1.0)
    assert one.reason == "404"


def test_an_error_with_half_a_character_keeps_all_its_texts() -> None:
    failure = classify(ValueError("name \ud800 unknown"))
    one = settlement_of(DELIVERY, None, RetryAt(3.0), worker="w", began_at=5.0, ended_at=7.0, failure=failure)
    assert one.attempt is not None
    assert (one.attempt.message, one.attempt.number, one.attempt.outcome) == ("name ? unknown", 2, Change.RETRY)
    assert (one.attempt.delay_s, one.elapsed_s) == (3.0, 15.0)
    for text in (one.attempt.message, one.attempt.traceback, one.attempt.fingerprint, one.attempt.error_name):
        assert text.encode()


@pytest.mark.parametrize(
    ("verdict", "is_refunded"),
    [(Park(1.0, "limit"), True), (Release(), True), (RetryAt(1.0), False), (Bury(""), False)],
)
def test_only_what_is_nobodys_failure_costs_no_attempt(verdict: Verdict, is_refunded: bool) -> None:
    one = settlement_of(DELIVERY, None, verdict, worker="w", began_at=None, ended_at=1.0)
    assert one.is_refunded is is_refunded


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, object(), float("nan")])
def test_a_result_that_cannot_be_kept_is_told_in_words_that_can(value: Any) -> None:
    result, reason = encoded(value)
    assert result == b"null"
    assert reason.encode().startswith(b"the result was not kept")
