"""A breaker over several workers: counting, opening, trials, closing, and what it must survive."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.breaker import FAILURE, IGNORED, SUCCESS, BreakerConfig
from holdfast.runtime.shared.guards import Request, SharedGuards
from holdfast.types import BreakerChanged, BreakerMode

if TYPE_CHECKING:
    from tests.unit.runtime.shared.conftest import Fleet

CLOSED, OPEN, HALF_OPEN = BreakerMode.CLOSED, BreakerMode.OPEN, BreakerMode.HALF_OPEN
ASK = Request("payments")
GATE = "breaker:payments"


def mode(fleet: Fleet, guards: SharedGuards) -> BreakerMode:
    return guards.state_of("payments", fleet.now)


# ---- closed


def test_a_closed_breaker_costs_no_change_and_no_round(fleet: Fleet) -> None:
    worker = fleet.worker()
    before = fleet.exchanges
    fleet.run(worker, SUCCESS, SUCCESS, IGNORED)
    assert fleet.exchanges == before
    assert fleet.values == {}
    assert GATE not in worker.caps(fleet.now)
    assert worker.next_opening_s(fleet.now) is None
    calm = worker.calm_go("payments", fleet.now)
    assert calm is not None
    assert calm.permit is not None
    assert calm.permit.period == 1


def test_consecutive_failures_are_counted_over_workers(fleet: Fleet) -> None:
    first, second = fleet.worker(), fleet.worker()
    fleet.run(first, FAILURE)
    fleet.run(second, FAILURE)
    assert mode(fleet, second) is CLOSED
    fleet.run(first, FAILURE)
    assert mode(fleet, first) is OPEN
    fleet.sync(second)
    assert mode(fleet, second) is OPEN


def test_failures_that_workers_report_at_the_same_time_all_count(fleet: Fleet) -> None:
    workers = [fleet.worker() for _ in range(3)]
    gos = [fleet.go(worker) for worker in workers]
    for worker, go in zip(workers, gos, strict=True):
        worker.report(go, FAILURE, fleet.now, slow_s=0.0, cause="E: x")
    sent = [worker.changes(fleet.now) for worker in workers]  # each from the same version
    for worker, changes in zip(workers, sent, strict=True):
        fleet.sync(worker, changes)
        worker.confirm(changes, fleet.changed, fleet.now)
    assert workers[1].is_urgent
    for worker in workers:
        fleet.flush(worker)
        assert not worker.is_urgent
    assert mode(fleet, workers[2]) is OPEN


def test_a_success_of_one_worker_ends_the_row_of_another(fleet: Fleet) -> None:
    first, second = fleet.worker(), fleet.worker()
    fleet.run(first, FAILURE, FAILURE)
    fleet.sync(second)
    fleet.run(second, SUCCESS)
    fleet.sync(first)
    fleet.run(first, FAILURE, FAILURE)
    assert mode(fleet, first) is CLOSED


def test_failures_before_the_last_success_of_a_batch_do_not_count(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.run(worker, FAILURE, FAILURE, SUCCESS, FAILURE, FAILURE)
    assert mode(fleet, worker) is CLOSED
    fleet.run(worker, FAILURE)
    assert mode(fleet, worker) is OPEN


def test_only_a_failure_or_a_trial_is_urgent(fleet: Fleet) -> None:
    worker = fleet.worker()
    go = fleet.go(worker)
    worker.report(go, SUCCESS, fleet.now, slow_s=0.0, cause=None)
    was_urgent = [worker.is_urgent]
    worker.report(go, FAILURE, fleet.now, slow_s=0.0, cause="E: x")
    was_urgent.append(worker.is_urgent)
    fleet.flush(worker)
    worker.report(go, SUCCESS, fleet.now, slow_s=0.0, cause=None)  # sent, as it ends a row, but not at once
    was_urgent.append(worker.is_urgent)
    assert was_urgent == [False, True, False]
    assert len(worker.changes(fleet.now)) == 1


# ---- open


def test_an_open_breaker_holds_runs_and_gates_its_jobs(fleet: Fleet) -> None:
    worker, other = fleet.worker(), fleet.worker()
    fleet.opened(worker)
    fleet.sync(other)
    fleet.now += 10.0
    for guards in (worker, other):
        hold = fleet.hold(guards)
        assert (hold.delay_s, hold.why, hold.is_breaker) == (20.0, "breaker payments is open", True)
        assert guards.caps(fleet.now)[GATE] == 0
        assert guards.next_opening_s(fleet.now) == 20.0
        assert guards.calm_go("payments", fleet.now) is None
        assert guards.breaker_states(fleet.now) == {"payments": OPEN}


def test_every_worker_is_told_of_every_change(fleet: Fleet) -> None:
    worker, other = fleet.worker(), fleet.worker()
    gos = [fleet.go(worker) for _ in range(3)]
    for go in gos:
        worker.report(go, FAILURE, fleet.now, slow_s=0.0, cause="ConnectionError:\nrefused")
    opened = [BreakerChanged("payments", CLOSED, OPEN, 2, "ConnectionError: refused")]
    assert fleet.flush(worker) == opened
    assert fleet.sync(other) == opened
    assert fleet.sync(other) == []


def test_a_worker_holds_at_once_what_its_own_failures_close(fleet: Fleet) -> None:
    worker = fleet.worker()
    gos = [fleet.go(worker) for _ in range(3)]
    for go in gos:
        worker.report(go, FAILURE, fleet.now, slow_s=0.0, cause=None)
    assert fleet.hold(worker).is_breaker  # nothing was sent yet
    assert worker.caps(fleet.now)[GATE] == 0


def test_results_of_earlier_periods_change_nothing(fleet: Fleet) -> None:
    worker, late = fleet.worker(), fleet.worker()
    gos = [fleet.go(late) for _ in range(4)]
    fleet.opened(worker)
    state = fleet.data(GATE)
    for go, outcome in zip(gos, [SUCCESS, FAILURE, SUCCESS, FAILURE], strict=True):
        late.report(go, outcome, fleet.now, slow_s=0.0, cause=None)
    fleet.sync(late)
    fleet.flush(late)
    assert fleet.data(GATE) == state
    assert not late.is_urgent
    fleet.now += 30.0
    trial = fleet.go(late)
    late.report(gos[0], FAILURE, fleet.now, slow_s=0.0, cause=None)
    fleet.flush(late)
    assert mode(fleet, late) is HALF_OPEN
    assert trial.permit is not None
    assert trial.permit.trial == 1


# ---- half-open


def test_trials_are_shared_and_their_successes_close_it(fleet: Fleet) -> None:
    first, second = fleet.worker(), fleet.worker()
    fleet.half_opened(first)
    fleet.sync(second)
    assert second.caps(fleet.now)[GATE] == 2
    one = fleet.go(first)
    two = fleet.go(second)  # it knows of no trial yet, and loses a round
    assert fleet.hold(second).why == "breaker payments is half-open and its trials are under way"
    assert second.caps(fleet.now)[GATE] == 0
    assert second.next_opening_s(fleet.now) == 60.0
    first.report(one, SUCCESS, fleet.now, slow_s=0.0, cause=None)
    assert first.is_urgent
    fleet.flush(first)
    assert mode(fleet, first) is HALF_OPEN
    second.report(two, SUCCESS, fleet.now, slow_s=0.0, cause=None)
    (event,) = fleet.flush(second)
    assert (event.before, event.after, event.cause) == (HALF_OPEN, CLOSED, None)
    assert len([answer for answer in fleet.ask(second, *[ASK] * 9) if hasattr(answer, "permit")]) == 9


def test_one_failed_trial_opens_it_again(fleet: Fleet) -> None:
    first, second = fleet.worker(), fleet.worker()
    fleet.half_opened(first)
    one, two = fleet.go(first), fleet.go(first)
    first.report(one, SUCCESS, fleet.now, slow_s=0.0, cause=None)
    first.report(two, FAILURE, fleet.now, slow_s=0.0, cause="still down")
    fleet.flush(first)
    fleet.sync(second)
    assert mode(fleet, second) is OPEN
    assert fleet.hold(second).delay_s == 30.0


def test_a_batch_gets_as_many_trials_as_there_are_in_one_round(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.half_opened(worker)
    before = fleet.exchanges
    answers = fleet.ask(worker, *[ASK] * 5)
    assert fleet.exchanges == before + 1
    assert [hasattr(answer, "permit") for answer in answers] == [True, True, False, False, False]


def test_the_trial_of_a_dead_worker_comes_back_and_its_late_result_does_not_count(fleet: Fleet) -> None:
    dead, worker = fleet.worker(), fleet.worker()
    fleet.half_opened(dead)
    lost = [fleet.go(dead), fleet.go(dead)]
    fleet.sync(worker)
    fleet.now += 59.0
    assert fleet.hold(worker).is_breaker
    fleet.now += 1.0
    fleet.go(worker)
    fleet.sync(dead)
    dead.report(lost[0], FAILURE, fleet.now, slow_s=0.0, cause="late")
    fleet.flush(dead)
    assert mode(fleet, dead) is HALF_OPEN


def test_an_ignored_trial_gives_its_place_back(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.half_opened(worker)
    trials = [fleet.go(worker), fleet.go(worker)]
    assert fleet.hold(worker).is_breaker
    worker.report(trials[0], IGNORED, fleet.now, slow_s=0.0, cause=None)
    fleet.flush(worker)
    assert worker.caps(fleet.now)[GATE] == 1
    worker.release(trials[1])
    fleet.flush(worker)
    assert worker.caps(fleet.now)[GATE] == 2


def test_runs_are_not_let_through_before_the_success_that_closes_it_has_landed(fleet: Fleet) -> None:
    first, second = fleet.worker(), fleet.worker()
    fleet.half_opened(first)
    trials = [fleet.go(first), fleet.go(first)]
    fleet.sync(second)
    for go in trials:
        first.report(go, SUCCESS, fleet.now, slow_s=0.0, cause=None)
    question = first.ask([ASK], fleet.now)
    assert len(question.changes) == 1  # carries the results
    fleet.sync(first, question.changes)
    assert first.finish(question, fleet.changed, fleet.now)
    assert not first.is_urgent
    assert mode(fleet, first) is CLOSED


# ---- rates


def test_rates_over_the_last_calls_are_shared(fleet: Fleet) -> None:
    fleet.breaker = BreakerConfig(failure_rate=0.5, window=10, min_calls=6)
    first, second = fleet.worker(), fleet.worker()
    fleet.run(first, SUCCESS, SUCCESS, FAILURE)
    fleet.sync(second)
    fleet.run(second, FAILURE, SUCCESS)
    assert mode(fleet, second) is CLOSED
    fleet.run(second, FAILURE)
    assert mode(fleet, second) is OPEN


def test_rates_over_time_are_shared_and_forget(fleet: Fleet) -> None:
    fleet.breaker = BreakerConfig(slow_rate=0.5, slow_call=2.0, window=timedelta(seconds=10), min_calls=4)
    first, second = fleet.worker(), fleet.worker()
    fleet.run(first, SUCCESS, SUCCESS, SUCCESS, slow_s=2.0)
    fleet.run(first, SUCCESS, slow_s=2.5)
    fleet.now += 10.0
    fleet.sync(second)
    fleet.run(second, SUCCESS, SUCCESS, slow_s=3.0)
    assert mode(fleet, second) is CLOSED
    fleet.sync(first)
    fleet.run(first, SUCCESS, SUCCESS, slow_s=0.1)
    assert mode(fleet, first) is OPEN
    assert fleet.hold(first).is_breaker


def test_a_window_of_many_calls_stays_small(fleet: Fleet) -> None:
    fleet.breaker = BreakerConfig(failure_rate=0.9, window=5_000)
    worker = fleet.worker()
    for _ in range(130):
        fleet.run(worker, *[SUCCESS, FAILURE] * 25)
    assert len(fleet.data(GATE) or b"") < 4_000


# ---- settings and odd values


def test_two_configurations_under_one_key_are_an_error(fleet: Fleet) -> None:
    worker = fleet.worker()
    worker.add_breaker("payments", BreakerConfig(failure_threshold=3, half_open_max_calls=2))
    with pytest.raises(ConfigError, match="payments"):
        worker.add_breaker("payments", BreakerConfig())
    with pytest.raises(ConfigError, match="was not added"):
        worker.ask([Request("unheard")], fleet.now)


def test_a_breaker_that_is_added_late_knows_what_came_before(fleet: Fleet) -> None:
    fleet.opened(fleet.worker())
    config, fleet.breaker = fleet.breaker, None
    assert config is not None
    late = fleet.worker()
    late.add_breaker("payments", config)
    assert mode(fleet, late) is OPEN


@pytest.mark.parametrize("data", [b"\xff\xfe", b"{", b"null", b'{"state":{"mode":"ajar"}}', b'{"state":{"period":-4}}'])
def test_a_value_that_cannot_be_read_is_taken_as_absent_and_told_once(
    fleet: Fleet, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    worker = fleet.worker()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            fleet.write(GATE, data)
            fleet.sync(worker)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert mode(fleet, worker) is CLOSED
    fleet.opened(worker)
    assert mode(fleet, fleet.worker()) is OPEN


def test_an_absurd_until_does_not_hold_work_for_longer_than_the_settings_allow(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.write(GATE, b'{"state":{"mode":"open","period":7,"until":1e300}}')
    fleet.sync(worker)
    assert fleet.hold(worker).delay_s == 30.0
    fleet.now += 30.0
    fleet.go(worker)
    assert mode(fleet, worker) is HALF_OPEN


def test_a_clock_that_goes_back_does_not_keep_it_open(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.opened(worker)
    fleet.now -= 900.0
    assert worker.next_opening_s(fleet.now) == 30.0
    fleet.now += 30.0
    trials = [fleet.go(worker), fleet.go(worker)]
    fleet.now -= 500.0
    assert worker.next_opening_s(fleet.now) == 60.0
    assert len(trials) == 2


def test_trials_counted_under_other_settings_do_not_keep_it_half_open_for_ever(fleet: Fleet) -> None:
    fleet.breaker = BreakerConfig(failure_threshold=1, half_open_max_calls=3)
    old = fleet.worker()
    fleet.half_opened(old)
    fleet.run(old, SUCCESS, SUCCESS)
    fleet.breaker = BreakerConfig(failure_threshold=1, half_open_max_calls=2)
    new = fleet.worker()
    fleet.run(new, SUCCESS, SUCCESS)
    assert mode(fleet, new) is CLOSED


def test_a_store_that_was_set_back_is_read_anew(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.run(worker, FAILURE, FAILURE)
    fleet.values.clear()
    fleet.version = 0
    fleet.run(worker, FAILURE)
    assert mode(fleet, fleet.worker()) is CLOSED
    fleet.run(worker, FAILURE, FAILURE)
    assert mode(fleet, fleet.worker()) is OPEN


def test_after_a_lost_reply_failures_are_sent_again(fleet: Fleet) -> None:
    worker = fleet.worker()
    go = fleet.go(worker)
    worker.report(go, FAILURE, fleet.now, slow_s=0.0, cause=None)
    worker.lost(worker.changes(fleet.now))
    assert worker.is_urgent
    assert len(worker.changes(fleet.now)) == 1
