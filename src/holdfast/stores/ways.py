"""What each settling change makes of a job's row: the same in every store with rows."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from holdfast.policy.lifecycle import LIFECYCLE
from holdfast.types import Change

GIVEN_UP: Final = {"failed": 1, "dead_letter": 2, "cancelled": 3}
"""What `given_up` says of a job in these states; the index of them is not looked at for any other job."""

REFUNDABLE: Final = frozenset({Change.PARK, Change.RELEASE})
"""Changes after which the attempt may be uncounted."""
SUSPECTING: Final = frozenset({Change.RETRY, Change.RELEASE})
"""Changes after which the job may be a suspect."""


class Way(Struct, frozen=True):
    """What a change does to a row."""

    number: int
    """How the row says that it was this one; never renumber."""
    state: str
    is_end: bool


def _way(number: int, change: Change) -> Way:
    state = LIFECYCLE[change].after
    assert state is not None  # noqa: S101 - no settlement deletes the record
    return Way(number, state.value, state.is_terminal)


WAYS: Final = {
    change: _way(number, change)
    for number, change in enumerate(
        (
            Change.COMPLETE,
            Change.RETRY,
            Change.PARK,
            Change.RELEASE,
            Change.BURY,
            Change.FAIL,
            Change.DISCARD,
        ),
        start=1,
    )
}
