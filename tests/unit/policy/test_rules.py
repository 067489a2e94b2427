"""The rules of alerts: their bounds, and their words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.rules import (
    BreakerOpen,
    DeadLetterGrowth,
    DeadLetters,
    ErrorRate,
    HealthScore,
    Lag,
    LagGrowth,
    NoWorker,
    Rule,
    StreamLag,
    StreamStuck,
    limit_of,
    minutes_of,
    most_within,
    words_of,
)


@pytest.mark.parametrize(
    ("rule", "limit", "minutes"),
    [
        (ErrorRate(), 0.1, 6),
        (ErrorRate(over=0.5, window=61), 0.5, 3),
        (HealthScore(), 0.5, 0),
        (DeadLetters(), 100, 0),
        (DeadLetterGrowth(), 50, 11),
        (Lag(), 60, 0),
        (BreakerOpen(), 60, 0),
        (NoWorker(), 1, 0),
        (StreamLag(), 10_000, 0),
        (LagGrowth(), 1_000, 0),
        (StreamStuck(), 60, 0),
    ],
    ids=str,
)
def test_a_rule_knows_its_limit_and_how_far_it_looks_back(rule: Rule, limit: float, minutes: int) -> None:
    assert (limit_of(rule), minutes_of(rule)) == (limit, minutes)


@pytest.mark.parametrize(
    ("rule", "value", "keys", "words"),
    [
        (ErrorRate(), 0.234, (), "23.4% of attempts failed in 300 s; the limit is 10.0%"),
        (HealthScore(), 0.4, (), "the health score is 0.4; the limit is 0.5"),
        (HealthScore(), None, (), "the health score is unknown; the limit is 0.5"),
        (DeadLetters(), 101, (), "101 dead letters; the limit is 100"),
        (DeadLetterGrowth(), 51, (), "51 new dead letters in 600 s; the limit is 50"),
        (Lag(), 61.7, (), "the oldest due job has waited for 62 s in any queue; the limit is 60 s"),
        (Lag(queue="mail"), None, (), "no job is due in queue mail; the limit is 60 s"),
        (BreakerOpen(), 61, ("b", "a"), "not closed for 61 s: a, b; the limit is 60 s"),
        (BreakerOpen(), 61, "gfedcba", "not closed for 61 s: a, b, c, d, e and 2 more; the limit is 60 s"),
        (BreakerOpen(key="db"), 0, (), "breaker db is closed"),
        (NoWorker(), 0, (), "no worker is alive"),
        (NoWorker(), 2, (), "workers alive: 2"),
        (StreamLag(), 12_000, (), "the lag of any stream is 12000 messages; the limit is 10000"),
        (StreamLag(stream="bill"), None, (), "the lag of stream bill is unknown; the limit is 10000"),
        (
            LagGrowth(),
            1_500,
            (),
            "the lag of any stream has grown by 1500 messages in 300 s; the limit is 1000",
        ),
        (
            LagGrowth(stream="bill"),
            None,
            (),
            "the lag of stream bill has grown by an unknown number in 300 s; the limit is 1000",
        ),
        (StreamStuck(stream="bill"), 75, (), "stream bill has waited for 75 s; the limit is 60 s"),
        (StreamStuck(), 0, (), "every partition of any stream moves; the limit is 60 s"),
        (StreamStuck(), None, (), "nobody knows whether any stream moves; the limit is 60 s"),
    ],
    ids=str,
)
def test_a_rule_says_what_was_found(rule: Rule, value: float | None, keys: tuple[str, ...], words: str) -> None:
    assert words_of(rule, value, keys) == words


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ErrorRate(over=1.5), "over=1.5: must be a number, at least 0 and at most 1"),
        (lambda: ErrorRate(window=59), "window=59: must be a number, at least 60"),
        (lambda: ErrorRate(window=3601), "window=3601: must be a number, at least 60 and at most 3600"),
        (lambda: ErrorRate(min_attempts=0), "min_attempts=0: must be a whole number of at least 1"),
        (lambda: HealthScore(under=0), "under=0: must be a number, above 0 and at most 1"),
        (lambda: DeadLetters(over=-1), "over=-1: must be a number, at least 0"),
        (lambda: DeadLetterGrowth(window=1), "window=1: must be a number, at least 60"),
        (lambda: Lag(over=-1), "over=-1: must be a number, at least 0"),
        (lambda: Lag(queue=""), "queue='': must be a name, or None for any"),
        (lambda: BreakerOpen(longer_than=-1), "longer_than=-1: must be a number, at least 0"),
        (lambda: BreakerOpen(key=""), "key='': must be a name, or None for any"),
        (lambda: StreamLag(over=-1), "over=-1: must be a number, at least 0"),
        (lambda: StreamLag(stream=""), "stream='': must be a name, or None for any"),
        (lambda: LagGrowth(over=-1), "over=-1: must be a number, at least 0"),
        (lambda: LagGrowth(within=59), "within=59: must be a number, at least 60"),
        (lambda: LagGrowth(within=3601), "within=3601: must be a number, at least 60 and at most 3600"),
        (lambda: LagGrowth(stream=""), "stream='': must be a name, or None for any"),
        (lambda: StreamStuck(over=-1), "over=-1: must be a number, at least 0"),
        (lambda: StreamStuck(stream=""), "stream='': must be a name, or None for any"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(make: Callable[[], Rule], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == words


@pytest.mark.parametrize("second", range(0, 60, 7))
@pytest.mark.parametrize("minutes", [1, 10])
def test_a_steady_stream_comes_out_as_what_a_window_has(minutes: int, second: int) -> None:
    assert most_within([60.0] * minutes + [float(second)], second) == 60 * minutes


def test_what_came_all_at_once_counts_in_full_for_the_whole_window() -> None:
    assert most_within([0, 0, 51], 59.9) == 51
    assert most_within([0, 51, 0], 0.1) == 51
    assert most_within([51, 0, 0], 59.9) == 51, "up to 180 s after it came, of a window of 120 s"
    assert most_within([0, 0, 0], 0.1) == 0


def test_what_came_around_the_turn_of_a_minute_counts_together() -> None:
    assert most_within([30, 30], 3.0) == 58.5


def test_a_rule_of_streams_names_what_it_has_found() -> None:
    assert words_of(StreamLag(), 12_000, what="stream bill") == (
        "the lag of stream bill is 12000 messages; the limit is 10000"
    )
    assert words_of(StreamStuck(), 75, what="stream bill at orders/0/12, key 'A',") == (
        "stream bill at orders/0/12, key 'A', has waited for 75 s; the limit is 60 s"
    )
