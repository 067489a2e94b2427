"""Offsets against a plain list of all messages."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.policy.offsets import Offsets

HOLES = st.integers(1, 4)


class Model(RuleBasedStateMachine):
    """Every message that was ever added, and those that were finished."""

    def __init__(self) -> None:
        super().__init__()
        self.start = 100
        self.offsets = Offsets(self.start)
        self.added: list[int] = []
        self.finished: set[int] = set()

    def following(self, hole: int) -> int:
        return (self.added[-1] if self.added else self.start - 1) + hole

    @rule(hole=HOLES)
    def add(self, hole: int) -> None:
        offset = self.following(hole)
        self.offsets.add(offset)
        self.added.append(offset)

    @rule(holes=st.lists(HOLES, max_size=8))
    def add_many(self, holes: list[int]) -> None:
        offsets: list[int] = []
        for hole in holes:
            offsets.append(self.following(hole) if not offsets else offsets[-1] + hole)
        self.offsets.add_many(offsets)
        self.added += offsets

    @rule(offset=st.integers(95, 160))
    def finish_any(self, offset: int) -> None:
        self.offsets.finish(offset)
        self.finished |= {offset} & set(self.added)

    @rule(offsets=st.lists(st.integers(95, 160), max_size=20))
    def finish_several(self, offsets: list[int]) -> None:
        self.offsets.finish_many(offsets)
        self.finished |= set(offsets) & set(self.added)

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def finish_the_head(self, data: st.DataObject) -> None:
        head = self.unfinished[: data.draw(st.integers(1, len(self.unfinished)))]
        self.offsets.finish_many(head)
        self.finished |= set(head)

    @property
    def unfinished(self) -> list[int]:
        return [one for one in self.added if one not in self.finished]

    @invariant()
    def agrees(self) -> None:
        unfinished, found = self.unfinished, self.offsets
        end = self.added[-1] + 1 if self.added else self.start
        position = unfinished[0] if unfinished else end
        assert found.position == position
        assert found.end == end
        assert found.first == (unfinished[0] if unfinished else None)
        assert found.unfinished == len(unfinished)
        assert found.open == sum(1 for one in self.added if one >= position)


TestOffsets = Model.TestCase
