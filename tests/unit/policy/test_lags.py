"""How the lag of streams grows."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.policy.alerts import Alert, AlertState, step, value_of
from holdfast.policy.lags import SAMPLES, Sample, growth, sampled
from holdfast.policy.notices import Notice
from holdfast.policy.rules import LagGrowth, Reading, StreamLag

WITHIN_S = 300.0


def test_a_window_is_remembered_by_ten_samples() -> None:
    samples: tuple[Sample, ...] = ()
    for second in range(0, 991, 5):
        samples = sampled(samples, {"bill": second}, float(second), WITHIN_S)
    assert len(samples) == SAMPLES + 1
    assert [one.at for one in samples] == [float(at) for at in range(690, 991, 30)]
    assert samples[0].lags == {"bill": 690}


def test_a_sample_is_taken_when_its_time_has_come_and_not_before() -> None:
    first = sampled((), {"bill": 1}, 100.0, WITHIN_S)
    assert first == (Sample(100.0, {"bill": 1}),)
    assert sampled(first, {"bill": 9}, 129.9, WITHIN_S) == first
    assert sampled(first, {"bill": 9}, 130.0, WITHIN_S) == (*first, Sample(130.0, {"bill": 9}))
    assert sampled(first, {"bill": 9}, 400.0, WITHIN_S) == (*first, Sample(400.0, {"bill": 9}))
    assert sampled(first, {"bill": 9}, 400.1, WITHIN_S) == (Sample(400.1, {"bill": 9}),)


def test_what_a_clock_that_was_set_back_has_dated_goes() -> None:
    ahead = (Sample(1_000.0, {"bill": 1}),)
    assert sampled(ahead, {"bill": 5}, 10.0, WITHIN_S) == (Sample(10.0, {"bill": 5}),)


def test_of_very_many_streams_those_with_the_largest_lags_are_remembered() -> None:
    (sample,) = sampled((), {f"s{n}": n for n in range(150)}, 0.0, WITHIN_S)
    assert set(sample.lags) == {f"s{n}" for n in range(50, 150)}


def test_growth_is_above_the_least_and_the_largest_is_told() -> None:
    samples = (Sample(0.0, {"a": 50, "b": 10}), Sample(30.0, {"a": 20, "b": 10}), Sample(60.0, {"a": 40}))
    assert growth(samples, {"a": 45, "b": 30}) == ("a", 25.0)
    assert growth(samples, {"a": 45, "b": 36}) == ("b", 26.0)
    assert growth(samples, {"a": 5, "b": 10}) == ("", 0.0)


def test_a_stream_that_was_not_there_before_has_not_grown() -> None:
    assert growth((Sample(0.0, {"a": 1}),), {"a": 1, "new": 10_000}) == ("", 0.0)


class Watched:
    """An alert on growth, looked at again and again."""

    def __init__(self) -> None:
        self.alert = Alert(name="growing", rule=LagGrowth(over=100, within=WITHIN_S))
        self.state = AlertState()

    def see(self, now: float, lags: Mapping[str, int] | None) -> Notice | None:
        reading = Reading(lags=lags, is_known=lags is not None)
        self.state, notice = step(self.alert, self.state, reading, now, id="1")
        return notice


def test_an_alert_on_growth_fires_names_the_stream_and_ends_when_the_lag_stands_still() -> None:
    watched = Watched()
    assert watched.see(0, {"bill": 1_000, "ship": 5}) is None
    assert watched.see(5, {"bill": 1_100, "ship": 5}) is None, "at the limit is not over it"
    fired = watched.see(10, {"bill": 1_101, "ship": 5})
    assert fired is not None
    assert fired.text == "the lag of stream bill has grown by 101 messages in 300 s; the limit is 100"
    assert watched.see(299, {"bill": 1_101, "ship": 5}) is None
    resolved = [notice for at in range(300, 400, 5) if (notice := watched.see(at, {"bill": 1_101, "ship": 5}))]
    assert [one.state for one in resolved] == ["resolved"]


def test_while_nobody_knows_a_lag_an_alert_stays_as_it_is() -> None:
    watched = Watched()
    watched.see(0, {"bill": 0})
    assert watched.see(5, {"bill": 101}) is not None
    before = watched.state
    assert watched.see(10, None) is None
    assert watched.state == before
    assert watched.state.is_firing


def test_samples_do_not_make_an_alert_one_that_has_something_to_tell() -> None:
    watched = Watched()
    watched.see(0, {"bill": 0})
    assert watched.state.samples
    assert watched.state.is_quiet
    assert value_of(watched.state, Reading(lags={"bill": 7}), 5) == 7.0


def test_a_reading_of_another_rule_leaves_no_samples() -> None:
    before = AlertState(samples=(Sample(0.0, {"bill": 1}),))
    state, _ = step(Alert(name="lag", rule=StreamLag()), before, Reading(value=5), 0, id="1")
    assert state == AlertState()
