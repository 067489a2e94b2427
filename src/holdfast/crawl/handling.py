"""One page, from its claim to its end: wait for the domain's turn, fetch, judge the answer, parse, add links."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.crawl.book import Book
from holdfast.crawl.challenges import BLOCKING, told_by, told_by_redirect
from holdfast.crawl.domains import Domain, Domains, RobotsFile
from holdfast.crawl.fetch import Fetched, Fetcher, refuse_status
from holdfast.crawl.fetch_failures import refused
from holdfast.crawl.frontier import Found, Frontier
from holdfast.crawl.kept import pack, unpack
from holdfast.crawl.pace import Outcome
from holdfast.crawl.page import Item, Link, Page
from holdfast.crawl.request_headers import origin_of, without_secrets
from holdfast.crawl.robots import LONGEST, Robots, meaning_of
from holdfast.crawl.rules import Parsed, challenged
from holdfast.crawl.scope import Scope
from holdfast.crawl.urls import canonical, domain_of, item_id, page_id
from holdfast.errors import BadStatus, FetchFailed, PageError, StoreError
from holdfast.policy.classify import classify
from holdfast.ports import Clock, Delivery, Store
from holdfast.runtime.context import JobContext
from holdfast.runtime.crawl_origins import PagePayload, decode_page
from holdfast.runtime.payload import encode_result
from holdfast.types import Discard, FailureType, JobState, Snooze

Parse: TypeAlias = Callable[[Page], Awaitable[Parsed]]
Sink: TypeAlias = Callable[[Sequence[Item]], Any]

_WAIT_S: Final = 1.0
"""A claimed page waits so long for its domain's turn; for a longer time it goes back to the store."""
_ROBOTS_S: Final = 5.0
"""Pages that wait for a robots.txt which is slow to come look again after so long."""
_MARGIN_S: Final = 0.05
"""A page comes back so much later than asked for: clocks are not quite alike, and nobody minds."""
_TOO_MANY: Final = 429
_UNAVAILABLE: Final = 503
_RETRIED: Final = frozenset({FailureType.TRANSIENT, FailureType.NETWORK, FailureType.RATE_LIMITED})

_encode: Final = msgspec.json.Encoder().encode


class _Redirected(Struct):
    redirect: str = ""


_read_redirect: Final = msgspec.json.Decoder(_Redirected).decode


class Handling:
    """The task of a crawl's pages. Used from one event loop."""

    def __init__(
        self,
        *,
        domains: Domains,
        fetcher: Fetcher,
        frontier: Frontier,
        book: Book,
        scope: Scope,
        parse: Parse,
        sink: Sink | None,
        agent: str | None,
        headers: Mapping[str, str],
        most_redirects: int,
        clock: Clock,
        store: Store,
        crawl: str,
        store_now: Callable[[], float],
        is_ours: Callable[[Domain], bool],
    ) -> None:
        """agent: by whose name robots.txt is read; None: it is not asked for.

        is_ours: whether this process may ask a domain now.
        """
        self._headers = headers
        self._plain_headers = without_secrets(headers)
        self.trusted: frozenset[str] = frozenset()
        """The origins of the seeds, to which headers with secrets go."""
        self._most_redirects = most_redirects
        self._store = store
        self._crawl = crawl
        self._domains = domains
        self._fetcher = fetcher
        self._frontier = frontier
        self._book = book
        self.scope = scope
        self._parse = parse
        self._sink = sink
        self._agent = agent
        self._clock = clock
        self._store_now = store_now
        self._is_ours = is_ours
        self.waiting: dict[str, Domain] = {}
        """Pages that were claimed, and whose request has not begun, by job id."""
        self.refusals: dict[str, int] = {}
        """Links that were not followed, by why."""
        self.bytes = 0

    def claimed(self, deliveries: Sequence[Delivery]) -> None:
        """These are about to begin."""
        for delivery in deliveries:
            self.let_go(delivery.id)  # or one that comes again would count twice
            domain = self._domains.get(delivery.project)
            domain.claimed += 1
            self.waiting[delivery.id] = domain

    def let_go(self, id: str) -> None:  # noqa: A002
        """It has begun, or will not."""
        domain = self.waiting.pop(id, None)
        if domain is not None:
            domain.claimed -= 1

    def keep(self, held: Container[str]) -> None:
        """Of what was claimed, only these are with the worker: the others were given back, parked or cancelled."""
        for id in [one for one in self.waiting if one not in held]:  # noqa: A001
            self.let_go(id)

    async def run(self, job: JobContext, delivery: Delivery) -> Any:
        """Handle one page; what it returns is the job's result."""
        domain = self._domains.get(delivery.project)
        with domain.handling():
            try:
                page = decode_page(delivery.payload)
                fetched = self._stored(page, delivery) or await self._fetch(page, domain, delivery.id)
            finally:
                self.let_go(delivery.id)
            if isinstance(fetched, Snooze | Discard):
                return fetched
            if fetched.redirect_to:
                return await self._redirect(page, fetched)
            return await self._handle(job, page, fetched, delivery)

    # ---- fetching

    def _stored(self, page: PagePayload, delivery: Delivery) -> Fetched | None:
        """The page that is kept with its dead letter, where its replay asks for that one."""
        checkpoint = delivery.notes.checkpoint if delivery.notes is not None else None
        is_wanted = page.stored and page.stored_attempt in (0, delivery.attempt)
        if not is_wanted or checkpoint is None:
            return None
        return unpack(msgspec.json.decode(checkpoint))

    async def _fetch(self, page: PagePayload, domain: Domain, id: str) -> Fetched | Snooze | Discard:  # noqa: A002
        if self._agent is not None:
            robots = await self._robots(page.url, domain)
            if isinstance(robots, Snooze):
                return robots
            if robots.is_unknown:
                what = f"robots.txt cannot be had ({robots.why}), so nobody knows what may be fetched"
                raise FetchFailed(f"{page.url}: {what}", url=page.url, cause=f"{domain.name}: robots.txt: {robots.why}")
            if not robots.allows(page.url):
                return Discard("robots.txt disallows it")
        wait_s = await self._turn(domain)
        if wait_s > 0.0:
            return self._later(domain, wait_s)
        self.let_go(id)
        return await self._get(page.url, domain, follows=_never)

    def _later(self, domain: Domain, wait_s: float) -> Snooze:
        return Snooze(wait_s + _MARGIN_S, f"{domain.name}: {domain.pace.why or 'not its turn yet'}")

    async def _turn(self, domain: Domain) -> float:
        """Wait for room and take it; or how long it would be, where that is long."""
        until_s = self._clock.monotonic() + _WAIT_S
        while True:
            now_s = self._clock.monotonic()
            if not self._is_ours(domain):
                return _WAIT_S
            if domain.pace.room(now_s) > 0:
                domain.pace.started(now_s)
                return 0.0
            wait_s = domain.pace.opens_in_s(now_s)
            if now_s + (wait_s or 0.0) >= until_s:
                return _WAIT_S if wait_s is None else wait_s
            domain.freed.clear()
            with suppress(TimeoutError):
                async with self._clock.timeout(until_s - now_s if wait_s is None else max(wait_s, 0.001)):
                    await domain.freed.wait()

    async def _get(
        self, url: str, domain: Domain, *, follows: Callable[[str], bool] | None, first_bytes: int | None = None
    ) -> Fetched | Snooze:
        """One request, whose place in the domain's pace is taken already."""
        began_s = self._clock.monotonic()
        outcome: Outcome | None = Outcome.FAILED
        retry_after_s, fetched = None, None
        try:
            headers = self._headers if origin_of(url) in self.trusted else self._plain_headers
            fetched = await self._fetcher.get(url, headers=headers, follows=follows, first_bytes=first_bytes)
            self.bytes += len(fetched.body)
            if not fetched.redirect_to:
                refuse_status(fetched)
            outcome = Outcome.OK
        except BadStatus as error:
            failure = classify(error)
            retry_after_s = failure.retry_after
            is_asked = error.status == _UNAVAILABLE and retry_after_s is not None
            if error.status == _TOO_MANY or is_asked:
                outcome = Outcome.REFUSED
            if fetched is not None and retry_after_s is None and is_challenge(fetched):
                outcome = Outcome.OTHER  # it answers, and not with the page: whoever parses it says so
            elif failure.type not in _RETRIED:
                outcome = Outcome.OTHER
                raise
            elif outcome is Outcome.FAILED:
                raise
            told = error
        except PageError as error:
            outcome = Outcome.FAILED if error.failure_type in _RETRIED else Outcome.OTHER
            raise
        except asyncio.CancelledError:
            outcome = None  # it is us who end it
            raise
        finally:
            now_s = self._clock.monotonic()
            if outcome is None:
                domain.released(now_s)
            else:
                took_s = now_s - began_s
                domain.ended(now_s, began_s=began_s, outcome=outcome, took_s=took_s, retry_after_s=retry_after_s)
        if outcome is Outcome.REFUSED:
            return await self._refused(domain, told)
        assert fetched is not None  # noqa: S101 - it was refused otherwise
        return fetched

    async def _refused(self, domain: Domain, error: BadStatus) -> Snooze:
        """The site asks us to wait: at no cost to the page, unless it does so for ever."""
        if domain.pace.is_hopeless:
            raise error
        pace = domain.pace
        wait_s = max(0.0, pace.held_until_s - self._clock.monotonic())
        # Stored, so that it holds for the next process too, if this one is killed meanwhile. The rest itself does not
        # depend on it.
        with suppress(StoreError):
            await self._book.hold(domain.name, self._store_now() + wait_s, pace.why, pace.refusals)
        return Snooze(wait_s + _MARGIN_S, f"{domain.name} answered {error.status}, and asks to wait")

    # ---- robots.txt

    async def _robots(self, url: str, domain: Domain) -> Robots | Snooze:
        """What the domain allows, fetched once for all who ask; or when to ask, where it is not its turn."""
        file = domain.robots_of(url)
        until_s = self._clock.monotonic() + _WAIT_S
        while file.robots is None or file.until_s <= self._clock.monotonic():
            if file.fetching is None:
                snooze = await self._fetch_robots(url, domain, file)
                if snooze is not None:
                    return snooze
                continue
            left_s = until_s - self._clock.monotonic()
            if left_s <= 0.0:
                return Snooze(_ROBOTS_S, f"{domain.name}: robots.txt is slow to come")
            with suppress(TimeoutError):
                async with self._clock.timeout(left_s):
                    await asyncio.shield(file.fetching)
        return file.robots

    async def _fetch_robots(self, url: str, domain: Domain, file: RobotsFile) -> Snooze | None:
        """Ask for it, once it is the domain's turn; those who wait for it go on however that ends."""
        file.fetching = fetching = asyncio.get_running_loop().create_future()
        try:
            wait_s = await self._turn(domain)
            if wait_s > 0.0:
                return self._later(domain, wait_s)
            robots = await self._ask_robots(canonical("/robots.txt", url) or url, domain)
        finally:
            file.fetching = None
            fetching.set_result(None)
        if isinstance(robots, Snooze):
            return robots
        domain.obey(file, robots, self._clock.monotonic() + robots.again_s)
        return None

    async def _ask_robots(self, url: str, domain: Domain) -> Robots | Snooze:
        status: int | None = None
        body, why = b"", ""
        try:
            answer = await self._get(url, domain, follows=None, first_bytes=LONGEST)
            if isinstance(answer, Snooze):
                return answer
            status, body = answer.status, answer.body
        except BadStatus as error:
            status, why = error.status, f"status {error.status}"
        except PageError as error:
            why = error.cause.removeprefix(f"{domain.name}: ")
            if error.failure_type not in _RETRIED:
                status = 404  # it is there for nobody, such as behind a redirect that may not be followed
        robots = meaning_of(status, body, self._agent or "")
        return replace(robots, why=why) if robots.is_unknown else robots

    # ---- what came of it

    async def _redirect(self, page: PagePayload, fetched: Fetched) -> Raw:
        """Where it leads is a page of its own, which others may link to as well."""
        target = fetched.redirect_to
        chain = (*page.redirects, page.url)
        if sign := told_by_redirect(page.url, target):
            raise challenged(page.url, domain_of(page.url), sign)
        if target in chain or await self._leads_back(target, page.url):
            raise refused(page.url, "redirect loop", f"is redirected in a circle, by way of {target}")
        if len(chain) > self._most_redirects:
            raise refused(page.url, "too many redirects", f"is redirected more than {self._most_redirects} times")
        if not page.referrer:  # a seed: then it is there that the crawl is wanted
            self.scope = self.scope.with_domain(domain_of(target))
            await self._book.widen(domain_of(target))
        why = self.scope.refuses(target, page.depth)
        if why:
            self._count(why)
        else:
            found = Found(target, page.depth, page.referrer, page.priority, page.data, chain)
            await self._frontier.add([found])
        return Raw(_encode({"items": [], "url": page.url, "status": fetched.status, "redirect": target}))

    async def _leads_back(self, target: str, url: str) -> bool:
        """Whether pages that are done already redirect from there to here."""
        for _ in range(self._most_redirects):
            (record,) = await self._store.get([page_id(self._crawl, target)])
            if record is None or record.state is not JobState.COMPLETED or record.result is None:
                return False
            target = _read_redirect(record.result).redirect
            if target in {"", url}:
                return bool(target)
        return False

    async def _handle(self, job: JobContext, payload: PagePayload, fetched: Fetched, delivery: Delivery) -> Any:
        page = Page(fetched, payload=payload, attempt=delivery.attempt)
        try:
            parsed = await self._parse(page)
            refuse_status(fetched)  # one that came this far was taken for a challenge
            items = encode_result(parsed.items)
        except Exception:
            await job.acheckpoint(pack(fetched, self._clock.now()))
            raise
        if parsed.instead is not None:
            return parsed.instead
        new = await self._frontier.add(self._followed(parsed.links, payload))
        if self._sink is not None and parsed.items:
            data: list[Any] = msgspec.json.decode(items)
            given = self._sink([Item(item_id(delivery.id, n), page.url, one) for n, one in enumerate(data)])
            if isinstance(given, Awaitable):
                await given
        about = {"status": fetched.status, "links": len(parsed.links), "new": new, "bytes": len(fetched.body)}
        return Raw(_encode({"items": Raw(items), "url": page.url} | about))

    def _followed(self, links: Sequence[Link], page: PagePayload) -> list[Found]:
        frontier, scope, depth = self._frontier, self.scope, page.depth + 1
        found = []
        for link in links:
            if not frontier.is_new(link.url):
                continue
            why = scope.refuses(link.url, depth)
            if why:
                self._count(why)
                continue
            priority = 0 if link.priority is None else link.priority
            found.append(Found(link.url, depth, page.url, priority, link.data))
        return found

    def _count(self, why: str) -> None:
        self.refusals[why] = self.refusals.get(why, 0) + 1


def is_challenge(fetched: Fetched) -> bool:
    """Whether an answer that says no is a challenge or a login."""
    return fetched.status in BLOCKING and told_by(Page(fetched, payload=PagePayload(url=fetched.url))) is not None


def _never(target: str) -> bool:
    """No redirect is followed within a request: each has its own turn, and its own look at robots.txt."""
    return False
