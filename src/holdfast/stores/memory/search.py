"""Which jobs a query means, and the dead letters of one cause together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from holdfast.ports import Query
from holdfast.stores.causes import by_hour, hour_of, largest_first, some_tenants
from holdfast.types import FailureType, Group, JobRecord

_Test = Callable[[JobRecord], bool]


def filter_of(query: Query) -> _Test:
    """A function that says whether a job is one of those asked for; limit and cursor are not looked at."""
    tests: list[_Test] = []
    if query.states:
        tests.append(lambda job: job.state in query.states)
    for name in ("task", "queue", "user", "project", "failure_type", "fingerprint"):
        if wanted := getattr(query, name):
            tests.append(lambda job, name=name, wanted=wanted: getattr(job, name) == wanted)  # type: ignore[misc]
    if query.tenant is not None:
        tests.append(lambda job: job.tenant == query.tenant)
    since, until = query.since, query.until
    if since is not None:
        tests.append(lambda job: _instant_of(job) >= since)
    if until is not None:
        tests.append(lambda job: _instant_of(job) < until)
    if query.text:
        part = _folded(query.text)
        tests.append(lambda job: any(part in text for text in _texts_of(job)))
    return lambda job: all(test(job) for test in tests)


def groups_of(letters: Iterable[JobRecord], now: float) -> list[Group]:
    """Dead letters by fingerprint; the largest group first, and of two the one with the newer letter."""
    found: dict[str, _Letters] = {}
    for letter in letters:
        same = found.get(letter.fingerprint)
        if same is None:
            same = found[letter.fingerprint] = _Letters(letter)
        same.add(letter)
    return sorted((_group_of(same, now) for same in found.values()), key=largest_first)


class _Letters:
    """What is remembered of dead letters with one fingerprint: there may be a great many. They come newest first."""

    def __init__(self, first: JobRecord) -> None:
        self.newest = first
        self.count = 0
        self.tasks: set[str] = set()
        self.tenants: set[str] = set()
        self.hours: dict[int, int] = {}
        self.first_at, self.last_at = math.inf, -math.inf

    def add(self, letter: JobRecord) -> None:
        self.count += 1
        self.tasks.add(letter.task)
        self.tenants.add(letter.tenant)
        ended_at = letter.ended_at
        if ended_at is not None:
            hour = hour_of(ended_at)
            self.hours[hour] = self.hours.get(hour, 0) + 1
            self.first_at = min(self.first_at, ended_at)
            if ended_at > self.last_at:
                self.last_at, self.newest = ended_at, letter


def _group_of(letters: _Letters, now: float) -> Group:
    newest = letters.newest
    failure_type = newest.failure_type or FailureType.SYSTEM  # a letter may have been buried without a failure
    return Group(
        fingerprint=newest.fingerprint,
        count=letters.count,
        tasks=tuple(sorted(letters.tasks)),
        tenants=some_tenants(letters.tenants),
        failure_type=failure_type,
        severity=newest.severity or failure_type.severity,
        error_name=newest.error_name,
        message=newest.message,
        first_at=letters.first_at,
        last_at=letters.last_at,
        hours=by_hour(letters.hours, now),
        sample_id=newest.id,
    )


def _instant_of(job: JobRecord) -> float:
    return job.created_at if job.ended_at is None else job.ended_at


def _texts_of(job: JobRecord) -> list[bytes]:
    texts = (job.id, job.task, job.reason, job.idempotency_key or "", job.error_name, job.message)
    return [job.payload.lower(), *map(_folded, texts)]


def _folded(text: str) -> bytes:
    """Bytes, where `lower` is for a-z alone."""
    return text.encode("utf-8", "surrogatepass").lower()
