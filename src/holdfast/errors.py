"""Every exception of Holdfast.

HoldfastError
├── ConfigError (ValueError)      a setting that cannot work; names the field, the value and what would be right
├── IllegalChange                 a change of state that the state machine does not allow
├── Refused                       the call was not made; `retry_after` says when it may be
│   ├── CircuitOpenError          the breaker is open
│   ├── RateLimitExceeded         the limit is used up
│   ├── BulkheadFull              too many calls are in flight
│   ├── BufferFull                a producer holds as many unsent messages as it may
│   └── RingFull                  a ring has no room for these elements
├── TimeLimitExceeded (TimeoutError)   one attempt took longer than its time limit
├── StoreError                    the store cannot be opened, reached or written; says what would help
│   ├── StoreAway                 it cannot be reached, or is not ready: the same call may work later
│   └── Unwritable                what became of one job cannot be written; its neighbours can
├── SourceError                   a stream cannot be opened, read or written; says what would help
│   ├── SourceAway                its server cannot be reached, or is not ready: the same call may work later
│   └── NotSent                   messages that will not be written, or that a producer has given up on
├── RingClosed                    a ring takes no elements any more; says why
├── RingStuck                     consumers of a ring make no progress; names them
├── CheckpointError               a ring's checkpoint cannot be read, written or trusted; nothing is begun from zero
├── LeaseLost                     the job belongs to somebody else by now; nothing was changed
├── IdempotencyConflict           the idempotency key is taken by a job with other arguments
├── NotFound (LookupError)        there is no such job, dead letter or replay (any more)
├── JobFailed                     the job whose result was asked for did not complete
├── UnknownTask                   no task of this name is registered here: SYSTEM, as a deploy may be under way
├── WorkerDied                    the process that ran the job alone is gone: SYSTEM
└── ClassifiedError               an error that says its own failure type; raised by users' code
    ├── Transient                 will heal: TRANSIENT
    ├── RateLimited               too fast: RATE_LIMITED, with `retry_after`
    ├── Permanent                 will never work: PERMANENT
    │   └── MessageGone           the server has deleted a message before it was finished
    ├── Invalid                   the input is wrong: VALIDATION
    ├── Structural                the other side changed shape: STRUCTURAL
    └── PageError                 a page of a crawl could not be had, or was not what was expected
        ├── BadStatus             the site answered with an error: by its status
        ├── FetchFailed           there was no whole answer: NETWORK; a certificate that is not trusted: PERMANENT
        ├── PageRefused           it breaks a limit or a rule of safety: PERMANENT
        └── PageChanged           a selector, field or format is missing, or a challenge came instead: STRUCTURAL
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from holdfast.types import FailureType, Severity

_LINE = 400


class HoldfastError(Exception):
    """The base of everything Holdfast raises."""


class ConfigError(HoldfastError, ValueError):
    """A setting that cannot work, refused when the object is made. The message is one line, whatever the value is."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        super().__init__(line if len(line) <= _LINE else f"{line[: _LINE // 2]} … {line[-_LINE // 2 :]}")


class IllegalChange(HoldfastError):
    """A change of state that the state machine does not allow."""


class Refused(HoldfastError):
    """The call was not made, to protect somebody; nothing ran and nothing was counted.

    `retry_after` is the time in seconds until it is worth asking again, or None when only a person can say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CircuitOpenError(Refused):
    """The circuit breaker is open. `cause` is the failure that opened it, in words."""

    def __init__(self, name: str, retry_after: float | None, cause: str | None) -> None:
        when = "until it is reset by hand" if retry_after is None else f"try again in {retry_after:.3g} s"
        why = f"; opened by {cause}" if cause else ""
        super().__init__(f"circuit {name or 'breaker'} is open, {when}{why}", retry_after)
        self.name = name
        self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles, so that it can cross a process pool."""
        return type(self), (self.name, self.retry_after, self.cause), self.__dict__


class RateLimitExceeded(Refused):
    """Our own rate limit is used up, and the wait would be longer than allowed."""


class BulkheadFull(Refused):
    """As many calls as allowed are in flight already."""


class BufferFull(Refused):
    """A producer holds as many messages as it may that are not sent yet; this one was not taken."""


class RingFull(Refused):
    """A ring has no room for these elements, and none came free in time; none of them was taken."""


class TimeLimitExceeded(HoldfastError, TimeoutError):
    """One attempt took longer than its time limit.

    An async function has been cancelled. A sync function cannot be: `still_running` is then True, its thread goes on
    to its own end, its result is dropped, and it is not tried again.
    """

    def __init__(self, limit_s: float, still_running: bool = False) -> None:
        rest = "; the function cannot be stopped and is still running" if still_running else ""
        super().__init__(f"took longer than {limit_s:g} s{rest}")
        self.limit_s = limit_s
        self.still_running = still_running

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles, so that it can cross a process pool."""
        return type(self), (self.limit_s, self.still_running), self.__dict__


class StoreError(HoldfastError):
    """The store cannot be opened, reached or written. The message is one line and says what would help."""


class StoreAway(StoreError):
    """The store cannot be reached, or is not ready: the same call, sent again later, may work without a change."""


class Unwritable(StoreError):
    """What is to be written about this job cannot be; its neighbours can, when they are sent without it."""

    def __init__(self, job_id: str, why: object) -> None:
        self.why = " ".join(str(why).split())
        super().__init__(f"job {job_id}: its settlement cannot be written: {self.why}")
        self.job_id = job_id

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles, so that it can cross a process pool."""
        return type(self), (self.job_id, self.why), self.__dict__


class SourceError(HoldfastError):
    """A stream cannot be opened, read or written. The message is one line and says what would help."""


class SourceAway(SourceError):
    """The stream's server cannot be reached, or is not ready: the same call, made again later, may work."""


class NotSent(SourceError):
    """Messages that the server will never take, or that a producer has given up on or still had when it was closed."""


class RingClosed(HoldfastError):
    """A ring takes no elements any more: it was closed, or a consumer of it cannot go on. These were not taken."""


class RingStuck(HoldfastError):
    """Consumers of a ring make no progress. `left` has, by their names, how many elements each has before it."""

    def __init__(self, message: str, left: Mapping[str, int]) -> None:
        super().__init__(message)
        self.left = dict(left)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles, so that it can cross a process pool."""
        return type(self), (str(self), self.left), self.__dict__


class CheckpointError(HoldfastError):
    """A checkpoint is torn, foreign, in use or not writable. The message is one line and says what would help.

    `is_fenced`: somebody else has moved it since, so whoever holds it must stop.
    """

    def __init__(self, message: str, *, is_fenced: bool = False) -> None:
        super().__init__(message)
        self.is_fenced = is_fenced


class LeaseLost(HoldfastError):
    """The job belongs to somebody else by now, was cancelled, or has ended; nothing was changed."""


class IdempotencyConflict(HoldfastError):
    """The idempotency key is taken by a job with other arguments; nothing was stored."""

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(f"idempotency key {key!r} is taken by job {job_id}, which has other arguments")
        self.key = key
        self.job_id = job_id

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles, so that it can cross a process pool."""
        return type(self), (self.key, self.job_id), self.__dict__


class NotFound(HoldfastError, LookupError):
    """There is no job, dead letter or replay with this id (any more)."""


class JobFailed(HoldfastError):
    """The job whose result was asked for did not complete; the message says what became of it."""


class UnknownTask(HoldfastError):
    """No task of this name is registered in this process."""


class WorkerDied(HoldfastError):
    """The process that ran this job, and nothing else, is gone: killed, crashed or out of memory."""


class ClassifiedError(HoldfastError):
    """An error that says its own failure type. Raise a subclass, or derive your own from one."""

    failure_type: ClassVar[FailureType] = FailureType.SYSTEM

    def __init__(
        self,
        message: str = "",
        *,
        severity: Severity | None = None,
        retry_after: float | timedelta | str | None = None,
    ) -> None:
        super().__init__(message)
        self.severity = severity
        self.retry_after = retry_after


class Transient(ClassifiedError):
    """A passing fault: trying again will help."""

    failure_type = FailureType.TRANSIENT


class RateLimited(ClassifiedError):
    """The other side asked to slow down; `retry_after` is in seconds, a timedelta, or as the header has it."""

    failure_type = FailureType.RATE_LIMITED


class Permanent(ClassifiedError):
    """This will never work: do not try again."""

    failure_type = FailureType.PERMANENT


class MessageGone(Permanent):
    """The server has deleted or trimmed a message before anybody had finished it; only its place is known."""


class Invalid(ClassifiedError):
    """The input is wrong, so do not try again until somebody mends it."""

    failure_type = FailureType.VALIDATION


class Structural(ClassifiedError):
    """The other side changed shape: a selector, a field or a format is not what it was."""

    failure_type = FailureType.STRUCTURAL


class PageError(ClassifiedError):
    """A page of a crawl could not be had, or was not what was expected.

    `cause` is what is wrong in few words, from the domain on and without ids: dead letters of one cause are one group.
    """

    failure_type = FailureType.PERMANENT

    def __init__(
        self,
        message: str,
        *,
        url: str,
        cause: str,
        retry_after: float | timedelta | str | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.url = url
        self.cause = cause
        self.fingerprint_cause = cause

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles, so that it can cross a process pool."""
        return _page_error, (type(self), str(self), self.url, self.cause), self.__dict__


def _page_error(kind: type[PageError], message: str, url: str, cause: str) -> PageError:
    error = kind.__new__(kind)
    PageError.__init__(error, message, url=url, cause=cause)
    return error


class BadStatus(PageError):
    """The site answered with an error. The failure type follows from the status."""

    def __init__(
        self, message: str, *, url: str, cause: str, status: int, retry_after: float | timedelta | str | None = None
    ) -> None:
        super().__init__(message, url=url, cause=cause, retry_after=retry_after)
        self.status = status
        self.failure_type = _type_of_status(status)  # type: ignore[misc]  # each has its own


class FetchFailed(PageError):
    """There was no whole answer: no connection, no address, a time limit, a cut, or TLS that did not come about."""

    failure_type = FailureType.NETWORK

    def __init__(self, message: str, *, url: str, cause: str, is_permanent: bool = False) -> None:
        super().__init__(message, url=url, cause=cause)
        if is_permanent:
            self.failure_type = FailureType.PERMANENT  # type: ignore[misc]


class PageRefused(PageError):
    """It breaks a limit or a rule of safety: too large, too many redirects, or an address that is not allowed."""


class PageChanged(PageError):
    """A selector, a field or the format is not what it was, or a challenge or login page came instead."""

    failure_type = FailureType.STRUCTURAL

    def __init__(self, message: str, *, url: str, cause: str, selector: str = "") -> None:
        super().__init__(message, url=url, cause=cause)
        self.selector = selector


def _type_of_status(status: int) -> FailureType:
    if status == 429:
        return FailureType.RATE_LIMITED
    if status in {408, 425} or 500 <= status <= 599:
        return FailureType.TRANSIENT
    if status in {401, 403, 407}:
        return FailureType.AUTHENTICATION
    return FailureType.VALIDATION if status in {400, 422} else FailureType.PERMANENT
