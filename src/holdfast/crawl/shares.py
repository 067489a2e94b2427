"""Which process of a crawl has which domains: shares of them, each one process's at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.ports import Value, ValueChange
from holdfast.runtime.crawls import VALUE
from holdfast.runtime.page_gates import SHARES


class _Owners(Struct):
    """By share: the worker that has it."""

    owners: dict[int, str] = {}


_ALL: Final = frozenset(range(SHARES))
_decode: Final = msgspec.json.Decoder(_Owners).decode
_encode: Final = msgspec.json.Encoder().encode


class Shares:
    """The shares of one worker: a machine without clock or I/O.

    A share is taken by a compare-and-set and given back only when nothing of it is in flight, so the limits of a domain
    hold over all processes. What a worker had that is dead is free. Each has about as many as the others.
    """

    def __init__(self, crawl: str, worker: str) -> None:
        self.key = f"{VALUE}{crawl}/shares"
        self._worker = worker
        self._owners: dict[int, str] = {}
        self._version = 0
        self._leaving: set[int] = set()
        self._mine: frozenset[int] = frozenset()

    @property
    def mine(self) -> frozenset[int]:
        """Those whose pages may be claimed."""
        return self._mine

    @property
    def others(self) -> frozenset[int]:
        """Those whose pages may not."""
        return _ALL - self._mine

    def absorb(self, value: Value) -> None:
        """What the store says, each time something newer than before."""
        try:
            owners = {} if value.data is None else _decode(value.data).owners
        except (ValueError, RecursionError):
            owners = {}
        self._owners = {share: owner for share, owner in owners.items() if 0 <= share < SHARES}
        self._version = 0 if value.data is None else value.version
        self._leaving &= self._owned()
        self._mine = self._owned() - self._leaving

    def change(self, alive: Collection[str], busy: Collection[int]) -> ValueChange | None:
        """What to send, seeing who is alive; None where all is as it should be.

        busy: shares of which something is in flight here.
        """
        owners = {share: owner for share, owner in self._owners.items() if owner in alive or owner == self._worker}
        workers = sorted({*alive, self._worker})
        held = {worker: sum(owner == worker for owner in owners.values()) for worker in workers}
        quotas = _quotas(workers, held)
        quota = quotas[self._worker]
        mine = sorted(share for share, owner in owners.items() if owner == self._worker)
        is_wanted_elsewhere = len(owners) == SHARES and any(held[one] < quotas[one] for one in workers)
        self._leaving = set(mine[quota:]) if is_wanted_elsewhere else set()
        self._mine = self._owned() - self._leaving
        for share in self._leaving - set(busy):
            del owners[share]
        free = [share for share in range(SHARES) if share not in owners and share not in self._leaving]
        for share in free[: max(0, quota - len(mine))]:
            owners[share] = self._worker
        return None if owners == self._owners else self._changed(owners)

    def leave(self) -> ValueChange | None:
        """What to send when this worker ends, with nothing in flight."""
        owners = {share: owner for share, owner in self._owners.items() if owner != self._worker}
        return None if owners == self._owners else self._changed(owners)

    def _owned(self) -> frozenset[int]:
        return frozenset(share for share, owner in self._owners.items() if owner == self._worker)

    def _changed(self, owners: Mapping[int, str]) -> ValueChange:
        return ValueChange(self.key, self._version, _encode(_Owners(dict(owners))))


def _quotas(workers: Collection[str], held: Mapping[str, int]) -> dict[str, int]:
    """How many shares each should have: an equal part, and of the rest one each for those who have most."""
    part, rest = divmod(SHARES, len(workers))
    ordered = sorted(workers, key=lambda one: (-held[one], one))
    return {worker: part + (place < rest) for place, worker in enumerate(ordered)}
