"""What users write: a crawler, the handlers of its pages, and `run`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from holdfast.addresses import AddressGuard, Network, networks
from holdfast.crawl.book import Book
from holdfast.crawl.feed import Feed
from holdfast.crawl.fetch import Fetcher, FetchLimits
from holdfast.crawl.handling import Sink
from holdfast.crawl.outputs import Output, open_output
from holdfast.crawl.pace import PaceSettings
from holdfast.crawl.page import Page
from holdfast.crawl.patterns import Pattern
from holdfast.crawl.progress import CrawlSummary, Progress
from holdfast.crawl.request_headers import checked_headers
from holdfast.crawl.rules import Handler, Parsed, Rule, parse
from holdfast.crawl.scope import Scope
from holdfast.crawl.session import Session
from holdfast.crawl.structure import refuse_bad_selector
from holdfast.crawl.urls import canonical
from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.breaker import BreakerConfig
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.classify import classify
from holdfast.policy.limiter import Rate
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Delivery
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.payload import Arguments
from holdfast.runtime.spec import TaskSpec
from holdfast.types import FailureContext

if TYPE_CHECKING:
    from holdfast.app import App

H = TypeVar("H", bound=Handler)

_NAME: Final = re.compile(r"[\w.\-]+(?::\d+)?")
_LONGEST_NAME: Final = 100
_DAY_S: Final = 86_400.0
_PARSE_S: Final = 60.0
RETRY: Final = RetryPolicy(max_retries=4, initial_delay=2.0, multiplier=4.0, max_delay=300.0, total_timeout=3_600.0)
"""Of pages that fail in a way that can heal, where nobody says otherwise."""
_ANYWHERE: Final = ("0.0.0.0/0", "::/0")


class CrawlSettings(Struct, frozen=True, kw_only=True):
    """How a crawl works; what `Crawler` was given, checked."""

    concurrency: int
    pace: PaceSettings
    limits: FetchLimits
    scope: Scope
    max_pages: int | None
    is_robots: bool
    user_agent: str
    headers: Mapping[str, str]
    allow: tuple[Network, ...]
    verify_tls: bool
    is_followed: bool
    retry: RetryPolicy
    breaker: BreakerConfig
    sink: Sink | None
    keep_s: float
    grace_s: float
    lease_s: float
    progress_s: float

    def __post_init__(self) -> None:
        for field, given in (("robots", self.is_robots), ("follow", self.is_followed), ("verify_tls", self.verify_tls)):
            if not isinstance(given, bool):
                raise ConfigError(f"{field}={given!r}: must be True or False")
        if not isinstance(self.retry, RetryPolicy):
            raise ConfigError(f"retry={self.retry!r}: must be a RetryPolicy")
        if self.sink is not None and not callable(self.sink):
            raise ConfigError(f"sink={self.sink!r}: must be a function of a list of items")


class Crawler:
    """Fetches pages of one crawl under one policy, hands them to their handlers, and follows the links they yield.

    Each page is a job of the app's store, whose id is made of the crawl's name and the URL: run it again and it goes on
    where it was; give it another name and it begins anew. Several processes may run one crawl.
    """

    def __init__(
        self,
        app: App,
        *,
        name: str = "crawl",
        concurrency: int = 32,
        per_domain: int = 4,
        rate: str | Rate | None = None,
        delay: float = 0.0,
        is_adaptive: bool = True,
        depth: int | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        max_pages: int | None = None,
        follow: bool = True,
        robots: bool = True,
        user_agent: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        max_bytes: int = 10 * 1024 * 1024,
        max_redirects: int = 10,
        allow_private: bool | Sequence[str] = False,
        verify_tls: bool = True,
        retry: RetryPolicy = RETRY,
        breaker: CircuitBreaker | None = None,
        sink: Sink | None = None,
        keep_days: float = 365.0,
        grace: float = 30.0,
    ) -> None:
        """Nothing is fetched before `run`.

        name: of the crawl; letters, digits, `.`, `-` and `_` ["crawl"].
        concurrency: requests in flight, in this process [32].
        per_domain: requests in flight to one domain, over all processes of the crawl [4].
        rate: starts of requests to one domain, such as "2/second" [no limit of its own].
        delay: seconds between the starts of two requests to one domain [0].
        is_adaptive: whether a domain that gets slow, fails or refuses is asked less, and more again later [True].
        depth: how many links a page may be away from a seed [any number].
        allow, deny: patterns of URLs, such as "https://example.org/shop/**" [what is on the seeds' domains].
        max_pages: no further URLs are taken once the crawl has so many [no limit].
        follow: whether the links of pages without a handler are followed [True].
        robots: whether robots.txt is obeyed [True].
        user_agent: who asks; say who you are and how you can be reached ["Holdfast/<version>"].
        headers: sent with every request; those that are secrets by their name go to the seeds' own domains alone.
        timeout: seconds for one request [30]. max_bytes: of a page [10 MiB]. max_redirects: one after the other [10].
        allow_private: whether addresses of private networks may be connected to, or which networks [False].
        verify_tls: whether certificates must be trusted [True].
        retry: of pages that fail in a way that can heal [4 retries: after about 2, 8, 32 and 128 s].
        breaker: the settings of each domain's breaker [open after 5 failures in a row, for 30 s].
        sink: a function, sync or async, of a page's items, each an `Item` with a stable id; called at least once.
        keep_days: how long finished pages are kept, and so known [365].
        grace: seconds that a stop waits for active requests [30].
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            raise ConfigError(f"name={name!r}: must be letters, digits, '.', '-' and '_', at most {_LONGEST_NAME}")
        self.app = app
        self.name = name
        self.settings = CrawlSettings(
            concurrency=bounds.whole("concurrency", concurrency, low=1),
            pace=PaceSettings(
                per_domain=bounds.whole("per_domain", per_domain, low=1),
                rate=Rate.parse(rate) if isinstance(rate, str) else rate,
                min_delay_s=bounds.length("delay", delay),
                is_adaptive=is_adaptive,
            ),
            limits=FetchLimits(
                total_s=bounds.length("timeout", timeout, above=0.0), max_bytes=max_bytes, max_redirects=max_redirects
            ),
            scope=Scope(
                allow=allow, deny=deny, max_depth=None if depth is None else bounds.whole("depth", depth, low=0)
            ),
            max_pages=None if max_pages is None else bounds.whole("max_pages", max_pages, low=1),
            is_robots=robots,
            user_agent=_agent(user_agent),
            headers=checked_headers(headers),
            allow=_allowed(allow_private),
            verify_tls=verify_tls,
            is_followed=follow,
            retry=retry,
            breaker=_breaker(breaker),
            sink=sink,
            keep_s=bounds.number("keep_days", keep_days, above=0.0) * _DAY_S,
            grace_s=bounds.length("grace", grace),
            lease_s=12.0,
            progress_s=0.5,
        )
        self.rules: list[Rule] = []
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where it runs; None while it does not."""
        self._is_stopping = False

    # ---- handlers

    def page(
        self,
        pattern: str,
        *,
        expect: str | Sequence[str] = (),
        fields: str | Sequence[str] = (),
        content_type: str | None = "text/html",
    ) -> Callable[[H], H]:
        """Register the handler of the pages whose URL matches; of several that do, the first one registered has it.

        expect: selectors that a page must have; one that is missing is a structural failure, and the page is kept.
        fields: what every item must have, and not empty.
        content_type: what the page must be, None for anything ["text/html", which XHTML is too].

        The handler yields, or returns, items (dicts, dataclasses, Structs) and links. It runs on the event loop: what
        blocks belongs into `await asyncio.to_thread(…)`.
        """
        selectors, names = _texts("expect", expect), _texts("fields", fields)
        for selector in selectors:
            refuse_bad_selector(selector)
        if content_type is not None and not isinstance(content_type, str):
            raise ConfigError(f"content_type={content_type!r}: must be a media type, or None for anything")
        matching = Pattern(pattern)

        def register(handle: H) -> H:
            if not callable(handle):
                raise ConfigError(f"{handle!r}: a handler must be a function of a page")
            self.rules.append(
                Rule(pattern=matching, handle=handle, expect=selectors, fields=names, content_type=content_type)
            )
            return handle

        return register

    async def parse(self, page: Page) -> Parsed:
        """What the handlers make of a page: nothing is fetched or stored. Raises PageChanged as in a run."""
        return await parse(page, self.rules, is_followed=self.settings.is_followed)

    # ---- running

    def run(
        self,
        *seeds: str,
        out: str | os.PathLike[str] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> CrawlSummary:
        """Crawl from these URLs, and from what is pending, until nothing is left; then, or when stopped, return.

        out: a .jsonl or .db file for the items of all pages of the crawl, each once across restarts.
        on_progress: is told how far it is, twice a second.

        Ctrl-C and SIGTERM finish the active requests, save and return; a second one ends the process.
        """
        return asyncio.run(self._run_with_signals(seeds, out, on_progress))

    async def arun(
        self,
        *seeds: str,
        out: str | os.PathLike[str] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> CrawlSummary:
        """The same for async code; signals are yours: call `stop` to end it."""
        if self._loop is not None:
            raise ConfigError(f"the crawl {self.name} runs in this process already")
        places = [_seed(seed) for seed in seeds]
        self._loop, self._is_stopping = asyncio.get_running_loop(), False
        try:
            return await self._crawl(places, out, on_progress)
        finally:
            self._loop = None

    def stop(self) -> None:
        """Finish the active requests, save, and have `run` return; nothing happens where none runs. From any thread."""
        loop = self._loop
        if loop is None:
            return
        with suppress(RuntimeError):  # it has come to its end meanwhile
            loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._is_stopping = True
        if self._session is not None:
            self._session.stop()

    async def _crawl(
        self,
        seeds: Sequence[str],
        out: str | os.PathLike[str] | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> CrawlSummary:
        settings = self.settings
        feed, path = None, ""
        if out is not None:
            output = await self._open_output(out, seeds)
            path = output.path
            feed = Feed(self.app.store, self.name, output, clock=self.app.clock)
        is_finished = False
        try:
            fetcher = Fetcher(
                user_agent=settings.user_agent,
                clock=self.app.clock,
                limits=settings.limits,
                guard=AddressGuard(settings.allow),
                connections=settings.concurrency,
                verify_tls=settings.verify_tls,
            )
            async with fetcher:
                self._session = Session(self, fetcher, feed, path, on_progress)
                if self._is_stopping:
                    self._session.stop()
                if feed is not None:
                    feed.start()
                summary = await self._session.run(seeds)
                is_finished = summary.is_finished
                return summary
        finally:
            self._session = None
            if feed is not None:
                await feed.close(catch_up=is_finished)

    async def _open_output(self, out: str | os.PathLike[str], seeds: Sequence[str]) -> Output:
        """The output, which knows the crawl by its record; one that cannot be opened leaves no new record behind."""
        book = Book(self.app.store, self.name)
        await book.read()
        is_new = book.record is None
        record = await book.begin(seeds)
        try:
            return await asyncio.to_thread(open_output, out, self.name, crawl_id=record.id)
        except BaseException:
            if is_new:
                await book.remove()
            raise

    async def _run_with_signals(
        self,
        seeds: Sequence[str],
        out: str | os.PathLike[str] | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> CrawlSummary:
        with _stopped_by_signals(self.stop):
            return await self.arun(*seeds, out=out, on_progress=on_progress)

    # ---- for the runtime

    def spec_of(self, run: Callable[..., Any]) -> TaskSpec:
        """The task of the crawl's pages."""
        settings = self.settings
        task = queue_of(self.name)
        return TaskSpec(
            name=task,
            fn=run,
            is_async=True,
            takes_context=True,
            arguments=_NO_ARGUMENTS,
            queue=task,
            priority=0,
            retry=settings.retry,
            breaker=self.name,
            breaker_config=settings.breaker,
            rates={},
            budget=None,
            budget_config=BudgetConfig(),
            timeout_s=settings.limits.total_s * 2 + _PARSE_S,
            is_isolated=False,
            waits_for_breaker=True,
            has_dead_letters=True,
            dead_letter_keep_s=settings.keep_s,
            result_keep_s=settings.keep_s,
            classify=classify,
            context=FailureContext(task),
            given=_Whole(),
            in_flight=settings.concurrency,
            breaker_scope="project",
            is_snooze_success=False,
        )


def _nothing() -> None:
    """A page's payload is no call's arguments."""


_NO_ARGUMENTS: Final = Arguments(_nothing, skip_first=False)


class _Whole:
    """A page's run gets its delivery as it is. Pages never run in processes of their own."""

    def of(self, delivery: Any, /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (delivery,), {}

    def pack(self, delivery: Any, /) -> Delivery:
        raise NotImplementedError

    def unpack(self, delivery: Delivery, /) -> Any:
        raise NotImplementedError

    def pack_outputs(self, delivery: Any, /) -> bytes:
        raise NotImplementedError

    def take_outputs(self, delivery: Any, outputs: bytes, /) -> None:
        raise NotImplementedError


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops it; the next one does what it always does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        stop()

    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            with suppress(ValueError):
                loop.remove_signal_handler(number)


def _agent(given: object) -> str:
    if given is None:
        return f"Holdfast/{_version()}"
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise ConfigError(f"user_agent={given!r}: must be one line that says who asks")
    return given


def _breaker(given: object) -> BreakerConfig:
    if given is None:
        return BreakerConfig()
    if not isinstance(given, CircuitBreaker):
        raise ConfigError(f"breaker={given!r}: must be a CircuitBreaker")
    return given.config


def _seed(url: object) -> str:
    place = canonical(url) if isinstance(url, str) else None
    if place is None:
        raise ConfigError(f"{url!r}: must be an http or https URL, such as https://example.org/")
    return place


def _texts(field: str, given: str | Sequence[str]) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(one, str) and one.strip() for one in texts):
        raise ConfigError(f"{field}={given!r}: must be texts")
    return texts


def _allowed(given: bool | Sequence[str]) -> tuple[Network, ...]:
    if isinstance(given, bool):
        return networks("allow_private", _ANYWHERE) if given else ()
    return networks("allow_private", given)


def _version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"
