"""Settings are checked when an object is made: one line that names the field, the value and what would be right."""

from __future__ import annotations

import math
import sys

from holdfast.errors import ConfigError

LONGEST_S = 1e9
LONGEST_LEASE_S = 86_400.0
"""Nobody may keep jobs to himself for longer than a day without a sign of life."""
_LARGEST = sys.float_info.max  # a whole number may be larger, and is then no number of seconds or calls


def number(field: str, value: object, *, above: float | None = None, low: float = 0.0, high: float = math.inf) -> float:
    """A finite number within `low` and `high` (and more than `above`, if given); anything else is refused."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and abs(value) <= _LARGEST and low <= value <= high and (above is None or value > above):  # type: ignore[arg-type, operator]
        return float(value)  # type: ignore[arg-type]
    floor = f"above {above:g}" if above is not None else f"at least {low:g}"
    raise ConfigError(
        f"{field}={value!r}: must be a number, {floor}" + (f" and at most {high:g}" if high < math.inf else "")
    )


def length(field: str, value: object, *, above: float | None = None, low: float = 0.0) -> float:
    """A length of time in seconds; one of over 31 years is refused, since no clock can wait for it."""
    seconds = number(field, value, above=above, low=low)
    if seconds > LONGEST_S:
        raise ConfigError(f"{field}={value!r}: must be at most {LONGEST_S:g} s")
    return seconds


def whole(field: str, value: object, *, low: int) -> int:
    """A whole number of at least `low`; anything else is refused."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= low:
        return value
    raise ConfigError(f"{field}={value!r}: must be a whole number of at least {low}")
