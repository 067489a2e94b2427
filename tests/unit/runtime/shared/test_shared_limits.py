"""Limits and budgets over several workers, and requests that need several guards."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.breaker import FAILURE, IGNORED, SUCCESS
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.limiter import Rate
from holdfast.runtime.shared.guards import Go, Hold, Request, SharedGuards, limit_gate

if TYPE_CHECKING:
    from tests.unit.runtime.shared.conftest import Fleet

TASK = limit_gate("shop.charge")
USER_7 = limit_gate("shop.charge", "user", "7")
ASK = Request(limits=(TASK,))


@pytest.fixture
def limited(fleet: Fleet) -> Fleet:
    fleet.limits = {"shop.charge": Rate(3, 60.0), "shop.charge:user": Rate(2, 10.0)}
    return fleet


def granted(answers: list[Go | Hold]) -> int:
    return sum(isinstance(answer, Go) for answer in answers)


def test_gates_have_one_name_each() -> None:
    assert TASK == "limit:shop.charge"
    assert USER_7 == "limit:shop.charge:user:7"


def test_starts_are_counted_over_workers(limited: Fleet) -> None:
    first, second = limited.worker(), limited.worker()
    assert granted(limited.ask(first, ASK, ASK)) == 2
    limited.now += 15.0
    answers = limited.ask(second, ASK, ASK)  # it knows of none yet, and is told
    assert granted(answers) == 1
    assert answers[1] == Hold(45.0, "limit shop.charge is used up")
    limited.now += 45.0
    assert granted(limited.ask(first, ASK, ASK, ASK)) == 2


def test_a_batch_of_starts_is_one_change(limited: Fleet) -> None:
    worker = limited.worker()
    question = worker.ask([ASK] * 3, limited.now)
    assert len(question.changes) == 1
    before = limited.exchanges
    assert granted(limited.ask(worker, ASK, ASK, ASK)) == 3
    assert limited.exchanges == before + 1


def test_a_start_is_dated_at_the_ask_that_succeeded(limited: Fleet) -> None:
    slow, quick = limited.worker(), limited.worker()
    question = slow.ask([ASK], limited.now)
    limited.go(quick, ASK)
    limited.now += 5.0
    limited.sync(slow, question.changes)
    assert not slow.finish(question, limited.changed, limited.now)
    limited.sync(slow, question.changes)
    assert slow.finish(question, limited.changed, limited.now)
    (go,) = question.answers
    assert isinstance(go, Go)
    assert (go.at, go.dates) == (limited.now, (limited.now,))
    limited.go(slow, ASK)
    assert limited.hold(slow, ASK).delay_s == 55.0
    limited.now += 55.0
    assert granted(limited.ask(slow, ASK, ASK)) == 1  # the other two are from five seconds later


def test_a_start_whose_grant_comes_late_is_dated_anew_and_ahead(limited: Fleet) -> None:
    """Or else it would be forgotten before a window has passed since the run began."""
    worker = limited.worker()
    ask = Request(limits=(USER_7,))
    question = worker.ask([ask, ask], limited.now)
    rounds = list[bool]()
    while question.changes:
        limited.sync(worker, question.changes)
        assert limited.changed == [True]
        limited.now += 1.25  # the reply is slow: more than a tenth of the window of 10 s
        rounds.append(worker.finish(question, limited.changed, limited.now))
    assert rounds == [False, True]
    assert granted(question.answers) == 2
    other = limited.worker()
    began_at = limited.now
    hold = limited.hold(other, ask)
    assert hold.delay_s >= 10.0
    limited.now = began_at + hold.delay_s
    assert granted(limited.ask(other, ask, ask, ask)) == 2


def test_caps_say_what_is_left(limited: Fleet) -> None:
    worker, other = limited.worker(), limited.worker()
    assert worker.caps(limited.now) == {TASK: 3}
    both = Request(limits=(TASK, USER_7))
    limited.ask(worker, both, both)
    limited.sync(other)
    for guards in (worker, other):
        assert guards.caps(limited.now) == {TASK: 1, USER_7: 0}
        assert guards.next_opening_s(limited.now) == 10.0
    limited.ask(worker, ASK)
    assert worker.caps(limited.now)[TASK] == 0
    limited.now += 60.0
    assert worker.caps(limited.now) == {TASK: 3, USER_7: 2}
    assert worker.next_opening_s(limited.now) is None


@pytest.mark.parametrize(("burst", "passed_s", "left"), [(1, 0.0, 0), (4, 0.0, 3), (4, 2.0, 4), (6, 0.0, 5)])
def test_caps_of_a_limit_with_a_burst_say_what_may_start_at_once(
    fleet: Fleet, burst: int, passed_s: float, left: int
) -> None:
    fleet.limits = {"shop.charge": Rate(6, 12.0, burst)}
    worker = fleet.worker()
    fleet.go(worker, ASK)
    fleet.now += passed_s
    assert worker.caps(fleet.now)[TASK] == left
    assert granted(fleet.ask(worker, *[ASK] * 9)) == left


def test_each_user_has_a_limit_of_its_own_and_idle_ones_are_removed(limited: Fleet) -> None:
    worker, other = limited.worker(), limited.worker()
    for user in range(20):
        limited.go(worker, Request(limits=(limit_gate("shop.charge", "user", f"{user}:x"),)))
    limited.sync(other)
    assert len(limited.values) == 20
    limited.flush(worker)
    assert all(value.data is not None for value in limited.values.values())
    limited.now += 10.0
    limited.flush(worker)
    assert all(value.data is None for value in limited.values.values())
    limited.sync(other)
    limited.now += 1.0
    limited.flush(other)
    assert worker.caps(limited.now).keys() >= {TASK}
    assert other.caps(limited.now) == {TASK: 3}
    limited.go(other, Request(limits=(USER_7,)))


def test_of_very_many_users_only_those_who_have_used_up_their_limit_are_sure_to_be_named(fleet: Fleet) -> None:
    fleet.limits = {"shop.charge": Rate(100_000, 60.0), "shop.charge:user": Rate(2, 10.0)}
    worker, other = fleet.worker(), fleet.worker()
    asks = [Request(limits=(limit_gate("shop.charge", "user", str(user)),)) for user in range(3_000)]
    late = limit_gate("shop.charge", "user", "2999")
    fleet.ask(worker, *asks, asks[-1], ASK)
    fleet.sync(other)
    for guards in (worker, other):
        caps = guards.caps(fleet.now)
        assert len(caps) <= 1_002
        assert (caps[late], caps[TASK]) == (0, 99_999)
        assert guards.next_opening_s(fleet.now) == 10.0
    fleet.now += 10.0
    assert worker.caps(fleet.now)[late] == 2  # or else all its jobs would be claimed at once, and parked
    for _ in range(60):  # everything idle is found, a part at a time
        fleet.now += 1.0
        fleet.flush(worker)
    assert all(value.data is None for key, value in fleet.values.items() if key != TASK)
    assert worker.caps(fleet.now) == {TASK: 100_000}


def test_a_limit_that_this_worker_does_not_know_is_left_alone(limited: Fleet) -> None:
    limited.go(limited.worker(), Request(limits=(USER_7,)))
    del limited.limits["shop.charge:user"]
    stranger = limited.worker()
    limited.now += 100.0
    assert USER_7 not in stranger.caps(limited.now)
    assert stranger.changes(limited.now) == []
    stranger.add_limit("shop.charge:user", Rate(2, 1_000.0))
    assert stranger.caps(limited.now)[USER_7] == 1


def test_other_rates_under_one_name_are_an_error(limited: Fleet) -> None:
    worker = limited.worker()
    worker.add_limit("shop.charge", Rate(3, 60.0))
    with pytest.raises(ConfigError, match="two different"):
        worker.add_limit("shop.charge", Rate(4, 60.0))
    with pytest.raises(ConfigError, match="no rate"):
        worker.ask([Request(limits=(limit_gate("shop.refund"),))], limited.now)


def test_starts_ahead_of_the_clock_do_not_hold_for_longer_than_the_window(limited: Fleet) -> None:
    worker = limited.worker()
    limited.write(TASK, b'{"entries":[{"first":5e12,"last":5e12,"count":3}],"count":3,"next_even":1e200}')
    limited.sync(worker)
    assert limited.hold(worker, ASK).delay_s == 60.0
    limited.now -= 500.0
    assert limited.hold(worker, ASK).delay_s == 60.0
    limited.now += 60.0
    limited.go(worker, ASK)


@pytest.mark.parametrize("data", [b"[]", b'{"entries":[{"first":1,"last":1,"count":-9}]}', b'{"entries":7}'])
def test_starts_that_cannot_be_read_are_taken_as_absent(
    limited: Fleet, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    worker = limited.worker()
    limited.write(TASK, data)
    with caplog.at_level(logging.WARNING):
        limited.sync(worker)
    assert "cannot be read" in caplog.text
    assert granted(limited.ask(worker, *[ASK] * 5)) == 3


# ---- several guards at once


def test_a_request_that_is_held_by_one_guard_takes_nothing_of_another(limited: Fleet) -> None:
    worker = limited.worker()
    limited.opened(worker)
    hold = limited.hold(worker, Request("payments", (TASK,)))
    assert hold.is_breaker
    assert worker.caps(limited.now)[TASK] == 3
    limited.now += 30.0
    limited.ask(worker, ASK, ASK, ASK)
    assert limited.hold(worker, Request("payments", (TASK,))) == Hold(60.0, "limit shop.charge is used up")
    assert worker.caps(limited.now)["breaker:payments"] == 2


def test_what_landed_of_a_request_is_given_back_when_the_rest_is_refused(limited: Fleet) -> None:
    """The limit's change lands, the breaker's is lost, and then the breaker has no trial left."""
    worker, other = limited.worker(), limited.worker()
    limited.half_opened(worker)
    limited.sync(other)
    question = worker.ask([Request("payments", (TASK,))], limited.now)
    assert [change.key for change in question.changes] == ["breaker:payments", TASK]
    limited.go(other)
    limited.go(other)
    limited.sync(worker, question.changes)
    assert limited.changed == [False, True]
    assert worker.finish(question, limited.changed, limited.now)
    (answer,) = question.answers
    assert isinstance(answer, Hold)
    assert answer.is_breaker
    limited.flush(worker)
    assert limited.data(TASK) is None
    assert worker.caps(limited.now)[TASK] == 3


def test_a_trial_that_landed_is_given_back_when_the_limit_is_used_up(limited: Fleet) -> None:
    worker, other = limited.worker(), limited.worker()
    limited.half_opened(worker)
    limited.sync(other)
    question = worker.ask([Request("payments", (TASK,))], limited.now)
    limited.ask(other, ASK, ASK, ASK)
    limited.sync(worker, question.changes)
    assert worker.finish(question, limited.changed, limited.now)
    assert worker.is_urgent
    limited.flush(worker)
    assert worker.caps(limited.now)["breaker:payments"] == 2


def test_after_a_few_lost_rounds_it_is_held_for_a_moment(limited: Fleet) -> None:
    limited.limits = {"shop.charge": Rate(1_000, 60.0)}
    unlucky, lucky = limited.worker(), limited.worker()
    question = unlucky.ask([ASK] * 20, limited.now)
    rounds = 0
    while question.changes:
        limited.go(lucky, ASK)
        limited.sync(unlucky, question.changes)
        unlucky.finish(question, limited.changed, limited.now)
        rounds += 1
    assert 2 <= rounds <= 10
    assert all(isinstance(answer, Hold) and 0.05 <= answer.delay_s <= 0.5 for answer in question.answers)
    limited.flush(unlucky)
    assert unlucky.caps(limited.now)[TASK] == 1_000 - rounds


def test_a_run_that_never_begins_gives_its_start_back(limited: Fleet) -> None:
    worker: SharedGuards = limited.worker()
    for go in [limited.go(worker, Request("payments", (TASK, USER_7))) for _ in range(2)]:
        worker.release(go)
    limited.flush(worker)
    assert limited.worker().caps(limited.now) == {TASK: 3}


def test_nothing_is_given_back_twice_after_a_lost_reply(limited: Fleet) -> None:
    worker = limited.worker()
    go, _ = limited.go(worker, ASK), limited.go(worker, ASK)
    worker.release(go)
    changes = worker.changes(limited.now)
    assert limited.change(changes[0])  # it took effect, but the reply is lost
    worker.lost(changes)
    limited.sync(worker)
    limited.flush(worker)
    assert limited.worker().caps(limited.now)[TASK] == 2


def test_giving_a_start_back_does_not_speed_up_the_pace_once_it_has_caught_up(fleet: Fleet) -> None:
    fleet.limits = {"shop.charge": Rate(2, 8.0, burst=1)}
    worker, other = fleet.worker(), fleet.worker()
    go = fleet.go(worker, ASK)
    fleet.now += 5.0
    fleet.go(other, ASK)
    worker.release(go)
    fleet.flush(worker)
    assert fleet.hold(worker, ASK).delay_s == 4.0
    fleet.now += 4.0
    worker.release(fleet.go(worker, ASK))
    fleet.flush(worker)
    fleet.go(other, ASK)  # nobody has started since, so it is as if it had never been


# ---- budgets

RETRY = Request(budget="payments", earns="payments")


@pytest.fixture
def budgeted(fleet: Fleet) -> Fleet:
    fleet.budget = BudgetConfig(ratio=0.5, cap=2.0)
    return fleet


def test_retries_are_paid_from_one_budget(budgeted: Fleet) -> None:
    first, second = budgeted.worker(), budgeted.worker()
    budgeted.go(first, RETRY)
    budgeted.go(second, RETRY)
    for worker in (first, second):
        hold = budgeted.hold(worker, RETRY)
        assert hold.why == "retry budget payments is empty"
        assert not hold.is_breaker


def test_successes_earn_retries_for_all(budgeted: Fleet) -> None:
    first, second = budgeted.worker(), budgeted.worker()
    budgeted.ask(first, RETRY, RETRY)
    run = budgeted.go(first, Request(earns="payments"))
    first.report(run, SUCCESS, budgeted.now, slow_s=0.0, cause=None)
    first.report(run, FAILURE, budgeted.now, slow_s=0.0, cause=None)
    first.report(run, IGNORED, budgeted.now, slow_s=0.0, cause=None)
    assert not first.is_urgent
    budgeted.flush(first)
    assert budgeted.hold(second, RETRY)
    second.report(run, SUCCESS, budgeted.now, slow_s=0.0, cause=None)
    budgeted.go(second, RETRY)  # sent together with what was earned
    assert second.changes(budgeted.now) == []


def test_a_full_budget_has_nothing_to_send_and_no_value(budgeted: Fleet) -> None:
    worker = budgeted.worker()
    run = budgeted.go(worker, Request(earns="payments"))
    worker.report(run, SUCCESS, budgeted.now, slow_s=0.0, cause=None)
    assert worker.changes(budgeted.now) == []
    budgeted.go(worker, RETRY)
    for _ in range(2):
        worker.report(run, SUCCESS, budgeted.now, slow_s=0.0, cause=None)
    budgeted.flush(worker)
    assert budgeted.data("budget:payments") is None


def test_nothing_is_earned_twice_after_a_lost_reply(budgeted: Fleet) -> None:
    worker = budgeted.worker()
    budgeted.ask(worker, RETRY, RETRY)
    run = budgeted.go(worker, Request(earns="payments"))
    worker.report(run, SUCCESS, budgeted.now, slow_s=0.0, cause=None)
    changes = worker.changes(budgeted.now)
    assert budgeted.change(changes[0])  # it took effect, but the reply is lost
    worker.lost(changes)
    budgeted.sync(worker)
    budgeted.flush(worker)
    assert budgeted.data("budget:payments") == b'{"tokens":0.5}'
