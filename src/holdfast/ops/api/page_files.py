"""The page's files: hashed names are kept for ever, and what was compressed when it was built is sent so."""

from __future__ import annotations

import mimetypes
from hashlib import blake2b
from pathlib import Path
from typing import Final

from starlette._utils import get_route_path
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.ops.api.problems import problem

FOLDER: Final = Path(__file__).parent / "page"
"""Where `make page` puts them."""
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"
_ENCODINGS: Final = (("br", ".br"), ("gzip", ".gz"))
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
_TEXTUAL: Final = ("text/", "image/svg")
_MISSING: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Holdfast</title>
<h1>Holdfast</h1>
<p>The API is here, and the page has not been built: run <code>make page</code> in Holdfast's folder, and install it
from there again.
<p><a href="openapi.json">What the API can do</a> · <a href="health">Health</a>
</html>
"""


NOT_BUILT: Final = "the page has not been built: run `make page` in Holdfast's folder, and install it from there again"
"""For the person who starts a server that has the API alone."""


def is_built() -> bool:
    """Whether there is a page to show."""
    return (FOLDER / "index.html").is_file()


class _File:
    """One file as it is sent: its bytes by encoding."""

    __slots__ = ("bodies", "headers")

    def __init__(self, path: Path, name: str) -> None:
        self.bodies = {"": path.read_bytes()}
        for encoding, suffix in _ENCODINGS:
            packed = path.with_name(path.name + suffix)
            if packed.is_file():
                self.bodies[encoding] = packed.read_bytes()
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        charset = "; charset=utf-8" if kind.startswith(_TEXTUAL) else ""
        self.headers = {
            "Content-Type": kind + charset,
            "ETag": f'W/"{blake2b(self.bodies[""], digest_size=12).hexdigest()}"',
            "Cache-Control": _FOR_EVER if name.startswith("assets/") else _ASK_AGAIN,
            "Vary": "Accept-Encoding",
        }


class Page:
    """An ASGI app for what is in the folder; `/` is index.html. All of it is read when it is first asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, _File] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a file, or 404."""
        answer = self.answer(get_route_path(scope).lstrip("/"), dict(scope["headers"]))
        await answer(scope, receive, send)

    def answer(self, name: str, headers: dict[bytes, bytes]) -> Response:
        """The answer for a file of this name. Names are looked up, never joined to a path."""
        file = self._found(name or "index.html")
        if file is None and name in ("", "index.html"):
            return Response(_MISSING, headers={"Cache-Control": _ASK_AGAIN}, media_type="text/html")
        if file is None:
            return problem(404, "there is no such page")
        if headers.get(b"if-none-match", b"").decode("latin-1") == file.headers["ETag"]:
            return Response(status_code=304, headers=file.headers)
        accepted = headers.get(b"accept-encoding", b"").decode("latin-1")
        encoding = next((one for one, _ in _ENCODINGS if one in file.bodies and _accepts(accepted, one)), "")
        more = {"Content-Encoding": encoding} if encoding else {}
        return Response(file.bodies[encoding], headers=file.headers | more)

    def _found(self, name: str) -> _File | None:
        if self._files is None or not self._files:
            self._files = {}
            for path in sorted(self._folder.rglob("*")) if self._folder.is_dir() else ():
                if path.is_file() and path.suffix not in {".br", ".gz"}:
                    own = path.relative_to(self._folder).as_posix()
                    self._files[own] = _File(path, own)
        return self._files.get(name)


def _accepts(header: str, encoding: str) -> bool:
    for part in header.split(","):
        name, _, rest = part.partition(";")
        if name.strip().lower() == encoding:
            return rest.replace(" ", "").rstrip("0.") != "q="
    return False
