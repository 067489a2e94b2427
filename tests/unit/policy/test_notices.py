"""Notices on their way: in order for each target, one sender at a time, and none lost with its sender."""

from __future__ import annotations

from typing import Literal

from holdfast.policy.notices import (
    AGAIN_S,
    HOLD_S,
    KEEP_S,
    MOST_TRIES,
    Notice,
    Outbox,
    given,
    left_over,
    refused,
    taken,
    told,
    waiting,
)


def notice(id_: str, at: float = 1000.0, state: Literal["firing", "resolved"] = "firing") -> Notice:
    return Notice(id=id_, name="a", state=state, value=1, threshold=0, text="", at=at)


def with_one(*targets: str) -> Outbox:
    return told(Outbox(), notice("n1"), targets, "me", 1000.0)


def with_two(*targets: str) -> Outbox:
    return told(with_one(*targets), notice("n2", 1010.0, "resolved"), targets, "other", 1010.0)


def next_of(outbox: Outbox, target: str) -> str | None:
    found = waiting(outbox, target)
    return None if found is None else found.id


def test_a_notice_is_its_makers_until_the_time_is_over_and_then_anybodys() -> None:
    outbox = with_one("t")
    assert taken(outbox, ["t"], "other", 1000 + HOLD_S - 0.1) == (outbox, ())
    after, mine = taken(outbox, ["t"], "other", 1000 + HOLD_S)
    assert (mine, after.lanes["t"].by, after.lanes["t"].tries) == (("t",), "other", 2)
    assert taken(after, ["t"], "third", 1000 + HOLD_S) == (after, ()), "one server takes it, and no other"


def test_a_notice_held_beyond_any_hold_is_anybodys() -> None:
    assert taken(with_one("t"), ["t"], "other", 500)[1] == ("t",)


def test_a_notice_that_all_targets_have_is_forgotten() -> None:
    assert told(Outbox(), notice("n1"), (), "me", 1000.0) == Outbox()
    outbox = given(with_one("t", "u"), "t", "n1", "me", 1001)
    assert (next_of(outbox, "t"), next_of(outbox, "u")) == (None, "n1")
    assert list(outbox.lanes) == ["u"]
    assert given(outbox, "t", "n1", "me", 1002) == outbox
    assert given(outbox, "u", "n1", "me", 1002) == Outbox()


def test_the_second_notice_waits_for_the_first_and_goes_with_its_sender() -> None:
    outbox = with_two("t")
    assert (outbox.lanes["t"].by, next_of(outbox, "t")) == ("me", "n1"), "its maker does not overtake the first"
    outbox = given(outbox, "t", "n1", "me", 1020)
    assert (outbox.lanes["t"].by, outbox.lanes["t"].until_at, next_of(outbox, "t")) == ("me", 1020 + HOLD_S, "n2")


def test_a_first_notice_that_is_not_taken_comes_again_before_the_second() -> None:
    outbox = refused(with_two("t", "u"), "t", "me", 1020)
    outbox = given(given(outbox, "u", "n1", "me", 1020), "u", "n2", "me", 1021)
    assert next_of(outbox, "u") is None, "other targets do not wait"
    assert taken(outbox, ["t"], "other", 1020 + AGAIN_S - 0.1)[1] == ()
    outbox, mine = taken(outbox, ["t"], "other", 1020 + AGAIN_S)
    assert (mine, next_of(outbox, "t")) == (("t",), "n1")


def test_what_a_server_leaves_over_is_anybodys_at_once_and_no_try() -> None:
    outbox = left_over(with_one("t"), "t", "me", 1001)
    outbox, mine = taken(outbox, ["t"], "other", 1001)
    assert (mine, outbox.lanes["t"].tries) == (("t",), 1)


def test_a_server_that_lost_its_target_to_another_does_not_disturb_it() -> None:
    outbox, _ = taken(with_two("t"), ["t"], "other", 1000 + HOLD_S)
    assert refused(outbox, "t", "me", 1200) == outbox
    assert left_over(outbox, "t", "me", 1200) == outbox
    after = given(outbox, "t", "n1", "me", 1200)
    assert (after.lanes, next_of(after, "t")) == (outbox.lanes, "n2")


def test_a_notice_that_nobody_takes_is_dropped_in_the_end_and_the_next_has_its_own_tries() -> None:
    outbox, now, tried = with_two("t"), 1010.0, ["n1"]
    while outbox.pending:
        outbox = refused(outbox, "t", outbox.lanes["t"].by, now)
        now += AGAIN_S
        outbox, mine = taken(outbox, ["t"], "me", now)
        tried += [str(next_of(outbox, one)) for one in mine]
    assert tried == ["n1"] * MOST_TRIES + ["n2"] * MOST_TRIES


def test_a_patient_sender_drops_nothing() -> None:
    outbox, now = with_one("t"), 1000.0
    for _ in range(10 * MOST_TRIES):
        now += HOLD_S
        outbox, mine = taken(outbox, ["t"], "me", now, is_patient=True)
        assert mine == ("t",)


def test_what_no_server_has_a_target_for_is_dropped_after_an_hour() -> None:
    outbox = with_one("gone")
    assert taken(outbox, ["t"], "me", 1000 + KEEP_S - 1) == (outbox, ())
    assert taken(outbox, ["t"], "me", 1000 + KEEP_S) == (Outbox(), ())


def test_notices_that_are_not_sent_do_not_pile_up() -> None:
    outbox = Outbox()
    for number in range(100):
        outbox = told(outbox, notice(f"n{number}"), ["t"], "me", 1000.0)
    assert [one.notice.id for one in outbox.pending] == [f"n{number}" for number in range(90, 100)]
    assert list(outbox.lanes) == ["t"]
