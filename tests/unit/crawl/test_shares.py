from __future__ import annotations

import pytest

from holdfast.crawl.shares import Shares
from holdfast.ports import Value, ValueChange
from holdfast.runtime.page_gates import SHARES


class Fleet:
    """Several workers' shares over one value with compare and set."""

    def __init__(self, *names: str) -> None:
        self.value: Value | None = None
        self.version = 0
        self.workers = {name: Shares("shop", name) for name in names}
        self.busy: dict[str, set[int]] = {name: set() for name in names}

    def send(self, change: ValueChange | None) -> bool:
        if change is None:
            return True
        known = 0 if self.value is None or self.value.data is None else self.value.version
        if change.expected != known:
            return False
        self.version += 1
        self.value = Value(change.key, self.version, change.data)
        return True

    def look(self, name: str, alive: set[str] | None = None) -> bool:
        shares = self.workers[name]
        if self.value is not None:
            shares.absorb(self.value)
        is_done = self.send(shares.change(set(self.workers) if alive is None else alive, self.busy[name]))
        if self.value is not None:
            shares.absorb(self.value)
        self.refuse_overlaps()
        return is_done

    def refuse_overlaps(self) -> None:
        owned = [share for shares in self.workers.values() for share in shares.mine]
        assert len(owned) == len(set(owned)), "a share is claimed from by two workers"

    def counts(self) -> list[int]:
        return sorted(len(shares.mine) for shares in self.workers.values())


def test_a_worker_alone_takes_all_shares_at_once() -> None:
    fleet = Fleet("a")
    assert fleet.look("a")
    assert fleet.workers["a"].mine == frozenset(range(SHARES))
    assert not fleet.workers["a"].others


def test_nothing_is_sent_where_all_is_as_it_should_be() -> None:
    fleet = Fleet("a")
    fleet.look("a")
    version = fleet.version
    fleet.look("a")
    assert fleet.version == version


def test_a_second_worker_gets_half_once_the_first_has_given_it_up() -> None:
    fleet = Fleet("a", "b")
    fleet.look("a", alive={"a"})
    fleet.look("b")
    assert fleet.counts() == [0, SHARES]
    fleet.look("a")
    fleet.look("b")
    assert fleet.counts() == [SHARES // 2, SHARES // 2]


def test_a_share_of_which_something_is_in_flight_is_not_given_up_but_no_more_of_it_is_claimed() -> None:
    fleet = Fleet("a", "b")
    fleet.look("a", alive={"a"})
    fleet.busy["a"] = {31}
    fleet.look("b")
    fleet.look("a")
    fleet.look("b")
    assert 31 not in fleet.workers["a"].mine
    assert 31 not in fleet.workers["b"].mine
    fleet.busy["a"] = set()
    fleet.look("a")
    fleet.look("b")
    assert 31 in fleet.workers["b"].mine


def test_what_a_dead_worker_had_is_free() -> None:
    fleet = Fleet("a", "b")
    fleet.look("a", alive={"a"})
    del fleet.workers["a"]
    assert fleet.look("b")
    assert fleet.workers["b"].mine == frozenset(range(SHARES))


def test_whoever_leaves_gives_all_back() -> None:
    fleet = Fleet("a", "b")
    fleet.look("a", alive={"a"})
    assert fleet.send(fleet.workers["a"].leave())
    fleet.workers["a"].absorb(fleet.value)  # type: ignore[arg-type]
    assert not fleet.workers["a"].mine
    assert fleet.look("b", alive={"b"})
    assert len(fleet.workers["b"].mine) == SHARES


def test_a_compare_and_set_that_was_refused_gives_nothing() -> None:
    fleet = Fleet("a", "b")
    change = fleet.workers["b"].change({"a", "b"}, ())
    fleet.look("a", alive={"a"})
    assert not fleet.send(change)
    assert not fleet.workers["b"].mine


@pytest.mark.parametrize("n", [2, 3, 5, 7, 32, 40])
def test_the_shares_settle_evenly_whoever_came_first(n: int) -> None:
    fleet = Fleet(*(f"w{i}" for i in range(n)))
    alive: set[str] = set()
    for name in fleet.workers:
        alive.add(name)
        fleet.look(name, alive=alive)
    for _ in range(2 * n):
        for name in fleet.workers:
            fleet.look(name)
    counts = fleet.counts()
    assert sum(counts) == SHARES
    assert counts[-1] - counts[0] <= 1
    version = fleet.version
    for name in fleet.workers:
        fleet.look(name)
    assert fleet.version == version, "it does not come to rest"


def test_a_value_that_cannot_be_read_is_taken_for_none() -> None:
    shares = Shares("shop", "a")
    shares.absorb(Value(shares.key, 7, b"what?"))
    change = shares.change({"a"}, ())
    assert change is not None
    assert change.expected == 7
