"""Dead letters by cause, put together into groups: the same in every store that counts them as they come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from holdfast.ports import Query
from holdfast.types import FailureType, Group, JobRecord

HOUR_S: Final = 3600.0
HOURS: Final = 24
"""So many hours of each group are told, the current one included."""
_MOST_TENANTS: Final = 20


class Cause(Struct, kw_only=True):
    """Dead letters with one fingerprint, or some of them; there may be several such parts."""

    fingerprint: str
    tasks: Iterable[str]
    tenants: Iterable[str]
    count: int
    first_at: float
    newest: tuple[float, int]
    """The one given up last: when, and its place, which decides between two of one instant."""
    hours: Mapping[int, int] = field(default_factory=dict)
    """How many of them were given up in each hour since 1970, of the last day at least."""


def is_whole(query: Query) -> bool:
    """Whether it asks for all letters of a fingerprint, whatever else they are."""
    filters = (query.task, query.queue, query.failure_type, query.since, query.until)
    return query.tenant is None and not any(one not in {None, ""} for one in filters)


def hour_of(instant: float) -> int:
    """The number of an instant's hour since 1970."""
    return int(instant // HOUR_S)


def first_hour(now: float) -> int:
    """The oldest hour that is told."""
    return hour_of(now) - HOURS + 1


def by_hour(hours: Mapping[int, int], now: float) -> tuple[int, ...]:
    """The last 24 hours, oldest first."""
    first = first_hour(now)
    return tuple(hours.get(hour, 0) for hour in range(first, first + HOURS))


def some_tenants(tenants: Iterable[str]) -> tuple[str, ...]:
    """Up to 20 of them by name; letters without a tenant have none."""
    return tuple(sorted({tenant for tenant in tenants if tenant})[:_MOST_TENANTS])


def group_causes(
    causes: Iterable[Cause], read: Callable[[Sequence[int]], Mapping[int, JobRecord]], now: float
) -> list[Group]:
    """The groups of these causes: the largest first, and of two the one with the newer letter.

    `read` brings the records of these places; a group whose letters went meanwhile is left out.
    """
    parts: dict[str, list[Cause]] = {}
    for cause in causes:
        parts.setdefault(cause.fingerprint, []).append(cause)
    newest = {fingerprint: max(some, key=lambda one: one.newest) for fingerprint, some in parts.items()}
    samples = read([one.newest[1] for one in newest.values()])
    groups = []
    for fingerprint, some in parts.items():
        sample = samples.get(newest[fingerprint].newest[1])
        if sample is not None:
            groups.append(_group(some, sample, now))
    return sorted(groups, key=largest_first)


def largest_first(group: Group) -> tuple[int, float]:
    """The order of groups."""
    return -group.count, -group.last_at


def _group(parts: Sequence[Cause], sample: JobRecord, now: float) -> Group:
    hours: dict[int, int] = {}
    for one in parts:
        for hour, n in one.hours.items():
            hours[hour] = hours.get(hour, 0) + n
    failure_type = sample.failure_type or FailureType.SYSTEM  # it may have been buried without a failure
    return Group(
        fingerprint=parts[0].fingerprint,
        count=sum(one.count for one in parts),
        tasks=tuple(sorted({task for one in parts for task in one.tasks})),
        tenants=some_tenants(tenant for one in parts for tenant in one.tenants),
        failure_type=failure_type,
        severity=sample.severity or failure_type.severity,
        error_name=sample.error_name,
        message=sample.message,
        first_at=min(one.first_at for one in parts),
        last_at=max(one.newest[0] for one in parts),
        hours=by_hour(hours, now),
        sample_id=sample.id,
    )
