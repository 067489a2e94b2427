"""What keeps a crawl from doing its work: items that cannot be written; and which breakers are those of its domains."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.ports import Stats, Value
from holdfast.runtime.crawl_origins import QUEUE
from holdfast.runtime.crawls import VALUE, CrawlView
from holdfast.runtime.streams.progress import in_one_line

_LONGEST_WHY: Final = 200


def refuse_unwritten(views: Iterable[CrawlView]) -> None:
    """Raise HoldfastError, in one line, where a process of these crawls cannot write its items."""
    if lines := [line for view in views for line in unwritten(view)]:
        raise HoldfastError(in_one_line(lines))


def unwritten(view: CrawlView) -> Iterator[str]:
    """A line for each process of a crawl that cannot write its items."""
    for one in view.processes:
        if one.output_error:
            where = f"{one.host} {one.pid} cannot write {_cut(one.output) or 'its items'}"
            yield f"crawl {view.name}: {where}: {_cut(one.output_error)}"


def crawl_names(stats: Stats, values: Iterable[Value]) -> frozenset[str]:
    """The name of every crawl that the store knows of."""
    stored = (
        value.key.removeprefix(VALUE) for value in values if value.key.startswith(VALUE) and value.data is not None
    )
    queued = (tally.queue.removeprefix(QUEUE) for tally in stats.tallies if tally.queue.startswith(QUEUE) and tally.n)
    reported = (report.name for worker in stats.workers for report in worker.crawls)
    return frozenset([*(name for name in stored if "/" not in name), *queued, *reported])


def is_of_crawl(key: str, crawls: Collection[str]) -> bool:
    """Whether a breaker is that of a domain of one of these crawls: other people's sites are down every day."""
    crawl, slash, _ = key.partition("/")
    return bool(slash) and crawl in crawls


def of_tasks(keys: Sequence[str], crawls: Collection[str]) -> tuple[str, ...]:
    """The breakers among these that are of no crawl's domain."""
    return tuple(key for key in keys if not is_of_crawl(key, crawls))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_WHY else line[: _LONGEST_WHY - 1] + "…"
