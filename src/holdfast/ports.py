"""The protocols between layers, and the records that cross them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from holdfast.clock import ManualClock, SystemClock
from holdfast.outgoing import Headers, Key
from holdfast.types import (
    Attempt,
    Change,
    FailureType,
    Group,
    JobRecord,
    JobState,
    Message,
    NewJob,
    Notes,
    Outgoing,
    Place,
)

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    """Time, as every guard and loop is handed it."""

    def now(self) -> float:
        """Wall time, in seconds since 1970. For people and HTTP dates; it may jump."""

    def monotonic(self) -> float:
        """Seconds from some fixed instant; never goes back. For every length and every deadline."""

    def sleep(self, seconds: float, /) -> None:
        """Block the calling thread for so long."""

    async def asleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A time limit around awaits; None is none."""

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Block until the event is set, or for at most so many seconds; say whether it is set."""


if TYPE_CHECKING:
    _contracts: tuple[type[Clock], ...] = (SystemClock, ManualClock)


# ---------------------------------------------------------------- what a store is told


class Claim(Struct, frozen=True, kw_only=True):
    """A worker's wish for work, by priority (higher first), then due time (earlier first), then age."""

    worker: str
    """Its id. A worker that has not sent a heartbeat, or was given up, gets nothing."""
    token: bytes
    """With 16 random bytes, made anew for each claim (`clock.new_token`): the proof of the lease on all it brings.

    It is above those of the worker's claims before it. One below a token that brought a job comes late, when nobody
    waits for its answer any more: it brings what is still held under it, and no more. Were it to claim again, what was
    said of its first lease, and comes late as well, would be taken for the second one's. Only tokens that begin alike
    are compared."""
    limit: int
    queues: tuple[str, ...] | None = None
    """None is all of them."""
    caps: Mapping[str, int] = {}
    """At most so many of the jobs with this gate; `queue:<name>` and `task:<name>` are gates of every job. A gate that
    is not named here has no cap; with a cap of 0 its jobs are passed over, at no cost however many they are."""
    per_lane: int | None = None
    """At most so many of the jobs of one lane (queue, task and gates), whatever the caps say; None is no bound."""
    is_alone: bool = False
    """Whether the worker will run what it gets by itself in its process; then its death is the job's own."""


class Settlement(Struct, frozen=True, kw_only=True):
    """What becomes of a claimed job: a guarded change, by (id, running, token)."""

    id: str
    token: bytes
    change: Change
    """One of `lifecycle.SETTLING`."""
    delay_s: float = 0.0
    """For retry, park and release: due again after so long. A release without a delay keeps its place in the queue."""
    keep_s: float | None = None
    """For the changes that end it: prune the record after so long; None keeps it. While its idempotency key holds, it
    is kept in any case."""
    result: bytes | None = None
    reason: str = ""
    elapsed_s: float = 0.0
    """The job's new sum of run time and computed delays since its first start, or since its replay."""
    started_at: float | None = None
    attempt: Attempt | None = None
    """Remembered in the job's history. A completed attempt needs none: the job itself says all about it, and a store
    adds it to what `get` answers. An attempt with a failure_type is the job's latest failure from now on."""
    is_refunded: bool = False
    """The attempt is not counted, and the next one has its number: for park and release."""
    is_suspect: bool = False
    """For release and retry: it may have killed its worker, or has, so it is to be run by itself next."""


class ValueChange(Struct, frozen=True):
    """Compare and set: takes effect only if the value's version is still the expected one (0: there is none)."""

    key: str
    expected: int
    data: bytes | None
    """None removes it."""


class Count(Struct, frozen=True):
    """So many more of something in one minute, or in all."""

    minute: int
    """Minutes since 1970 on the store's clock; 0 is a total since the store was made, which is never pruned."""
    task: str
    name: str
    """From a closed set, such as "completed"."""
    n: int
    """Less than 0 takes back what was counted before."""


class Exchange(Struct, frozen=True, kw_only=True):
    """The hot call: settle these, change these values, add these counts, and claim up to so many; one transaction."""

    settlements: Sequence[Settlement] = ()
    changes: Sequence[ValueChange] = ()
    counts: Sequence[Count] = ()
    counted: tuple[str, int] | None = None
    """The name of these counts: whose they are, and a number that rises from one batch to the next. A store adds them
    only if the number is above all that it has had of this worker, so they may be sent again. None: whenever sent."""
    claim: Claim | None = None
    seen: int = 0
    """The newest version of a value that the caller knows; newer ones come back, and with 0 all."""


class Note(Struct, frozen=True, kw_only=True):
    """What a running job wants remembered; guarded as a settlement is. Fields that are None stay as they are."""

    id: str
    token: bytes
    checkpoint: bytes | None = None
    step: tuple[str, bytes] | None = None
    """A finished step's name and what it returned."""
    progress: float | None = None
    blame: str | None = None
    """Why its worker is about to die for it: with it, an orphan is taken as having run alone."""


class Operation(Struct, frozen=True, kw_only=True):
    """A change by a person: cancel, replay or remove, each job by itself and guarded by its state."""

    change: Change
    ids: Sequence[str]
    reason: str = ""
    payload: bytes | None = None
    """For replay: run it with this payload; the original one is kept beside it."""
    payloads: Mapping[str, bytes] = {}
    """The same for each id by itself."""
    replay: str = ""
    """For replay: no letter goes twice under one replay id."""
    delay_s: float = 0.0
    keep_s: float | None = None


class Query(Struct, frozen=True, kw_only=True):
    """Which jobs; fields that are empty do not filter. The order is newest first, by when they were enqueued.

    A page is quick however many jobs there are. It is full where an index has the wanted ones: all jobs; those of one
    state, task, queue, tenant, user or project, unless hundreds of others lie between each two; and dead letters by any
    of task, queue, tenant, failure type and fingerprint. For other combinations, times and a text some thousand jobs
    are looked at: whoever walks must follow the cursor (see `Page`).
    """

    states: tuple[JobState, ...] = ()
    task: str = ""
    queue: str = ""
    tenant: str | None = None
    user: str = ""
    project: str = ""
    failure_type: FailureType | None = None
    fingerprint: str = ""
    since: float | None = None
    """For jobs that have ended, when they ended (≥); for the others, when they were enqueued."""
    until: float | None = None
    """The same, <."""
    text: str = ""
    """Part of the id, task, error name, message, reason, payload or idempotency key; case is ignored for a-z."""
    limit: int = 50
    cursor: str = ""
    """Where the last page ended."""


# ---------------------------------------------------------------- what a store answers


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a store can do, asked by the runtime and the conformance suite alike."""

    name: str
    location: str
    """Where it is, for people: an absolute path, or a URL without its password."""
    is_durable: bool
    """Whether what it has said yes to survives the death of every process, and of the machine: a power cut too."""
    is_shared: bool
    """Whether other processes can open it."""
    has_transactions: bool
    """Whether `job.transaction()` works."""
    takes_connections: bool = False
    """Whether new jobs can be written through a connection of the caller's, inside of its transaction."""
    version: str = ""
    """The engine and its version, for people."""
    schema: str = ""
    """Where in it the jobs are, and of which version its tables or keys are, for people."""
    durability: str = ""
    """What survives what, in one sentence for people."""
    warnings: tuple[str, ...] = ()
    """What people should know, or mend; one line each."""


class Enqueued(Struct, frozen=True):
    """What became of a new job."""

    id: str
    """Its own, or that of the job which had its idempotency key already."""
    is_new: bool = True
    is_conflict: bool = False
    """The idempotency key is taken by a job with another payload: nothing was stored."""
    state: JobState = JobState.QUEUED
    """Where that job stands, when it was there already or came with its end."""


class Delivery(Struct, kw_only=True):
    """A claimed job, with all that is needed to run and to judge it."""

    id: str
    task: str
    queue: str
    payload: bytes
    token: bytes
    attempt: int
    """The number of this attempt, from 1."""
    retries: int = 0
    """Counted attempts before this one since the job was enqueued or last replayed."""
    elapsed_s: float = 0.0
    created_at: float = 0.0
    due_at: float = 0.0
    tenant: str = ""
    user: str = ""
    project: str = ""
    trace: str | None = None
    notes: Notes | None = None
    """What earlier attempts had remembered: the latest checkpoint, and the finished steps."""
    is_suspect: bool = False
    """To be run by itself."""
    is_alone: bool = False
    """For an orphan: it was run by itself, so the death is its own."""
    blame: str = ""
    """For an orphan: what its worker said before it died."""
    worker: str = ""
    """For an orphan: who died."""
    orphaned: int = 0
    """How often its worker has died before it was settled, since it last completed an attempt or was replayed."""
    claimed_at: float = 0.0


class Value(Struct, frozen=True):
    """A small shared value. Versions rise over all keys of a store, so the newest one says what has been seen."""

    key: str
    version: int
    data: bytes | None
    """None: it was removed."""


class Exchanged(Struct, frozen=True, kw_only=True):
    """The answer to an exchange."""

    now: float
    """The store's clock."""
    settled: Sequence[bool] = ()
    """In order: whether each settlement took effect; False means that the lease was lost and nothing changed."""
    changed: Sequence[bool] = ()
    deliveries: Sequence[Delivery] = ()
    values: Sequence[Value] = ()
    """Every value with a version above `seen`, after the changes, oldest version first."""
    next_due_s: float | None = None
    """With a claim that brought less than its limit: seconds until a delayed job may be due, if the store knows."""
    newest: int = 0
    """The newest version of all values, before the changes. One below `seen` says that the store was set back, by a
    failover or a backup: versions that were seen come again, and what is known of values is to be read anew."""
    era: int = 0
    """The same holds where this is another number than last time: another server may have answered, or one that has
    lost its last moments, and versions may be beyond `seen` again."""


class PartitionReport(Struct, frozen=True, kw_only=True):
    """How one partition of a stream is doing, as its consumer sees it."""

    topic: str
    partition: int
    position: int | None = None
    """Everything before this offset is finished."""
    lag: int | None = None
    """Messages that are not finished; None while nobody knows."""
    in_flight: int = 0
    """Messages that were begun and are not finished: running, waiting for a retry, or on their way to the DLQ."""
    buffered: int = 0
    """Messages that were received and not begun."""
    paused: str = ""
    """Why no more is received of it; empty while it is."""
    rest_s: float = 0.0
    """For so long its first message may wait until it is due, in a retry topic."""
    stuck_id: str = ""
    """The first unfinished message."""
    stuck_key: str = ""
    stuck_s: float = 0.0
    """For how long nothing before it has been unfinished."""


class StreamReport(Struct, frozen=True, kw_only=True):
    """How a stream is doing in one worker."""

    name: str
    group: str
    location: str
    """Where it comes from, for people: a URL without its password."""
    topic: str
    partitions: tuple[PartitionReport, ...] = ()
    in_flight: int = 0
    last_error: str = ""
    last_error_at: float = 0.0
    """On the store's clock; 0 without one."""
    away: str = ""
    """Why the server cannot be reached; empty while it can."""


class ConsumerReport(Struct, frozen=True, kw_only=True):
    """How one consumer of a ring is doing. Counts are exact, of elements, and since the ring began."""

    name: str
    after: tuple[str, ...] = ()
    """Those whose finished elements it gets; empty where it gets all that is produced."""
    processed: int = 0
    """Elements that it has finished: handled, or given up."""
    lag: int = 0
    """Elements that were produced and that it has not finished."""
    batches: int = 0
    """Batches that it has finished."""
    batch: int = 0
    """The number of the last batch that it began; it goes on after a restart with a checkpoint."""
    rate_per_s: float = 0.0
    """Elements that it has finished lately, a second."""
    batch_s: float = 0.0
    """Seconds that it has spent on its batches, retries and their waits included, in all."""
    slowest_s: float = 0.0
    """Of these, on the longest one."""
    batch_le: tuple[int, ...] = ()
    """How many batches took at most each of `BATCH_BOUNDS_S`, and more than the one before; the last is the rest."""
    errors: int = 0
    """Calls of it that have raised."""
    retries: int = 0
    """Calls that were made again."""
    given_up: int = 0
    """Elements that were given up."""
    dead_letters: int = 0
    """Letters that were written for them."""
    running_s: float = 0.0
    """For how long it has been at its batch; 0 while it waits for elements."""
    doing: str = ""
    """What it is doing, where that is not its work: waiting for a retry, or for a place that takes no dead letters."""
    is_stuck: bool = False
    """Whether it has been at one batch for longer than the ring's `stuck_after`."""
    offset: int | None = None
    """With a checkpoint: all before this offset is saved as finished."""
    checkpoint_error: str = ""
    """Why the last checkpoint was not saved; empty when it was."""


class RingReport(Struct, frozen=True, kw_only=True):
    """How a ring is doing in one process."""

    name: str
    size: int
    used: int = 0
    """Elements that some consumer has not finished; what is in the ring."""
    produced: int = 0
    """Elements that were taken, in all."""
    rate_per_s: float = 0.0
    """Elements that were taken lately, a second."""
    blocked: int = 0
    """Producers that wait for room."""
    memory_bytes: int = 0
    """What the process has in memory; 0 where nobody knows."""
    is_closing: bool = False
    consumers: tuple[ConsumerReport, ...] = ()
    """In the order in which they were registered."""

    @property
    def utilisation(self) -> float:
        """How full it is, from 0 to 1; a list that is longer than the ring can make it more."""
        return self.used / self.size


BATCH_BOUNDS_S: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0)
"""Bounds of the batch times in a ConsumerReport, in seconds."""


class DomainReport(Struct, frozen=True, kw_only=True):
    """How one domain of a crawl is doing, as the process that has it sees it."""

    domain: str
    in_flight: int = 0
    fetched: int = 0
    """Answers that were good."""
    failed: int = 0
    """Answers that were not, and requests without one."""
    refused: int = 0
    """Answers that asked to slow down."""
    latency_s: float | None = None
    """How long an answer takes, lately."""
    interval_s: float = 0.0
    """What lies between two requests, by the slowest of its clocks."""
    held_s: float = 0.0
    """For so long nothing is asked of it."""
    why: str = ""
    """Why it is held; empty while it is not."""


class CrawlReport(Struct, frozen=True, kw_only=True):
    """How a crawl is doing in one process; counts are those of this process."""

    name: str
    in_flight: int = 0
    fetched: int = 0
    """Pages that were done."""
    failed: int = 0
    """Attempts that failed."""
    skipped: int = 0
    """Pages that robots.txt, or a handler, has left out."""
    items: int = 0
    found: int = 0
    """URLs that were new."""
    bytes: int = 0
    rate_per_s: float = 0.0
    """Pages that were done lately, a second."""
    output: str = ""
    """Where items are written to, by this process; empty where nowhere."""
    output_error: str = ""
    """Why nothing can be written there now; empty while it can."""
    held: int = 0
    """Domains that are held now."""
    domains: tuple[DomainReport, ...] = ()
    """Of this process: those that are held, then the busiest; a few dozen at most."""


class WorkerRecord(Struct, frozen=True, kw_only=True):
    """A worker, as its heartbeats describe it."""

    id: str
    lease_s: float
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    """Empty is all of them."""
    running: int = 0
    started_at: float = 0.0
    seen_at: float = 0.0
    """When the store heard of it last; set by the store."""
    counts: Mapping[str, int] = {}
    streams: tuple[StreamReport, ...] = ()
    rings: tuple[RingReport, ...] = ()
    crawls: tuple[CrawlReport, ...] = ()
    process: str = ""
    """Which process it is, for others of the same machine: see `runtime/this_process.py`."""


class Beat(Struct, frozen=True):
    """The answer to a heartbeat."""

    is_alive: bool
    """False: the lease was lost, the jobs belong to others, stop them."""
    cancelled: tuple[str, ...] = ()
    """Jobs of this worker that somebody cancelled since the last heartbeat, or that ended elsewhere."""
    held: Mapping[bytes, int] = {}
    """How many jobs run under each token that brought it some. One that it does not know of came by a request that was
    done late, or was settled before a failover: nobody else would ever run those jobs."""


class Changed(Struct, frozen=True):
    """What became of one id of an Operation."""

    id: str
    is_done: bool
    state: JobState | None
    """The state it is in now; None where there is no such job (any more)."""


class Page(Struct, frozen=True):
    """Some of the jobs that a query asked for."""

    items: Sequence[JobRecord]
    cursor: str = ""
    """Give it to the next query; empty when there are no more. A page may be short of its limit, or empty, and still
    have a cursor: a search looks at a bounded number of jobs at a time, and the next page goes on where it stopped."""


class Tally(Struct, frozen=True):
    """How many jobs there are of one kind."""

    queue: str
    task: str
    state: JobState
    n: int


class Stats(Struct, frozen=True, kw_only=True):
    """What there is, counted in one consistent look."""

    now: float
    tallies: Sequence[Tally] = ()
    workers: Sequence[WorkerRecord] = ()
    counts: Sequence[Count] = ()
    """Of the minutes from `since_minute` on, oldest first; totals are not among them."""
    totals: Sequence[Count] = ()
    """What was counted since the store was made, whatever minutes were asked for: those with minute 0."""
    oldest_ready_at: Mapping[str, float] = {}
    """By queue: since when its oldest job that could run has been due."""
    troubles: tuple[str, ...] | None = None
    """What keeps the engine from its own upkeep now, one line each for people; None where it has none."""


class Transaction(Protocol):
    """Writes of a running job into the store's own database; leaving the block completes the job with them."""

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Sequence[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Run one statement for each row."""


class Store(Protocol):
    """What remembers jobs. Every verb is safe to send twice, and every change says whether it took effect.

    Instants and leases are on the store's own clock. A store may be used from several threads and event loops.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; asking opens it, and raises StoreError if it cannot be opened."""

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        """Remember new jobs, all or none; durable on return.

        A job whose id is known already is not new again; but one that comes with its end (`NewJob.end`) and is known
        as not ended yet, ends so: whoever runs it loses the lease, and is told with the next heartbeat. What has ended
        stays as it is, unless it was handled again since and is buried with an attempt that is new to the record (see
        `End`): then it is a dead letter from now on, with all of its history. A batch is as if its jobs came one after
        the other. An idempotency key holds within (tenant, task) until `key_window_s` after its job has ended.

        With a connection of the caller's own, an async one, they are written inside of its transaction: they are there
        if and when it commits. ConfigError where the store does not take it, and for a job that comes with its end:
        until that transaction ended, it would hold up the worker that runs the job.
        """

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        """The same for sync callers, on their own thread; a connection is a sync one."""

    async def exchange(self, exchange: Exchange) -> Exchanged:
        """Settle, change values, count and claim, in one transaction and in this order.

        A settlement that has taken effect already answers True again and changes nothing; a claim whose token was used
        already answers with what is still running under it, and claims nothing, and so does one below a token that has
        brought its worker a job. A claim that is carried out late, after others that brought nothing, may bring jobs
        whose answer nobody waits for: its worker learns of them by its next heartbeat.
        """

    async def heartbeat(self, worker: WorkerRecord) -> Beat:
        """Register a worker, or renew its lease for `lease_s`; never waits behind exchanges.

        A lease of 0 s takes leave: what the worker still holds is orphaned at once. An id that was given up, or took
        leave, does not come back: it is not alive, and its next life needs a new id.
        """

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        """Give up workers whose lease is over, and hand their jobs to this one under a new token, to be judged.

        The token is above those of its reclaims before. It does not begin as those of claims do, which may be on their
        way at the same time.

        Where its own lease is over it gives nobody up: the store has been away from all, and who lives says so with the
        next heartbeat. Nothing is counted or released here. If this worker dies too, they are orphans still, as they
        were.
        """

    async def note(self, note: Note) -> bool:
        """Remember a checkpoint, a step or progress of a running job; durable on return. False: the lease is lost."""

    def transaction(
        self, settlement: Settlement, limit_s: float, counts: Sequence[Count] = ()
    ) -> AbstractContextManager[Transaction]:
        """Writes that commit together with this settlement and these counts when the block is left, or not at all.

        The write lock is taken at the first write and held for at most limit_s; then it is rolled back, and StoreError
        is raised. So is LeaseLost, when the settlement does not take effect.
        """

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """The whole records, in the order asked for, with every attempt."""

    async def find(self, query: Query) -> Page:
        """Records without attempts, newest first; some of them, with a cursor where there may be more."""

    async def groups(self, query: Query) -> list[Group]:
        """The dead letters of a query (its states, limit and cursor do not matter) by fingerprint, largest first.

        They are counted as they come and go, by task, queue, tenant, failure type and fingerprint, so this is quick
        however many there are. With since or until those of that time are counted one by one, if others are outside of
        it. With a text, a user or a project only the newest letters are looked at, 2,000 at least.
        """

    async def stats(self, since_minute: int | None = None) -> Stats:
        """Everything counted, totals included; with the minutes' counts from that minute on."""

    async def change(self, operation: Operation) -> list[Changed]:
        """Cancel, replay or remove, in the order of the ids; each says what became of it."""

    async def prune(self, limit: int) -> int:
        """Delete up to so many records whose time to be kept is over; say how many.

        What nobody needs any more goes with them: the counts of old minutes, values removed long ago, workers gone and
        the numbers of what they counted.
        """

    async def wait(self, timeout_s: float) -> None:
        """Return when something may have changed for a worker, or after so long."""

    async def close(self) -> None:
        """Give everything back; what was promised is durable already."""


# ---------------------------------------------------------------- streams


class SourceCapabilities(Struct, frozen=True, kw_only=True):
    """What a source can do, asked by the runtime and the conformance suite alike."""

    name: str
    location: str
    """Where it is, for people: a URL without its password."""
    has_positions: bool
    """Whether progress is one position a partition, so that a message which is not finished holds back all after it;
    otherwise each message is finished by itself."""
    keeps_order: str
    """In which consumers the messages of one key keep their order, in words for people."""
    has_transactions: bool = False
    """Whether `transact` works."""
    warnings: tuple[str, ...] = ()
    """What people should know, or mend; one line each."""


class Progress(Struct, frozen=True, kw_only=True):
    """How far one partition is."""

    position: int
    """Every message before this offset is finished."""
    finished: Sequence[int] = ()
    """The offsets that were finished since the last progress that was committed, in no order."""
    retries: Mapping[int, int] = {}
    """Of messages that are not finished: how many counted attempts there were, where there were any. It comes back
    as `Message.retries` to whoever has the partition next."""


class Lag(Struct, frozen=True, kw_only=True):
    """How far a group is behind in one partition."""

    topic: str
    partition: int
    lag: int
    """Messages that are not finished: those not read yet, and those read and pending."""
    position: int | None = None
    """None where nothing was ever committed."""
    end: int = 0
    """The offset that the next message will have, or has had last in a Redis stream."""


class Owner(Protocol):
    """Who is told which partitions are its own. All of it is called on the event loop that opened the source."""

    def assigned(self, positions: Mapping[Place, int]) -> None:
        """These are ours from now on; their messages come from these offsets on."""

    async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
        """These go to somebody else. Finish or stop what is in flight, and answer how far it came.

        The source waits for it within its limits, then commits the answer. What is finished may be committed meanwhile,
        so that an answer which comes too late repeats little; nothing of these is committed afterwards.
        """

    def lost(self, places: Collection[Place]) -> None:
        """These are somebody else's already: stop what is in flight; nothing of it can be committed."""

    def away(self, why: str) -> None:
        """The server cannot be reached, or refuses us, in words; empty when it works again."""


class Outputs(Protocol):
    """What a handler sends on. A handler gets one by a parameter with this annotation.

    Nothing goes out before the handler has returned, and nothing of it when it has raised. Its message is finished only
    when all of it is written; with `transactional=True` both happen together, or neither.
    """

    def send(self, topic: str, value: Any, key: Key = None, headers: Headers = None) -> None:
        """One more message: bytes as they are, text as UTF-8, anything else as JSON."""


class Source(Protocol):
    """What carries messages to one consumer group. Used from one event loop.

    Errors: SourceAway while the server cannot be reached or is about to be reachable again, so that the same call may
    be made again; SourceError when it cannot work as it is, until somebody mends a setting or a right; NotSent where it
    is a message that the server will never take, such as one that is too large. Nothing is committed but what
    `commit`, `transact` or `Owner.revoked` say.
    """

    @property
    def capabilities(self) -> SourceCapabilities:
        """What it can do."""

    async def open(self, topic: str, ours: Sequence[str], owner: Owner) -> None:
        """Join the group, for a topic and for those of our own that stand beside it.

        Those are made where they are missing, each with one partition; a topic that does not exist is waited for.
        """

    async def ensure(self, topics: Sequence[str], like: str) -> None:
        """Make the topics that are missing, with as many partitions as this one has."""

    async def receive(self, limit: int, wait_s: float) -> Sequence[Message]:
        """Up to so many messages, those of a partition in its order; waits so long for the first, and for no other.

        While nobody asks, the source keeps its place in the group by itself.
        """

    def pause(self, places: Collection[Place]) -> None:
        """Bring no more of these until they are resumed; what was received already is not brought again."""

    def resume(self, places: Collection[Place]) -> None:
        """Go on with these, after the last message that was received."""

    async def commit(self, progress: Mapping[Place, Progress]) -> None:
        """Durably say how far we are; progress of a partition that is not ours any more is passed over."""

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Write messages, in order; durable on return. After an error some may have been written: send all again."""

    async def transact(self, messages: Sequence[Outgoing], progress: Mapping[Place, Progress]) -> None:
        """Write messages and commit progress, all or nothing; LeaseLost when the partition is not ours any more.

        After SourceAway it was aborted, or will be: the same may be sent again, and only one of them is seen.
        """

    async def lags(self, topics: Sequence[str]) -> list[Lag]:
        """How far the group is behind, whoever is in it; works without `open`."""

    def read(self, topic: str) -> AsyncIterator[Sequence[Message]]:
        """All messages of a topic as of now, from its beginning; needs no group and changes nothing.

        A topic that does not exist has none.
        """

    async def close(self) -> None:
        """Leave the group and give everything back; what was sent is flushed."""
