"""Settles claimed jobs: many by one statement, each guarded by its state and the token of the lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import json

from holdfast.errors import Unwritable
from holdfast.ports import Settlement
from holdfast.stores.postgres.arrays import blobs, bools, floats, ints, texts
from holdfast.stores.postgres.db import Cursor, Db
from holdfast.stores.postgres.queries import load
from holdfast.stores.ways import GIVEN_UP, REFUNDABLE, SUSPECTING, WAYS
from holdfast.types import Change

_SQL = load("settle.sql")
_COMPLETE_ALL: Final = _SQL["complete"]
_SETTLE_ALL: Final = _SQL["settle"].replace(":letters", _SQL["letters"])
_COMPLETE: Final = Change.COMPLETE
_RELEASE: Final = Change.RELEASE
_BURY: Final = Change.BURY
_encode = json.Encoder().encode


class Settling:
    """Settlements of different jobs on their way: `send` them, and `answers` follow when they have arrived."""

    def __init__(self, db: Db, settlements: Sequence[Settlement], known: Mapping[str, int], window_s: float) -> None:
        self._db = db
        self._settlements = settlements
        self._seqs = _seqs_of(db, settlements, known)
        self._statements: list[tuple[str, dict[str, Any]]] = []
        self._cursors: list[Cursor] = []
        self.letters = 0
        """How many of them make dead letters."""
        self._prepare(window_s)

    @property
    def has_news(self) -> bool:
        """Whether a worker may have something to do afterwards."""
        return any(not WAYS[one.change].is_end for one in self._settlements)

    def send(self) -> None:
        """Send all; their rows come when the round trip is over."""
        self._cursors = [self._db.run(sql, **values) for sql, values in self._statements]

    def _prepare(self, window_s: float) -> None:
        """Those that complete on their usual way by one statement, the others by another; by seq, as others do too."""
        plain: list[tuple[int, Settlement]] = []
        others: list[tuple[int, Settlement]] = []
        for one in self._settlements:
            seq = self._seqs.get(one.id)
            if seq is not None:
                is_plain = one.change is _COMPLETE and one.attempt is None and not one.reason
                (plain if is_plain else others).append((seq, one))
        if plain:
            plain.sort(key=_by_seq)
            self._statements.append((_COMPLETE_ALL, {"window_s": window_s, **_completed(plain)}))
        if others:
            others.sort(key=_by_seq)
            self.letters = sum(one.change is _BURY for _, one in others)
            self._statements.append((_SETTLE_ALL, {"window_s": window_s, **_settled(others)}))

    def is_any_done(self) -> bool:
        """Whether one of them took effect just now."""
        return any(cursor.fetchall() for cursor in self._cursors)

    def answers(self) -> list[bool]:
        """Of each, in order: whether it took effect, now or when it was sent before."""
        done = {seq for cursor in self._cursors for (seq,) in cursor.fetchall()}
        answers = [self._seqs.get(one.id) in done for one in self._settlements]
        if all(answers):
            return answers
        asked = [
            (place, self._seqs[one.id], one.token, WAYS[one.change].number)
            for place, one in enumerate(self._settlements)
            if not answers[place] and one.id in self._seqs
        ]
        if asked:
            places, seqs, tokens, ways = zip(*asked, strict=True)
            values = {"places": ints(places), "seqs": ints(seqs), "tokens": blobs(tokens), "ways": ints(ways)}
            for (place,) in self._db.rows(_SQL["outcome"], **values):
                answers[place] = True
        return answers


def settle_now(db: Db, settlement: Settlement, window_s: float) -> bool:
    """Settle one job inside of a transaction; whether it took effect just now."""
    settling = Settling(db, [settlement], {}, window_s)
    settling.send()
    return settling.is_any_done()


def settle_each(db: Db, settlements: Sequence[Settlement], window_s: float) -> tuple[list[bool], bool]:
    """Settle one after the other, where a job is twice among them; and whether that may be news for a worker."""
    answers: list[bool] = []
    has_news = False
    for one in settlements:
        settling = Settling(db, [one], {}, window_s)
        settling.send()
        answers += settling.answers()
        has_news = has_news or settling.has_news
    return answers, has_news


def _by_seq(pair: tuple[int, Settlement]) -> int:
    return pair[0]


def _seqs_of(db: Db, settlements: Sequence[Settlement], known: Mapping[str, int]) -> dict[str, int]:
    """The rows of these jobs; those that this process has claimed need not be looked up."""
    seqs = {one.id: known[one.id] for one in settlements if one.id in known}
    if len(seqs) < len(settlements):
        unknown = [one.id for one in settlements if one.id not in seqs]
        seqs |= dict(db.rows(_SQL["seqs"], ids=texts(unknown)))
    return seqs


def _completed(pairs: Sequence[tuple[int, Settlement]]) -> dict[str, Any]:
    return {
        "seqs": ints([seq for seq, _ in pairs]),
        "tokens": blobs([one.token for _, one in pairs]),
        "results": blobs([one.result for _, one in pairs]),
        "elapsed": floats([one.elapsed_s for _, one in pairs]),
        "started": floats([one.started_at for _, one in pairs]),
        "kept": floats([one.keep_s for _, one in pairs]),
    }


def _settled(pairs: Sequence[tuple[int, Settlement]]) -> dict[str, Any]:
    columns = list(zip(*(_row_of(one) for _, one in pairs), strict=True))
    kinds: dict[str, Callable[[Any], object]] = {
        "results": blobs,
        "kept": floats,
        "states": texts,
        "ways": ints,
        "reasons": texts,
        "delays": floats,
        "given_up": ints,
        "counts": ints,
        "suspects": bools,
        "releases": bools,
        "failures": bools,
        "failure_types": texts,
        "severities": texts,
        "error_names": texts,
        "messages": texts,
        "fingerprints": texts,
        "failed": floats,
        "attempts": blobs,
    }
    values: dict[str, Any] = _completed(pairs)
    for (name, kind), column in zip(kinds.items(), columns, strict=True):
        values[name] = kind(column)
    return values


def _row_of(one: Settlement) -> Iterable[Any]:
    """In the order of the columns above; says whose cannot be written, such as half a surrogate pair."""
    change, attempt = one.change, one.attempt
    way = WAYS[change]
    failure: tuple[Any, ...] = (False, None, None, "", "", "", None)
    try:
        if attempt is not None and attempt.failure_type is not None:
            texts_ = (attempt.error_name, attempt.message, attempt.fingerprint)
            "".join((one.reason, *texts_)).encode()
            severity = None if attempt.severity is None else attempt.severity.value
            failure = (True, attempt.failure_type.value, severity, *texts_, attempt.ended_at)
        one.reason.encode()
        record = None if attempt is None else _encode(attempt)
    except (ValueError, TypeError, OverflowError) as error:
        raise Unwritable(one.id, error) from error
    return (
        one.result if change is _COMPLETE else None,
        one.keep_s if way.is_end else None,
        way.state,
        way.number,
        one.reason,
        None if way.is_end else max(0.0, one.delay_s),
        GIVEN_UP.get(way.state),
        0 if one.is_refunded and change in REFUNDABLE else 1,
        change in SUSPECTING and one.is_suspect,
        change is _RELEASE,
        *failure,
        record,
    )
