"""Pages that are claimed, run, cancelled and given back in any order: no domain is left with a place taken."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.crawl.fetched import Fetched
from holdfast.errors import FetchFailed
from holdfast.testing import ManualClock
from tests.unit.crawl.handled import Crawl, Gate, Site, answered, page_of, settle

DOMAINS = ("a.org", "b.org")
URL = "https://a.org/x"

ends: dict[str, Fetched | Exception] = {
    "fine": answered(URL),
    "refused": answered(URL, 429),
    "asked to wait": answered(URL, 429, retry_after="7"),
    "asked to wait for nothing": answered(URL, 503, retry_after="0"),
    "asked to wait for ever": answered(URL, 429, retry_after="99999999999"),
    "down": answered(URL, 500),
    "gone": answered(URL, 404),
    "reset": FetchFailed("reset", url=URL, cause="a.org: reset"),
    "odd": RuntimeError("nobody thought of that"),
}
urls = st.builds(
    lambda scheme, host: f"{scheme}://{host}/", st.sampled_from(["http", "https"]), st.sampled_from(DOMAINS)
)
steps = st.one_of(
    st.tuples(st.just("run"), urls),
    st.tuples(st.just("run"), urls),
    st.tuples(st.just("claim"), urls),
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(sorted(ends))),
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(sorted(ends))),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("pass"), st.sampled_from([0.01, 0.5, 5.0, 40.0])),
    st.tuples(st.just("keep")),
    st.tuples(st.just("turn"), st.integers(1, 4)),
)
stories = st.integers(1, 60).flatmap(lambda size: st.lists(steps, min_size=size, max_size=size))


class Story:
    """Does to a crawl what a worker, a site and an operator may do."""

    def __init__(self, *, per_domain: int, robots: bool) -> None:
        self.clock = ManualClock(auto=False)
        self.gate = Gate()
        self.crawl = Crawl(Site(self.gate, self.gate), robots=robots, clock=self.clock, per_domain=per_domain)
        self.held: dict[str, asyncio.Task[Any] | None] = {}
        """What the worker has, and the runs of those that it has begun."""

    async def do(self, what: str, *how: Any) -> None:
        match what:
            case "claim" | "run":
                page = page_of(f"{how[0]}{len(self.held)}")
                self.crawl.handling.claimed([page])
                run = self.crawl.handling.run(None, page) if what == "run" else None  # type: ignore[arg-type]
                self.held[page.id] = None if run is None else asyncio.ensure_future(run)
            case "end":
                waiting = [one for one in self.gate.open if not one.done()]
                if waiting:
                    _end(waiting[how[0] % len(waiting)], ends[how[1]])
            case "drop" if self.held:  # cancelled, or given back before it began
                task = self.held.pop(list(self.held)[how[0] % len(self.held)])
                if task is not None:
                    task.cancel()
            case "pass":
                self.clock.advance(how[0])
            case "keep":
                done = [id for id, task in self.held.items() if task is not None and task.done()]  # noqa: A001
                for id in done:  # noqa: A001
                    del self.held[id]
                self.crawl.handling.keep(self.held)
            case "turn":
                for _ in range(how[0]):
                    await asyncio.sleep(0)  # noqa: TID251 - lets the others run
            case _:
                pass

    async def end(self) -> None:
        tasks = [task for task in self.held.values() if task is not None]
        for task in tasks:
            task.cancel()
        came = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [one for one in came if isinstance(one, TypeError | AttributeError)], "the harness is at fault"
        self.crawl.handling.keep(())
        await settle()


def _end(request: asyncio.Future[Fetched], how: Fetched | Exception) -> None:
    if isinstance(how, Exception):
        request.set_exception(how)
    else:
        request.set_result(how)


@given(story=stories, per_domain=st.integers(1, 4), robots=st.booleans())
def test_every_place_is_given_back_and_no_domain_is_stuck(
    story: list[tuple[Any, ...]], per_domain: int, robots: bool
) -> None:
    async def play() -> None:
        told = Story(per_domain=per_domain, robots=robots)
        domains = [told.crawl.domains.get(name) for name in DOMAINS]
        for step in story:
            await told.do(*step)
            assert all(one.pace.in_flight <= per_domain for one in domains)
        await told.end()
        assert told.crawl.places() == (0, 0, 0)
        assert told.crawl.handling.waiting == {}
        told.clock.advance(100_000.0)
        assert all(one.room(told.clock.monotonic()) > 0 for one in domains)

    asyncio.run(play())
