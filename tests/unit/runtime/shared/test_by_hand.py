"""What operators do, and what workers make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.errors import IllegalChange
from holdfast.policy.breaker import FAILURE, SUCCESS
from holdfast.ports import Value
from holdfast.runtime.shared import by_hand
from holdfast.runtime.shared.by_hand import BreakerView
from holdfast.types import BreakerMode

if TYPE_CHECKING:
    from tests.unit.runtime.shared.conftest import Fleet

GATE = "breaker:payments"


def test_a_reset_closes_it_for_all(fleet: Fleet) -> None:
    worker, other = fleet.worker(), fleet.worker()
    fleet.opened(worker)
    assert fleet.change(by_hand.reset(fleet.values[GATE], "payments"))
    for guards in (worker, other):
        fleet.sync(guards)
        fleet.run(guards, SUCCESS)
        assert guards.state_of("payments", fleet.now) is BreakerMode.CLOSED


def test_forced_open_holds_until_somebody_resets_it(fleet: Fleet) -> None:
    worker = fleet.worker()
    assert fleet.change(by_hand.force_open(None, "payments"))
    (event,) = fleet.sync(worker)
    assert event.after is BreakerMode.FORCED_OPEN
    fleet.now += 1e6
    assert fleet.hold(worker).why == "breaker payments is held open by hand"
    assert worker.caps(fleet.now)[GATE] == 0
    assert worker.next_opening_s(fleet.now) is None
    with pytest.raises(IllegalChange):
        by_hand.disable(fleet.values[GATE], "payments")


def test_disabled_lets_everything_through(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.opened(worker)
    assert fleet.change(by_hand.disable(fleet.values[GATE], "payments"))
    fleet.sync(worker)
    fleet.run(worker, *[FAILURE] * 9)
    assert worker.state_of("payments", fleet.now) is BreakerMode.DISABLED
    assert GATE not in worker.caps(fleet.now)


def test_a_change_by_hand_loses_against_a_newer_value(fleet: Fleet) -> None:
    change = by_hand.force_open(None, "payments")
    fleet.run(fleet.worker(), FAILURE)
    assert not fleet.change(change)


@pytest.mark.parametrize("change", [by_hand.reset, by_hand.force_open, by_hand.disable])
def test_a_value_that_cannot_be_read_can_be_replaced(fleet: Fleet, change: object) -> None:
    assert callable(change)
    fleet.write(GATE, b"?")
    assert fleet.change(change(fleet.values[GATE], "payments"))
    assert len(by_hand.breaker_views(fleet.values.values(), fleet.now)) == 1


def test_a_paused_queue_is_not_claimed_from_until_it_is_resumed(fleet: Fleet) -> None:
    worker = fleet.worker()
    assert fleet.change(by_hand.pause(None, "mail"))
    fleet.sync(worker)
    assert worker.caps(fleet.now) == {"queue:mail": 0}
    assert worker.next_opening_s(fleet.now) is None
    assert fleet.change(by_hand.resume(fleet.values["queue:mail"], "mail"))
    fleet.sync(worker)
    assert worker.caps(fleet.now) == {}
    assert fleet.change(by_hand.pause(fleet.values["queue:mail"], "mail"))  # it was removed: there is none


@pytest.mark.parametrize("data", [b"?", b"{}", b"[]", b'{"paused":false}', b'{"paused":"yes"}'])
def test_a_queue_is_paused_only_where_the_value_says_so(fleet: Fleet, data: bytes) -> None:
    worker = fleet.worker()
    fleet.write("queue:mail", data)
    fleet.sync(worker)
    assert worker.caps(fleet.now) == {}


def test_breakers_are_listed_without_their_settings(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.run(worker, FAILURE)
    fleet.write("breaker:odd", b"?")
    fleet.write("queue:mail", b"{}")
    removed = Value("breaker:gone", 99, None)
    (view,) = by_hand.breaker_views([*fleet.values.values(), removed], fleet.now)
    closed = BreakerMode.CLOSED
    assert view == BreakerView(
        key="payments", mode=closed, failures=1, until=None, retry_after=None, cause=None, period=1, trips=0
    )
    fleet.run(worker, FAILURE, FAILURE)
    opened_at = fleet.now
    fleet.now += 12.0
    (view,) = by_hand.breaker_views(fleet.values.values(), fleet.now)
    assert (view.mode, view.until, view.retry_after, view.trips) == (BreakerMode.OPEN, opened_at + 30.0, 18.0, 1)
    assert view.cause == "ConnectionError: refused"
    fleet.now += 20.0
    (view,) = by_hand.breaker_views(fleet.values.values(), fleet.now)
    assert (view.mode, view.until, view.retry_after) == (BreakerMode.HALF_OPEN, None, None)
    fleet.change(by_hand.reset(fleet.values[GATE], "payments"))
    (view,) = by_hand.breaker_views(fleet.values.values(), fleet.now)
    assert (view.mode, view.trips) == (closed, 1)
