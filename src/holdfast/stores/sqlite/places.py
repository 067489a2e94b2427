"""Where to look for the jobs of a query: whatever leads to them with the fewest others between, newest first."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import apsw
from msgspec import Struct

from holdfast.ports import Query
from holdfast.stores.looking import BLOCK, LOOKED_AT, OPEN_STATES, at_first, before_of, listed, merged
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, read_value, text_list
from holdfast.stores.ways import GIVEN_UP
from holdfast.types import JobState

_SQL = load("places.sql")
_LETTERS = load("letters.sql")
_MOST_LISTS: Final = 500
_FEW: Final = 5_000
_MANY_MARKS: Final = 200
_FEW_CAUSES: Final = 64
_FEW_LETTERS: Final = 1_000
_DEAD: Final = (JobState.DEAD_LETTER,)
_RUNNING: Final = (JobState.RUNNING,)

Looks = Iterator[Sequence[int]]
Filter = tuple[str, dict[str, Any]]


class _Facts(Struct, frozen=True):
    """What is known of a query before a job is looked at."""

    lanes: list[int] | None
    """Those of its task and queue; None where it names neither."""
    n: int
    """How many jobs there are of its states in these lanes; where nobody needs to know, any number but 0."""


def looks_of(db: apsw.Connection, query: Query, *, is_exact: bool) -> Looks:
    """The places of jobs that a query may mean, some at a time; `is_exact` where no other filter is to be passed."""
    states = query.states
    facts = _facts_of(db, query)
    if not facts.n:
        return iter(())
    before, first = before_of(query), (query.limit + 1) * (1 if is_exact else 4)
    if states == _DEAD:
        return _letters(db, query, before, first)
    if states and all(state.value in GIVEN_UP for state in states):
        return _given_up(db, [GIVEN_UP[state.value] for state in states], before, first)
    is_open = _is_open(query)
    if states == _RUNNING or (is_open and facts.n <= _FEW):
        return _open(db, facts, states, before)
    if names := _names_of(db, query, facts):
        return _marked(db, names, before)
    everywhere = _all(db, before, first)
    if is_open:  # many have not ended, so most often these are the newest jobs
        return at_first(everywhere, _FEW // 2, lambda before: _open(db, facts, states, before))
    return everywhere


def cause_filter(query: Query) -> Filter:
    """The condition on a cause that its letters may be of the query, with its values."""
    values: dict[str, Any] = {
        "fingerprint": query.fingerprint or None,
        "task": query.task or None,
        "queue": query.queue or None,
        "tenant": query.tenant,
        "failure_type": query.failure_type,
    }
    wanted = {name: value for name, value in values.items() if value is not None}
    return " AND ".join(["true", *(f"cause.{name} = :{name}" for name in wanted)]), wanted


def _is_open(query: Query) -> bool:
    """Whether only jobs that have not ended are wanted."""
    return bool(query.states) and OPEN_STATES.issuperset(query.states)


def _facts_of(db: apsw.Connection, query: Query) -> _Facts:
    states = text_list([state.value for state in query.states or JobState])
    if query.task or query.queue:
        lanes = _column(db, _SQL["lanes_of"], {"queue": query.queue, "task": query.task})
        return _Facts(lanes, read_value(db, _SQL["n_of_lanes"], (_carray(lanes), states)))
    return _Facts(None, read_value(db, _SQL["n_of_states"], (states,)) if _is_open(query) else 1)


def _letters(db: apsw.Connection, query: Query, before: int, first: int) -> Looks:
    """Dead letters: those of a short time, those of few causes, or all."""
    if query.since is not None or query.until is not None:
        within = (query.since, query.until, _FEW_LETTERS + 1)
        if len(places := _column(db, _LETTERS["within"], within)) <= _FEW_LETTERS:
            return listed(places, before)
    everywhere = _given_up(db, [GIVEN_UP[JobState.DEAD_LETTER.value]], before, first)
    causes = _causes_of(db, query)
    if causes is None:
        return everywhere
    if len(causes) <= _FEW_CAUSES:
        return _of_causes(db, causes, before, first)
    return at_first(everywhere, _FEW_LETTERS, lambda before: _of_causes(db, causes, before, first))


def _causes_of(db: apsw.Connection, query: Query) -> list[int] | None:
    """The causes whose letters are wanted; None where that is all of them, or too many to go through one by one."""
    where, values = cause_filter(query)
    if not values:
        return None
    sql = _LETTERS["causes_like"].replace(":where", where)
    causes = [cause for (cause,) in read_rows(db, sql, {**values, "limit": _MOST_LISTS + 1})]
    return None if len(causes) > _MOST_LISTS else causes


def _of_causes(db: apsw.Connection, causes: list[int], before: int, first: int) -> Looks:
    def ask_each(before: int, each: int) -> list[list[int]]:
        return [_column(db, _LETTERS["of_cause"], (cause, before, each)) for cause in causes]

    return merged(ask_each, len(causes), before, first)


def _given_up(db: apsw.Connection, numbers: list[int], before: int, first: int) -> Looks:
    def ask_each(before: int, each: int) -> list[list[int]]:
        return [_column(db, _SQL["given_up"], (number, before, each)) for number in numbers]

    return merged(ask_each, len(numbers), before, first)


def _all(db: apsw.Connection, before: int, first: int) -> Looks:
    return merged(lambda before, each: [_column(db, _SQL["all"], (before, each))], 1, before, first)


def _open(db: apsw.Connection, facts: _Facts, states: Sequence[JobState], before: int) -> Looks:
    """What has not ended, out of what says so of each: the index of ready ones, that of delayed ones, the claims."""
    queries: list[str] = []
    values: dict[str, Any] = {}
    if states != _RUNNING:
        lanes = ""
        if facts.lanes is not None:
            lanes, values = "AND lane IN (SELECT value FROM carray(:lanes))", {"lanes": _carray(facts.lanes)}
        queries = [_SQL[name].replace(":lanes_too", lanes) for name in ("ready", "delayed")]
    running = _running(db) if JobState.RUNNING in states else []

    def ask_each(before: int, each: int) -> list[list[int]]:
        found = [_column(db, sql, values | {"before": before, "limit": each}) for sql in queries]
        return [*found, [seq for seq in running if seq < before][:each]]

    return merged(ask_each, 1, before, LOOKED_AT)


def _running(db: apsw.Connection) -> list[int]:
    held: set[int] = set()
    for (seqs,) in read_rows(db, _SQL["claims"]):
        held.update(array("q", seqs))
    return sorted(held, reverse=True)


def _names_of(db: apsw.Connection, query: Query, facts: _Facts) -> list[str]:
    """The names under which the jobs of a query are marked; of several kinds that which the fewest blocks have."""
    owners = {"t": query.tenant, "u": query.user, "p": query.project}
    kinds = [[f"{kind}{owner}"] for kind, owner in owners.items() if owner]
    if facts.lanes is not None and len(facts.lanes) <= _MOST_LISTS:
        kinds.append([f"l{lane}" for lane in facts.lanes])
    return min(kinds, key=lambda names: _n_of_marks(db, names)) if kinds else []


def _n_of_marks(db: apsw.Connection, names: list[str]) -> int:
    """How many there are, up to a bound."""
    return sum(read_value(db, _SQL["n_of_marks"], (name, _MANY_MARKS)) for name in names)


def _marked(db: apsw.Connection, names: list[str], before: int) -> Looks:
    """All jobs of each block that has a mark of one of these names."""

    def ask_each(before: int, each: int) -> list[list[int]]:
        return [_column(db, _SQL["blocks"], (name, before, each)) for name in names]

    for blocks in merged(ask_each, len(names), (before - 1) // BLOCK + 1, LOOKED_AT // BLOCK):
        for block in blocks:
            last = min(before - 1, block * BLOCK + BLOCK - 1)
            if places := _column(db, _SQL["between"], (block * BLOCK, last)):
                yield places


def _column(db: apsw.Connection, sql: str, values: apsw.Bindings) -> list[int]:
    return [value for (value,) in read_rows(db, sql, values)]


def _carray(numbers: Sequence[int]) -> object:
    return apsw.carray(array("q", numbers or [-1]))  # it cannot be empty; there is no such number
