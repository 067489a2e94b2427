"""The dead letters of one crawl: listed, counted, sent back, and carried elsewhere as lines of JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, TypeAlias

from msgspec import Struct

from holdfast.ports import Page
from holdfast.runtime.export import Imported
from holdfast.types import FailureType, Group, JobRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.app import App

Place: TypeAlias = str | os.PathLike[str]
"""The path of a file."""


class CrawlLetterStats(Struct, frozen=True, kw_only=True):
    """The dead letters of a crawl, counted."""

    total: int
    by_error: Mapping[str, int]
    """By cause, such as "PageChanged: example.org: there is no .price", the most frequent first."""
    by_failure_type: Mapping[str, int]
    by_domain: Mapping[str, int]
    """The one with the most first."""
    oldest: float | None
    """When the first of them was given up, in seconds since 1970; None when there are none."""
    newest: float | None


class CrawlLetters:
    """The pages of a crawl that were given up. Every method has an a… twin for async code; the plain one blocks.

    A page is one letter, however often it is found, fails or is imported: its id is made of the crawl and the URL.
    """

    def __init__(self, app: App, crawl: str) -> None:
        self._app = app
        self._crawl = crawl

    def list(
        self,
        *,
        limit: int = 50,
        cursor: str = "",
        domain: str = "",
        group: str = "",
        failure_type: FailureType | str | None = None,
    ) -> Page:
        """A page of letters without their attempts, newest first; `limit` is at most 1000. group: a fingerprint."""
        raise NotImplementedError

    def get(self, url: str) -> JobRecord:
        """The letter of a URL, or of an id, with every attempt and what is kept; NotFound when there is none."""
        raise NotImplementedError

    def retriable(
        self, *, attempts_under: int | None = None, domain: str = "", limit: int | None = None
    ) -> Sequence[JobRecord]:
        """The letters that may go back as they are, newest first and without their attempts.

        attempts_under: those with fewer attempts [those whose failure type can heal]. Structural failures are never
        among them: their pages are the same when they are fetched again.
        """
        raise NotImplementedError

    def stats(self) -> CrawlLetterStats:
        """All of them, counted by cause, by failure type and by domain; every letter is read for it."""
        raise NotImplementedError

    def groups(self) -> Sequence[Group]:
        """The letters by cause, the largest group first."""
        raise NotImplementedError

    def retry(
        self,
        ids: Iterable[str] | None = None,
        *,
        domain: str = "",
        group: str = "",
        failure_type: FailureType | str | None = None,
    ) -> int:
        """Send letters back to be fetched anew, with new attempts: these, or all that the filters say; how many went.

        One that is no dead letter of this crawl any more is left as it is. It is done here and now; the crawl's next
        run, or the one that runs, fetches them.
        """
        raise NotImplementedError

    def export(self, to: Place | IO[str], *, domain: str = "", group: str = "") -> int:
        """Write letters as lines of JSON to a file, or a path, with every attempt and without kept pages; how many.

        A file at a path is made whole or not at all, for its owner's eyes alone.
        """
        raise NotImplementedError

    def import_(self, lines: Place | Iterable[str | bytes]) -> Imported:
        """Take exported lines, of a path or an open file, as pages of this crawl, to be fetched; a bad line: none.

        A page that the crawl has is known and stays as it is, whatever became of it. All that a line needs is a "url".
        ConfigError names the first line that is none of a page.
        """
        raise NotImplementedError
