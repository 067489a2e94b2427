"""Where to look for the jobs of a query: whatever leads to them with the fewest others between, newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, msgpack

from holdfast.ports import Query
from holdfast.stores.looking import BLOCK, LOOKED_AT, OPEN_STATES, at_first, before_of, listed, merged
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.scripts import CAUSES, FACTS, PLACES
from holdfast.stores.redis.state import STATES
from holdfast.types import JobState

INDEXES: Final = {JobState.FAILED: "failed", JobState.DEAD_LETTER: "dead_letter", JobState.CANCELLED: "cancelled"}
_MOST_LISTS: Final = 500
_MOST_OPEN: Final = 10_000
_FEW_LETTERS: Final = 500
_BLOCKS_AT_ONCE: Final = 4
_DEAD: Final = (JobState.DEAD_LETTER,)
_decode_cause = msgpack.Decoder(tuple[str, str, str, str, str]).decode

Looks = Iterator[Sequence[int]]
Run = Callable[[Call[Any]], Any]


class CauseName(Struct, frozen=True):
    """What the letters of a cause have in common."""

    fingerprint: str
    queue: str
    task: str
    tenant: str
    failure_type: str

    def is_of(self, query: Query) -> bool:
        """Whether its letters may be of the query."""
        return (
            query.fingerprint in {"", self.fingerprint}
            and query.queue in {"", self.queue}
            and query.task in {"", self.task}
            and query.tenant in {None, self.tenant}
            and query.failure_type in {None, self.failure_type}
        )


class Places:
    """Finds places, and remembers whose they are."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.ids: dict[int, str] = {}
        """By place."""

    def looks_of(self, query: Query, *, is_exact: bool) -> Looks:
        """The places of jobs that a query may mean, some at a time; `is_exact` where it has no other filters."""
        states, before = query.states, before_of(query)
        first = (query.limit + 1) * (1 if is_exact else 4)
        is_open = bool(states) and OPEN_STATES.issuperset(states)
        lanes: list[int] | None = None
        n = 0
        if query.task or query.queue:
            lanes, n = self._run(_facts_call(query))
            if not n:
                return iter(())
        if states == _DEAD:
            return self._letters(query, before, first)
        if states and all(state in INDEXES for state in states):
            return self._indexed([INDEXES[state] for state in states], before, first)
        if is_open and (places := self._open(states, lanes)) is not None:
            return listed(places, before)
        owners = owner_marks(query.tenant or "", query.user, query.project)
        by_lane = [f"l{lane}" for lane in lanes] if lanes is not None and len(lanes) <= _MOST_LISTS else []
        if owners and not (by_lane and n <= LOOKED_AT):
            return self._marked(owners[-1:], before)
        return self._marked(by_lane, before) if by_lane else self._indexed(["all"], before, first)

    def _letters(self, query: Query, before: int, first: int) -> Looks:
        """Dead letters: all, or those of some causes; what a script can see is looked for among the newest first."""
        everywhere = self._indexed(["dead_letter"], before, first)
        if query.fingerprint or query.failure_type:
            return self._of_causes(query, before, first)
        if query.queue or query.task or query.tenant is not None:
            return at_first(everywhere, _FEW_LETTERS, lambda before: self._of_causes(query, before, first))
        return everywhere

    def _of_causes(self, query: Query, before: int, first: int) -> Looks:
        names, _ = self._run(causes_call())
        causes = [f"letters:{number}" for number, name in names.items() if name.is_of(query)]
        return self._indexed(["dead_letter"] if len(causes) > _MOST_LISTS else causes, before, first)

    def _indexed(self, names: list[str], before: int, first: int) -> Looks:
        def ask_each(before: int, each: int) -> list[list[int]]:
            return [self._noted(pairs) for pairs in self._run(_call("indexes", names, float(before), each))]

        return merged(ask_each, len(names), before, first) if names else iter(())

    def _marked(self, names: list[str], before: int) -> Looks:
        """All jobs of each block that has a mark of one of these names."""

        def ask_each(before: int, each: int) -> list[list[int]]:
            found: list[list[int]] = self._run(_call("blocks", names, before, each))
            return found

        first_block = min((before - 1) // BLOCK + 1, 2**32 - 1)
        size = 1  # often the newest one is enough
        for blocks in merged(ask_each, len(names), first_block, LOOKED_AT // BLOCK):
            start = 0
            while some := blocks[start : start + size]:
                for pairs in self._run(_call("between", some, float(before))):
                    if places := self._noted(pairs):
                        yield places
                start, size = start + size, min(2 * size, _BLOCKS_AT_ONCE)

    def _open(self, states: Sequence[JobState], lanes: list[int] | None) -> list[int] | None:
        """Every job that has not ended; None when they are too many to be sorted."""
        are_ready = any(state is not JobState.RUNNING for state in states)
        is_all, *found = self._run(_call("open", lanes, are_ready, JobState.RUNNING in states, _MOST_OPEN))
        return self._noted(found[0]) if is_all else None

    def _noted(self, pairs: list[bytes]) -> list[int]:
        places = [int(float(seq)) for seq in pairs[1::2]]
        self.ids.update(zip(places, (id.decode() for id in pairs[::2]), strict=True))  # noqa: A001
        return places


def owner_marks(tenant: str, user: str, project: str) -> list[str]:
    """The names under which jobs of these owners are marked; the last one is the narrowest."""
    return [f"{kind}{owner}" for kind, owner in (("t", tenant), ("p", project), ("u", user)) if owner]


def causes_call(hours: tuple[int, int] | None = None) -> Call[tuple[dict[int, CauseName], list[dict[int, int]]]]:
    """The causes of dead letters by number; and for each hour from one to another, how many letters of each."""

    def read(reply: list[Any]) -> tuple[dict[int, CauseName], list[dict[int, int]]]:
        names, counts = reply
        causes = {int(number): CauseName(*_decode_cause(name)) for number, name in _pairs(names)}
        return causes, [{int(number): int(n) for number, n in _pairs(fields)} for fields in counts]

    return Call(CAUSES, hours or (None, None), read)


def _facts_call(query: Query) -> Call[tuple[list[int], int]]:
    wanted = [state in query.states for state in STATES] if query.states else None
    return Call(FACTS, (query.queue, query.task, wanted), lambda reply: (reply[0], reply[1]))


def _call(*words: Any) -> Call[Any]:
    return Call(PLACES, words, lambda reply: reply)


def _pairs(reply: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(reply[::2], reply[1::2], strict=True))
