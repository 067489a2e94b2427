"""Records and closed sets that every layer speaks in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


# ---------------------------------------------------------------- jobs


class JobState(StrEnum):
    """Where a job stands. `policy/lifecycle.py` has the table of the changes between them."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self in _TERMINAL


_TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.DEAD_LETTER, JobState.CANCELLED})


class Change(StrEnum):
    """What can happen to a job."""

    CLAIM = "claim"
    COMPLETE = "complete"
    RETRY = "retry"
    PARK = "park"
    RELEASE = "release"
    BURY = "bury"
    FAIL = "fail"
    DISCARD = "discard"
    CANCEL = "cancel"
    REPLAY = "replay"
    REMOVE = "remove"


class Attempt(Struct, frozen=True, kw_only=True):
    """One run of a job that has ended."""

    number: int
    started_at: float
    ended_at: float
    worker: str = ""
    outcome: Change = Change.COMPLETE
    """The change it ended in."""
    failure_type: FailureType | None = None
    severity: Severity | None = None
    error_name: str = ""
    message: str = ""
    traceback: str = ""
    fingerprint: str = ""
    delay_s: float | None = None
    """The wait before the next attempt, where one was set."""
    breaker: str = ""
    """The state of the task's breaker when it ended; empty where the task has none."""

    @property
    def duration_s(self) -> float:
        """How long it ran."""
        return self.ended_at - self.started_at


class End(Struct, frozen=True, kw_only=True):
    """How work ended that did not run as a job, such as a message: for the inbox, where all of it is.

    Such work can be handled again after it has ended. BURY makes a dead letter again of what has ended, however it did,
    where one of the attempts is not in its record and ended since the record did, or a second before, as the clocks of
    workers are not quite the store's. Otherwise, and for COMPLETE and DISCARD, what has ended stays as it is.
    """

    change: Change
    """BURY, COMPLETE or DISCARD."""
    attempts: tuple[Attempt, ...] = ()
    """The whole history, oldest first; those that the record has already, by number and start, are not added again."""
    reason: str = ""
    keep_s: float | None = None
    """Prune the record after so long; None keeps it."""


class NewJob(Struct, frozen=True, kw_only=True):
    """A job as it is handed to a store. The caller makes the id, so that sending it twice makes one job."""

    id: str
    """A UUID, in its usual form of 36 characters: a UUIDv7, or one made of what the job is about, which is one job then
    however often it comes. Stores ask for the others before they write, as these are often known."""
    task: str
    payload: bytes
    """The arguments by name: a JSON object."""
    queue: str = "default"
    priority: int = 0
    """A higher one runs first."""
    delay_s: float = 0.0
    """Not before so many seconds from now, on the store's clock."""
    gates: tuple[str, ...] = ()
    """What must be open, and have room, for this job to be claimed: see `Claim.caps`. Queue and task are not in it."""
    tenant: str = ""
    user: str = ""
    project: str = ""
    idempotency_key: str | None = None
    trace: str | None = None
    """The producer's trace context."""
    end: End | None = None
    """How it ended already, somewhere else: it is stored so, and never runs until it is replayed."""


class Notes(Struct, frozen=True):
    """What a job had remembered."""

    checkpoint: bytes | None = None
    steps: Mapping[str, bytes] = {}


class JobRecord(Struct, frozen=True, kw_only=True):
    """A job as a store remembers it; instants are on the store's clock, in seconds since 1970."""

    id: str
    task: str
    payload: bytes
    state: JobState
    queue: str = "default"
    priority: int = 0
    tenant: str = ""
    user: str = ""
    project: str = ""
    idempotency_key: str | None = None
    created_at: float = 0.0
    due_at: float = 0.0
    started_at: float | None = None
    """When its latest attempt that has ended began."""
    ended_at: float | None = None
    """When it reached its terminal state."""
    attempt: int = 0
    """Attempts that have been claimed, without those that cost nothing."""
    reason: str = ""
    """Why it was parked, given up, discarded or cancelled."""
    result: bytes | None = None
    """What the task returned, as JSON; None until it is completed."""
    progress: float | None = None
    failure_type: FailureType | None = None
    severity: Severity | None = None
    error_name: str = ""
    message: str = ""
    fingerprint: str = ""
    """These five are those of the latest failure."""
    first_failed_at: float | None = None
    last_failed_at: float | None = None
    original_payload: bytes | None = None
    """What it was enqueued with, where it has been edited since."""
    replays: int = 0
    """How often it was taken from the dead letters back to the queue."""
    worker: str = ""
    """Who runs it, or ran it last."""
    attempts: tuple[Attempt, ...] = ()
    """Every attempt that has ended, in order. Only `Store.get` reads them."""
    trace: str | None = None
    notes: Notes | None = None
    """What its attempts have remembered, for the next one: checkpoint and steps. Only `Store.get` reads them."""


# ---------------------------------------------------------------- messages

Place = tuple[str, int]
"""A partition: its topic, and its number. A Redis stream is a topic with one partition."""

Header = tuple[str, bytes | None]

_ENTRY = 64
"""A Redis entry's id is two numbers; as an offset, the first one stands so many bits to the left."""


class Message(Struct, frozen=True, gc=False):
    """A message of a stream, as a handler that asks for it gets it.

    One that was sent again through a retry topic shows where it came from first, with its own headers alone.
    """

    topic: str
    partition: int
    offset: int
    """Kafka's; of a Redis entry, both halves of its id in one number, in the order of the stream."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: float = 0.0
    """When it was written, in seconds since 1970, as its producer or the server says."""
    retries: int = 0
    """Counted attempts before this one."""
    is_gone: bool = False
    """The server has deleted or trimmed it before anybody has finished it: only its place is known."""
    deaths: int = 0
    """Redis Streams: how often a worker has died that had it."""

    @property
    def place(self) -> Place:
        """Its partition."""
        return self.topic, self.partition

    @property
    def id(self) -> str:
        """Where it is, in one word: `orders/3/1042`, or `orders/3/1700000000000-0` of a Redis stream."""
        offset = self.offset  # written out, as this is done for every message
        return f"{self.topic}/{self.partition}/{entry_id(offset) if offset >> _ENTRY else offset}"

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; None without one."""
        return next((value for known, value in reversed(self.headers) if known == name), None)


class Outgoing(Struct, frozen=True, gc=False):
    """A message to be sent."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    """None: by its key."""


def offset_text(offset: int) -> str:
    """An offset as people know it: Kafka's number, or the id of a Redis entry."""
    return entry_id(offset) if offset >> _ENTRY else str(offset)


def entry_id(offset: int) -> str:
    """The id of a Redis entry, as Redis writes it."""
    return f"{offset >> _ENTRY}-{offset & (1 << _ENTRY) - 1}"


def entry_offset(id: str) -> int:  # noqa: A002
    """The offset of a Redis entry's id."""
    first, _, second = id.partition("-")
    return int(first) << _ENTRY | int(second or 0)


_LONGEST_SNOOZE_S = 1e9


class Snooze(Struct, frozen=True):
    """Return it from a task to be run again after so many seconds, without costing an attempt.

    why: what is shown meanwhile.
    """

    seconds: float
    why: str = "snoozed by the task"

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not is_number or not 0.0 <= self.seconds <= _LONGEST_SNOOZE_S:
            raise ValueError(f"Snooze({self.seconds!r}): must be a number of seconds, from 0 to {_LONGEST_SNOOZE_S:g}")


class Discard(Struct, frozen=True):
    """Return it from a task to end the job as cancelled, with a reason."""

    reason: str = ""


class Group(Struct, frozen=True, kw_only=True):
    """Dead letters with one fingerprint: one cause."""

    fingerprint: str
    count: int
    tasks: tuple[str, ...]
    tenants: tuple[str, ...] = ()
    """By name, at most 20 of them; letters without a tenant do not show."""
    failure_type: FailureType
    severity: Severity
    error_name: str
    message: str
    """Of the one that was given up last."""
    first_at: float
    last_at: float
    hours: tuple[int, ...] = ()
    """How many of them were given up in each of the last 24 hours of the store's clock, oldest first: the last number
    is that of the hour that has begun."""
    sample_id: str
    """The one that was given up last."""
