"""The calls that reached the memory store in a simulation, made again on another store: each answer must be the same.

`python -m tests.simulation.schedule --seeds 0-99 --url sqlite:///again-{}.db` has a store for each seed. They are as
they are shipped but for their clocks: those stand at the instant of the simulation at which each call arrived, late and
doubled ones included.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, json, structs

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.ports import Exchange, Exchanged, Page, Query, Store
from holdfast.types import JobState
from holdfast.wiring import open_store
from tests.simulation.parts import EPOCH
from tests.simulation.planted import _in_place_of
from tests.simulation.seeds import _quiet, _range_of
from tests.simulation.wire import _driven
from tests.simulation.world import World

VERBS: Final = "enqueue exchange heartbeat reclaim note get find groups stats change prune".split()
"""Everything that a store is asked on its way through a simulation, but for `wait`, which tells nobody anything."""
LOOK_EVERY: Final = 100
"""After so many calls all that is in the store is looked at."""
NEAR_S: Final = 0.0001
"""Instants may be so far apart: a store may keep every two of its own a little apart."""
TICK_S: Final = 1e-6
_CLOCK: Final = SystemClock()
_ALL: Final = 1_000_000


class Call(Struct, frozen=True):
    """One call, and what came of it."""

    at: float
    """On the store's clock."""
    verb: str
    arguments: tuple[Any, ...]
    answer: Any
    """Or the error; of those the kinds are compared."""
    is_looking: bool = False
    """Whether it was a claim that looked for jobs; one that is refused, or sent again, need not say what is due."""


class Recorded(World):
    """A simulation whose calls are written down as they reach the store."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.calls: list[Call] = []
        self._asks: dict[str, Callable[..., Awaitable[Any]]] = {verb: getattr(self.store, verb) for verb in VERBS}
        self._looked_at = 0
        self._last_at = 0.0
        self.store._now = self._tick  # type: ignore[method-assign]
        for verb in VERBS:
            setattr(self.store, verb, self._noted(verb))

    def look_at_all(self) -> None:
        """As the last calls: what everything has come to."""
        _driven(self._look())

    def _tick(self) -> float:
        """The store's clock: it never stands still, as real ones do not, so jobs of one operation stay in order."""
        self._last_at = self._next_at()
        return self._last_at

    def _next_at(self) -> float:
        return max(self.clock.now(), self._last_at + TICK_S)

    def _noted(self, verb: str) -> Callable[..., Awaitable[Any]]:
        async def noted(*arguments: Any) -> Any:
            answer = await self._ask(verb, arguments)
            if len(self.calls) - self._looked_at >= LOOK_EVERY:
                await self._look()
            if isinstance(answer, HoldfastError):
                raise answer
            return answer

        return noted

    async def _ask(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        is_looking = verb == "exchange" and self._is_looking(arguments[0])
        at, told = self._next_at(), deepcopy(arguments)  # before anybody changes a list of theirs
        answer = await _answer_of(self._asks[verb](*arguments))
        self.calls.append(Call(at, verb, told, deepcopy(answer), is_looking))
        return answer

    def _is_looking(self, exchange: Exchange) -> bool:
        """Whether it is a claim of a worker that is known, under a new token."""
        claim = exchange.claim
        worker = self.store._workers.get(claim.worker) if claim is not None else None
        return claim is not None and worker is not None and not worker.has_used(claim.token)

    async def _look(self) -> None:
        ids = [job.new.id for job in self.store._jobs.newest_first()]
        questions: list[tuple[str, Any]] = [
            ("get", ids),
            ("stats", int(EPOCH // 60)),
            ("groups", Query()),
            ("exchange", Exchange()),
            ("find", Query(limit=_ALL)),
            ("find", Query(states=(JobState.DEAD_LETTER,), limit=_ALL)),
        ]
        for verb, what in questions:
            await self._ask(verb, (what,))
        self._looked_at = len(self.calls)


async def _answer_of(asked: Awaitable[Any]) -> Any:
    """The answer, or the error."""
    try:
        return await asked
    except HoldfastError as error:
        return error


# ---------------------------------------------------------------- another store


@contextmanager
def clocks_in_hand() -> Iterator[None]:
    """Every store's own clock stands at 0, so that its offset is the time itself."""
    with ExitStack() as stack:
        for one in (_sqlite_clock, _postgres_clock, _redis_clock):
            stack.enter_context(one())
        yield


@contextmanager
def _sqlite_clock() -> Iterator[None]:
    from holdfast.stores.sqlite.clock import StoreClock

    with _in_place_of(StoreClock, "now", lambda self: self.offset_s):
        yield


@contextmanager
def _postgres_clock() -> Iterator[None]:
    from holdfast.stores.postgres.db import Db

    run = Db.run

    def run_then(self: Db, sql: str, **values: Any) -> Any:
        return run(self, sql.replace("extract(epoch FROM clock_timestamp())::float8 + ", ""), **values)

    with _in_place_of(Db, "run", run_then):
        yield


@contextmanager
def _redis_clock() -> Iterator[None]:
    from holdfast.stores.redis import scripts

    line = b"local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000 + offset_s\n"
    shipped = {one: (one.text, one.sha) for one in vars(scripts).values() if isinstance(one, scripts.Script)}
    try:
        for one, (text, _) in list(shipped.items()):
            assert text.count(line) == 1
            _rewrite(one, text.replace(line, b"local now = offset_s\n"))
        yield
    finally:
        for one, (text, _) in shipped.items():
            _rewrite(one, text)


def _rewrite(script: Any, text: bytes) -> None:
    structs.force_setattr(script, "text", text)
    structs.force_setattr(script, "sha", hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


class Other:
    """A store that the same calls are made on; versions and cursors are its own, so they are put into its own words."""

    def __init__(self, store: Store) -> None:
        self._store: Any = store
        self._versions = {0: 0}
        self._cursors = {"": ""}

    async def first_difference(self, calls: Sequence[Call]) -> str:
        """Make these calls; empty where all of the answers are the same."""
        for number, call in enumerate(calls):
            self._store.clock_offset_s = call.at
            arguments = tuple(self._in_its_words(one) for one in call.arguments)
            answer = await _answer_of(getattr(self._store, call.verb)(*arguments))
            if found := "; ".join(differences(told(call, call.answer), told(call, answer))):
                return f"call {number}, {call.verb} at {call.at - EPOCH:.4f} s: {found}\n    asked: {arguments}"
            self._learn(call.answer, answer)
        return ""

    def _in_its_words(self, argument: Any) -> Any:
        if isinstance(argument, Query):
            return structs.replace(argument, cursor=self._cursors[argument.cursor])
        if isinstance(argument, Exchange):
            changes = [structs.replace(one, expected=self._versions[one.expected]) for one in argument.changes]
            return structs.replace(argument, changes=changes, seen=self._versions[argument.seen])
        return argument

    def _learn(self, recorded: Any, answer: Any) -> None:
        if isinstance(recorded, Page):
            self._cursors[recorded.cursor] = answer.cursor
        elif isinstance(recorded, Exchanged):
            for one, other in zip(recorded.values, answer.values, strict=True):
                self._versions[one.version] = other.version


# ---------------------------------------------------------------- what is compared


def told(call: Call, answer: Any) -> Any:
    """An answer without what may rightly differ from store to store."""
    if isinstance(answer, HoldfastError):
        return type(answer).__name__
    match call.verb:
        case "exchange":
            facts = structs.asdict(answer)
            facts["values"] = [(value.key, value.data) for value in answer.values]
            facts["next_due_s"] = answer.next_due_s if call.is_looking else None
            facts["era"] = None
            return facts
        case "find":
            return {"items": answer.items, "has_more": bool(answer.cursor)}
        case "reclaim":  # nobody says in which order
            return sorted(answer, key=lambda one: one.id)
        case "heartbeat":
            return {**structs.asdict(answer), "cancelled": sorted(answer.cancelled)}
        case "groups":
            return {one.fingerprint: one for one in answer}
        case "stats":
            return {
                **structs.asdict(answer),
                "tallies": sorted((one.queue, one.task, one.state, one.n) for one in answer.tallies if one.n),
                "workers": sorted(answer.workers, key=lambda one: one.id),
                "counts": sorted((one.minute, one.task, one.name, one.n) for one in answer.counts),
                "totals": sorted((one.minute, one.task, one.name, one.n) for one in answer.totals),
                "troubles": None,
            }
        case _:
            return answer


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """What is not the same in the answer of the memory store and in that of another."""
    if isinstance(one, Struct) and type(one) is type(other):
        one, other = structs.asdict(one), structs.asdict(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        for key in one:
            yield from differences(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for n, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{where}[{n}]")
    elif isinstance(one, float) and isinstance(other, float):
        if abs(one - other) > NEAR_S:
            yield f"{where}: {one!r} is {other!r} there"
    elif one != other:
        yield f"{where}: {one!r} is {other!r} there"


# ---------------------------------------------------------------- many seeds


class Summary(Struct, kw_only=True):
    """What many schedules have come to."""

    seeds: int = 0
    calls: int = 0
    verbs: dict[str, int] = {}
    faults: dict[str, int] = {}
    states: dict[str, int] = {}
    """In which states how many jobs were at the end."""
    differences: list[str] = []
    seconds: float = 0.0


async def _again(calls: Sequence[Call], url: str) -> str:
    store = open_store(url)
    try:
        return await Other(store).first_difference(calls)
    finally:
        await store.close()


def replay(seeds: Iterable[int], url: str, within_s: float, most: int) -> Summary:
    """Each of these seeds on a store of its own, until the time is over or so many differ."""
    began_s, summary = _CLOCK.monotonic(), Summary()
    verbs, faults, states = Counter[str](), Counter[str](), Counter[str]()
    with clocks_in_hand(), asyncio.Runner() as runner:
        for seed in seeds:
            if _CLOCK.monotonic() - began_s > within_s or len(summary.differences) >= most:
                break
            world = Recorded(seed)
            outcome = world.run()
            world.look_at_all()
            summary.seeds += 1
            summary.calls += len(world.calls)
            verbs.update(call.verb for call in world.calls)
            faults.update(outcome.faults)
            states.update(job.state.value for job in world.store._jobs.newest_first())
            if found := runner.run(_again(world.calls, url.format(seed))):
                summary.differences.append(f"seed {seed}, {found}")
    summary.verbs, summary.faults, summary.states = (dict(one.most_common()) for one in (verbs, faults, states))
    summary.seconds = _CLOCK.monotonic() - began_s
    return summary


def main() -> int:
    """0 where no answer differs."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts have another order in each process otherwise
        command = [sys.executable, "-m", "tests.simulation.schedule", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.schedule", description=__doc__)
    parser.add_argument("--seeds", type=_range_of, required=True, help="the first and the last one, such as 0-99")
    parser.add_argument("--url", required=True, help="where the stores are; {} in it is the seed")
    parser.add_argument("--within", type=float, default=3_600.0, help="stop after so many seconds [3600]")
    parser.add_argument("--most", type=int, default=5, help="stop after so many seeds that differ [5]")
    parser.add_argument("--out", type=Path, help="write what was found to this file, as JSON")
    words: Any = parser.parse_args()
    _quiet()
    summary = replay(words.seeds, words.url, words.within, words.most)
    print(
        f"{summary.seeds:,} seeds, {summary.calls:,} calls, {sum(summary.faults.values()):,} faults in "
        f"{summary.seconds:.1f} s: {len(summary.differences)} differ",
        *summary.differences,
        sep="\n",
    )
    if words.out is not None:
        words.out.write_bytes(json.format(json.encode(summary)))
    return bool(summary.differences)


if __name__ == "__main__":
    sys.exit(main())
