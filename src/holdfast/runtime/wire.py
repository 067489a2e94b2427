"""What a worker and its isolated processes say to each other: JSON lines over a socket pair."""

from __future__ import annotations

import msgspec

from holdfast.ports import Delivery, Note
from holdfast.types import FailureType, Severity


class Start(msgspec.Struct, tag="start"):
    """Run this job."""

    delivery: Delivery
    module: str
    """Where the task is written, in case the app's own module does not import it."""
    limit_s: float
    """How long a transaction may hold the write lock."""
    worker: str = ""
    trace: str | None = None
    """The attempt's own trace context, or else the job's."""
    is_message: bool = False
    """Whether a stream's handler is to be run, not a task."""


class Noted(msgspec.Struct, tag="noted"):
    """The answer to a note."""

    is_held: bool


class Ready(msgspec.Struct, tag="ready"):
    """The process has loaded the tasks; or why it could not."""

    error: str = ""


class Heard(msgspec.Struct, tag="heard"):
    """The job has arrived; from here on the process's death is the job's own."""


class Ask(msgspec.Struct, tag="note"):
    """Remember this."""

    note: Note


class Ended(msgspec.Struct, tag="ended"):
    """The attempt has ended: with a result, or with a failure."""

    result: bytes = b"null"
    reason: str = ""
    snooze_s: float | None = None
    snooze_why: str = ""
    discard: str | None = None
    is_settled: bool = False
    """It completed itself, in a transaction."""
    failure_type: FailureType | None = None
    severity: Severity | None = None
    retry_after: float | None = None
    texts: dict[str, str] = {}
    outputs: bytes = b""
    """What the handler of a stream sends on."""
    delay_s: float | None = None
    """The judge's wait before the next attempt; None with a failure is to give up, for the reason."""


ToChild = Start | Noted
ToParent = Ready | Heard | Ask | Ended

encode = msgspec.json.Encoder().encode


def decode_to_child(line: bytes) -> ToChild:
    """What the worker said."""
    return _to_child.decode(line)


def decode_to_parent(line: bytes) -> ToParent:
    """What an isolated process said."""
    return _to_parent.decode(line)


_to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_to_parent: msgspec.json.Decoder[ToParent] = msgspec.json.Decoder(ToParent)
