"""Records and closed sets that every layer speaks in."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct

from holdfast.fingerprint import fingerprint_of, message_of, name_of, traceback_of

Rng = Callable[[], float]
"""A source of chance: each call returns a number in [0, 1)."""


class Severity(StrEnum):
    """How much a failure matters to the people who run the system."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class FailureType(StrEnum):
    """What kind of failure it is. The type alone says whether trying again can help."""

    is_retriable: bool
    severity: Severity

    TRANSIENT = "transient", True, Severity.LOW
    RATE_LIMITED = "rate_limited", True, Severity.LOW
    NETWORK = "network", True, Severity.MEDIUM
    SYSTEM = "system", True, Severity.HIGH
    PERMANENT = "permanent", False, Severity.HIGH
    VALIDATION = "validation", False, Severity.MEDIUM
    AUTHENTICATION = "authentication", False, Severity.HIGH
    STRUCTURAL = "structural", False, Severity.HIGH

    def __new__(cls, value: str, is_retriable: bool, severity: Severity) -> FailureType:
        """A member is its value, with two attributes."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.is_retriable = is_retriable
        member.severity = severity
        return member


class GiveUp(StrEnum):
    """Why no further attempt is made."""

    NOT_RETRIABLE = "not retriable"
    RETRIES_USED_UP = "retries used up"
    TOTAL_TIME_OVER = "total time over"
    BUDGET_EMPTY = "retry budget empty"
    BREAKER_OPEN = "breaker open"
    STRATEGY_FAILED = "the retry strategy itself failed"
    STILL_RUNNING = "still running after its time limit"


class BreakerMode(StrEnum):
    """The states of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    FORCED_OPEN = "forced_open"
    DISABLED = "disabled"


class FailureContext(Struct, frozen=True):
    """Where an error came from, for classification rules that ask."""

    task: str | None = None
    service: str | None = None


TextName = Literal["error_name", "message", "traceback", "fingerprint"]


_TYPES_OWN: Any = None


class Failure(Struct, eq=False):
    """A classified error.

    Message, traceback and fingerprint are computed on first read, because formatting a traceback costs more than
    everything else together. A failure that was read back from a store is made with its texts and has no `error`.
    """

    type: FailureType
    error: BaseException | None = None
    severity: Severity = _TYPES_OWN
    """The type's own, unless a rule says another."""
    retry_after: float | None = None
    """Seconds that the other side asked us to wait."""
    texts: dict[TextName, str] | None = None

    def __post_init__(self) -> None:
        if self.severity is _TYPES_OWN:
            self.severity = self.type.severity

    @property
    def is_retriable(self) -> bool:
        """Whether trying again can help."""
        return self.type.is_retriable

    @property
    def error_name(self) -> str:
        """The error's class, with its module unless it is a built-in one."""
        return self._text("error_name", lambda error: name_of(error.__class__))

    @property
    def message(self) -> str:
        """The error's own words, at most 2,000 characters."""
        return self._text("message", message_of)

    @property
    def traceback(self) -> str:
        """The traceback as text, at most 16,000 characters; the middle is left out of a longer one."""
        return self._text("traceback", traceback_of)

    @property
    def fingerprint(self) -> str:
        """One value for all failures of one cause; starts with the version of the rule that made it."""
        return self._text("fingerprint", fingerprint_of)

    def _text(self, name: TextName, make: Callable[[BaseException], str]) -> str:
        if self.texts is None:
            self.texts = {}
        if name not in self.texts:
            self.texts[name] = make(self.error) if self.error is not None else ""
        return self.texts[name]

    def __repr__(self) -> str:
        return f"Failure({self.type.name}, {self.error_name}: {self.message})"


class RetryScheduled(Struct, frozen=True):
    """An attempt failed and another follows; what hooks are told before the wait."""

    task: str
    """The function's module and name, or the name given to `attempts`."""
    key: str
    """What `Policy(key=…)` made of the arguments; empty without it."""
    attempt: int
    """The number of the attempt that failed, from 1."""
    failure: Failure
    delay_s: float
    """How long the wait before the next attempt will be."""
    elapsed_s: float
    """Run time and waits since the first attempt began, without the wait to come."""


class BreakerChanged(Struct, frozen=True):
    """A circuit breaker went from one state to another."""

    name: str
    before: BreakerMode
    after: BreakerMode
    period: int
    """Rises with every change; listeners in several threads may be told out of order, and this says which is newer."""
    cause: str | None
    """What opened it last, in words; None once it is closed."""
