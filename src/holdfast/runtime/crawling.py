"""What a worker that crawls asks of its crawl, and tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.ports import CrawlReport, Delivery, Settlement, Value


class Crawling(Protocol):
    """A crawl, as its worker sees it. All but `reports` is called on the worker's event loop."""

    @property
    def per_lane(self) -> int:
        """So many pages at most of a domain that no cap names."""

    def caps(self) -> Mapping[str, int]:
        """For `Claim.caps`: how many pages may begin now of each domain that was met, and of shares of others none."""

    def opens_in_s(self) -> float | None:
        """Seconds until the earliest of those caps lifts by time alone; None where there is none that does."""

    def claimed(self, deliveries: Sequence[Delivery]) -> None:
        """These were claimed, and are about to begin."""

    def settled(self, settlements: Sequence[Settlement]) -> None:
        """These have taken effect in the store."""

    def absorb(self, values: Sequence[Value]) -> None:
        """What the store says of its shared values."""

    def idle(self) -> None:
        """There is nothing to run, and nothing left to say."""

    def reports(self) -> tuple[CrawlReport, ...]:
        """How it is doing; from any thread."""
