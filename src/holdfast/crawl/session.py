"""One run of a crawl in one process: a worker on its pages, until nothing is left or somebody stops it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from holdfast.clock import chance
from holdfast.crawl.book import Book
from holdfast.crawl.domains import Domain, Domains, Hold
from holdfast.crawl.feed import Feed
from holdfast.crawl.fetch import Fetcher
from holdfast.crawl.frontier import Found, Frontier
from holdfast.crawl.handling import Handling
from holdfast.crawl.outputs import Done
from holdfast.crawl.progress import CrawlSummary, Progress, Rate, progress_of
from holdfast.crawl.request_headers import trusted_by
from holdfast.crawl.shares import Shares
from holdfast.crawl.urls import domain_of
from holdfast.errors import StoreError
from holdfast.policy.retry_after import LONGEST_S
from holdfast.ports import CrawlReport, Delivery, Settlement, Stats, Value, WorkerRecord
from holdfast.redact import error_in_words
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.crawls import pending_in
from holdfast.runtime.outage import AGAIN
from holdfast.runtime.page_gates import breaker_name, share_gate
from holdfast.runtime.runner import Room
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.this_process import is_gone
from holdfast.runtime.worker import Exit, Worker, WorkerSettings
from holdfast.types import Change

if TYPE_CHECKING:
    from holdfast.crawl.crawler import Crawler

_logger = logging.getLogger("holdfast.crawl")

_LOOK_S: Final = 2.0
_SOON_S: Final = 0.05


class _Result(Struct):
    items: list[Raw] = []
    url: str = ""


_decode_result: Final = msgspec.json.Decoder(_Result).decode


class Session:
    """What a worker asks of a crawl, and the loops beside it. Used from one event loop, once."""

    def __init__(
        self,
        crawler: Crawler,
        fetcher: Fetcher,
        feed: Feed | None,
        output: str,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        app, name, settings = crawler.app, crawler.name, crawler.settings
        self._crawler = crawler
        self._app = app
        self._name = name
        self._clock = app.clock
        self._feed = feed
        self._output = output
        self._on_progress = on_progress
        self.per_lane = settings.pace.per_domain
        self._domains = Domains(name, settings.pace, app.clock, hold_of=self._hold_of, on_forgotten=self._forgotten)
        self._book = Book(app.store, name, self._on_value)
        self._frontier = Frontier(app.store, name, app.clock, most_pages=settings.max_pages)
        self._worker: Worker | None = None
        self._shares = Shares(name, "")
        self._handling = Handling(
            domains=self._domains,
            fetcher=fetcher,
            frontier=self._frontier,
            book=self._book,
            scope=settings.scope,
            parse=crawler.parse,
            sink=settings.sink,
            agent=settings.user_agent if settings.is_robots else None,
            headers=settings.headers,
            most_redirects=settings.limits.max_redirects,
            clock=app.clock,
            store=app.store,
            crawl=name,
            store_now=self._latest_store_now,
            is_ours=self._is_ours,
        )
        self._spec = crawler.spec_of(self._handling.run)
        self._stats: Stats | None = None
        """What there was at the last look."""
        self._offset_s = 0.0
        self._took_s = 0.0
        """That look: by so much at most the store's clock is ahead of what we think."""
        self._is_stopping = False
        self._is_finished = False
        self._news = asyncio.Event()
        self._began_s = app.clock.monotonic()
        self._rate = Rate(self._began_s)
        self._done = self._failed = self._skipped = self._items = 0

    # ---- from outside

    def stop(self) -> None:
        """Finish the active requests, save, and end."""
        self._is_stopping = True
        self._news.set()
        if self._worker is not None:
            self._worker.stop()

    async def run(self, seeds: Sequence[str]) -> CrawlSummary:
        """Crawl until nothing is left to do, or until stopped."""
        record = await self._book.begin(seeds)
        self._widen((*record.domains, *map(domain_of, seeds)))
        self._handling.trusted = trusted_by((*record.seeds, *seeds))
        stats = await self._look()
        self._frontier.known = sum(tally.n for tally in stats.tallies if tally.queue == queue_of(self._name))
        for domain, hold in self._book.holds().items():
            if hold.until > stats.now:
                self._domains.get(domain)  # and so it is held
        await self._frontier.add([Found(seed) for seed in seeds])
        tries = 0
        while not (self._is_stopping or self._is_finished):
            code = await self._work()
            tries = 0 if code is Exit.DRAINED else tries + 1
            if tries and not self._is_stopping:
                await self._rest(AGAIN.delay(tries, rng=chance))
        return await self._end()

    # ---- one worker

    async def _work(self) -> Exit:
        settings = self._crawler.settings
        self._worker = worker = Worker(
            self._app.store,
            _Specs(self._app.specs, self._spec),
            settings=WorkerSettings(
                queues=(queue_of(self._name),),
                room=Room(concurrency=settings.concurrency, threads=2),
                grace_s=settings.grace_s,
                lease_s=settings.lease_s,
            ),
            clock=self._clock,
            crawl=self,
        )
        self._shares = Shares(self._name, worker.id)
        for value in self._book.all():
            self._on_value(value)
        looking = asyncio.ensure_future(self._look_after())
        looking.add_done_callback(lambda _: worker.stop())  # it ends only when all is done, or by a mistake
        try:
            return await _to_its_end(worker)
        except StoreError as error:
            if not self._is_stopping:
                _logger.error("the crawl %s lost its store, and tries again: %s", self._name, error_in_words(error))
            return Exit.REPLACE
        finally:
            looking.cancel()
            (ended,) = await asyncio.gather(looking, return_exceptions=True)
            self._handling.waiting.clear()
            self._domains.forget_flights()
            await self._leave()
            if isinstance(ended, Exception):  # such as an error of the caller's own, in what is told of progress
                raise ended

    async def _leave(self) -> None:
        """The shares go to others at once."""
        with suppress(StoreError, TimeoutError):
            async with self._clock.timeout(_LOOK_S):
                for _ in range(3):
                    change = self._shares.leave()
                    if change is None or all((await self._book.exchange(change)).changed):
                        break
        self._worker = None

    async def _look_after(self) -> None:
        """Take the shares that are ours, find out that all is done, and tell how far it is."""
        while True:
            wait_s = _LOOK_S
            try:
                stats = await self._look()
                await self._book.read()  # of what is newer the worker tells it; not that the store was set back
                wait_s = await self._share(stats)
                await self._book.sweep(stats.now)
                self._rate.note(self._clock.monotonic(), self._done)
                self._note_open_breakers()
                if self._on_progress is not None:
                    self._on_progress(self.progress(stats))
                if await self._is_done(stats):
                    return
            except StoreError as error:
                _logger.debug("the store cannot be looked at now: %s", error_in_words(error))  # the worker says more
            self._news.clear()
            with suppress(TimeoutError):
                async with self._clock.timeout(min(wait_s, self._crawler.settings.progress_s)):
                    await self._news.wait()

    async def _share(self, stats: Stats) -> float:
        """See that each process has its part of the domains; after how long to look again."""
        ours = [one for one in stats.workers if any(crawl.name == self._name for crawl in one.crawls)]
        alive = {one.id for one in ours if not await self._is_buried(one)}
        if self._worker is None or self._worker.id not in alive:  # until others see that we live, nothing is ours
            return _SOON_S
        before = self._shares.mine
        change = self._shares.change(alive, self._domains.busy_shares())
        if change is not None:
            await self._book.exchange(change)
        if self._shares.mine != before:
            self._wake()
        return _SOON_S if change is not None else _LOOK_S

    def _note_open_breakers(self) -> None:
        if self._worker is not None:
            prefix = breaker_name(self._name, "")
            breakers = self._worker.guards.open_breakers(self._store_now())
            left_s = {key.removeprefix(prefix): wait_s for key, wait_s in breakers.items() if key.startswith(prefix)}
            self._domains.note_open_breakers(left_s)

    async def _is_buried(self, worker: WorkerRecord) -> bool:
        """Take leave for a process of this machine that is gone for certain: nobody has to wait for its lease."""
        if not is_gone(worker.process):
            return False
        await self._app.store.heartbeat(WorkerRecord(id=worker.id, lease_s=0.0))
        return True

    async def _is_done(self, stats: Stats) -> bool:
        """Whether nothing is pending, here or anywhere; then it is said, and the worker ends."""
        if self._worker is None or pending_in(stats, self._name):
            return False
        if self._handling.waiting or self._has_work() or self._worker.is_replaying(queue_of(self._name)):
            return False
        await self._book.finish()
        self._is_finished = True
        return True

    def _has_work(self) -> bool:
        runner = getattr(self._worker, "runner", None)
        return runner is None or bool(runner.runs or runner.settlements)

    def _wake(self) -> None:
        if self._worker is not None:
            self._worker.wake()

    async def _rest(self, seconds: float) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await self._news.wait()

    async def _end(self) -> CrawlSummary:
        try:
            await self._look()
            while await self._book.sweep(self._store_now()):
                pass
        except StoreError as error:
            _logger.warning("the counts of the crawl %s are a little old: %s", self._name, error_in_words(error))
        progress = self.progress(self._stats or Stats(now=0.0))
        if self._on_progress is not None:
            self._on_progress(progress)
        return CrawlSummary(
            name=self._name,
            is_finished=self._is_finished,
            done=progress.done,
            pending=progress.pending,
            dead=progress.dead,
            skipped=progress.skipped,
            done_here=self._done,
            items_here=self._items,
            took_s=self._clock.monotonic() - self._began_s,
            not_followed=self._not_followed(),
        )

    def _not_followed(self) -> dict[str, int]:
        left_out = self._frontier.left_out
        return self._handling.refusals | ({"too many pages": left_out} if left_out else {})

    # ---- what the worker asks (see Crawling)

    def caps(self) -> Mapping[str, int]:
        """Domains with less room than others, and the shares of others; with a full output nothing begins."""
        if self._worker is not None:
            self._handling.keep(self._worker.runner.runs)
        caps = self._domains.caps()
        for share in self._shares.others:
            caps[share_gate(self._name, share)] = 0
        if self._feed is not None and self._feed.is_full:
            caps[f"task:{self._spec.name}"] = 0
        return caps

    def opens_in_s(self) -> float | None:
        """When the first domain has room."""
        if self._feed is not None and self._feed.is_full:
            return _SOON_S
        return self._domains.opens_in_s()

    def claimed(self, deliveries: Sequence[Delivery]) -> None:
        """These are about to begin."""
        self._handling.claimed(deliveries)

    def settled(self, settlements: Sequence[Settlement]) -> None:
        """These have taken effect: what was done goes to the output."""
        for one in settlements:
            if one.change is Change.COMPLETE:
                self._done += 1
                result = _decode_result(one.result or b"{}")
                self._items += len(result.items)
                if self._feed is not None:
                    self._feed.put(Done(one.id, result.url, result.items))
            elif one.change is Change.DISCARD:
                self._skipped += 1
            elif one.attempt is not None and one.attempt.failure_type is not None:
                self._failed += 1

    def absorb(self, values: Sequence[Value]) -> None:
        """What the store says."""
        self._book.absorb(values)

    def idle(self) -> None:
        """Nothing to run: it may be all."""
        self._news.set()

    def reports(self) -> tuple[CrawlReport, ...]:
        """How it is doing; from any thread."""
        return (
            CrawlReport(
                name=self._name,
                in_flight=self._domains.in_flight,
                fetched=self._done,
                failed=self._failed,
                skipped=self._skipped,
                items=self._items,
                found=self._frontier.found,
                bytes=self._handling.bytes,
                rate_per_s=self._rate.per_s,
                output=self._output,
                output_error="" if self._feed is None else self._feed.problem,
                held=self._domains.held(),
                domains=self._domains.reports(),
            ),
        )

    def progress(self, stats: Stats) -> Progress:
        """How far it is."""
        return progress_of(
            self._name,
            stats,
            rate_per_s=self._rate.per_s,
            reports=self._domains.reports(),
            done_here=self._done,
            failed_here=self._failed,
            items_here=self._items,
        )

    # ---- inside

    def _store_now(self) -> float:
        return self._clock.monotonic() + self._offset_s

    def _latest_store_now(self) -> float:
        return self._store_now() + self._took_s

    async def _look(self) -> Stats:
        asked_s = self._clock.monotonic()
        self._stats = stats = await self._app.store.stats()
        answered_s = self._clock.monotonic()
        self._offset_s = stats.now - answered_s
        self._took_s = answered_s - asked_s
        return stats

    def _on_value(self, value: Value) -> None:
        if value.key == self._shares.key:
            self._shares.absorb(value)
            self._news.set()  # somebody may have left some to us
        elif self._book.is_record(value):
            record = self._book.record
            self._widen(() if record is None else record.domains)
        else:
            domain = self._book.held_domain(value)
            hold = None if domain is None or domain not in self._domains else self._hold_of(domain)
            if domain is not None and hold is not None:
                self._domains.get(domain).hold(hold, self._clock.monotonic())

    def _hold_of(self, domain: str) -> Hold | None:
        """What the store remembers, by this process's clock."""
        known = self._book.hold_of(domain)
        if known is None:
            return None
        now_s = self._clock.monotonic()
        until_s = min(known.until - self._offset_s, now_s + LONGEST_S)
        return Hold(until_s, known.why, known.refusals)

    def _widen(self, domains: Iterable[str]) -> None:
        """Links within these are followed, whichever process has found out that they are wanted."""
        self._handling.scope = self._handling.scope.with_domains(domains)

    def _is_ours(self, domain: Domain) -> bool:
        """Whether no other process may ask it: not one that was given the share while this one was stopped."""
        return self._worker is not None and domain.share in self._shares.mine and self._worker.has_lease()

    def _forgotten(self, domain: str) -> None:
        if self._worker is not None:
            self._worker.guards.forget_breaker(breaker_name(self._name, domain))


async def _to_its_end(worker: Worker) -> Exit:
    """How it ended. If whoever waits for it is cancelled, it gives back at once all that it has, and takes leave."""
    working = asyncio.ensure_future(worker.run())
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if working.cancelled():
            raise
        worker.stop(grace_s=0.0)
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:  # once more: whatever it has is an orphan, soon
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        except Exception as error:
            _logger.warning("the worker of a crawl that was cancelled failed: %s", error_in_words(error))
        raise


class _Specs(Mapping[str, TaskSpec]):
    """The task of the pages, and the app's own tasks, whose orphans this worker may have to judge."""

    def __init__(self, known: Mapping[str, TaskSpec], spec: TaskSpec) -> None:
        self._known = {**known, spec.name: spec}

    def __getitem__(self, task: str) -> TaskSpec:
        return self._known[task]

    def __iter__(self) -> Any:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
