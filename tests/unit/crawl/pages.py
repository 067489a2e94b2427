"""Pages as a fetch brings them, for tests that need no server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.crawl.fetched import Fetched, media_type
from holdfast.crawl.page import Page
from holdfast.runtime.crawl_origins import PagePayload

FIXTURES = Path(__file__).parents[2] / "fixtures" / "crawl"
URL = "https://example.org/shop/1"


def fetched(
    body: str | bytes = b"",
    *,
    url: str = URL,
    final_url: str = "",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    content_type: str = "text/html; charset=utf-8",
) -> Fetched:
    kind, charset = media_type(content_type)
    return Fetched(
        url=url,
        final_url=final_url or url,
        status=status,
        headers={"content-type": content_type} | dict(headers or {}),
        body=body.encode() if isinstance(body, str) else body,
        elapsed_s=0.1,
        first_byte_s=0.05,
        fetched_at=1_700_000_000.0,
        content_type=kind,
        charset=charset,
    )


def page(body: str | bytes = b"", *, data: Mapping[str, Any] | None = None, depth: int = 0, **more: Any) -> Page:
    answer = fetched(body, **more)
    return Page(
        answer, payload=PagePayload(url=answer.url, depth=depth, data=data or {}, referrer="https://example.org/")
    )


def stored_page(name: str) -> str:
    return (FIXTURES / f"{name}.html").read_text(encoding="utf-8")
