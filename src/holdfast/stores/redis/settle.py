"""Settlements, as the script takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, msgpack

from holdfast.errors import ConfigError, Unwritable
from holdfast.policy.lifecycle import LIFECYCLE
from holdfast.ports import Settlement
from holdfast.stores.redis.call import Texts
from holdfast.stores.redis.ends import failure_text
from holdfast.stores.redis.state import NUMBERS
from holdfast.types import Change

_COMPLETE: Final = Change.COMPLETE
_REFUNDABLE: Final = frozenset({Change.PARK, Change.RELEASE})
_SUSPECTING: Final = frozenset({Change.RETRY, Change.RELEASE})
_LONGEST_TOKEN: Final = 127
_encode = msgpack.Encoder().encode


class _Way(Struct, frozen=True):
    """What a change does to a job."""

    number: int
    """How its state says that it was this one; never renumber: lua/settle.lua knows that of release, and lua/ends.lua
    that of complete."""
    state: int
    is_end: bool


def _way(number: int, change: Change) -> _Way:
    state = LIFECYCLE[change].after
    assert state is not None  # noqa: S101 - no settlement deletes the record
    return _Way(number, NUMBERS[state], state.is_terminal)


_WAYS: Final = {
    change: _way(number, change)
    for number, change in enumerate(
        (Change.COMPLETE, Change.RETRY, Change.PARK, Change.RELEASE, Change.BURY, Change.FAIL, Change.DISCARD), start=1
    )
}
_COMPLETED: Final = _WAYS[Change.COMPLETE]


def settlement_rows(settlements: Sequence[Settlement], texts: Texts) -> list[tuple[Any, ...]]:
    """One row for each; of one that cannot be written, such as half of a surrogate pair, says whose it is."""
    rows: list[tuple[Any, ...]] = []
    number, state = _COMPLETED.number, _COMPLETED.state
    for one in settlements:
        if one.change is _COMPLETE and one.attempt is None and not one.reason:
            started_at, keep_s, result = one.started_at, one.keep_s, one.result
            rows.append(
                (
                    one.id,
                    token_text(one.token),
                    number,
                    state,
                    -1 if keep_s is None else max(0.0, keep_s),
                    one.elapsed_s,
                    -1 if started_at is None else started_at,
                    0 if result is None else texts.number_of(result),
                )
            )
        else:
            rows.append(_checked(one, _row(one, texts)))
    return rows


def token_text(token: bytes) -> str:
    """A token as the scripts know it."""
    if len(token) > _LONGEST_TOKEN:
        raise ConfigError(f"token: {len(token)} bytes are too many; at most {_LONGEST_TOKEN}")
    return token.hex()


def _row(one: Settlement, texts: Texts) -> tuple[Any, ...]:
    change, attempt = one.change, one.attempt
    way = _WAYS[change]
    n_attempt = n_failure = 0
    failed_at = -1.0
    if attempt is not None:
        try:
            n_attempt = texts.number_of(_encode(attempt))
            if attempt.failure_type is not None:
                n_failure = texts.number_of(failure_text(attempt))
                failed_at = attempt.ended_at
        except (ValueError, TypeError, OverflowError) as error:
            raise Unwritable(one.id, error) from error
    return (
        one.id,
        token_text(one.token),
        way.number,
        way.state,
        -1 if one.keep_s is None or not way.is_end else max(0.0, one.keep_s),
        one.elapsed_s,
        -1 if one.started_at is None else one.started_at,
        texts.number_of(one.result) if change is _COMPLETE else 0,
        -1 if way.is_end else max(0.0, one.delay_s),
        one.reason,
        one.is_refunded and change in _REFUNDABLE,
        one.is_suspect and change in _SUSPECTING,
        n_attempt,
        n_failure,
        failed_at,
    )


def _checked(one: Settlement, row: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        _encode(row)
    except (ValueError, TypeError, OverflowError) as error:
        raise Unwritable(one.id, error) from error
    return row
