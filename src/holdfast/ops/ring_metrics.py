"""The metrics of rings: of a whole fleet out of its heartbeats, or of the rings of one process by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.errors import ConfigError
from holdfast.ops.prometheus import collector_of
from holdfast.ports import BATCH_BOUNDS_S, ConsumerReport, RingReport
from holdfast.runtime.exposition import Kind, Metric, Sample, histogram, label, text_of

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = ["ring_collector", "ring_exposition", "ring_metrics"]

MOST_RINGS: Final = 500
"""So many rings have series of their own; the rest are left out."""
MOST_CONSUMERS: Final = 2_000
"""So many consumers have series of their own, those with the largest lags first."""

_BUCKETS: Final = len(BATCH_BOUNDS_S) + 1
_Place = tuple[str, str]


class Reporting(Protocol):
    """What a Disruptor can be asked."""

    def stats(self) -> RingReport:
        """How it is doing."""


def ring_collector(*rings: Reporting) -> Collector:
    """The metrics of these rings for a registry of your own; no app and no store is needed.

    `prometheus_client.REGISTRY.register(ring_collector(prices, orders))`: one collector for all rings of a process.
    """
    checked = _checked(rings)
    return collector_of(lambda: ring_metrics(ring.stats() for ring in checked), "ring_collector")


def ring_exposition(*rings: Reporting) -> bytes:
    """The same in Prometheus's text format, to be answered as `text/plain; version=0.0.4`; it needs no package."""
    return text_of(ring_metrics(ring.stats() for ring in _checked(rings)))


def _checked(rings: tuple[Reporting, ...]) -> tuple[Reporting, ...]:
    if not rings or not all(callable(getattr(ring, "stats", None)) for ring in rings):
        raise ConfigError(f"rings={rings!r}: must be one ring or more")
    return rings


def ring_metrics(reports: Iterable[RingReport]) -> Iterator[Metric]:
    """Every metric of these rings; none at all where there are none. Those of one name are taken together."""
    rings: dict[str, list[RingReport]] = {}
    for report in sorted(reports, key=lambda one: one.name):
        name = label(report.name)
        if name in rings or len(rings) < MOST_RINGS:
            rings.setdefault(name, []).append(report)
    if rings:
        yield from _of_rings(rings)
        yield from _of_consumers(_consumers(rings))


def _of_rings(rings: Mapping[str, list[RingReport]]) -> Iterator[Metric]:
    def by_ring(name: str, kind: Kind, text: str, of: Callable[[list[RingReport]], float]) -> Metric:
        return Metric(
            f"holdfast_ring_{name}", kind, text, [Sample({"ring": ring}, of(found)) for ring, found in rings.items()]
        )

    yield by_ring("processes", "gauge", "Processes that have a ring of this name.", len)
    yield by_ring("size", "gauge", "Elements that a ring has room for.", lambda all_: sum(one.size for one in all_))
    yield by_ring("used", "gauge", "Elements that some consumer has not finished.", lambda all_: _sum(all_, "used"))
    yield by_ring(
        "utilisation",
        "gauge",
        "How full a ring is, from 0 to 1; of several processes the fullest.",
        lambda all_: max(one.utilisation for one in all_),
    )
    yield by_ring("produced_total", "counter", "Elements that were taken.", lambda all_: _sum(all_, "produced"))
    yield by_ring("blocked_producers", "gauge", "Producers that wait for room.", lambda all_: _sum(all_, "blocked"))
    yield by_ring(
        "process_memory_bytes",
        "gauge",
        "What the processes of a ring have in memory, all that they do included.",
        lambda all_: _sum(all_, "memory_bytes"),
    )


def _consumers(rings: Mapping[str, list[RingReport]]) -> dict[_Place, list[ConsumerReport]]:
    """By the labels of ring and consumer."""
    found: dict[_Place, list[ConsumerReport]] = {}
    for ring, reports in rings.items():
        for report in reports:
            for one in report.consumers:
                found.setdefault((ring, label(one.name)), []).append(one)
    largest = sorted(found, key=lambda place: -_sum(found[place], "lag"))[:MOST_CONSUMERS]
    return {place: found[place] for place in sorted(largest)}


_COUNTED: Final = {
    "processed": "Elements that a consumer has finished: handled, or given up.",
    "batches": "Batches that a consumer has finished.",
    "errors": "Calls of a consumer that have raised.",
    "retries": "Calls of a consumer that were made again.",
    "given_up": "Elements that were given up.",
    "dead_letters": "Dead letters that were written for elements that were given up.",
}
"""By the field of a report."""


def _of_consumers(consumers: Mapping[_Place, list[ConsumerReport]]) -> Iterator[Metric]:
    def by_consumer(name: str, kind: Kind, text: str, of: Callable[[list[ConsumerReport]], float]) -> Metric:
        samples = [
            Sample({"ring": ring, "consumer": consumer}, of(found)) for (ring, consumer), found in consumers.items()
        ]
        return Metric(f"holdfast_ring_{name}", kind, text, samples)

    def counter(field: str, text: str) -> Metric:
        return by_consumer(f"{field}_total", "counter", text, lambda all_: _sum(all_, field))

    yield by_consumer(
        "lag", "gauge", "Elements that were produced and not finished by a consumer.", lambda all_: _sum(all_, "lag")
    )
    yield by_consumer(
        "stuck",
        "gauge",
        "Whether a consumer has been at one batch for too long.",
        lambda all_: int(any(one.is_stuck for one in all_)),
    )
    yield by_consumer(
        "checkpoint_failing",
        "gauge",
        "Whether a consumer's last checkpoint could not be saved.",
        lambda all_: int(any(one.checkpoint_error for one in all_)),
    )
    yield from (counter(field, text) for field, text in _COUNTED.items())
    samples: list[Sample] = []
    for (ring, consumer), found in consumers.items():
        labels = {"ring": ring, "consumer": consumer}
        samples += histogram(labels, _buckets(found), sum(one.batch_s for one in found), BATCH_BOUNDS_S)
    yield Metric(
        "holdfast_ring_batch_seconds",
        "histogram",
        "How long consumers were at their batches, retries and their waits included.",
        samples,
    )


def _buckets(consumers: Iterable[ConsumerReport]) -> list[int]:
    """Over all of them; a process with other bounds, of another version, is left out rather than mixed in."""
    sums = [0] * _BUCKETS
    for one in consumers:
        if len(one.batch_le) == _BUCKETS:
            sums = [known + n for known, n in zip(sums, one.batch_le, strict=True)]
    return sums


def _sum(reports: Iterable[RingReport] | Iterable[ConsumerReport], field: str) -> int:
    return sum(getattr(one, field) for one in reports)
