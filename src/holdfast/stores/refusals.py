"""What every store refuses before it looks at its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.errors import ConfigError, IllegalChange
from holdfast.policy.bounds import LONGEST_LEASE_S
from holdfast.policy.lifecycle import SETTLING
from holdfast.ports import Exchange, Operation, WorkerRecord
from holdfast.types import Change, NewJob

_ENDS: Final = frozenset({Change.BURY, Change.COMPLETE, Change.DISCARD})
_BY_PEOPLE: Final = frozenset({Change.CANCEL, Change.REPLAY, Change.REMOVE})


def has_ends(jobs: Sequence[NewJob]) -> bool:
    """Whether any of these comes with its end; only some changes are one."""
    is_any = False
    for job in jobs:
        if job.end is not None:
            is_any = True
            if job.end.change not in _ENDS:
                raise IllegalChange(f"{job.end.change}: work can come buried, completed or discarded")
    return is_any


def check_exchange(exchange: Exchange) -> None:
    """Only what a worker may do with a job is a settlement."""
    for settlement in exchange.settlements:
        if settlement.change not in SETTLING:
            raise IllegalChange(f"{settlement.change}: no worker may settle a job so")


def check_heartbeat(worker: WorkerRecord) -> None:
    """No lease without an end: what its worker holds would never be given to another."""
    if not worker.lease_s <= LONGEST_LEASE_S:  # nor one that is no number
        raise ConfigError(f"lease_s={worker.lease_s!r}: must be at most {LONGEST_LEASE_S:g} s")


def check_operation(operation: Operation) -> None:
    """Only some changes are for people."""
    if operation.change not in _BY_PEOPLE:
        raise IllegalChange(f"{operation.change}: people can cancel, replay and remove jobs")


def check_no_connection(connection: object | None, location: str) -> None:
    """For stores that cannot write through a connection of the caller's."""
    if connection is not None:
        raise ConfigError(
            f"connection: {location} cannot take part in a transaction of yours; a store at postgresql://… can"
        )
