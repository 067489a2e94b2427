"""A job as the memory store keeps it, and what is handed out of it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from holdfast.ports import Delivery, Operation, Settlement
from holdfast.stores.ends import Ending
from holdfast.types import Attempt, Change, JobRecord, JobState, NewJob, Notes

_COMPLETED: Final = JobState.COMPLETED
_COMPLETE: Final = Change.COMPLETE
_RELEASE: Final = Change.RELEASE
_REFUNDABLE: Final = frozenset({Change.PARK, Change.RELEASE})
_SUSPECTING: Final = frozenset({Change.RETRY, Change.RELEASE})


class StoredJob(Struct, kw_only=True, eq=False):
    """Everything there is about one job."""

    seq: int
    """Its age: the order in which jobs were enqueued."""
    new: NewJob
    """As it was enqueued, its first payload included."""
    payload: bytes
    created_at: float
    due_at: float
    state: JobState = JobState.QUEUED

    attempt: int = 0
    counted: int = 0
    """Attempts since the job was enqueued or replayed, without those that were refunded."""
    elapsed_s: float = 0.0
    worker: str = ""
    """Who runs it, or ran it last."""
    started_at: float | None = None
    ended_at: float | None = None
    kept_until: float | None = None
    reason: str = ""
    result: bytes | None = None
    original_payload: bytes | None = None
    replays: int = 0
    replay_ids: set[str] = field(default_factory=set)

    checkpoint: bytes | None = None
    steps: dict[str, bytes] = field(default_factory=dict)
    progress: float | None = None
    attempts: list[Attempt] = field(default_factory=list)
    failure: Attempt | None = None
    """The latest attempt that failed."""
    first_failed_at: float | None = None

    token: bytes = b""
    """Of the lease, while it is running."""
    holder: str = ""
    """Who has the lease: the worker that runs it, or the one that is to judge it as an orphan."""
    claimed_at: float = 0.0
    settled: tuple[bytes, Change] | None = None
    """The token and change of the latest settlement, so that it is known when it is sent again; None where it came with
    its end."""
    ran_alone: bool = False
    blame: str = ""
    orphan_of: str = ""
    """The worker that died while it ran."""
    orphaned: int = 0
    is_suspect: bool = False

    def to_delivery(self) -> Delivery:
        """What the holder of the lease is given."""
        new = self.new
        return Delivery(
            id=new.id,
            task=new.task,
            queue=new.queue,
            payload=self.payload,
            token=self.token,
            attempt=self.attempt,
            retries=self.counted - 1,
            elapsed_s=self.elapsed_s,
            created_at=self.created_at,
            due_at=self.due_at,
            tenant=new.tenant,
            user=new.user,
            project=new.project,
            trace=new.trace,
            notes=self._notes(),
            is_suspect=self.is_suspect,
            is_alone=self.orphan_of != "" and (self.ran_alone or self.blame != ""),
            blame=self.blame if self.orphan_of else "",
            worker=self.orphan_of,
            orphaned=self.orphaned,
            claimed_at=self.claimed_at,
        )

    def to_record(self, *, is_whole: bool = False) -> JobRecord:
        """What people are shown; the whole of it has the attempts and the notes too."""
        new = self.new
        failure = self.failure
        return JobRecord(
            id=new.id,
            task=new.task,
            payload=self.payload,
            state=self.state,
            queue=new.queue,
            priority=new.priority,
            tenant=new.tenant,
            user=new.user,
            project=new.project,
            idempotency_key=new.idempotency_key,
            created_at=self.created_at,
            due_at=self.due_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            attempt=self.attempt,
            reason=self.reason,
            result=self.result,
            progress=self.progress,
            failure_type=failure.failure_type if failure else None,
            severity=failure.severity if failure else None,
            error_name=failure.error_name if failure else "",
            message=failure.message if failure else "",
            fingerprint=failure.fingerprint if failure else "",
            first_failed_at=self.first_failed_at,
            last_failed_at=failure.ended_at if failure else None,
            original_payload=self.original_payload,
            replays=self.replays,
            worker=self.worker,
            attempts=self._every_attempt() if is_whole else (),
            trace=new.trace,
            notes=self._notes() if is_whole else None,
        )

    def was_settled_under(self, token: bytes) -> bool:
        """Whether the latest settlement was made under it: a claim that brings it once more comes late, and again."""
        return self.settled is not None and self.settled[0] == token

    def take_over(self, settlement: Settlement) -> None:
        """Remember what a settlement says, beside the change of state."""
        change = settlement.change
        self.settled = (settlement.token, change)
        self.elapsed_s = settlement.elapsed_s
        self.reason = settlement.reason
        self.result = settlement.result if change is _COMPLETE else None
        if settlement.started_at is not None:
            self.started_at = settlement.started_at
        if settlement.attempt is not None:
            self._remember(settlement.attempt)
        if settlement.is_refunded and change in _REFUNDABLE:
            self.counted -= 1
            self.attempt -= 1
        if change is _COMPLETE:
            self._forget_notes()
        self.is_suspect = change in _SUSPECTING and settlement.is_suspect
        if change is not _RELEASE:
            self.orphaned = 0

    def take_end(self, ending: Ending) -> None:
        """Remember what came with an end, beside the change of state."""
        self.settled = None
        self.elapsed_s = 0.0
        self.reason = ending.end.reason
        self.result = ending.result
        for attempt in ending.attempts:
            self._remember(attempt)
        if (last := ending.last) is not None:
            self.started_at = last.started_at
            self.attempt = max(self.attempt, last.number)
            self.worker = last.worker or self.worker
        if ending.end.change is _COMPLETE:
            self._forget_notes()
        self.is_suspect = False
        self.orphaned = 0

    def begin_anew(self, operation: Operation) -> None:
        """A dead letter is replayed: with new attempts, and with its history."""
        payload = operation.payloads.get(self.new.id, operation.payload)
        if payload is not None and payload != self.payload:
            self.original_payload = self.new.payload
            self.payload = payload
        if operation.replay:
            self.replay_ids.add(operation.replay)
        self.replays += 1
        self.counted = 0
        self.elapsed_s = 0.0
        self.reason = operation.reason
        self.ended_at = None
        self.kept_until = None

    def _notes(self) -> Notes | None:
        return None if self.checkpoint is None and not self.steps else Notes(self.checkpoint, dict(self.steps))

    def _forget_notes(self) -> None:
        self.checkpoint = None
        self.steps = {}

    def _remember(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        if attempt.failure_type is not None:
            self.failure = attempt
            if self.first_failed_at is None:
                self.first_failed_at = attempt.ended_at

    @property
    def completion(self) -> Attempt | None:
        """The attempt that completed it, where it is not among those that were written down."""
        ended_at = self.ended_at
        if (
            self.state is not _COMPLETED
            or ended_at is None
            or self.settled is None
            or any(one.outcome is _COMPLETE and one.number == self.attempt for one in self.attempts)
        ):
            return None
        started_at = ended_at if self.started_at is None else self.started_at
        return Attempt(number=self.attempt, started_at=started_at, ended_at=ended_at, worker=self.worker)

    def _every_attempt(self) -> tuple[Attempt, ...]:
        last = self.completion
        return tuple(self.attempts) if last is None else (*self.attempts, last)
