"""What the scripts write down about a job, taken apart: its facts, its payload and its state."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any, Final, NamedTuple

from msgspec import Struct, msgpack

from holdfast.errors import ConfigError
from holdfast.types import JobState, NewJob

STATES: Final = (
    JobState.QUEUED,
    JobState.RUNNING,
    JobState.RETRYING,
    JobState.WAITING,
    JobState.COMPLETED,
    JobState.FAILED,
    JobState.DEAD_LETTER,
    JobState.CANCELLED,
)
"""By number, as the scripts have it; never renumber."""
NUMBERS: Final = {state: number for number, state in enumerate(STATES)}

_SIZE: Final = 4
_MOST_REMEMBERED: Final = 10_000
_TOP_RANK: Final = 2.0**52
"""Less the priority: jobs stand in line by their rank, smaller ones first. A script counts exactly up to here."""
_LONGEST: Final = 2**63
_LAYOUT: Final = Layout(">6B4dIIH4BI4d")
"""The part of a state that has the same size for all; lua/jobs.lua has the same."""
read_head: Final = _LAYOUT.unpack_from


class Facts(Struct, array_like=True, frozen=True):
    """What never changes, but for the payload."""

    task: str
    queue: str
    priority: int
    tenant: str
    user: str
    project: str
    key: str | None
    trace: str | None

    @property
    def is_special(self) -> bool:
        """Whether it belongs to somebody, or to a trace."""
        return bool(self.tenant or self.user or self.project or self.trace is not None)


NO_FACTS: Final = Facts("", "", 0, "", "", "", None, None)


class Head(NamedTuple):
    """The part of a state that has the same size for all, as `read_head` answers it."""

    state: int
    settled: int
    is_suspect: int
    is_alone: int
    is_orphan: int
    has_result: int
    changed_at: float
    elapsed_s: float
    started_at: float
    keep_until: float
    attempt: int
    retries: int
    orphaned: int
    has_key: int
    is_edited: int
    has_notes: int
    has_more: int
    lane: int
    rank: float
    due_at: float
    seq: float
    created_at: float


_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(Facts).decode


def rank_of(priority: int) -> float:
    """Where a priority stands in line. Beyond ±2**52 they are all alike."""
    return _TOP_RANK - max(-_TOP_RANK, min(_TOP_RANK - 1, priority))


class Texts:
    """Facts as bytes and back. Most jobs of a task have the same, so they are remembered."""

    def __init__(self) -> None:
        self._packed: dict[tuple[Any, ...], bytes] = {}
        self._facts: dict[bytes, Facts] = {}

    def pack(self, job: NewJob) -> bytes:
        """A job's text: the size of the facts, the facts and the payload."""
        kind = (job.task, job.queue, job.priority, job.tenant, job.user, job.project, job.idempotency_key, job.trace)
        packed = self._packed.get(kind)
        if packed is None:
            if not -_LONGEST <= job.priority < _LONGEST:
                raise ConfigError(f"priority: {job.priority} has more than 64 bits")
            facts = _encode(kind)
            packed = len(facts).to_bytes(_SIZE) + facts
            if job.idempotency_key is None and job.trace is None:
                if len(self._packed) >= _MOST_REMEMBERED:
                    self._packed.clear()
                self._packed[kind] = packed
        return packed + job.payload

    def unpack(self, text: bytes) -> tuple[bytes, Facts]:
        """What stands before the payload in a job's text, and the facts in it."""
        end = _SIZE + int.from_bytes(text[:_SIZE])
        before = text[:end]
        facts = self._facts.get(before)
        if facts is None:
            facts = _decode(before[_SIZE:])
            if facts.key is None and facts.trace is None:
                if len(self._facts) >= _MOST_REMEMBERED:
                    self._facts.clear()
                self._facts[before] = facts
        return before, facts


def worker_and_result(text: bytes) -> tuple[str, bytes]:
    """The rest of a state that people see: who runs it or ran it last, and what it returned."""
    at = _LAYOUT.size
    at += 1 + text[at]  # the token of the lease
    at += 1 + text[at]  # that of the latest settlement
    start = at + 2
    end = start + int.from_bytes(text[at:start])
    return text[start:end].decode(), text[end:]
