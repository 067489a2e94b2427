"""Cursors that belong to one query: given back with another one, they would leave out jobs without a word."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from holdfast.ops.api import schemas
from holdfast.ops.api.problems import ProblemError

_FREE: Final = frozenset({"limit", "cursor", "since", "until"})
"""What may change from page to page: how many, and the ends of a time that goes on, such as the last hour."""
_DIGITS: Final = 8


class Cursors:
    """Cursors of one list, as it was asked for by one who sees one tenant or all."""

    def __init__(self, kind: str, asked: schemas.JobFilter | schemas.LetterQuery, tenant: str | None) -> None:
        wanted = sorted(asked.model_dump(exclude=set(_FREE)).items())
        query = msgspec.json.encode([kind, tenant, wanted])
        self._mark = blake2b(query, digest_size=_DIGITS // 2).hexdigest()
        self._given = asked.cursor

    def taken(self) -> str:
        """The store's cursor in what was given; 422 where that is another query's."""
        if not self._given:
            return ""
        mark, dot, cursor = self._given.partition(".")
        if mark != self._mark or not dot or not cursor:
            why = "is not of the page before: a cursor goes with the filters that it came from"
            raise ProblemError(422, f"the cursor {why}", errors=[("query.cursor", why)])
        return cursor

    def given(self, cursor: str) -> str:
        """The cursor to give to the client for this one of the store's; empty when there are no more."""
        return f"{self._mark}.{cursor}" if cursor else ""
