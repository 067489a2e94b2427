"""What users made, as text that cannot steer a terminal; times and numbers as people read them."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Final

_STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, invisible ones that turn the direction of writing, halves of a pair, other line ends."""
_UNITS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "m"))


def plain(text: str, *, keep: str = "") -> str:
    """The text with everything that could steer a terminal written out, as ESC is by x1b; `keep` is left as it is."""
    if text.isprintable():
        return text
    return "".join(one if one in keep or unicodedata.category(one) not in _STEERING else _escaped(one) for one in text)


def block(text: str) -> str:
    """The same for a text of several lines."""
    return plain(text.replace("\r\n", "\n"), keep="\n\t")


def short(text: str, most: int = 80) -> str:
    """All of it on one line, safe, and no longer than so."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def _escaped(one: str) -> str:
    return one.encode("unicode_escape", "surrogatepass").decode()


def length(seconds: float) -> str:
    """A length of time in its largest unit: `3s`, `5m`, `2h`, `4d`."""
    for unit_s, name in _UNITS:
        if abs(seconds) >= unit_s:
            return f"{seconds / unit_s:.0f}{name}"
    return f"{seconds:.0f}s" if abs(seconds) >= 1 or seconds == 0 else f"{seconds * 1000:.0f}ms"


def ago(at: float | None, now: float) -> str:
    """When it was, or will be, from now: `5m ago`, `in 2h`, `now`; `-` for never."""
    if at is None:
        return "-"
    if abs(now - at) < 1:
        return "now"
    return f"{length(now - at)} ago" if at < now else f"in {length(at - now)}"


def instant(at: float | None) -> str:
    """When it was, to the second, in UTC; `-` for never."""
    if at is None:
        return "-"
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"


def size(count: float) -> str:
    """A number of bytes: `512 B`, `3.4 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def many(count: int, one: str, more: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {one if count == 1 else more or one + 's'}"
