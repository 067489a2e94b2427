"""Small shared values with versions, and counts by the minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.ports import Count, Value, ValueChange

_COUNTS_KEPT_MINUTES = 8 * 24 * 60
_REMOVED_KEPT_S = 3600.0


class ValueTable:
    """Values by key. A removed one stays as such for an hour, so that those who know it are told."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._removed_at: dict[str, float] = {}
        self._version = 0

    @property
    def newest(self) -> int:
        """The newest version."""
        return self._version

    def change(self, change: ValueChange, now: float) -> bool:
        """Compare and set."""
        value = self._values.get(change.key)
        current = 0 if value is None or value.data is None else value.version
        if current != change.expected:
            return False
        self._version += 1
        self._values[change.key] = Value(change.key, self._version, change.data)
        self._removed_at.pop(change.key, None)
        if change.data is None:
            self._removed_at[change.key] = now
        return True

    def prune(self, now: float) -> None:
        """Forget what was removed long ago, unless that is the newest change of all."""
        old = [key for key, at in self._removed_at.items() if at < now - _REMOVED_KEPT_S]
        for key in old:
            if self._values[key].version < self._version:
                del self._removed_at[key], self._values[key]

    def newer_than(self, version: int) -> list[Value]:
        """All with a higher version, oldest first."""
        if version >= self._version:
            return []
        newer = [value for value in self._values.values() if value.version > version]
        return sorted(newer, key=lambda value: value.version)


class CountTable:
    """Sums by minute, task and name; under minute 0 the totals."""

    def __init__(self) -> None:
        self._sums: Counter[tuple[int, str, str]] = Counter()
        self._latest: dict[str, int] = {}
        """The number of what each worker has counted last; kept, as the ids of workers that are gone are."""

    def add(self, counts: Iterable[Count], counted: tuple[str, int] | None = None) -> None:
        """So many more of each, unless they were counted under this name before."""
        if counted is not None:
            worker, number = counted
            if number <= self._latest.get(worker, 0):
                return
            self._latest[worker] = number
        for count in counts:
            self._sums[count.minute, count.task, count.name] += count.n

    def since(self, minute: int) -> list[Count]:
        """Those of this minute and later ones, oldest first."""
        return [Count(*key, n) for key, n in sorted(self._sums.items()) if key[0] >= max(1, minute)]

    def totals(self) -> list[Count]:
        """Those since the store was made."""
        return [Count(*key, n) for key, n in sorted(self._sums.items()) if key[0] == 0]

    def prune(self, now: float) -> None:
        """Forget what is older than eight days; totals stay."""
        oldest = int(now // 60) - _COUNTS_KEPT_MINUTES
        for key in [key for key in self._sums if 0 < key[0] < oldest]:
            del self._sums[key]
