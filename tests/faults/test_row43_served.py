"""Row 43 on the running server: bodies up to 64 MB, by length and in chunks, are refused before they are in memory."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.faults.api_server import ApiProcess
from tests.faults.arena import Arena
from tests.faults.conftest import busy, full_only
from tests.faults.report import Report
from tests.faults.test_row43_bodies import BODIES, REFUSED, VALUES

pytestmark = busy

SIZES: Final = (1, 1_000, 1_000_000, 1_048_576, 1_048_577, 8_000_000, 64_000_000)
LIMIT: Final = 1_048_576
MARGIN_MB: Final = 40.0


def sent(server: ApiProcess, head: bytes, chunks: list[bytes]) -> int:
    """The status of a request that is sent by hand, and how much of it the server has let in is up to it."""
    place = urlsplit(server.url)
    begin = f"POST /jobs HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n".encode()
    begin += f"Authorization: {server.bearer('admin')['Authorization']}\r\n".encode()
    with socket.create_connection((place.hostname, place.port), 30) as one:
        one.sendall(begin + head + b"\r\n")
        try:
            for chunk in chunks:
                one.sendall(chunk)
        except OSError:  # it has answered, and hears no more
            pass
        return int(one.recv(12).split()[1])


@full_only
def test_no_body_is_too_large_or_too_odd_for_the_running_server(arena: Arena, tmp_path: Path, report: Report) -> None:
    statuses: Counter[int] = Counter()
    with ApiProcess(tmp_path, arena.engine.url) as server, server.client("admin") as client:
        client.headers["Content-Type"] = "application/json"
        before_mb = server.most_mb
        for value, wanted in VALUES.values():
            answer = client.post("/jobs", content=b'{"task": "echo", "arguments": {"value": %s}}' % value)
            statuses[answer.status_code] += 1
            assert (answer.status_code == 201) is (wanted is not REFUSED)
        for body in BODIES.values():
            statuses[client.post("/jobs", content=body).status_code] += 1
        for size in SIZES:
            some = [b" " * min(65_536, size - at) for at in range(0, size, 65_536)]
            whole = sent(server, f"Content-Length: {size}\r\n".encode(), some)
            chunked = sent(
                server,
                b"Transfer-Encoding: chunked\r\n",
                [*(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in some), b"0\r\n\r\n"],
            )
            assert whole == chunked == (422 if size <= LIMIT else 413), size
            statuses.update([whole, chunked])
        grown_mb = server.most_mb - before_mb
    assert statuses.keys() == {201, 413, 422}, statuses
    assert grown_mb < MARGIN_MB, "a body was taken into memory"
    report(
        "bodies that are huge, deep or odd, up to 64 MB, by length and in chunks, to the running server",
        injected=statuses.total(),
        note=f"answers {dict(sorted(statuses.items()))}; the server grew by {grown_mb:.0f} MB",
    )
