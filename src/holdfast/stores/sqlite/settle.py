"""Settles claimed jobs: many by one statement, each guarded by its id, its state and the token of the lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import json

from holdfast.errors import Unwritable
from holdfast.ports import Settlement
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.letters import add_letters
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_value, text_list
from holdfast.stores.ways import GIVEN_UP, REFUNDABLE, SUSPECTING, WAYS
from holdfast.types import Change, JobState

_SQL = load("settle.sql")
_COMPLETE: Final = Change.COMPLETE
_RELEASE: Final = Change.RELEASE
_BURY: Final = Change.BURY
_encode = json.Encoder().encode
_decode_lanes = json.Decoder(list[tuple[str, int]]).decode
_decode_outcome = json.Decoder(list[tuple[int, int, int]]).decode


_RUNNING: Final = JobState.RUNNING.value


def settle(batch: Batch, settlements: Sequence[Settlement], lanes: dict[str, int]) -> list[bool]:
    """Settle all, in order; say of each whether it took effect, now or when it was sent before.

    `lanes` are those of the jobs that this process has claimed, so that they need not be read.
    """
    if len({one.id for one in settlements}) == len(settlements):
        return _settle_by_kind(batch, settlements, lanes)
    return [_settle_by_kind(batch, [one], lanes)[0] for one in settlements]


def _settle_by_kind(batch: Batch, settlements: Sequence[Settlement], lanes: dict[str, int]) -> list[bool]:
    plain = [one for one in settlements if one.change is _COMPLETE and one.attempt is None and not one.reason]
    if len(plain) == len(settlements):
        return _update(batch, "complete", plain, lanes)
    others = [one for one in settlements if not (one.change is _COMPLETE and one.attempt is None and not one.reason)]
    answers = dict(zip((one.id for one in plain), _update(batch, "complete", plain, lanes), strict=True))
    answers.update(zip((one.id for one in others), _update(batch, "settle", others, lanes), strict=True))
    return [answers[one.id] for one in settlements]


def _update(batch: Batch, query: str, settlements: Sequence[Settlement], lanes: dict[str, int]) -> list[bool]:
    if not settlements:
        return []
    now = batch.tick()
    rows = _encoded(settlements, _completed_row if query == "complete" else _settled_row)
    batch.db.execute(_SQL[query], {"now": now, "rows": rows, "window": batch.books.key_window_s})
    if batch.db.changes() == len(settlements):
        _book(batch, settlements, _lanes_of(batch, settlements, lanes))
        return [True] * len(settlements)
    return _outcome(batch, settlements, now)


def _outcome(batch: Batch, settlements: Sequence[Settlement], now: float) -> list[bool]:
    """Some did not take effect: ask which, and which had done so before."""
    asked = [(place, one.id, one.token.hex(), WAYS[one.change].number) for place, one in enumerate(settlements)]
    rows = {"now": now, "rows": _encode(asked).decode()}
    answers = [False] * len(settlements)
    effective: list[Settlement] = []
    lanes: list[int] = []
    for place, lane, is_new in _decode_outcome(read_value(batch.db, _SQL["outcome"], rows)):
        answers[place] = True
        if is_new:
            effective.append(settlements[place])
            lanes.append(lane)
    _book(batch, effective, lanes)
    return answers


def _lanes_of(batch: Batch, settlements: Sequence[Settlement], known: dict[str, int]) -> list[int]:
    try:
        return [known[one.id] for one in settlements]
    except KeyError:
        ids = text_list([one.id for one in settlements])
        found = dict(_decode_lanes(read_value(batch.db, _SQL["lanes"], (ids,))))
        return [found[one.id] for one in settlements]


def _book(batch: Batch, settlements: Sequence[Settlement], lanes: Sequence[int]) -> None:
    """The sums, and the history, of those that took effect."""
    for token, n in Counter([one.token for one in settlements]).items():
        batch.let_go(token, n)
    has_letters = False
    for (lane, change), n in Counter(zip(lanes, [one.change for one in settlements], strict=True)).items():
        way = WAYS[change]
        batch.move(lane, _RUNNING, way.state, n)
        batch.has_news = batch.has_news or not way.is_end
        if change is _BURY:
            has_letters = True
    with_attempt = [one for one in settlements if one.attempt is not None]
    if with_attempt:
        batch.db.execute(_SQL["add_attempts"], (_encoded(with_attempt, _attempt_row),))
    if has_letters:
        add_letters(batch.db, [one.id for one in settlements if one.change is _BURY])


def _encoded(settlements: Sequence[Settlement], row_of: Callable[[Settlement], tuple[Any, ...]]) -> str:
    """Rows for `json_each`; of one that cannot be written, such as half of a surrogate pair, says whose it is."""
    try:
        return _encode([row_of(one) for one in settlements]).decode()
    except (ValueError, TypeError, OverflowError):
        for one in settlements:
            try:
                _encode(row_of(one))
            except (ValueError, TypeError, OverflowError) as error:
                raise Unwritable(one.id, error) from error
        raise


def _attempt_row(one: Settlement) -> tuple[Any, ...]:
    return one.id, _encode(one.attempt).decode()


def _completed_row(one: Settlement) -> tuple[Any, ...]:
    result = one.result
    return one.id, one.token.hex(), None if result is None else result.hex(), one.elapsed_s, one.started_at, one.keep_s


def _settled_row(one: Settlement) -> tuple[Any, ...]:
    change = one.change
    way = WAYS[change]
    is_release = change is _RELEASE
    attempt = one.attempt
    failure: tuple[Any, ...] = (False,)
    if attempt is not None and attempt.failure_type is not None:
        texts = (attempt.error_name, attempt.message, attempt.fingerprint)
        failure = (True, attempt.failure_type, attempt.severity, *texts, attempt.ended_at)
    return (
        one.id,
        one.token.hex(),
        one.result.hex() if change is _COMPLETE and one.result is not None else None,
        one.elapsed_s,
        one.started_at,
        one.keep_s if way.is_end else None,
        way.state,
        way.number,
        one.reason,
        None if way.is_end else max(0.0, one.delay_s),
        GIVEN_UP.get(way.state),
        0 if one.is_refunded and change in REFUNDABLE else 1,
        int(change in SUSPECTING and one.is_suspect),
        int(is_release),
        *failure,
    )
