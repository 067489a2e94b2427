"""What a worker has counted since its last exchange, by task and minute."""

from __future__ import annotations

from holdfast.ports import Count


class Counts:
    """Counts that travel with the next exchange."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str], int] = {}
        self._run_s: dict[tuple[int, str], float] = {}
        self.totals: dict[str, int] = {}
        """Since the worker started."""

    def add(self, now: float, task: str, name: str, n: int = 1) -> None:
        """So many more."""
        key = (int(now // 60), task, name)
        self._counts[key] = self._counts.get(key, 0) + n
        self.totals[name] = self.totals.get(name, 0) + n

    def add_run(self, now: float, task: str, run_s: float) -> None:
        """The time one completed run took; kept in microseconds."""
        key = (int(now // 60), task)
        self._run_s[key] = self._run_s.get(key, 0.0) + run_s

    def take(self) -> list[Count]:
        """Everything counted, once."""
        counts = [Count(minute, task, name, n) for (minute, task, name), n in self._counts.items()]
        counts += [Count(minute, task, "run_us", round(run_s * 1e6)) for (minute, task), run_s in self._run_s.items()]
        self._counts.clear()
        self._run_s.clear()
        return counts

    def put_back(self, counts: list[Count]) -> None:
        """What an exchange that failed did not take along."""
        for count in counts:
            key = (count.minute, count.task, count.name)
            self._counts[key] = self._counts.get(key, 0) + count.n
