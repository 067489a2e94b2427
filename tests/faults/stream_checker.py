"""The checker of streams: looks at what handlers did and at what the server believes, and says what was broken.

Each function is one invariant and returns its violations in words; none is the only good answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from holdfast.types import Place
from tests.faults.checker import Fault
from tests.faults.report import Figures
from tests.faults.stream_books import NEVER as _NEVER
from tests.faults.stream_books import RUN_OUT_S, Books, Tenure
from tests.faults.stream_ledger import Fact, Handling, Name

COMMIT_S: Final = 1.5
"""What is finished is told to the server within so long, on a machine that has much else to do."""


HEARS_S: Final = 5.0
"""Who has lost a partition hears of it within so long, once it asks for more."""
WEATHER: Final = frozenset({"outage", "errors", "resets", "replies"})
"""What happens to servers and networks: a worker lives on, and what it has told is known."""


class Look(Struct, frozen=True):
    """What the server held to be finished, and then what was."""

    done: frozenset[Name]
    finished: frozenset[Name]


class StreamEvidence(Struct, kw_only=True):
    """Everything that is known after a run has come to rest."""

    sent: Mapping[Name, tuple[Place, int]]
    """Each message that the server has taken, in the order it was sent, with its partition and offset."""
    handlings: Sequence[Handling] = ()
    letters: Mapping[Name, int] = {}
    """How often each is in the inbox."""
    dead: Mapping[Name, int] = {}
    """How often each is in the DLQ."""
    done: frozenset[Name] = frozenset()
    """What the server holds to be finished in the end."""
    looks: Sequence[Look] = ()
    faults: Sequence[Fault] = ()
    keeps_order: bool = True
    """Whether the messages of a key are handled in order, whoever handles them."""
    has_positions: bool = True
    """Whether only what comes before the first unfinished message of a partition can be committed."""
    commit_s: float = COMMIT_S
    facts: Sequence[Fact] = ()
    """What workers had and said."""
    drained_s: Mapping[int, float] = {}
    """How long it took a worker to leave that was told to stop."""
    is_blocking: bool = True
    """Whether messages are retried in place, and not through topics."""


class Run(Struct, frozen=True):
    """One execution of a message, by its handler's own account."""

    start: Handling
    last: Handling | None
    """How it ended; None when it was cut off."""

    @property
    def has_ended(self) -> bool:
        """Whether it came to its end."""
        return self.last is not None and self.last.what == "end"


def runs_in(handlings: Sequence[Handling]) -> list[Run]:
    """All executions in the order in which they began; a process runs a message once at a time."""
    found: list[list[Handling | None]] = []
    under_way: dict[tuple[Name, int], list[Handling | None]] = {}
    for one in sorted(handlings, key=lambda one: one.at):
        if one.what == "start":
            under_way[one.name, one.pid] = run = [one, None]
            found.append(run)
        elif (begun := under_way.pop((one.name, one.pid), None)) is not None:
            begun[1] = one
    return [Run(start, last) for start, last in found if start is not None]


def check(evidence: StreamEvidence) -> list[str]:
    """Every violation of every invariant; what ran is printed where there are any."""
    found = [found for invariant in INVARIANTS for found in invariant(evidence)]
    for key in sorted({name[0] for name in evidence.sent}) if found else ():
        print(_runs_told(key, evidence))
    return found


def no_loss(evidence: StreamEvidence) -> list[str]:
    """Every message was handled to its end, or is in the inbox once and in the DLQ; nothing is there from nowhere."""
    ended = finished_by(evidence.handlings)
    found = []
    for name in evidence.sent:
        if name not in ended and name not in evidence.letters:
            found.append(f"lost: {name} was not handled, and is not in the inbox")
        if evidence.letters.get(name, 0) > 1:
            found.append(f"twice: {name} is in the inbox {evidence.letters[name]} times")
        if name in evidence.letters and name not in evidence.dead:
            found.append(f"no copy: {name} is in the inbox, and not in the DLQ")
    seen = {one.name for one in evidence.handlings} | evidence.letters.keys() | evidence.dead.keys()
    return found + [f"unexpected: nobody has sent {name}" for name in seen - evidence.sent.keys()]


def nothing_skipped(evidence: StreamEvidence) -> list[str]:
    """The server is told that a message is finished only when it is; and in the end of all of them."""
    early = {name for look in evidence.looks for name in look.done - look.finished}
    found = [f"committed too early: {name} was not finished" for name in sorted(early)]
    return found + [f"not committed: {name} is open in the end" for name in evidence.sent.keys() - evidence.done]


def order_of_keys(evidence: StreamEvidence) -> list[str]:
    """The messages of a key run one after the other: each after the end of the one before it.

    What was finished may run again, from any earlier message on; then in order, too.
    """
    if not evidence.keeps_order:
        return []
    found = []
    everyone = runs_by_name(evidence.handlings)
    follower = _followers(evidence)
    for key, runs in _by_key(evidence).items():
        broken = []
        given_up = {name for name in evidence.letters if name[0] == key}
        first = next(iter(follower[key]), None)
        if runs and runs[0].start.n != first:
            broken.append(f"order: {key} began with {runs[0].start.n}, not {first}")
        for run, following in pairwise(runs):
            before, after = run.start, following.start
            is_done_with = before.name in given_up or _has_ended(run, everyone[before.name], after.at)
            if after.n > before.n and follower[key].get(before.n) != after.n:
                broken.append(f"order: after {before.n} of {key} came {after.n}")
            elif after.n > before.n and not is_done_with:
                broken.append(f"order: {after.n} of {key} began before {before.n} had ended")
            elif _overlap(run, following) and not _is_hit(run, evidence) and not _is_hit(following, evidence):
                broken.append(f"order: {after.n} of {key} began while {before.n} ran")
        found += [*broken, _runs_told(key, evidence)] if broken else []
    return found


def explained_duplicates(evidence: StreamEvidence) -> list[str]:
    """A message runs again only if it failed or was handed back, or its worker could not tell of it in time.

    That is so where it was hit, or has lost the partition, while it waited for the server's answer; and where one
    before it was open, as Kafka cannot be told of it then. What the server has taken note of never runs again.
    """
    duplicates = _Duplicates(evidence)
    found = []
    for name, runs in runs_by_name(evidence.handlings).items():
        for run, following in pairwise(runs):
            is_open = run.last is not None and run.last.what in {"fail", "stop"}
            if not is_open and (why := duplicates.objection(run, following)):
                found.append(f"duplicate: {name} ran again in {following.start.pid} {why}")
    return found


INVARIANTS: Final = (no_loss, nothing_skipped, order_of_keys, explained_duplicates)


# ---------------------------------------------------------------- figures


def runs_by_name(handlings: Sequence[Handling]) -> dict[Name, list[Run]]:
    """The executions of each message, in the order in which they began."""
    runs: dict[Name, list[Run]] = defaultdict(list)
    for run in runs_in(handlings):
        runs[run.start.name].append(run)
    return runs


def finished_by(handlings: Sequence[Handling]) -> frozenset[Name]:
    """Messages whose handler came to its end."""
    return frozenset(one.name for one in handlings if one.what == "end")


def duplicates(evidence: StreamEvidence) -> int:
    """How many effects were done more than once: ends beyond each message's first."""
    ends = Counter(one.name for one in evidence.handlings if one.what == "end")
    return sum(n - 1 for n in ends.values())


def cut_off(evidence: StreamEvidence) -> int:
    """How many runs were begun and have no end: their process was killed."""
    return sum(run.last is None for run in runs_in(evidence.handlings))


def recoveries(evidence: StreamEvidence) -> Iterator[tuple[Name, float]]:
    """Each message that a fault cut off, and the seconds until it ran again."""
    for name, runs in runs_by_name(evidence.handlings).items():
        for run, following in pairwise(runs):
            if _overlap(run, following):
                hits = [
                    max(one.at, run.start.at)
                    for one in evidence.faults
                    if _is_of(one, run) and run.start.at <= one.until and one.at <= following.start.at
                ]
                if hits:
                    yield name, following.start.at - min(hits)


def figures(evidence: StreamEvidence) -> Figures:
    """What every finding has."""
    return Figures(
        acked=len(evidence.sent),
        completed=len(finished_by(evidence.handlings) & evidence.sent.keys()),
        dead=len(evidence.letters),
        lost=len(no_loss(evidence)),
        twice=duplicates(evidence),
        recoveries=[took_s for _, took_s in recoveries(evidence)],
    )


def everything(evidence: StreamEvidence) -> str:
    """Every run, and what workers had and said, for whoever has to find out why something ran again."""
    runs = [_runs_told(key, evidence) for key in sorted({name[0] for name in evidence.sent})]
    return "\n".join([*runs, *map(str, evidence.facts)])


def told(evidence: StreamEvidence, seconds: float) -> str:
    """What every finding says beside its figures."""
    twice = 10_000 * duplicates(evidence) / max(1, len(evidence.sent))
    order = f"order breaks {len(order_of_keys(evidence))}" if evidence.keeps_order else "no order promised"
    return (
        f"{len(runs_in(evidence.handlings)):,} runs, {order}, effects twice {twice:.1f} in 10,000, runs cut off "
        f"{cut_off(evidence)}, in {seconds:.1f} s"
    )


# ---------------------------------------------------------------- inside


def _followers(evidence: StreamEvidence) -> dict[str, dict[int, int | None]]:
    """Of each key, the number after each number, as they were sent."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for key, n in evidence.sent:
        numbers[key].append(n)
    return {key: dict(zip(some, [*some[1:], None], strict=True)) for key, some in numbers.items()}


def _by_key(evidence: StreamEvidence) -> dict[str, list[Run]]:
    """The executions of each key, without those of a process that was hit, and does what others do too.

    One that was frozen goes on with the next message of a key before it hears that the partition is another's by now,
    which may still be at an earlier one.
    """
    everyone = runs_by_name(evidence.handlings)
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in runs_in(evidence.handlings):
        others = [one for one in everyone[run.start.name] if one.start.pid != run.start.pid]
        # Where all of them were hit, as by an outage of the server, the first one counts.
        is_one_of_many = any(not _is_hit_before(one, evidence) or one.start.at < run.start.at for one in others)
        if not (is_one_of_many and _is_hit_before(run, evidence)):
            runs[run.start.key].append(run)
    return runs


def _has_ended(run: Run, others: Sequence[Run], by: float) -> bool:
    """Whether this run came to its end; or one of the others of its message did that began later, by this instant.

    The later one may be by a process that was hit, and has its partition back since, which `_by_key` leaves out.
    """
    return run.has_ended or any(
        one.last is not None and one.last.what == "end" and one.start.at > run.start.at and one.last.at <= by
        for one in others
    )


def _runs_told(key: str, evidence: StreamEvidence) -> str:
    """Every run of a key and every fault, so that a violation explains itself."""
    runs = [
        f"{run.start.n} in {run.start.pid} from {run.start.at:.3f}, "
        + ("no end" if run.last is None else f"{run.last.what} at {run.last.at:.3f}")
        for run in runs_in(evidence.handlings)
        if run.start.key == key
    ]
    faults = [f"{one.kind} of {one.pid} at {one.at:.3f}-{one.until:.3f}" for one in evidence.faults]
    return f"runs of {key}: {'; '.join(runs)}; faults: {', '.join(faults) or 'none'}"


def _overlap(run: Run, following: Run) -> bool:
    return run.last is None or run.last.at > following.start.at


def _is_hit(run: Run, evidence: StreamEvidence) -> bool:
    """Whether its process was hit while it ran, or before."""
    until = run.last.at if run.last is not None else _NEVER
    return any(_is_of(one, run) and one.at <= until for one in evidence.faults)


def _is_hit_before(run: Run, evidence: StreamEvidence) -> bool:
    return any(_is_of(one, run) and one.at <= run.start.at for one in evidence.faults)


def _is_of(fault: Fault, run: Run) -> bool:
    return fault.pid in {run.start.pid, run.start.parent}


class _Duplicates:
    """Judges second runs by what workers had and said; what hit a worker that lived on excuses nothing by itself."""

    def __init__(self, evidence: StreamEvidence) -> None:
        self._evidence = evidence
        self._workers = {one.pid for one in evidence.faults} | {one.pid for one in evidence.handlings}
        self._books = Books(evidence.facts, evidence.handlings, evidence.faults, has_positions=evidence.has_positions)
        self._of_place: dict[Place, dict[Name, int]] = defaultdict(dict)
        for name, (place, offset) in evidence.sent.items():
            self._of_place[place][name] = offset

    def objection(self, run: Run, following: Run) -> str:
        """Why the second one should not have been, in words; empty where it may."""
        evidence = self._evidence
        if not evidence.is_blocking and following.start.attempt > 1:
            return self._objection_to_copy(run, following)
        place, offset = evidence.sent.get(run.start.name, (("", 0), 0))
        worker, heir = self._worker_of(run), self._worker_of(following)
        tenure = self._books.tenure(worker, place, run.start.at)
        of_heir = self._books.tenure(heir, place, following.start.at)
        if self._knows_not(following, tenure, of_heir):
            return ""
        if run.has_ended and self._books.told_at(place, offset) <= following.start.at:
            return "though the server had taken note of its end"
        if run.has_ended and evidence.has_positions and evidence.facts and worker == heir and tenure is of_heir:
            return "while its partition was with the same worker"
        tellable_at = self._tellable_at(run, worker, tenure)
        if self._is_hit_by_then(run, following, tellable_at):
            return ""
        if run.has_ended and tellable_at == _NEVER and self._is_held_up(run, worker, tenure):
            return ""
        if run.has_ended and tenure.gave is None and tenure.until <= following.start.at:
            until, idle_s = tenure.until, evidence.commit_s
            if self._books.was_heard(worker, place, offset, tellable_at, until, idle_s):
                return ""
        return "without failure or fault"

    def _objection_to_copy(self, run: Run, following: Run) -> str:
        """Of a message in a retry topic, whose place is not known: there may be two of it where a reply was lost."""
        is_explained = _is_hit_before(following, self._evidence) or self._is_hit_by_then(run, following, _NEVER)
        return "" if is_explained else "without failure or fault"

    def _knows_not(self, following: Run, tenure: Tenure, of_heir: Tenure) -> bool:
        """Whether who runs it again was hit, and has not heard yet that the partition, or the message, is another's."""
        evidence, start = self._evidence, following.start
        hits = [one for one in evidence.faults if _is_of(one, following) and one.at <= start.at]
        if evidence.has_positions and evidence.facts:
            return bool(hits) and of_heir.since < tenure.since and of_heir.until <= start.at + HEARS_S
        return any(start.at <= one.until + evidence.commit_s for one in hits)

    def _is_hit_by_then(self, run: Run, following: Run, tellable_at: float) -> bool:
        """Whether its worker was hit before it ended, or before it could tell of its end."""
        for fault in self._evidence.faults:
            if _is_of(fault, run) and run.start.at <= fault.until and fault.at <= following.start.at:
                if not run.has_ended:
                    return True
                is_in_time = fault.at - self._evidence.commit_s <= tellable_at
                if is_in_time and (fault.kind not in WEATHER or not self._evidence.facts):
                    return True
        return False

    def _tellable_at(self, run: Run, worker: int, tenure: Tenure) -> float:
        """When the server could be told at the earliest that its message is finished; NEVER where it could not."""
        if run.last is None:
            return _NEVER
        evidence = self._evidence
        if not evidence.has_positions:
            return run.last.at
        return max(run.last.at, self._books.tellable_at(worker, tenure, self._before(run), evidence.letters))

    def _is_held_up(self, run: Run, worker: int, tenure: Tenure) -> bool:
        """Whether it is not the worker's fault that one before it is unfinished.

        It is open there; or it was never begun, as the worker had no time for what others have overtaken.
        """
        had_time = tenure.is_orderly and self._evidence.drained_s.get(worker, 0.0) < RUN_OUT_S
        return not had_time or self._books.is_held_up(worker, tenure, self._before(run))

    def _before(self, run: Run) -> dict[Name, int]:
        """The messages of its partition that come before it, with their offsets."""
        place, offset = self._evidence.sent.get(run.start.name, (("", 0), 0))
        return {name: at for name, at in self._of_place[place].items() if at < offset}

    def _worker_of(self, run: Run) -> int:
        """The worker that had it, which may have given it to another process."""
        return run.start.parent if run.start.parent in self._workers else run.start.pid
