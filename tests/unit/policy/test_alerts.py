"""Alerts as a state machine: patience, hysteresis, reminders, and notices that outlive their sender."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.alerts import AGAIN_S, HOLD_S, MOST_TRIES, Alert, AlertState, Notice, sent, step, taken
from holdfast.policy.rules import BreakerOpen, DeadLetters, ErrorRate, HealthScore, Lag, NoWorker, Reading, Rule


class Watched:
    """An alert with a state, told one value after the other."""

    def __init__(self, rule: Rule, **settings: Any) -> None:
        self.alert = Alert(name="a", rule=rule, **settings)
        self.state = AlertState()
        self.count = 0

    def see(self, now: float, value: float | None) -> Notice | None:
        return self.read(now, Reading(value=value))

    def read(self, now: float, reading: Reading) -> Notice | None:
        self.count += 1
        self.state, notice = step(self.alert, self.state, reading, now, id=f"n{self.count}", app="shop")
        return notice


def test_an_alert_fires_once_and_is_resolved_once() -> None:
    watched = Watched(ErrorRate(over=0.10))
    assert watched.see(0, 0.10) is None, "at the limit is not over it"
    fired = watched.see(5, 0.2)
    assert fired is not None
    assert (fired.id, fired.name, fired.state, fired.value, fired.threshold) == ("n2", "a", "firing", 0.2, 0.1)
    assert (fired.at, fired.app, fired.is_reminder) == (5, "shop", False)
    assert fired.text == "20.0% of attempts failed in 300 s; the limit is 10.0%"
    assert watched.state.since_at == 5
    assert watched.see(10, 0.9) is None
    resolved = watched.see(15, 0.0)
    assert resolved is not None
    assert (resolved.state, resolved.value) == ("resolved", 0.0)
    assert watched.see(20, 0.0) is None
    assert not watched.state.is_firing


def test_a_value_between_clear_and_limit_changes_nothing() -> None:
    watched = Watched(DeadLetters(over=100))
    assert watched.see(0, 90) is None
    assert watched.see(1, 101) is not None
    assert watched.see(2, 99) is None
    assert watched.see(3, 80.1) is None
    assert watched.state.is_firing
    resolved = watched.see(4, 80)
    assert resolved is not None
    assert resolved.state == "resolved"


@pytest.mark.parametrize(
    ("rule", "clear", "still", "over"),
    [
        (ErrorRate(over=0.10), 0.05, 0.06, 0.05),
        (HealthScore(under=0.5), None, 0.59, 0.6),
        (HealthScore(under=0.5), 0.9, 0.89, 0.9),
        (NoWorker(), None, 0, 1),
        (Lag(over=0), None, 0.1, 0),
    ],
    ids=str,
)
def test_an_alert_ends_where_its_value_is_clear(rule: Rule, clear: float | None, still: float, over: float) -> None:
    watched = Watched(rule, clear=clear)
    worst = 0.0 if isinstance(rule, HealthScore | NoWorker) else 1e9
    assert watched.see(0, worst) is not None
    assert watched.see(1, still) is None
    assert watched.state.is_firing
    assert watched.see(2, over) is not None
    assert not watched.state.is_firing


def test_an_alert_waits_for_as_long_as_it_is_told() -> None:
    watched = Watched(DeadLetters(over=0), for_s=60)
    assert watched.see(0, 1) is None
    assert watched.see(59, 1) is None
    assert watched.see(59.5, 0) is None, "and the count begins anew"
    assert watched.see(60, 1) is None
    assert watched.see(119, 1) is None
    assert watched.see(120, 1) is not None


def test_an_alert_reminds_as_often_as_it_is_told() -> None:
    watched = Watched(DeadLetters(over=0), repeat_s=100)
    assert watched.see(0, 1) is not None
    assert watched.see(99, 1) is None
    again = watched.see(100, 1)
    assert again is not None
    assert (again.is_reminder, again.state, again.id) == (True, "firing", "n3")
    assert watched.see(199, 1) is None
    assert watched.see(200, 1) is not None
    assert watched.state.since_at == 0


def test_nothing_known_neither_fires_nor_holds_an_alert() -> None:
    watched = Watched(ErrorRate())
    assert watched.see(0, None) is None
    assert watched.see(1, 1.0) is not None
    resolved = watched.see(2, None)
    assert resolved is not None
    assert resolved.text == "no attempts to speak of in 300 s; the limit is 10.0%"


def test_a_clock_that_was_set_back_only_delays_an_alert() -> None:
    watched = Watched(DeadLetters(over=0), for_s=60, repeat_s=100)
    watched.see(10_000, 1)
    assert watched.see(0, 1) is None
    assert watched.see(59, 1) is None, "it counts from the time it was seen with first"
    assert watched.see(60, 1) is not None
    assert watched.see(0, 1) is None
    assert watched.see(159, 1) is None
    assert watched.see(160, 1) is not None


def test_each_breaker_is_timed_by_itself() -> None:
    watched = Watched(BreakerOpen(longer_than=60))
    assert watched.read(0, Reading(keys=["a"])) is None
    assert watched.read(40, Reading(keys=["a", "b"])) is None
    assert watched.read(50, Reading(keys=["b"])) is None
    assert watched.read(100, Reading(keys=["b"])) is None, "neither was open for longer than 60 s"
    fired = watched.read(101, Reading(keys=["b"]))
    assert fired is not None
    assert (fired.value, fired.text) == (61, "not closed for 61 s: b; the limit is 60 s")
    assert watched.read(102, Reading(keys=["b"])) is None
    resolved = watched.read(103, Reading(keys=[]))
    assert resolved is not None
    assert (resolved.state, resolved.text) == ("resolved", "every breaker is closed")
    assert watched.state.marks == {}


def test_a_look_that_finds_nothing_new_leaves_the_state_as_it_is() -> None:
    watched = Watched(DeadLetters(over=0), for_s=60)
    watched.see(0, 1)
    before = watched.state
    watched.see(5, 1)
    assert watched.state == before
    watched = Watched(BreakerOpen())
    watched.read(0, Reading(keys=["a"]))
    before = watched.state
    watched.read(5, Reading(keys=["a"]))
    assert watched.state == before


# ---------------------------------------------------------------- sending


def fired() -> AlertState:
    watched = Watched(DeadLetters(over=0))
    assert watched.see(1000, 1) is not None
    return watched.state


def test_a_notice_is_its_makers_until_the_time_is_over_and_then_anybodys() -> None:
    state = fired()
    assert taken(state, 1000 + HOLD_S - 0.1) == (state, ())
    after, mine = taken(state, 1000 + HOLD_S)
    assert [(one.notice.id, one.tries) for one in mine] == [("n1", 2)]
    assert after.pending == mine
    assert taken(after, 1000 + HOLD_S) == (after, ()), "one server takes it, and no other"


def test_a_notice_held_beyond_any_hold_is_anybodys() -> None:
    assert len(taken(fired(), 500)[1]) == 1


def test_a_notice_that_all_targets_have_is_forgotten() -> None:
    assert sent(fired(), "n1", frozenset({0, 1}), 2, 1001).pending == ()
    assert sent(fired(), "n1", frozenset(), 0, 1001).pending == ()
    assert sent(fired(), "other", frozenset({0}), 1, 1001) == fired()


def test_a_notice_is_sent_again_only_to_those_who_do_not_have_it() -> None:
    state = sent(fired(), "n1", frozenset({1}), 3, 1001)
    (one,) = state.pending
    assert (one.done, one.until_at) == ((1,), 1001 + AGAIN_S)
    state, _ = taken(state, 1001 + AGAIN_S)
    state = sent(state, "n1", frozenset({0}), 3, 1100)
    assert state.pending[0].done == (0, 1)
    assert sent(state, "n1", frozenset({2}), 3, 1101).pending == ()


def test_a_notice_that_nobody_takes_is_dropped_in_the_end() -> None:
    state, now, tries = fired(), 1000.0, 1
    while state.pending:
        now += HOLD_S
        state, mine = taken(state, now)
        tries += len(mine)
    assert tries == MOST_TRIES


def test_notices_that_are_not_sent_do_not_pile_up() -> None:
    watched = Watched(DeadLetters(over=0))
    for now in range(100):
        watched.see(now, now % 2)
    assert len(watched.state.pending) == 10
    assert watched.state.pending[-1].notice.at == 99


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("rule", "settings", "words"),
    [
        (DeadLetters(), {"for_s": -1}, "for_s=-1: must be a number, at least 0"),
        (DeadLetters(), {"repeat_s": 0.5}, "repeat_s=0.5: must be a number, at least 1"),
        (DeadLetters(over=100), {"clear": 101}, "clear=101: must be a number, at least 0 and at most 100"),
        (HealthScore(under=0.5), {"clear": 0.4}, "clear=0.4: must be a number, at least 0.5 and at most 1"),
        (NoWorker(), {"clear": 1}, "clear=1: NoWorker has nothing between well and not"),
        (BreakerOpen(), {"clear": 1}, "clear=1: BreakerOpen has nothing between well and not"),
    ],
)
def test_settings_that_cannot_work_are_refused(rule: Rule, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Alert(name="a", rule=rule, **settings)
    assert str(caught.value) == words
