"""A consumer group of the memory broker: who is in it, who has which partition, and how far it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from holdfast.ports import Clock, Owner, Progress
from holdfast.types import Place

if TYPE_CHECKING:
    from holdfast.streams.memory.broker import MemoryBroker

_log: Final = logging.getLogger("holdfast.streams")


class Member:
    """One consumer of a group, and the partitions that it has."""

    def __init__(self, owner: Owner, topics: Collection[str], clock: Clock, handover_s: float, *, latest: bool) -> None:
        self.owner = owner
        self.topics = frozenset(topics)
        self.clock = clock
        self.handover_s = handover_s
        self.latest = latest
        self.next: dict[Place, int] = {}
        """Of each partition that it has: the offset that it is brought next."""
        self.leaving: set[Place] = set()
        """Those that are about to go to somebody else: nothing more is brought of them."""
        self.paused: set[Place] = set()

    def drop(self, places: Collection[Place]) -> None:
        """They are somebody else's from now on."""
        for place in places:
            self.next.pop(place, None)
        self.leaving.difference_update(places)
        self.paused.difference_update(places)


class Group:
    """Shares partitions out fairly, moves as few as it can, and asks before it takes one from a living member."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._members: list[Member] = []
        self._positions: dict[Place, int] = {}
        self._begins: dict[Place, int] = {}
        """Where a partition was begun that nothing was committed of."""
        self._retries: dict[Place, Mapping[int, int]] = {}
        self._sharing: asyncio.Task[None] | None = None
        self._is_due = False

    def join(self, member: Member) -> None:
        """Take a member in; its partitions are assigned as soon as the others have given them up."""
        self._members.append(member)
        self._share_soon()

    def leave(self, member: Member) -> None:
        """Let a member go, with all that it has."""
        if member in self._members:
            self._members.remove(member)
            member.drop(list(member.next))
            self._share_soon()

    def expel(self, member: Member) -> None:
        """The same, and it learns that it has lost them."""
        lost = list(member.next)
        self.leave(member)
        if lost:
            member.owner.lost(lost)

    def has(self, member: Member) -> bool:
        """Whether it is a member."""
        return member in self._members

    def tell_away(self, why: str) -> None:
        """Tell all members."""
        for member in self._members:
            member.owner.away(why)

    def position(self, place: Place) -> int | None:
        """What was committed; None where nothing ever was."""
        return self._positions.get(place)

    def begin(self, place: Place) -> int:
        """Where it is read from by somebody new."""
        return self._positions.get(place, self._begins.get(place, 0))

    def is_begun(self, place: Place) -> bool:
        """Whether anybody was ever given it, or anything was committed."""
        return place in self._positions or place in self._begins

    def retries(self, place: Place) -> Mapping[int, int]:
        """Counted attempts of messages that are not finished."""
        return self._retries.get(place, {})

    def commit(self, member: Member, progress: Mapping[Place, Progress]) -> None:
        """Remember how far the partitions are that this member has."""
        for place, reached in progress.items():
            if place in member.next:
                self._positions[place] = reached.position
                self._retries[place] = dict(reached.retries)

    # ---------------------------------------------------------------- sharing out

    def _share_soon(self) -> None:
        self._is_due = True
        if self._sharing is None or self._sharing.done():
            self._sharing = asyncio.get_running_loop().create_task(self._share_out())

    async def _share_out(self) -> None:
        while self._is_due:
            self._is_due = False
            target = self._target()
            for member in self._members:
                member.leaving = {place for place in member.next if target[place] is not member}
            await asyncio.gather(*(self._revoke(member) for member in self._members if member.leaving))
            if not self._is_due:  # or somebody came or went meanwhile, and the target is another
                self._assign(target)
        self._broker.wake()

    async def _revoke(self, member: Member) -> None:
        places = sorted(member.leaving)
        progress: Mapping[Place, Progress] = {}
        try:
            async with member.clock.timeout(member.handover_s):
                progress = await member.owner.revoked(places)
        except TimeoutError:
            member.owner.lost(places)
        except Exception:  # its fault must not hold up the whole group; what it has not told comes again
            _log.exception("an owner failed while its partitions were revoked")
            member.owner.lost(places)
        if member in self._members:
            self.commit(member, {place: progress[place] for place in places if place in progress})
            member.drop(places)

    def _assign(self, target: Mapping[Place, Member]) -> None:
        for member in self._members:
            new: dict[Place, int] = {}
            for place, owner in target.items():
                if owner is member and place not in member.next:
                    self._begins.setdefault(place, len(self._broker.log(place)) if member.latest else 0)
                    new[place] = self.begin(place)
            member.next.update(new)
            if new:
                member.owner.assigned(new)

    def _target(self) -> dict[Place, Member]:
        """Who is to have what: as it is now where that is fair, and nobody two more than another."""
        topics = sorted({topic for member in self._members for topic in member.topics})
        places = [place for topic in topics for place in self._broker.places(topic)]
        loads: dict[Member, list[Place]] = {member: [] for member in self._members}
        free: list[Place] = []
        for place in places:
            holder = next((member for member in self._members if place in member.next), None)
            (loads[holder] if holder is not None else free).append(place)
        for place in free:
            wanting = [member for member in self._members if place[0] in member.topics]
            loads[min(wanting, key=lambda member: len(loads[member]))].append(place)
        _level(loads)
        return {place: member for member, held in loads.items() for place in held}


def _level(loads: dict[Member, list[Place]]) -> None:
    while loads:
        heavy = max(loads, key=lambda member: len(loads[member]))
        light = min(loads, key=lambda member: len(loads[member]))
        movable = [place for place in loads[heavy] if place[0] in light.topics]
        if len(loads[heavy]) - len(loads[light]) < 2 or not movable:
            return
        loads[heavy].remove(movable[-1])
        loads[light].append(movable[-1])
