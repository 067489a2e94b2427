"""What was asked of a site, one line a request, and what can be read out of it."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct


class Request(Struct, frozen=True, kw_only=True):
    """One request, as the site saw it."""

    at: float
    """When it came, by the machine's monotonic clock, which is the same for all its processes."""
    domain: str
    """Host and port."""
    path: str
    """With the query."""
    status: int
    """What was answered; 0 where nothing was, or no whole answer."""
    what: str
    """The fate of the page, or "burst", or for what came before a Retry-After was over "early"."""
    in_flight: int
    """Requests to this domain that were under way, with this one."""
    until: float = 0.0
    """The end of the Retry-After that it was given, by the same clock; 0 for none."""

    @property
    def url(self) -> str:
        """Where it was sent."""
        return f"http://{self.domain}{self.path}"


class RequestLog:
    """An append-only file of requests; each is one write, or with `is_buffered` many are, about every 50 ms."""

    def __init__(self, path: Path, *, is_buffered: bool = False) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._waiting: list[str] | None = [] if is_buffered else None

    @property
    def is_buffered(self) -> bool:
        """Whether lines wait for `flush`."""
        return self._waiting is not None

    def add(self, at: float, domain: str, path: str, status: int, what: str, in_flight: int, until: float) -> None:
        """One more request."""
        line = f"{at:.6f}\t{domain}\t{path}\t{status}\t{what}\t{in_flight}\t{until:.6f}\n"
        if self._waiting is None:
            self._write(line)
        else:
            self._waiting.append(line)

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            self._write("".join(self._waiting))
            self._waiting.clear()

    def close(self) -> None:
        """Write what waits, and end."""
        self.flush()
        os.close(self._file)

    def _write(self, text: str) -> None:
        data = text.encode("ascii")
        while data:
            data = data[os.write(self._file, data) :]


def read_log(path: Path) -> list[Request]:
    """All requests in a log, in their order; a last line that is still being written is left out."""
    lines = path.read_text("ascii").split("\n")[:-1]
    found = []
    for line in lines:
        at, domain, target, status, what, in_flight, until = line.split("\t")
        found.append(
            Request(
                at=float(at),
                domain=domain,
                path=target,
                status=int(status),
                what=what,
                in_flight=int(in_flight),
                until=float(until),
            )
        )
    return found


def requests_by_path(log: Iterable[Request]) -> Counter[str]:
    """How often each path was asked for; where there are several hosts, give it the requests of one."""
    return Counter(request.path for request in log)


def early(log: Iterable[Request], by: Literal["path", "domain"] = "path", *, grace_s: float = 0.0) -> list[Request]:
    """Requests that came before a Retry-After was over that had been given to the same path, or to its domain.

    With `by="domain"`, those that came within `grace_s` of the refusal had been sent before it was known.
    """
    ends: dict[str, list[tuple[float, float]]] = {}
    found = []
    for request in sorted(log, key=_instant):
        key = request.url if by == "path" else request.domain
        given = ends.setdefault(key, [])
        given[:] = [(end, at) for end, at in given if end > request.at]
        if any(request.at - at > grace_s for _, at in given):
            found.append(request)
        if request.until:
            given.append((request.until, request.at))
    return found


def most_in_flight(log: Iterable[Request]) -> int:
    """The most requests that one domain had under way at a time."""
    return max((request.in_flight for request in log), default=0)


def starts_in_any_window(log: Iterable[Request], seconds: float) -> int:
    """The most requests that came within any so many seconds; where there are several hosts, give it those of one."""
    instants = sorted(map(_instant, log))
    return max((bisect_left(instants, start + seconds) - index for index, start in enumerate(instants)), default=0)


def _instant(request: Request) -> float:
    return request.at
