"""The checker of rings finds what can go wrong: each kind of fault, made by hand."""

from __future__ import annotations

import pytest

from tests.faults.ring_checker import problems, repeated
from tests.faults.ring_pipeline import Line


def ledger(*runs: tuple[tuple[int, int], ...]) -> list[Line]:
    return [Line(pid=pid, first=first, last=last) for pid, run in enumerate(runs) for first, last in run]


GOOD = [
    ledger(((0, 4), (5, 9))),
    ledger(((0, 4),), ((5, 9),)),
    ledger(((0, 4), (5, 6)), ((5, 9),)),  # the last batch again, and larger
    ledger(((0, 4), (5, 9)), ((5, 6),), ((5, 9),)),  # and killed at it once more
    ledger(((0, 4), (5, 9)), ((5, 6),), ((7, 9),)),
]
BAD = {
    "lost 2": ledger(((0, 4), (5, 7))),
    "after 4 came 6 in one run": ledger(((0, 4), (6, 9))),
    "after 4 came 3 in one run": ledger(((0, 4), (3, 9))),
    "the first run began at 1": ledger(((1, 9),)),
    "the next began at 6": ledger(((0, 4),), ((6, 9),)),
    "the next began at 0": ledger(((0, 4), (5, 6)), ((0, 9),)),
    "were never produced": ledger(((0, 9), (10, 11))),
    "closed 2 times": [*ledger(((0, 9),)), *[Line(pid=0, is_close=True)] * 2],
}


@pytest.mark.parametrize("lines", GOOD)
def test_what_a_kill_explains_is_no_problem(lines: list[Line]) -> None:
    assert problems(lines, 10) == []


@pytest.mark.parametrize("problem", BAD)
def test_what_no_kill_explains_is_found(problem: str) -> None:
    assert any(problem in one for one in problems(BAD[problem], 10))


def test_elements_done_twice_are_counted_once_each() -> None:
    assert repeated(ledger(((0, 4), (5, 9)), ((5, 6),), ((5, 9),))) == 5
