"""How well an app is: a score from 0 to 1 out of what is known of it, the word for the score, and the reasons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

Status = Literal["healthy", "degraded", "unhealthy"]

HEALTHY: Final = 0.8
"""From this score on it is healthy."""
DEGRADED: Final = 0.5
"""From this score on it is degraded; below it is unhealthy."""

FAILED_ATTEMPTS: Final = 0.6
"""What is taken off when every attempt fails; of a share of them, that share."""
OPEN_BREAKERS: Final = 0.3
"""What is taken off when every breaker is open; of a share of them, that share."""
FAILED_CHECK: Final = 0.25
"""What each failed check takes off."""
FAILED_CHECKS: Final = 0.6
"""What failed checks take off together at most."""
NO_WORKER: Final = 0.6
"""What is taken off while jobs are due and no worker lives."""
LAG: Final = 0.3
"""What is taken off when the oldest due job has waited for LAG_LONG_S; less in proportion, from LAG_SHORT_S on."""
LAG_SHORT_S: Final = 60.0
LAG_LONG_S: Final = 600.0
NEW_LETTERS: Final = 0.2
"""What is taken off when MANY_LETTERS jobs became dead letters lately; less in proportion."""
MANY_LETTERS: Final = 100
LATELY_MIN: Final = 5
"""The minutes over which attempts and new dead letters are counted."""


class Signs(Struct, frozen=True, kw_only=True):
    """What the score is made of."""

    is_critical: bool = False
    """Whether a check that must not fail has failed, such as that of the store."""
    success_rate: float | None = None
    """The share of the latest attempts that completed their job; None without any."""
    breakers: int = 0
    open_breakers: int = 0
    failed_checks: int = 0
    workers: int = 0
    is_due: bool = False
    """Whether a job could run now, were there a worker."""
    lag_s: float = 0.0
    """For how long the oldest job that could run has been due."""
    new_letters: int = 0
    """Jobs that became dead letters lately."""


def score_of(signs: Signs) -> float:
    """1 less what each trouble takes off, at least 0, to three places; 0 where a critical check has failed."""
    if signs.is_critical:
        return 0.0
    off = min(FAILED_CHECKS, FAILED_CHECK * signs.failed_checks)
    if signs.success_rate is not None:
        off += FAILED_ATTEMPTS * (1.0 - signs.success_rate)
    off += OPEN_BREAKERS * _share(signs.open_breakers, max(1, signs.breakers))
    if signs.is_due and not signs.workers:
        off += NO_WORKER  # the lag says the same, and is not counted beside it
    else:
        off += LAG * _share(signs.lag_s - LAG_SHORT_S, LAG_LONG_S - LAG_SHORT_S)
    off += NEW_LETTERS * _share(signs.new_letters, MANY_LETTERS)
    return round(max(0.0, 1.0 - off), 3)


def reasons_of(
    signs: Signs, *, open_breakers: Iterable[str] = (), failed_checks: Iterable[str] = ()
) -> tuple[str, ...]:
    """Why the score is below 1: a short sentence for each thing that takes something off, the checks first.

    open_breakers, failed_checks: the names of those that the signs count.
    """
    found = [f"check {name} failed" for name in failed_checks]
    if signs.success_rate is not None and signs.success_rate < 1.0:
        found.append(f"{_percent(1.0 - signs.success_rate)} of attempts failed in {LATELY_MIN} minutes")
    found += [f"breaker {key} is open" for key in open_breakers]
    if signs.is_due and not signs.workers:
        found.append("jobs are due and no worker is alive")
    elif signs.lag_s > LAG_SHORT_S:
        found.append(f"the oldest due job has waited for {signs.lag_s:.0f} s")
    if signs.new_letters:
        jobs = "1 job" if signs.new_letters == 1 else f"{signs.new_letters} jobs"
        found.append(f"{jobs} became dead letters in {LATELY_MIN} minutes")
    return tuple(found)


def status_of(score: float) -> Status:
    """The word for a score."""
    if score >= HEALTHY:
        return "healthy"
    return "degraded" if score >= DEGRADED else "unhealthy"


def _percent(share: float) -> str:
    """A share in whole percent; what is neither nothing nor all is not rounded to it."""
    if share < 0.01:
        return "less than 1 %"
    return "100 %" if share >= 1.0 else f"{min(99, round(share * 100))} %"


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))
