"""The bytes of a first page load: the fourth part of bench-api."""

from __future__ import annotations

import gzip
import http.client
import re
from urllib.parse import urljoin

from api_server import serving
from jobs_bars import Bar, at_most
from jobs_subject import Engine

LIMIT = 150_000
_NAMED = re.compile(r'(?:src|href)="([^"#:]+)"')
_LOADED = re.compile(r'["\'](?:\./|assets/)([\w.-]+\.(?:js|css))["\']')
"""What scripts load by themselves is counted as well, whether the first page needs it or not."""


def measure(engine: Engine) -> dict[str, int]:
    """Bytes on the line of index.html and of all that it needs; none where the page has not been built."""
    sizes: dict[str, int] = {}
    with engine.place() as place, serving(place.environment, place.folder) as server:
        wanted = ["/"]
        while wanted:
            path = wanted.pop()
            sizes[path], text = _fetch(server.port, path)
            names = _NAMED.findall(text) if path == "/" else [f"/assets/{name}" for name in _LOADED.findall(text)]
            wanted += {urljoin("/", name) for name in names} - {*sizes, *wanted}
    return sizes if len(sizes) > 1 and any(path.endswith(".js") for path in sizes) else {}


def _fetch(port: int, path: str) -> tuple[int, str]:
    """Bytes of the body as they are sent, and what they say."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != http.client.OK:
        raise RuntimeError(f"GET {path} was answered with {answer.status}")
    plain = gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
    return len(body), plain.decode(errors="replace")


def bars(sizes: dict[str, int]) -> list[Bar]:
    text = "first page load, compressed: < 150 kB"
    return [at_most(text, sum(sizes.values()) / 1e3, LIMIT / 1e3, "{:.1f} kB".format, is_strict=True)]


def print_table(sizes: dict[str, int]) -> None:
    print(f"\n{'first page load, as sent with gzip':48}{'bytes':>10}")
    for name, size in sizes.items():
        print(f"  {name:46}{size:10,}")
