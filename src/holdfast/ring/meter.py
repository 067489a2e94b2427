"""How fast a count has risen lately."""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW_S: Final = 30.0
_STEP_S: Final = 1.0


class Meter:
    """A rate over the last half a minute, or since the first look; from whatever looks there are."""

    def __init__(self, now_s: float) -> None:
        self._looks: deque[tuple[float, int]] = deque([(now_s, 0)])

    def rate(self, now_s: float, count: int) -> float:
        """How much it has risen a second."""
        looks = self._looks
        while len(looks) > 1 and now_s - looks[1][0] >= _WINDOW_S:
            looks.popleft()
        since_s, before = looks[0]
        if now_s - looks[-1][0] >= _STEP_S:
            looks.append((now_s, count))
        return (count - before) / (now_s - since_s) if now_s > since_s else 0.0
