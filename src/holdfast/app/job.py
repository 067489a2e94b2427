"""A job in its user's hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Struct

from holdfast.errors import JobFailed, NotFound
from holdfast.ports import Operation
from holdfast.runtime.payload import decode_result
from holdfast.types import Attempt, Change, JobRecord, JobState

if TYPE_CHECKING:
    from holdfast.app.app import App

R = TypeVar("R")

_FIRST_LOOK_S = 0.005
_LOOK_EVERY_S = 0.5
"""Not every store tells that a job has ended: so it is looked at, soon at first, then less and less often."""


class Job(Generic[R]):
    """One durable call of a task.

    State, result and attempts are as of the last look: `refresh` looks again, and `wait` until the end.
    """

    def __init__(
        self,
        app: App,
        known: JobRecord | Callable[[], JobRecord],
        job_id: str,
        annotation: Any = Any,
        *,
        is_new: bool,
        is_promised: bool = False,
    ) -> None:
        self._app = app
        self._known = known
        self._annotation = annotation
        self._is_promised = is_promised  # it is there when its caller's transaction commits
        self.id = job_id
        """Its id, a UUIDv7."""
        self.is_new = is_new
        """False when a job with the same idempotency key was there already: this is that job."""

    @property
    def record(self) -> JobRecord:
        """Everything that the store knew of it at the last look."""
        known = self._known
        if not isinstance(known, JobRecord):  # few look at what they have just enqueued, so it is put together here
            self._known = known = known()
        return known

    @property
    def state(self) -> JobState:
        """Where it stood at the last look."""
        return self.record.state

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt that had ended at the last look."""
        return self.record.attempts

    @property
    def result(self) -> R:
        """What the task returned. JobFailed when it has ended otherwise, or has not ended yet."""
        record = self.record
        if record.state is JobState.COMPLETED:
            if record.result in (None, b"null"):  # also where it was not kept, whatever the annotation says
                return cast(R, None)
            return cast(R, decode_result(record.result, self._annotation))
        if not record.state.is_terminal:
            raise JobFailed(f"job {record.id} is {record.state.value}, and has no result yet: wait() for it first")
        why = f": {record.error_name}: {record.message}" if record.error_name else ""
        reason = f" ({record.reason})" if record.reason else ""
        raise JobFailed(f"job {record.id} of {record.task} ended as {record.state.value}{reason}{why}")

    def refresh(self) -> Job[R]:
        """Look again. NotFound where it is not there (any more), as before the commit of its transaction."""
        return self._app.bridge.run(self.arefresh())

    async def arefresh(self) -> Job[R]:
        """Look again."""
        (record,) = await self._app.store.get([self.id])
        if record is None:
            if self._is_promised:
                raise NotFound(f"job {self.id} is not in the store: its transaction has not been committed")
            raise NotFound(f"job {self.id} is not in the store any more: its time to be kept is over")
        self._known, self._is_promised = record, False
        return self

    def wait(self, timeout: float | None = None) -> Job[R]:
        """Block until it has ended; TimeoutError after `timeout` seconds."""
        return self._app.bridge.run(self.await_(timeout))

    async def await_(self, timeout: float | None = None) -> Job[R]:
        """The same for async code."""
        clock = self._app.clock
        deadline_s = None if timeout is None else clock.monotonic() + timeout
        look_s = _FIRST_LOOK_S
        while not (await self.arefresh()).state.is_terminal:
            left_s = look_s if deadline_s is None else deadline_s - clock.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"job {self.id} is still {self.state.value} after {timeout:g} s")
            await self._app.store.wait(min(left_s, look_s))
            look_s = min(2.0 * look_s, _LOOK_EVERY_S)
        return self

    def cancel(self) -> bool:
        """Cancel it, unless it has ended; whether that took effect. An async task that runs is told within seconds."""
        return self._app.bridge.run(self.acancel())

    async def acancel(self) -> bool:
        """The same for async code."""
        (changed,) = await self._app.store.change(
            Operation(change=Change.CANCEL, ids=[self.id], keep_s=self._app.keep_s)
        )
        await self.arefresh()
        return changed.is_done

    def __repr__(self) -> str:
        return f"<Job {self.record.task} {self.id} {self.state.value}>"


class RunResult(Struct, Generic[R], frozen=True, kw_only=True):
    """What came of a job that was run here to its end."""

    success: bool
    value: R | None
    error: BaseException | None
    """The last attempt's, where it did not succeed."""
    attempts: tuple[Attempt, ...]
    state: JobState
    reason: str = ""
