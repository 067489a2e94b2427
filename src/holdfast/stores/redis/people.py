"""What people do to jobs: cancel, replay, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.policy.lifecycle import LIFECYCLE
from holdfast.ports import Changed, Operation
from holdfast.stores.redis.call import Call, Texts, new_name
from holdfast.stores.redis.scripts import CHANGE
from holdfast.stores.redis.state import STATES

AT_ONCE: Final = 250
"""So many jobs with one call: each job is changed by itself, and no call holds up the server for long."""


def change_call(operation: Operation, ids: Sequence[str]) -> Call[list[Changed]]:
    """Each of these in turn, guarded by its state."""
    texts = Texts()
    for_all = 0 if operation.payload is None else texts.number_of(operation.payload)
    payloads: dict[str, int] = {}
    for id in ids:  # noqa: A001
        number = texts.number_of(operation.payloads.get(id)) or for_all
        if number:
            payloads[id] = number
    words = (
        operation.change,
        [state in LIFECYCLE[operation.change].before for state in STATES],
        ids,
        operation.reason,
        -1 if operation.keep_s is None else max(0.0, operation.keep_s),
        max(0.0, operation.delay_s),
        operation.replay,
        payloads,
        new_name(),
    )
    return Call(CHANGE, words, lambda reply: _changed(ids, reply), texts)


def _changed(ids: Sequence[str], reply: list[Any]) -> list[Changed]:
    return [
        Changed(id, is_done=sign == 1, state=None if state < 0 else STATES[state])
        for id, sign, state in zip(ids, reply[::2], reply[1::2], strict=True)  # noqa: A001
    ]
