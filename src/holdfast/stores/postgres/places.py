"""Where to look for the jobs of a query: whatever leads to them with the fewest others between, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from holdfast.ports import Query
from holdfast.stores.looking import LOOKED_AT, OPEN_STATES, AskEach, at_first, before_of, listed, merged
from holdfast.stores.postgres.arrays import blobs, escaped, ints, texts
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.queries import load
from holdfast.stores.ways import GIVEN_UP
from holdfast.types import JobState

_SQL = load("places.sql")
_LETTERS = load("letters.sql")
_CAUSES_LIKE: Final = _LETTERS["causes_like"].replace(":sums", _LETTERS["sums"])
_MOST_LISTS: Final = 500
_FEW: Final = 5_000
_FEW_CAUSES: Final = 64
_FEW_LETTERS: Final = 1_000
_DEAD: Final = (JobState.DEAD_LETTER,)
_RUNNING: Final = (JobState.RUNNING,)
_FIRST_AT_LEAST: Final = 200
"""A round trip costs more than this many places do."""

Looks = Iterator[Sequence[int]]
Filter = tuple[str, dict[str, Any]]


class _Facts(Struct, frozen=True):
    """What is known of a query before a job is looked at."""

    lanes: list[int] | None
    """Those of its task and queue; None where it names neither."""
    n: int
    """How many jobs there are of its states in these lanes; where nobody needs to know, any number but 0."""


def looks_of(db: Db, query: Query, *, is_exact: bool) -> Looks:
    """The places of jobs that a query may mean, some at a time; `is_exact` where no other filter is to be passed."""
    states = query.states
    facts = _facts_of(db, query)
    if not facts.n:
        return iter(())
    before, first = before_of(query), query.limit + 1
    if not is_exact:
        first = max(4 * first, _FIRST_AT_LEAST)
    if states == _DEAD:
        return _letters(db, query, before, first)
    if states and all(state.value in GIVEN_UP for state in states):
        return _given_up(db, [GIVEN_UP[state.value] for state in states], before, first)
    is_open = _is_open(query)
    if states == _RUNNING or (is_open and facts.n <= _FEW):
        return _open(db, facts, states, before)
    by_lane = facts.lanes is not None and len(facts.lanes) <= _MOST_LISTS
    if not (by_lane and facts.n <= LOOKED_AT):
        for column, owner in (("user", query.user), ("project", query.project), ("tenant", query.tenant)):
            if owner:
                sql = _SQL["of_owner"].replace(":column", f'"{column}"')
                return merged(_list(db, sql, owner=escaped(owner)), 1, before, first)
    if by_lane and facts.lanes is not None:
        return merged(_lists(db, _SQL["of_lanes"], lanes=ints(facts.lanes)), len(facts.lanes), before, first)
    everywhere = merged(_list(db, _SQL["all"]), 1, before, first)
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
        "failure_type": None if query.failure_type is None else query.failure_type.value,
    }
    wanted = {name: escaped(value) for name, value in values.items() if value is not None}
    return " AND ".join(["true", *(f"cause.{name} = %({name})s" for name in wanted)]), wanted


def _is_open(query: Query) -> bool:
    """Whether only jobs that have not ended are wanted."""
    return bool(query.states) and OPEN_STATES.issuperset(query.states)


def _facts_of(db: Db, query: Query) -> _Facts:
    states = texts([state.value for state in query.states or JobState])
    if query.task or query.queue:
        lanes = _column(db, _SQL["lanes_of"], queue=escaped(query.queue), task=escaped(query.task))
        return _Facts(lanes, db.row(_SQL["n_of_lanes"], lanes=ints(lanes), states=states)[0])
    return _Facts(None, db.row(_SQL["n_of_states"], states=states)[0] if _is_open(query) else 1)


def _letters(db: Db, query: Query, before: int, first: int) -> Looks:
    """Dead letters: those of a short time, those of few causes, or all."""
    if query.since is not None or query.until is not None:
        within = {"since": query.since, "until": query.until}
        if len(places := _column(db, _LETTERS["within"], **within, limit=_FEW_LETTERS + 1)) <= _FEW_LETTERS:
            return listed(places, before)
    everywhere = _given_up(db, [GIVEN_UP[JobState.DEAD_LETTER.value]], before, first)
    causes = _causes_of(db, query)
    if causes is None:
        return everywhere
    of_causes = _lists(db, _LETTERS["of_causes"], causes=blobs(causes))
    if len(causes) <= _FEW_CAUSES:
        return merged(of_causes, len(causes), before, first)
    return at_first(everywhere, _FEW_LETTERS, lambda before: merged(of_causes, len(causes), before, first))


def _given_up(db: Db, numbers: list[int], before: int, first: int) -> Looks:
    return merged(_lists(db, _SQL["given_up"], numbers=ints(numbers)), len(numbers), before, first)


def _causes_of(db: Db, query: Query) -> list[bytes] | None:
    """The causes whose letters are wanted; None where that is all of them, or too many to go through one by one."""
    where, values = cause_filter(query)
    if not values:
        return None
    sql = _CAUSES_LIKE.replace(":where", where)
    causes = [cause for (cause,) in db.rows(sql, **values, limit=_MOST_LISTS + 1)]
    return None if len(causes) > _MOST_LISTS else causes


def _open(db: Db, facts: _Facts, states: Sequence[JobState], before: int) -> Looks:
    """What has not ended, out of what says so of each: the lists of ready and of delayed ones, and the claims."""
    queries = [] if states == _RUNNING else [_SQL["ready"], _SQL["delayed"]]
    running = _column(db, _SQL["running"]) if JobState.RUNNING in states else []
    values = {"is_any": facts.lanes is None, "lanes": ints(facts.lanes or [])}

    def ask_each(before: int, each: int) -> list[list[int]]:
        found = [_column(db, sql, **values, before=before, limit=each) for sql in queries]
        return [*found, [seq for seq in running if seq < before][:each]]

    return merged(ask_each, 1, before, LOOKED_AT)


def _list(db: Db, sql: str, **values: Any) -> AskEach:
    """One list of places."""
    return lambda before, each: [_column(db, sql, **values, before=before, limit=each)]


def _lists(db: Db, sql: str, **values: Any) -> AskEach:
    """Several lists, out of rows that say which one each place is of."""

    def ask_each(before: int, each: int) -> list[list[int]]:
        found: dict[Any, list[int]] = {}
        for key, seq in db.rows(sql, **values, before=before, limit=each):
            found.setdefault(key, []).append(seq)
        return list(found.values())

    return ask_each


def _column(db: Db, sql: str, **values: Any) -> list[int]:
    return [value for (value,) in db.rows(sql, **values)]
