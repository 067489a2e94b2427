"""Which jobs a query means, and the dead letters of one cause together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from holdfast.ports import Query
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


def groups_of(letters: Iterable[JobRecord]) -> list[Group]:
    """Dead letters, newest first, by fingerprint; the largest group first, and of two the one with the newer letter."""
    found: dict[str, _Letters] = {}
    for letter in letters:
        same = found.get(letter.fingerprint)
        if same is None:
            same = found[letter.fingerprint] = _Letters(letter)
        same.add(letter)
    return sorted(map(_group_of, found.values()), key=lambda group: -group.count)


class _Letters:
    """What is remembered of dead letters with one fingerprint: there may be a great many."""

    def __init__(self, newest: JobRecord) -> None:
        self.newest = newest
        self.count = 0
        self.tasks: set[str] = set()
        self.first_at, self.last_at = math.inf, -math.inf

    def add(self, letter: JobRecord) -> None:
        self.count += 1
        self.tasks.add(letter.task)
        if letter.ended_at is not None:
            self.first_at = min(self.first_at, letter.ended_at)
            self.last_at = max(self.last_at, letter.ended_at)


def _group_of(letters: _Letters) -> Group:
    newest = letters.newest
    failure_type = newest.failure_type or FailureType.SYSTEM  # a letter may have been buried without a failure
    return Group(
        fingerprint=newest.fingerprint,
        count=letters.count,
        tasks=tuple(sorted(letters.tasks)),
        failure_type=failure_type,
        severity=newest.severity or failure_type.severity,
        error_name=newest.error_name,
        message=newest.message,
        first_at=letters.first_at,
        last_at=letters.last_at,
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
