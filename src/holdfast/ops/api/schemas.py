"""What goes over HTTP, both ways; the OpenAPI page and the dashboard's client are made from it.

Instants are seconds since 1970 on the store's clock and end in `_at`; lengths are in seconds and end in `_s`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

JobStateName = Literal["queued", "running", "retrying", "waiting", "completed", "failed", "dead_letter", "cancelled"]
FailureTypeName = Literal[
    "transient", "rate_limited", "network", "system", "permanent", "validation", "authentication", "structural"
]
SeverityName = Literal["low", "medium", "high", "critical"]
BreakerModeName = Literal["closed", "open", "half_open", "forced_open", "disabled"]
RoleName = Literal["viewer", "operator", "admin"]


class Answer(BaseModel):
    """What the server says; fields without a value are null, never left out."""

    model_config = ConfigDict(extra="forbid")


class Asked(BaseModel):
    """What a client sends; a field that is not known is refused, and no text is taken for a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Problem(BaseModel):
    """An error, as RFC 9457 has it (application/problem+json)."""

    type: str = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(default="", examples=["there is no job '0199a3f2-5c1e-7c3a-9d41-3f1f6f1c2a10'"])
    errors: list[FieldProblem] = []


class FieldProblem(BaseModel):
    """What is wrong with one part of a request."""

    where: str
    message: str


# ---------------------------------------------------------------- jobs


class NewJobRequest(Asked):
    """One job to be made; only tasks that the app has registered are taken."""

    task: str = Field(min_length=1, max_length=200, examples=["charge"])
    arguments: dict[str, Any] = Field(default_factory=dict, examples=[{"order_id": 42, "cents": 1999}])
    queue: str | None = Field(default=None, min_length=1, max_length=200)
    priority: int | None = Field(default=None, ge=-1000, le=1000)
    delay_s: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=200)
    tenant: str | None = Field(default=None, max_length=200)
    user: str | None = Field(default=None, max_length=200)
    project: str | None = Field(default=None, max_length=200)


class NewJobAnswer(Answer):
    """The job that was made, or the one that had its idempotency key already (`is_new` is false)."""

    id: str
    is_new: bool
    state: JobStateName


class AttemptAnswer(Answer):
    """One run of a job that has ended."""

    number: int
    started_at: float
    ended_at: float
    duration_s: float
    worker: str
    outcome: str
    failure_type: FailureTypeName | None
    severity: SeverityName | None
    error_name: str
    message: str
    traceback: str
    frames: list[FrameAnswer] = Field(description="The traceback, line by line; those of user code are marked.")
    fingerprint: str
    delay_s: float | None = Field(description="The wait before the next attempt, where one was set.")
    breaker: str


class FrameAnswer(Answer):
    """A piece of a traceback: one line or more that belong together."""

    text: str
    is_user_code: bool


class JobOrigin(Answer):
    """It is a job: a call of a task."""

    kind: Literal["job"]


class MessageOrigin(Answer):
    """It is a message of a stream that was given up, under the name of its stream."""

    kind: Literal["message"]
    group: str
    topic: str
    partition: int
    offset: str = Field(description="As text: a number, or the id of a Redis entry.")


class RingOrigin(Answer):
    """It is elements of a ring that a consumer could not handle, under the names of ring and consumer."""

    kind: Literal["ring"]
    ring: str
    consumer: str
    batch: int = Field(description="The number of the batch that they were in.")
    offset: str | None = Field(description="That of the first element, as text; null in a ring without offsets.")
    count: int = Field(description="How many elements there are.")


class PageOrigin(Answer):
    """It is a page of a crawl, whose task and queue are `crawl:` and the crawl's name."""

    kind: Literal["page"]
    crawl: str
    url: str = Field(description="Without secrets.")
    domain: str
    depth: int = Field(description="How many links away from a seed it was found first.")
    referrer: str = Field(description="The page that it was found on; empty for a seed.")


class JobSummary(Answer):
    """A job as lists show it."""

    id: str
    task: str
    queue: str
    state: JobStateName
    priority: int
    tenant: str
    user: str
    project: str
    created_at: float
    due_at: float
    started_at: float | None
    ended_at: float | None
    attempt: int
    reason: str
    progress: float | None
    failure_type: FailureTypeName | None
    severity: SeverityName | None
    error_name: str
    message: str
    fingerprint: str
    first_failed_at: float | None
    last_failed_at: float | None
    replays: int
    worker: str
    origin: JobOrigin | MessageOrigin | RingOrigin | PageOrigin = Field(
        discriminator="kind", description="Where it came from."
    )


class JobAnswer(JobSummary):
    """A whole job, with its arguments, result and every attempt."""

    idempotency_key: str | None
    arguments: Any
    original_arguments: Any = Field(description="What it was enqueued with, where it has been edited since; else null.")
    result: Any
    attempts: list[AttemptAnswer]
    trace: str | None
    arguments_schema: dict[str, Any] | None = Field(
        description="JSON schema of the task's arguments, for a form; null where this server does not know the task."
    )
    redacted: list[str] = Field(description="JSON pointers into arguments whose values were replaced by [redacted].")


class JobPage(Answer):
    """Some jobs, newest first."""

    items: list[JobSummary]
    cursor: str = Field(description="Give it back as ?cursor= for the next page; empty when there are no more.")


class JobFilter(Asked):
    """Which jobs, a page at a time; what is left out does not filter."""

    model_config = ConfigDict(strict=False)  # all of an address is text

    state: list[JobStateName] = Field(default=[], max_length=8, description="May be given several times.")
    task: str = Field(default="", max_length=200)
    queue: str = Field(default="", max_length=200)
    tenant: str | None = Field(default=None, max_length=200)
    user: str = Field(default="", max_length=200)
    project: str = Field(default="", max_length=200)
    since: float | None = Field(
        default=None, ge=0, le=1e11, allow_inf_nan=False, description="Ended, or made, then or later."
    )
    until: float | None = Field(default=None, ge=0, le=1e11, allow_inf_nan=False, description="Ended, or made, before.")
    text: str = Field(
        default="",
        max_length=200,
        description="Part of the id, task, error, reason, arguments or key, as they are shown.",
    )
    limit: int = Field(default=50, ge=1, le=200)
    cursor: str = Field(default="", max_length=500, description="Of the page before.")


class IdsRequest(Asked):
    """Jobs by their ids."""

    ids: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        min_length=1, max_length=1000, examples=[["0199a3f2-5c1e-7c3a-9d41-3f1f6f1c2a10"]]
    )


class ChangedAnswer(Answer):
    """What became of one job of a request."""

    id: str
    is_done: bool
    state: JobStateName | None = Field(description="The state it is in now; null where there is no such job.")


class ChangedList(Answer):
    """What became of each job of a request, in its order."""

    items: list[ChangedAnswer]


# ---------------------------------------------------------------- dead letters


class GroupAnswer(Answer):
    """Dead letters with one cause."""

    fingerprint: str
    count: int
    tasks: list[str]
    tenants: list[str]
    failure_type: FailureTypeName
    severity: SeverityName
    error_name: str
    message: str
    first_at: float
    last_at: float
    sample_id: str
    hours: list[int] = Field(description="Letters given up in each of the last 24 hours, oldest first.")


class GroupList(Answer):
    """The inbox, by cause."""

    items: list[GroupAnswer]
    total: int = Field(description="Letters in all of them.")


class RetryRequest(Asked):
    """How a letter goes back to the queue."""

    arguments: dict[str, Any] | None = Field(
        default=None,
        examples=[{"order_id": 42, "cents": 1999}],
        description="Replaces all arguments; those that still read [redacted] keep their stored value.",
    )
    to_topic: bool = Field(
        default=False,
        description="Of a message: to its original topic, where every group sees it, and not to its own group alone.",
    )


class ValidateRequest(Asked):
    """Arguments to be checked against a task's types."""

    arguments: dict[str, Any] = Field(examples=[{"order_id": 42, "cents": 1999}])


class ValidateAnswer(Answer):
    """Whether the arguments fit."""

    is_valid: bool
    errors: list[FieldProblem]


class LetterFilter(Asked):
    """Which letters; what is left out does not filter."""

    group: str = Field(default="", max_length=200)
    failure_type: FailureTypeName | None = None
    task: str = Field(default="", max_length=200)
    tenant: str | None = Field(default=None, max_length=200)
    since: float | None = Field(default=None, ge=0, le=1e11, allow_inf_nan=False)
    until: float | None = Field(default=None, ge=0, le=1e11, allow_inf_nan=False)


class LetterSearch(LetterFilter):
    """Which letters, as an address says it."""

    model_config = ConfigDict(strict=False)  # all of an address is text

    text: str = Field(
        default="",
        max_length=200,
        description="Part of the id, task, error, reason, arguments or key, as shown; of groups, in the cause.",
    )


class LetterQuery(LetterSearch):
    """Which letters, a page at a time."""

    limit: int = Field(default=50, ge=1, le=200)
    cursor: str = Field(default="", max_length=500, description="Of the page before.")


class LetterExport(LetterSearch):
    """Which letters, all of them at once."""

    format: Literal["jsonl", "csv"] = "jsonl"


class ReplayFilter(LetterFilter):
    """Which letters are replayed. Not by a text: a search is done in what is shown, a replay by the store."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_text(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("text"):
            raise PydanticCustomError(
                "no_text", "a search by text cannot be replayed: choose a group, task, tenant, failure type or time"
            )
        return data


class ReplayRequest(Asked):
    """A replay of many letters, done by the workers."""

    filter: ReplayFilter = ReplayFilter()
    edit: dict[str, Any] | None = Field(
        default=None, examples=[{"currency": "EUR"}], description="A JSON merge patch for the arguments."
    )
    canary: int = Field(default=0, ge=0, le=1000)
    rate: float | None = Field(default=None, gt=0, le=1e6, allow_inf_nan=False, description="Letters a second.")
    replay_id: str | None = Field(
        default=None, min_length=1, max_length=64, description="Sent twice it makes one replay."
    )


class PreviewAnswer(Answer):
    """What a replay would do."""

    total: int
    sample: list[JobAnswer]


class ReplayAnswer(Answer):
    """A replay, and how far it is."""

    id: str
    state: Literal["running", "paused", "stopped", "done"]
    verdict: str = Field(description="Of the canaries: empty, waiting, passed or failed.")
    reason: str
    group: str
    task: str
    tenant: str | None
    canary: int
    rate: float | None
    total: int
    sent: int
    created_at: float


class ReplayList(Answer):
    """Replays, newest first."""

    items: list[ReplayAnswer]


class RemovedAnswer(Answer):
    """How many were removed."""

    removed: int


# ---------------------------------------------------------------- what else there is


class BreakerAnswer(Answer):
    """A breaker that all workers share."""

    key: str
    state: BreakerModeName
    failures: int
    until_at: float | None
    retry_after_s: float | None
    cause: str | None
    trips: int
    tasks: list[str]
    failure_threshold: int | None
    recovery_timeout_s: float | None
    half_open_max_calls: int | None
    window: str = Field(description='In words: "5 in a row", "50 % of 20 calls", "50 % within 60 s".')


class BreakerList(Answer):
    """Every breaker, by key."""

    items: list[BreakerAnswer]


class QueueAnswer(Answer):
    """A queue, counted."""

    name: str
    is_paused: bool
    depth: int
    states: dict[str, int]
    lag_s: float | None = Field(description="For how long its oldest job that could run has been due.")


class QueueList(Answer):
    """Every queue, by name."""

    items: list[QueueAnswer]


class WorkerAnswer(Answer):
    """A worker that is alive."""

    id: str
    host: str
    pid: int
    queues: list[str]
    running: int
    started_at: float
    seen_at: float
    lease_s: float
    completed: int
    retried: int
    failed: int
    tasks_per_second: float


class WorkerList(Answer):
    """Every worker."""

    items: list[WorkerAnswer]


class PartitionAnswer(Answer):
    """A partition of a stream, as one worker sees it."""

    topic: str
    partition: int
    worker: str
    position: str | None = Field(description="All before it is finished: an offset, or the id of a Redis entry.")
    lag: int | None = Field(description="Messages that are not finished; null while nobody knows.")
    in_flight: int = Field(description="Messages that were begun and are not finished.")
    buffered: int = Field(description="Messages that were received and not begun.")
    paused: str = Field(description="Why no more is received of it; empty while it is.")
    stuck_id: str = Field(description="The first unfinished message; empty without one.")
    stuck_key: str = Field(description="Its message key.")
    stuck_s: float = Field(description="For how long it has been the first.")


class StreamAnswer(Answer):
    """A stream over all of its workers, as of their last heartbeats."""

    name: str
    group: str
    topic: str
    location: str
    workers: int
    lag: int | None = Field(description="Messages that are not finished, over all partitions whose lag is known.")
    in_flight: int
    rate_per_s: float = Field(description="Messages finished in the last full minute, a second.")
    dead_letters: int
    last_error: str
    last_error_at: float | None
    away: str = Field(description="Why a worker cannot reach the server; empty while all can.")
    partitions: list[PartitionAnswer] = Field(
        description="By topic, number and worker; those of its retry topics, too."
    )


class StreamList(Answer):
    """Every stream, by name."""

    items: list[StreamAnswer]


class ScheduleAnswer(Answer):
    """A schedule of the app."""

    name: str
    task: str
    timing: str
    next_at: float | None
    last_at: float | None
    is_paused: bool


class ScheduleList(Answer):
    """Every schedule."""

    items: list[ScheduleAnswer]


class TaskAnswer(Answer):
    """A task that the app has registered."""

    name: str
    queue: str
    priority: int
    breaker: str | None
    timeout_s: float | None
    max_retries: int
    arguments_schema: dict[str, Any]


class TaskList(Answer):
    """Every task, by name."""

    items: list[TaskAnswer]


# ---------------------------------------------------------------- looking at everything


class MinuteAnswer(Answer):
    """Attempts that ended within one minute."""

    at: float
    completed: int
    retried: int
    failed: int
    run_p50_s: float | None
    run_p95_s: float | None
    wait_p50_s: float | None
    wait_p95_s: float | None


class Overview(Answer):
    """What the first page shows, and what `/events` sends as it changes."""

    now_at: float
    store: str
    store_name: str
    is_durable: bool
    durability: str
    warnings: list[str]
    states: dict[str, int]
    per_second: float = Field(description="Attempts that ended, a second, lately.")
    success_rate: float | None = Field(description="Of the last hour's attempts, from 0 to 1.")
    minutes: list[MinuteAnswer] = Field(description="The last 60, oldest first.")
    failures_by_type: dict[str, int]
    queues: list[QueueAnswer]
    workers: int
    open_breakers: list[str]
    dead_letters: int
    health: Literal["healthy", "degraded", "unhealthy", "unknown"] = Field(
        description="Unknown while the first checks of a server have not ended."
    )
    score: float | None
    reasons: list[str] = Field(description="Why the score is below 1, a sentence each.")
    alerts: list[AlertAnswer]


class AlertAnswer(Answer):
    """An alert rule and how it stands."""

    name: str
    is_firing: bool
    since_at: float | None
    value: float | None
    threshold: float
    text: str


class AlertList(Answer):
    """Every alert rule of the app."""

    items: list[AlertAnswer]


class CheckAnswer(Answer):
    """One health check."""

    status: Literal["ok", "failed", "timeout"]
    duration: float
    error: str | None


class HealthAnswer(Answer):
    """C6 and R7: whether all is well; 200 when healthy or degraded, 503 when not."""

    healthy: bool
    status: Literal["healthy", "degraded", "unhealthy"]
    score: float
    reasons: list[str] = Field(description="Why the score is below 1, a sentence each.")
    success_rate: float | None
    open_breakers: list[str]
    dead_letters: int
    workers: int
    durability: str
    checks: dict[str, CheckAnswer]


class LiveAnswer(Answer):
    """Whether this process lives, or is ready."""

    status: Literal["ok", "failed"]
    reason: str = ""


class SessionAnswer(Answer):
    """Who is asking, and what they may do."""

    name: str = Field(description="Empty where nobody is signed in.")
    role: RoleName | None = Field(description="Null where nobody is signed in.")
    tenant: str | None = Field(description="Only this tenant's jobs can be seen; null: all.")
    is_read_only: bool
    is_open: bool = Field(description="No tokens are asked for, because only this machine can reach the server.")
    can_simulate: bool
    version: str


class SessionRequest(Asked):
    """Sign in with a token; the answer sets a cookie that scripts cannot read."""

    token: str = Field(min_length=1, max_length=500, examples=["hf_1f0c2a9b4d5e_8a…"])


class AuditEntry(Answer):
    """Who did what."""

    at: float
    who: str
    role: str
    address: str
    action: str
    target: str
    outcome: str
    who_id: str = Field(default="", description="The id of the token; names may be given twice.")
    tenant: str | None = None


class AuditList(Answer):
    """The latest actions, newest first."""

    items: list[AuditEntry]


# ---------------------------------------------------------------- /retry/…, as rows T3 and T4 have it


class ExecutionStats(Answer):
    """Attempts since the store was made; each is exactly one of successful, failed, retried. Rates in per cent."""

    total_executed: int
    successful: int
    failed: int
    retried: int
    success_rate: float
    failure_rate: float
    retry_rate: float


class CircuitBreakerStats(Answer):
    """Breakers; one that is not closed or disabled counts as open."""

    total_circuit_breakers: int
    open_circuits: int
    closed_circuits: int


class DeadLetterStats(Answer):
    """Dead letters as they stand now."""

    total_dead_letters: int
    by_task_type: dict[str, int]


class RetryStats(Answer):
    """T4."""

    execution_stats: ExecutionStats
    circuit_breaker_stats: CircuitBreakerStats
    dead_letter_stats: DeadLetterStats
    failures_by_error_type: dict[str, int]
    tasks_per_second_per_worker: dict[str, float]


class SimulatedAnswer(Answer):
    """The breaker after a simulated failure."""

    task_type: str
    breaker: BreakerAnswer
