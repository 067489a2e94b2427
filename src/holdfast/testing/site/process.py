"""The site in a process of its own, for a test or a benchmark."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from holdfast.testing.site.fates import Kind
from holdfast.testing.site.host import Stats
from holdfast.testing.site.log import Request, read_log
from holdfast.testing.site.plan import Site

_ENDS_WITHIN_S: Final = 5.0
_ANSWERS_WITHIN_S: Final = 10.0


class SiteProcess:
    """A running site; use it as a context manager, or `close()` it. It ends with the process that started it.

    Without `log` the requests are written to a temporary file that `close` removes: read them before. `is_buffered`
    writes them about every 50 ms, where a request each would be too slow.
    """

    def __init__(
        self, site: Site | None = None, *, port: int = 0, log: Path | None = None, is_buffered: bool = False
    ) -> None:
        self.site = site or Site()
        """Its plan."""
        self._folder = None if log else Path(tempfile.mkdtemp(prefix="holdfast-site-"))
        self.log_path = log or Path(str(self._folder), "requests.log")
        """One line a request."""
        command = [sys.executable, "-m", "holdfast.testing.site", "--while-stdin", "--port", str(port)]
        command += ["--log", str(self.log_path), "--site", msgspec.json.encode(self.site).decode()]
        if is_buffered:
            command.append("--buffered")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - ourselves
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"the site ended with {self._process.returncode} before it listened")
        self.urls: list[str] = msgspec.json.decode(line)["urls"]
        """The base URLs of its hosts, without a slash at the end."""

    @property
    def url(self) -> str:
        """The base URL of its first host."""
        return self.urls[0]

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def url_of(self, page: int) -> str:
        """Where a page is."""
        return f"{self.urls[self.site.host_of(page)]}{self.site.path(page)}"

    def url_as(self, kind: Kind, name: str = "1", *, host: int = 0, **settings: float) -> str:
        """A page with that fate and those settings of it (fields of `Fate`); another name is another page."""
        query = f"?{urlencode(settings)}" if settings else ""
        return f"{self.urls[host]}/as/{kind}/{name}{query}"

    def log(self) -> list[Request]:
        """What it was asked so far."""
        self._ask("/_site/stats")  # what came before this is in the file
        return read_log(self.log_path)

    def stats(self) -> list[Stats]:
        """Counts, for each host."""
        return msgspec.json.decode(self._ask("/_site/stats"), type=list[Stats])

    def outage(self, kind: Kind, *, host: int = 0, **settings: float) -> None:
        """Give all pages of a host this fate, until `heal`; a refusal that otherwise ends does not."""
        self._ask(f"/_site/outage?{urlencode({'kind': kind, 'host': host, **settings})}")

    def heal(self) -> None:
        """Give every page its own fate again."""
        self._ask("/_site/heal")

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> SiteProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ask(self, path: str) -> bytes:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_ANSWERS_WITHIN_S)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            body: Any = reply.read()
        finally:
            connection.close()
        if reply.status != 200:
            raise ValueError(f"{path}: {reply.status} {body.decode(errors='replace').strip()}")
        return bytes(body)
