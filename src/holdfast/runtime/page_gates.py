"""The gates of a crawl's pages: what its domains, their shares and their breakers are called where work is claimed."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from zlib import crc32

from holdfast.runtime.crawl_origins import GATE
from holdfast.runtime.shared.names import breaker_gate

SHARES: Final = 32
"""A crawl's domains fall into so many shares, each of which one process has at a time."""


def share_of(domain: str) -> int:
    """The share that a domain falls into, the same in every process."""
    return crc32(domain.encode()) % SHARES


def breaker_name(crawl: str, domain: str) -> str:
    """The breaker key of a domain in a crawl."""
    return f"{crawl}/{domain}"


def domain_gate(crawl: str, domain: str) -> str:
    """The gate that a domain's pace opens and shuts."""
    return f"domain:{crawl}/{domain}"


def share_gate(crawl: str, share: int) -> str:
    """The gate of all domains of one share."""
    return f"share:{crawl}/{share}"


@lru_cache(maxsize=4096)
def gates_of(crawl: str, domain: str) -> tuple[str, ...]:
    """The gates of a domain's pages."""
    return (
        GATE,
        breaker_gate(breaker_name(crawl, domain)),
        domain_gate(crawl, domain),
        share_gate(crawl, share_of(domain)),
    )
