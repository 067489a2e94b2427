"""The snippets of the docs that need a server run as shown, on a private one.

They are fenced as `py`; those fenced as `python` need none, and tests/unit/test_docs.py runs them.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.servers import PostgresServer, RedisServer

DOCS: Final = Path(__file__).parents[2] / "docs"
POSTGRES_PLACE: Final = "shop:secret@db.internal/shop"
"""What stands between // and the options in every PostgreSQL URL of a snippet."""
REDIS_PLACE: Final = "redis://:secret@redis.internal:6379/0"
KAFKA_PLACE: Final = "kafka://localhost:9092/orders"

_SNIPPET: Final = re.compile(r"^```py\n(.*?)^```$(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
_PAGES: Final = [page for page in sorted(DOCS.rglob("*.md")) if _SNIPPET.search(page.read_text())]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_snippet_that_needs_a_server_runs_as_shown(
    page: Path,
    postgres_server: PostgresServer,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    database = f"docs_{re.sub(r'[^a-z]', '_', page.stem)}"
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}".encode())
    places = {
        POSTGRES_PLACE: postgres_server.dsn(database=database).removeprefix("postgresql://"),
        REDIS_PLACE: redis_server.url(redis_server.fresh_prefix()).partition("?")[0],
    }
    text = page.read_text()
    if KAFKA_PLACE in text:
        places[KAFKA_PLACE] = request.getfixturevalue("kafka_topic").url
    namespace: dict[str, Any] = {"__name__": page.stem}
    for found in _SNIPPET.finditer(text):
        source = found[1]
        for shown, real in places.items():
            source = source.replace(shown, real)
        # Blank lines before the code, so that a traceback has the page's line numbers.
        line = text.count("\n", 0, found.start()) + 1
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * line + source, str(page), "exec", dont_inherit=True), namespace)
        if found[2] is not None:
            assert printed.getvalue() == found[2]


def test_there_are_such_snippets() -> None:
    assert {page.name for page in _PAGES} >= {"operate-postgres.md", "operate-redis.md", "first-stream.md"}
