"""Which tokens are odd: more jobs run under them in the store than are known here, and not only for a moment."""

from __future__ import annotations

from collections import Counter

from holdfast.runtime.held import Held

A, B, C = b"a", b"b", b"c"


def test_a_token_is_odd_when_it_has_more_jobs_than_are_known_twice_in_a_row() -> None:
    held = Held()
    held.hear({A: 2, B: 1})
    assert held.odd(Counter({A: 2}), ()) == []
    held.hear({A: 3, B: 1})
    assert held.odd(Counter({A: 2}), ()) == [B]
    held.hear({A: 3})
    assert held.odd(Counter({A: 2}), ()) == [A]


def test_what_is_settled_by_the_next_heartbeat_is_not() -> None:
    held = Held()
    for told in ({A: 1}, {}, {A: 1}):
        held.hear(told)
        assert held.odd(Counter(), ()) == []


def test_what_was_asked_for_and_not_answered_is_not() -> None:
    held = Held()
    for _ in range(3):
        held.hear({A: 1, B: 1, C: 1})
        found = held.odd(Counter({C: 1}), {A})
    assert found == [B]


def test_there_is_news_until_somebody_looks() -> None:
    held = Held()
    seen = [held.is_news]
    held.hear({A: 1})
    seen.append(held.is_news)
    held.odd(Counter(), ())
    assert [*seen, held.is_news] == [False, True, False]


def test_of_very_many_some_are_named_at_a_time() -> None:
    held = Held()
    told = {number.to_bytes(4): 1 for number in range(1_000)}
    held.hear(told)
    held.odd(Counter(), ())
    held.hear(told)
    assert held.odd(Counter(), ()) == list(told)[:100]
