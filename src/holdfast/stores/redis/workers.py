"""Workers: their leases, what the dead ones leave behind, and what running jobs want remembered."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any, Final

from msgspec import msgpack, structs

from holdfast.errors import ConfigError
from holdfast.ports import Beat, Delivery, Note, WorkerRecord
from holdfast.stores.redis import state
from holdfast.stores.redis.call import Call, Texts, new_name
from holdfast.stores.redis.deliveries import read_deliveries
from holdfast.stores.redis.scripts import BEAT, NOTE, RECLAIM
from holdfast.stores.redis.settle import token_text

_SEEN_AT: Final = Layout(">d")
_LONGEST_ID: Final = 1000
_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(WorkerRecord).decode


def beat_call(worker: WorkerRecord) -> Call[Beat]:
    """Register a worker, renew its lease, or take its leave."""
    if len(worker.id) > _LONGEST_ID:
        raise ConfigError(f"worker: an id of {len(worker.id)} characters is too long; at most {_LONGEST_ID}")
    return Call(BEAT, (worker.id, worker.lease_s, new_name()), _read_beat, [_encode(worker)])


def _read_beat(reply: list[Any]) -> Beat:
    is_alive, cancelled, held = reply
    return Beat(
        is_alive=is_alive == 1,
        cancelled=tuple(id.decode() for id in cancelled),  # noqa: A001
        held={bytes.fromhex(token.decode()): n for token, n in zip(held[::2], held[1::2], strict=True)},
    )


def read_worker(text: bytes) -> WorkerRecord:
    """A worker as its latest heartbeat described it, and when that was."""
    (seen_at,) = _SEEN_AT.unpack_from(text)
    return structs.replace(_decode(text[_SEEN_AT.size :]), seen_at=seen_at)


def reclaim_call(worker: str, token: bytes, limit: int, known: state.Texts) -> Call[list[Delivery]]:
    """Give up the workers whose lease is over, and hand their jobs to this one."""
    return Call(RECLAIM, (worker, token_text(token), limit), lambda reply: read_deliveries(reply, token, known))


def note_call(note: Note) -> Call[bool]:
    """Write down what a running job wants remembered, if its lease holds."""
    texts = Texts()
    step, data = note.step or (None, None)
    words = (
        note.id,
        token_text(note.token),
        texts.number_of(note.checkpoint),
        step,
        texts.number_of(data),
        note.progress,
        note.blame,
    )
    return Call(NOTE, words, bool, texts)
