"""Alerts as a state machine: patience, hysteresis, reminders, and several versions of one alert."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.alerts import YIELD_S, Alert, AlertState, step
from holdfast.policy.notices import Notice
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
    assert watched.see(99, 1) is None, "and so do the reminders"
    assert watched.see(100, 1) is not None
    assert watched.see(-86_400, 1) is None
    assert watched.see(-86_300, 1) is not None


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


# ---------------------------------------------------------------- two versions of one alert


class Fleet:
    """Servers of several versions of a program, which look at one alert in turns."""

    def __init__(self, *limits: float, **settings: Any) -> None:
        self.alerts = {limit: Alert(name="a", rule=DeadLetters(over=limit), **settings) for limit in limits}
        self.state = AlertState()
        self.told: list[tuple[float, str]] = []
        self.writes = 0

    def look(self, now: float, value: float) -> None:
        for limit, alert in self.alerts.items():
            before = self.state
            self.state, notice = step(alert, before, Reading(value=value), now, id="n")
            self.writes += self.state != before
            if notice is not None:
                self.told.append((limit, notice.state))


@pytest.mark.parametrize("limits", [(10, 100), (100, 10), (10, 100, 1000)])
def test_versions_with_different_limits_do_not_fire_and_resolve_in_turns(limits: tuple[float, ...]) -> None:
    fleet = Fleet(*limits)
    for look in range(60):
        fleet.look(5.0 * look, 50)
    assert fleet.told == [(10, "firing")]
    assert fleet.writes < 30, "and they do not write at every look to say so"


def test_the_new_version_takes_over_when_the_old_one_is_gone() -> None:
    fleet = Fleet(10, 100)
    for look in range(20):
        fleet.look(5.0 * look, 50)
    del fleet.alerts[10]
    fleet.look(100.0, 50)
    assert fleet.told == [(10, "firing")]
    for look in range(20):
        fleet.look(105.0 + 5.0 * look, 50)
    assert fleet.told == [(10, "firing"), (100, "resolved")]
    assert fleet.state == AlertState()


def test_a_version_whose_claim_was_dated_ahead_or_given_up_does_not_hold_up_others() -> None:
    fleet = Fleet(10, 100)
    fleet.look(10_000.0, 50)
    del fleet.alerts[10]
    fleet.look(0.0, 50)  # the clock was set back
    fleet.look(YIELD_S - 1, 50)
    assert fleet.told == [(10, "firing")]
    fleet.look(YIELD_S, 50)
    assert fleet.told[1:] == [(100, "resolved")]
    fleet = Fleet(10, 100)
    fleet.look(0.0, 50)
    fleet.alerts = {1000: Alert(name="a", rule=DeadLetters(over=1000))}
    for look in range(1, 50):
        fleet.look(5.0 * look, 50)
    assert fleet.told == [(10, "firing"), (1000, "resolved")]


def test_a_state_of_an_older_holdfast_is_anybodys_to_judge() -> None:
    watched = Watched(DeadLetters(over=0))
    watched.state = AlertState(is_firing=True, since_at=0.0)
    assert watched.see(5, 0) is not None


def test_a_fingerprint_is_that_of_the_settings() -> None:
    made = [Alert(name="a", rule=rule) for rule in (DeadLetters(5), DeadLetters(6), Lag(5), NoWorker())]
    made.append(Alert(name="a", rule=DeadLetters(5), for_s=1))
    assert len({alert.fingerprint for alert in made}) == 5
    assert made[0].fingerprint == Alert(name="a", rule=DeadLetters(5)).fingerprint


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
