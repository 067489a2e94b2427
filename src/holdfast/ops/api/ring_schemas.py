"""Rings as the server tells of them."""

from __future__ import annotations

from pydantic import Field

from holdfast.ops.api.schemas import Answer
from holdfast.runtime.rings import ConsumerState


class ConsumerAnswer(Answer):
    """A consumer of a ring in one process; counts are of elements, and since the ring began."""

    name: str
    after: list[str] = Field(description="Whose finished elements it gets; empty where it gets all that is produced.")
    state: ConsumerState = Field(description="waiting: for what `doing` says; stuck: at one batch for too long.")
    doing: str = Field(description="What it waits for, where it is not at work; empty otherwise.")
    running_s: float = Field(description="For how long it has been at its batch; 0 while it waits for elements.")
    lag: int = Field(description="Elements that were produced and that it has not finished.")
    processed: int = Field(description="Elements that it has finished: handled, or given up.")
    rate_per_s: float = Field(description="Elements that it has finished lately, a second.")
    batches: int
    batch: int = Field(description="The number of the last batch that it began.")
    batch_s: float = Field(description="Seconds that it has spent on its batches, in all.")
    mean_s: float | None = Field(description="Seconds a batch, on the average; null before the first.")
    slowest_s: float
    errors: int = Field(description="Calls of it that have raised.")
    retries: int = Field(description="Calls that were made again.")
    given_up: int = Field(description="Elements that were given up.")
    dead_letters: int = Field(description="Letters that were written for them by this process.")
    in_inbox: int = Field(description="Letters of it that are in the inbox now; their task is ring/consumer.")
    offset: str | None = Field(description="With a checkpoint, as text: all before it is saved as finished.")
    checkpoint_error: str = Field(description="Why the last checkpoint was not saved; empty when it was.")


class RingAnswer(Answer):
    """A ring in one process, as of its last heartbeat."""

    name: str
    worker: str
    host: str
    pid: int
    seen_at: float
    size: int = Field(description="Elements that it has room for.")
    used: int = Field(description="Elements that some consumer has not finished.")
    utilisation: float = Field(description="used / size.")
    produced: int = Field(description="Elements that were taken, in all.")
    rate_per_s: float = Field(description="Elements that were taken lately, a second.")
    blocked: int = Field(description="Producers that wait for room.")
    memory_bytes: int = Field(description="What the process has in memory; 0 where nobody knows.")
    is_closing: bool
    consumers: list[ConsumerAnswer] = Field(description="In the order in which they were registered.")


class RingList(Answer):
    """Every ring, by name and process."""

    items: list[RingAnswer]
