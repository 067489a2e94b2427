"""A task: a named function whose calls can be made durable."""

from __future__ import annotations

import functools
import operator
import typing
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from holdfast.app.job import Job, RunResult
from holdfast.app.sending import asend, send
from holdfast.clock import new_id
from holdfast.errors import ConfigError, IdempotencyConflict
from holdfast.policy import bounds
from holdfast.ports import Enqueued
from holdfast.runtime.context import JobContext
from holdfast.runtime.crawl_origins import QUEUE as CRAWLS
from holdfast.runtime.guards.policy import Policy
from holdfast.runtime.inline import InlineDesk, inline_delivery
from holdfast.runtime.ring_origins import QUEUE as RINGS
from holdfast.runtime.shared.names import breaker_gate
from holdfast.runtime.spec import TaskSpec, limit_gates
from holdfast.runtime.streams.origins import QUEUE as STREAMS
from holdfast.types import Discard, JobRecord, NewJob, Snooze

if TYPE_CHECKING:
    from holdfast.app.app import App

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_MAX_PRIORITY = 1_000_000
_MAX_NAME = 200


def checked_name(field: str, value: object, *, may_be_empty: bool = False) -> str:
    """Text of at most 200 characters without control characters."""
    if isinstance(value, str) and (value or may_be_empty) and len(value) <= _MAX_NAME and value.isprintable():
        return value
    raise ConfigError(f"{field}={value!r}: must be printable text of 1 to {_MAX_NAME} characters")


def checked_queue(value: object) -> str:
    """The name of a queue for jobs: those of pages, elements and messages, such as `crawl:` and a name, are none."""
    name = checked_name("queue", value)
    if name.startswith((CRAWLS, RINGS, STREAMS)):
        others = f"{CRAWLS!r}, {RINGS!r} or {STREAMS!r}"
        raise ConfigError(f"queue={value!r}: must not begin with {others}: crawls, rings and streams have such queues")
    return name


def checked_priority(value: object) -> int:
    """A whole number, not too far from zero."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_PRIORITY:
        return value
    raise ConfigError(f"priority={value!r}: must be a whole number from -{_MAX_PRIORITY} to {_MAX_PRIORITY}")


class Options(Struct, frozen=True, kw_only=True):
    """How one job is enqueued; None leaves it to the task.

    delay: not before so many seconds, or a timedelta, from now. at: not before this instant, with its time zone.
    priority: a higher one runs first. idempotency_key: a second job with the same key, tenant and task is the first.
    connection: your own open connection to the database that the store is in; the job is there if and only if your
    transaction commits, which is left to you.
    """

    queue: str | None = None
    priority: int | None = None
    delay: float | timedelta | None = None
    at: datetime | None = None
    tenant: str = ""
    user: str = ""
    project: str = ""
    idempotency_key: str | None = None
    connection: object | None = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.at is not None:
            raise ConfigError(f"delay={self.delay!r}, at={self.at!r}: give one of them")
        if self.delay is not None:
            bounds.length("delay", self.delay.total_seconds() if isinstance(self.delay, timedelta) else self.delay)
        if self.at is not None and (not isinstance(self.at, datetime) or self.at.tzinfo is None):
            raise ConfigError(f"at={self.at!r}: must be a datetime with a time zone")
        if self.priority is not None:
            checked_priority(self.priority)
        if self.queue is not None:
            checked_queue(self.queue)
        for field in ("tenant", "user", "project"):
            checked_name(field, getattr(self, field), may_be_empty=True)
        if self.idempotency_key is not None:
            checked_name("idempotency_key", self.idempotency_key)


class Call(Generic[R_co]):
    """A call of a task, with its arguments checked, that has not been enqueued."""

    __slots__ = ("connection", "job", "task")

    def __init__(self, task: Task[Any, Any, R_co], job: NewJob, connection: object | None = None) -> None:
        self.task = task
        self.job = job
        self.connection = connection

    def __repr__(self) -> str:
        return f"<Call {self.job.task} {self.job.payload.decode()[:100]}>"


class TaskWithOptions(Generic[P, R]):
    """A task with options for the jobs enqueued through it."""

    def __init__(self, task: Task[P, Any, R], options: Options) -> None:
        self._task = task
        self._options = options

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Check the arguments and keep them for `enqueue_many` or `app.schedule`."""
        return Call(self._task, self._task.new_job(self._options, args, kwargs), self._options.connection)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job of this call; durable on return, or with a connection, when its transaction commits."""
        return self._task.send(self._task.new_job(self._options, args, kwargs), self._options.connection)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same for async code."""
        return await self._task.asend(self._task.new_job(self._options, args, kwargs), self._options.connection)


_NO_OPTIONS = Options()


class Task(Generic[P, C, R]):
    """A named function. Call it and it runs here, under its policy; `enqueue` makes a durable job of the call."""

    def __init__(self, app: App, spec: TaskSpec) -> None:
        self._app = app
        self._spec = spec
        self.name = spec.name
        # What is to be buried while the breaker is open must be claimed then, so that is no gate of its jobs.
        key = spec.breaker if spec.waits_for_breaker else None
        self._breaker_gates = () if key is None else (breaker_gate(key),)
        functools.update_wrapper(self, spec.fn)

    @property
    def spec(self) -> TaskSpec:
        """What the runtime knows of it."""
        return self._app.specs[self.name]

    # ---- here and now

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run it here, under the same retries, breaker, rate and time limit; nothing is stored."""
        return self._guarded(*args, **kwargs)  # type: ignore[no-any-return]

    def run(self, *args: P.args, **kwargs: P.kwargs) -> RunResult[R]:
        """Run a job here to its end, with its retries and their waits, and return everything that came of it."""
        return self._app.bridge.run(self.arun(*args, **kwargs))

    async def arun(self, *args: P.args, **kwargs: P.kwargs) -> RunResult[R]:
        """The same for async code."""
        result: RunResult[R] = await self._app.run_inline(self.spec, self.new_job(_NO_OPTIONS, args, kwargs))
        return result

    @functools.cached_property
    def _guarded(self) -> Callable[..., Any]:
        spec = self.spec
        fn = spec.fn
        if spec.takes_context:
            inner = fn

            @functools.wraps(inner)
            def fn(*args: Any, **kwargs: Any) -> Any:
                return inner(JobContext(inline_delivery(spec.name), InlineDesk()), *args, **kwargs)

            if spec.is_async:
                plain = fn

                @functools.wraps(inner)
                async def fn(*args: Any, **kwargs: Any) -> Any:
                    return await plain(*args, **kwargs)

        policy = Policy(
            retry=spec.retry,
            breaker=self._app.local_breaker(spec),
            limiter=self._app.local_limiter(spec),
            timeout=spec.timeout_s,
            classify=spec.classify,
            clock=self._app.clock,
        )
        return policy(fn)

    # ---- durable

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job of this call; durable on return."""
        return self.send(self.new_job(_NO_OPTIONS, args, kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same for async code."""
        return await self.asend(self.new_job(_NO_OPTIONS, args, kwargs))

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        tenant: str = "",
        user: str = "",
        project: str = "",
        idempotency_key: str | None = None,
        connection: object | None = None,
    ) -> TaskWithOptions[P, R]:
        """The same task, enqueueing with these options; see `Options`."""
        options = Options(
            queue=queue,
            priority=priority,
            delay=delay,
            at=at,
            tenant=tenant,
            user=user,
            project=project,
            idempotency_key=idempotency_key,
            connection=connection,
        )
        return TaskWithOptions(self, options)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Check the arguments and keep them for `enqueue_many` or `app.schedule`."""
        return Call(self, self.new_job(_NO_OPTIONS, args, kwargs))

    def enqueue_many(self, calls: Sequence[Call[R]]) -> list[Job[R]]:
        """Make a job of each call, all or none; durable on return."""
        return self._app.enqueue_many(calls)

    async def aenqueue_many(self, calls: Sequence[Call[R]]) -> list[Job[R]]:
        """The same for async code."""
        return await self._app.aenqueue_many(calls)

    # ---- inside

    @functools.cached_property
    def _returns(self) -> Any:
        """What it is annotated to return."""
        try:
            found = typing.get_type_hints(self._spec.fn).get("return", Any)
        except NameError:
            return Any
        stored = [one for one in typing.get_args(found) if one not in (Snooze, Discard)]
        if typing.get_origin(found) in (typing.Union, UnionType) and stored:
            return functools.reduce(operator.or_, stored)  # these two say what becomes of the job, and are no result
        return found

    def new_job(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        """A job with a new id; Invalid when the arguments do not fit."""
        spec = self.spec
        payload = spec.arguments.encode(args, kwargs)
        job = NewJob(
            id=new_id(),
            task=spec.name,
            payload=payload,
            queue=spec.queue,
            priority=spec.priority,
            gates=self._breaker_gates,
        )
        if options is not _NO_OPTIONS:
            job = self._with(job, options)
        return job if not spec.rates else replace(job, gates=self.gates_of(job))

    def gates_of(self, job: NewJob) -> tuple[str, ...]:
        """What must be open, and have room, for this job to be claimed."""
        spec = self.spec
        return (*self._breaker_gates, *limit_gates(spec, job))

    def _with(self, job: NewJob, options: Options) -> NewJob:
        delay_s = 0.0
        if options.delay is not None:
            delay_s = options.delay.total_seconds() if isinstance(options.delay, timedelta) else float(options.delay)
        if options.at is not None:
            delay_s = max(0.0, options.at.timestamp() - self._app.clock.now())
        return replace(
            job,
            queue=job.queue if options.queue is None else options.queue,
            priority=job.priority if options.priority is None else options.priority,
            delay_s=delay_s,
            tenant=options.tenant,
            user=options.user,
            project=options.project,
            idempotency_key=options.idempotency_key,
        )

    def send(self, job: NewJob, connection: object | None = None) -> Job[R]:
        """Enqueue on this thread."""
        (answer,) = send(self._app, [job], connection)
        return self.job_of(job, answer, connection)

    async def asend(self, job: NewJob, connection: object | None = None) -> Job[R]:
        """Enqueue from the event loop."""
        (answer,) = await asend(self._app, [job], connection)
        return self.job_of(job, answer, connection)

    def job_of(self, job: NewJob, answer: Enqueued, connection: object | None = None) -> Job[R]:
        """The job in its user's hands."""
        if answer.is_conflict:
            raise IdempotencyConflict(job.idempotency_key or "", answer.id)
        known = functools.partial(_as_enqueued, job, answer, self._app.clock.now())
        is_promised = connection is not None
        return Job(self._app, known, answer.id, self._returns, is_new=answer.is_new, is_promised=is_promised)

    def value_of(self, record: JobRecord) -> R:
        """What a completed job returned."""
        return Job[R](self._app, record, record.id, self._returns, is_new=False).result

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


def _as_enqueued(job: NewJob, answer: Enqueued, now: float) -> JobRecord:
    """What is known of a job that was enqueued at this instant, without asking the store."""
    return JobRecord(
        id=answer.id,
        task=job.task,
        payload=job.payload,
        state=answer.state,
        queue=job.queue,
        priority=job.priority,
        tenant=job.tenant,
        user=job.user,
        project=job.project,
        idempotency_key=job.idempotency_key,
        created_at=now,
        due_at=now + job.delay_s,
        trace=job.trace,
    )
