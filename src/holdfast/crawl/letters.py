"""The dead letters of one crawl: listed, counted, sent back, and carried elsewhere as lines of JSON."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.crawl.book import Book
from holdfast.crawl.frontier import Found, new_page
from holdfast.crawl.letter_lines import found_in, page_lines, whole_file
from holdfast.crawl.urls import canonical, domain_of, page_id
from holdfast.errors import ConfigError, NotFound
from holdfast.policy import bounds
from holdfast.ports import Operation, Page, Query
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.export import Imported
from holdfast.runtime.inbox import Inbox
from holdfast.types import Change, FailureType, Group, JobRecord, JobState

if TYPE_CHECKING:
    from holdfast.app import App

Place: TypeAlias = str | os.PathLike[str]
"""The path of a file."""

_MOST: Final = 1_000
_BATCH: Final = 200
_FEW: Final = 20
"""Whole records that are read in one go: each may have a page kept with it."""
_LONGEST_ERROR: Final = 200
_URL_FIRST: Final = re.compile(r"(https?://\S+?):(?= )")


class CrawlLetterStats(Struct, frozen=True, kw_only=True):
    """The dead letters of a crawl, counted."""

    total: int
    by_error: Mapping[str, int]
    """By cause, such as "PageChanged: example.org: nothing matches .price", the most frequent first."""
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
        self._task = queue_of(crawl)

    # ---- looking

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
        return self._app.bridge.run(
            self.alist(limit=limit, cursor=cursor, domain=domain, group=group, failure_type=failure_type)
        )

    async def alist(
        self,
        *,
        limit: int = 50,
        cursor: str = "",
        domain: str = "",
        group: str = "",
        failure_type: FailureType | str | None = None,
    ) -> Page:
        """The same for async code."""
        if bounds.whole("limit", limit, low=1) > _MOST:
            raise ConfigError(f"limit={limit!r}: must be at most {_MOST}; a page's cursor leads to the next one")
        query = replace(await self._query(domain, group, failure_type), cursor=cursor)
        found: list[JobRecord] = []
        while True:
            page = await self._app.store.find(replace(query, limit=limit - len(found)))
            found += page.items
            if not page.cursor or len(found) >= limit:
                return Page(found, page.cursor)
            query = replace(query, cursor=page.cursor)

    def get(self, page: str) -> JobRecord:
        """A letter, by its URL or id, with every attempt and the kept page; NotFound when there is none."""
        return self._app.bridge.run(self.aget(page))

    async def aget(self, page: str) -> JobRecord:
        """The same for async code."""
        url = canonical(page)
        (record,) = await self._app.store.get([page if url is None else page_id(self._crawl, url)])
        if record is None or not self._is_letter(record):
            what = "" if record is None or record.queue != self._task else f": it is {record.state.value}"
            raise NotFound(f"the crawl {self._crawl} has no dead letter {page}{what}")
        return record

    def retriable(
        self, *, attempts_under: int | None = None, domain: str = "", limit: int | None = None
    ) -> Sequence[JobRecord]:
        """The letters that may go back as they are, newest first and without their attempts.

        attempts_under: those with fewer attempts [those whose failure type can heal]. Structural failures are never
        among them: fetched again, such a page fails again, until its handler is mended. limit: so many at most [all].
        """
        return self._app.bridge.run(self.aretriable(attempts_under=attempts_under, domain=domain, limit=limit))

    async def aretriable(
        self, *, attempts_under: int | None = None, domain: str = "", limit: int | None = None
    ) -> Sequence[JobRecord]:
        """The same for async code."""
        is_wanted = _retriable(attempts_under)
        most = None if limit is None else bounds.whole("limit", limit, low=1)
        found: list[JobRecord] = []
        async for items in self._walk(await self._query(domain)):
            found += filter(is_wanted, items)
            if most is not None and len(found) >= most:
                break
        return found[:most]

    def stats(self) -> CrawlLetterStats:
        """All of them, counted by cause, by failure type and by domain; every letter is read for it."""
        return self._app.bridge.run(self.astats())

    async def astats(self) -> CrawlLetterStats:
        """The same for async code."""
        errors: Counter[str] = Counter()
        types: Counter[str] = Counter()
        domains: Counter[str] = Counter()
        causes: dict[str, str] = {}
        oldest = newest = None
        async for items in self._walk(await self._query()):
            for letter in items:
                # Letters of one cause may say it a little differently; the newest one's words are taken for all.
                cause = _cause(letter)
                errors[causes.setdefault(letter.fingerprint, cause) if letter.fingerprint else cause] += 1
                types["unknown" if letter.failure_type is None else letter.failure_type.value] += 1
                domains[letter.project] += 1
                at = letter.ended_at or 0.0
                oldest = at if oldest is None else min(at, oldest)
                newest = at if newest is None else max(at, newest)
        return CrawlLetterStats(
            total=domains.total(),
            by_error=dict(errors.most_common()),
            by_failure_type=dict(types.most_common()),
            by_domain=dict(domains.most_common()),
            oldest=oldest,
            newest=newest,
        )

    def groups(self) -> Sequence[Group]:
        """The letters by cause, the largest group first."""
        return self._app.bridge.run(self.agroups())

    async def agroups(self) -> Sequence[Group]:
        """The same for async code."""
        return await Inbox(self._app.store).groups(task=self._task)

    # ---- sending back

    def retry(
        self,
        ids: Iterable[str] | None = None,
        *,
        domain: str = "",
        group: str = "",
        failure_type: FailureType | str | None = None,
    ) -> int:
        """Send letters back to be fetched anew, with new attempts: these, or all that the filters say; how many went.

        One that is no dead letter of this crawl, or none any more, is left as it is. It is done here and now; the
        crawl's next run, or the one that runs, fetches them. Killed halfway, it may be called again.
        """
        return self._app.bridge.run(self.aretry(ids, domain=domain, group=group, failure_type=failure_type))

    async def aretry(
        self,
        ids: Iterable[str] | None = None,
        *,
        domain: str = "",
        group: str = "",
        failure_type: FailureType | str | None = None,
    ) -> int:
        """The same for async code."""
        if isinstance(ids, str):
            raise ConfigError(f"ids={ids!r}: must be a list of ids")
        if ids is not None and (domain or group or failure_type):
            raise ConfigError("ids: name the letters by themselves, without domain, group and failure_type")
        replay, sent = new_id(), 0
        if ids is None:
            letters = self._walk(replace(await self._query(domain, group, failure_type), limit=_BATCH))
        else:
            letters = self._letters(tuple(dict.fromkeys(ids)))
        # No letter goes twice under one replay, not even one that has failed again meanwhile.
        async for items in letters:
            operation = Operation(change=Change.REPLAY, ids=[one.id for one in items], replay=replay)
            sent += sum(one.is_done for one in await self._app.store.change(operation))
        return sent

    # ---- carrying elsewhere

    def export(self, to: Place | IO[str], *, domain: str = "", group: str = "") -> int:
        """Write letters as lines of JSON to a path, or an open file, with every attempt; say how many.

        Each line has the url, error, failure type, attempts, first and last failure, depth, referrer and data of its
        page, but not the page itself. A file at a path is made whole or not at all, for its owner's eyes alone.
        """
        return self._app.bridge.run(self.aexport(to, domain=domain, group=group))

    async def aexport(self, to: Place | IO[str], *, domain: str = "", group: str = "") -> int:
        """The same for async code."""
        query = await self._query(domain, group)
        if isinstance(to, str | os.PathLike):
            with whole_file(to) as out:
                return await self._write(query, out)
        return await self._write(query, to)

    def import_(self, lines: Place | Iterable[str | bytes]) -> Imported:
        """Take the lines of an export, by its path or one by one, as pages of this crawl that are to be fetched.

        A page that the crawl has already is known, and stays what it is: a dead letter, or done. ConfigError names the
        first line that is no page, and then none is taken. All that a line needs is a "url".
        """
        return self._app.bridge.run(self.aimport(lines))

    async def aimport(self, lines: Place | Iterable[str | bytes]) -> Imported:
        """The same for async code."""
        pages: dict[str, Found] = {}
        for found in await asyncio.to_thread(_read, lines):
            pages.setdefault(found.url, found)
        jobs = [new_page(self._crawl, one) for one in pages.values()]
        await Book(self._app.store, self._crawl).adopt({job.project for job in jobs})
        new = 0
        for start in range(0, len(jobs), _BATCH):
            answers = await self._app.store.enqueue(jobs[start : start + _BATCH])
            new += sum(answer.is_new for answer in answers)
        return Imported(new, len(jobs) - new)

    # ---- inside

    async def _query(self, domain: str = "", group: str = "", failure_type: FailureType | str | None = None) -> Query:
        query = await Inbox(self._app.store).query(task=self._task, group=group, failure_type=failure_type)
        return replace(query, project=domain.lower(), limit=_MOST)

    async def _walk(self, query: Query) -> AsyncIterator[Sequence[JobRecord]]:
        """The letters of a query, some at a time, without their attempts."""
        while True:
            page = await self._app.store.find(query)
            if page.items:
                yield page.items
            if not page.cursor:
                return
            query = replace(query, cursor=page.cursor)

    async def _letters(self, ids: Sequence[str]) -> AsyncIterator[Sequence[JobRecord]]:
        """Those of these that are letters of this crawl, whole, some at a time."""
        for start in range(0, len(ids), _FEW):
            records = await self._app.store.get(ids[start : start + _FEW])
            if letters := [one for one in records if one is not None and self._is_letter(one)]:
                yield letters

    def _is_letter(self, record: JobRecord) -> bool:
        return record.queue == self._task and record.state is JobState.DEAD_LETTER

    async def _write(self, query: Query, out: IO[str]) -> int:
        written = 0
        async for items in self._walk(query):
            async for letters in self._letters([one.id for one in items]):
                for line in page_lines(letters):
                    out.write(line + "\n")
                written += len(letters)
        return written


def _retriable(attempts_under: int | None) -> Callable[[JobRecord], bool]:
    if attempts_under is None:
        return lambda letter: letter.failure_type is not None and letter.failure_type.is_retriable
    most = bounds.whole("attempts_under", attempts_under, low=1)
    return lambda letter: letter.attempt < most and letter.failure_type is not FailureType.STRUCTURAL


def _cause(letter: JobRecord) -> str:
    """What went wrong, with the domain for the URL that the messages of pages begin with."""
    name, message = letter.error_name.rpartition(".")[2], letter.message
    if (found := _URL_FIRST.match(message)) is not None:
        message = domain_of(found[1] + "/") + message[found.end(1) :]
    return (f"{name}: {message}" if name else letter.reason)[:_LONGEST_ERROR]


def _read(lines: Any) -> list[Found]:
    if not isinstance(lines, str | os.PathLike):
        return found_in(lines)
    with Path(lines).open("rb") as file:
        return found_in(file)
