"""A store that was set back, by a failover or a backup, gives versions again that its workers have seen already."""

from __future__ import annotations

import pytest

from holdfast.policy.breaker import BreakerConfig
from holdfast.runtime.shared.breakers import BreakerValue, write_breaker
from holdfast.runtime.shared.by_hand import force_open, pause
from holdfast.runtime.shared.guards import SharedGuards, breaker_gate, queue_gate
from holdfast.types import BreakerChanged, BreakerMode
from tests.unit.runtime.shared.conftest import Fleet

MAIL = queue_gate("mail")
BREAKER = breaker_gate("payments")


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.breaker = BreakerConfig()
    fleet.write("alert:a", b"1")
    return fleet


def lose_the_last(fleet: Fleet) -> SharedGuards:
    """A worker that has seen a change which the store does not have any more."""
    copy = dict(fleet.values)
    fleet.write("alert:b", b"1")
    worker = fleet.worker()
    fleet.restore(copy)
    assert worker.seen == fleet.version + 1
    return worker


def test_a_change_with_a_version_that_was_seen_is_heard_of(fleet: Fleet) -> None:
    worker = lose_the_last(fleet)
    fleet.sync(worker)
    fleet.change(pause(None, "mail"))
    fleet.sync(worker)
    assert worker.caps(fleet.now) == {MAIL: 0}


def test_a_store_that_has_caught_up_already_is_read_anew_if_another_server_may_have_answered(fleet: Fleet) -> None:
    worker = lose_the_last(fleet)
    fleet.change(pause(None, "mail"))
    fleet.change(force_open(None, "payments"))
    fleet.era += 1
    fleet.sync(worker)
    fleet.sync(worker)
    assert worker.caps(fleet.now) == {MAIL: 0, BREAKER: 0}


def test_what_the_store_has_lost_is_forgotten_and_told(fleet: Fleet) -> None:
    copy = dict(fleet.values)
    fleet.change(pause(None, "mail"))
    fleet.change(force_open(None, "payments"))
    worker = fleet.worker()
    assert worker.caps(fleet.now) == {MAIL: 0, BREAKER: 0}
    fleet.restore(copy)
    events = [*fleet.sync(worker), *fleet.sync(worker)]
    assert worker.caps(fleet.now) == {}
    assert events == [BreakerChanged("payments", BreakerMode.FORCED_OPEN, BreakerMode.CLOSED, 1, None)]


def test_what_was_kept_for_a_breaker_that_was_not_added_is_forgotten_too(fleet: Fleet) -> None:
    copy = dict(fleet.values)
    fleet.change(force_open(None, "letters"))
    worker = fleet.worker()
    fleet.restore(copy)
    fleet.sync(worker)
    fleet.sync(worker)
    worker.add_breaker("letters", BreakerConfig())
    assert worker.state_of("letters", fleet.now) is BreakerMode.CLOSED


def test_a_store_without_any_value_left_is_believed(fleet: Fleet) -> None:
    fleet.change(pause(None, "mail"))
    worker = fleet.worker()
    fleet.restore({})
    fleet.sync(worker)
    fleet.sync(worker)
    assert worker.caps(fleet.now) == {}


def test_an_older_state_of_a_value_is_taken_over(fleet: Fleet) -> None:
    fleet.change(force_open(None, "payments"))
    copy = dict(fleet.values)
    fleet.write(BREAKER, write_breaker(BreakerValue()))
    worker = fleet.worker()
    assert worker.caps(fleet.now) == {}
    fleet.restore(copy)
    fleet.sync(worker)
    fleet.sync(worker)
    assert worker.caps(fleet.now) == {BREAKER: 0}


def test_all_is_read_once_and_not_again_while_the_same_server_answers(fleet: Fleet) -> None:
    worker = lose_the_last(fleet)
    fleet.era += 1
    fleet.sync(worker)
    assert worker.seen == 0
    for _ in range(3):
        fleet.sync(worker)
        assert worker.seen == fleet.version
