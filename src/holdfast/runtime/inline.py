"""A job's context without a job: for tasks that are called directly."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from holdfast.clock import new_id
from holdfast.errors import StoreError
from holdfast.ports import Delivery, Note, Transaction

if TYPE_CHECKING:
    from holdfast.runtime.context import Desk


class InlineDesk:
    """Remembers nothing beyond the call: checkpoints and steps hold within it."""

    def note(self, note: Note) -> bool:
        """There is nobody to lose the job to."""
        del note
        return True

    async def anote(self, note: Note) -> bool:
        """The same."""
        del note
        return True

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A plain call completes no job, so it has none."""
        raise StoreError("job.transaction() needs a job: enqueue the task, instead of calling it")


def inline_delivery(task: str) -> Delivery:
    """A first attempt of nothing stored."""
    return Delivery(id=new_id(), task=task, queue="", payload=b"{}", token=b"", attempt=1)


if TYPE_CHECKING:
    _contract: type[Desk] = InlineDesk
