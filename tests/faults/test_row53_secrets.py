"""Row 53: secrets in arguments, exceptions, tracebacks, results and headers. No output shows one."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from click.testing import CliRunner

from holdfast import App, Permanent, RetryPolicy
from holdfast.ops.api import build_api
from holdfast.ops.cli import main
from holdfast.ops.webhook import Webhook
from holdfast.policy.notices import Notice
from holdfast.runtime.logs import JsonFormatter, TextFormatter
from tests.faults.engines import Engine
from tests.faults.report import Report
from tests.faults.web import CALLERS, UNLIMITED, asking, bearer, first_of

CANARY: Final = re.compile(rb"canary-?\d\d")
PASSWORD, NESTED, DSN, BEARER, LOCAL, RESULT, HEADER, SPELT, NAMED = (f"canary-{number}" for number in range(10, 19))
ARGUMENTS: Final = {
    "order": 42,
    "password": PASSWORD,
    "card": {
        "apiKey": NESTED,
        "list": [{"X-Auth-Token": NESTED}],
        "passWord": SPELT,
        "DB_PASS": SPELT,
        "tokens": [SPELT],
        "headers": [["Authorization", f"Basic {SPELT}"], ["X-Api-Key", SPELT]],
        "env": [{"name": "DB_PASSWORD", "value": SPELT}],
        "argv": ["mysql", "--password", SPELT],
        "text": f"connect({{'password': b'{SPELT}', 'token': SecretStr('{SPELT}')}}) --password {SPELT}",
        "dsn url": f"postgresql://u:can't{SPELT}@db",
        "git": f"https://{SPELT}@git.example/x",
        f"redis://:{SPELT}@h": 1,
    },
}
"""With secrets in every place that people put them."""
PATHS: Final = (
    "/jobs /jobs?text=order /jobs?text=canary /dead-letters /dead-letters?text=canary "
    "/dead-letters/groups /dead-letters/export /dead-letters/export?format=csv "
    "/replays /tasks /breakers /queues /workers /schedules /overview /alerts /audit /health /metrics /session "
    "/retry/circuit-breakers /retry/dead-letters /retry/stats /openapi.json /"
).split()


def make_app(url: str) -> App:
    """An app that spills what it knows, as apps do."""
    app = App(url)

    @app.task(name="spill", retry=RetryPolicy(max_retries=1, initial_delay=0.0, min_delay=0.0, jitter=False))
    def spill(order: int, password: str, card: dict[str, Any]) -> None:
        connect(f"postgresql://shop:{DSN}@db.example/shop")

    @app.task(name="login", retry=RetryPolicy(max_retries=0))
    def login(order: int, api_key: str = LOCAL) -> None:
        raise Permanent(f"401 for Authorization: Bearer {BEARER}-0123456789abcdef, api_key={LOCAL}")

    @app.task(name="keep")
    def keep(order: int) -> dict[str, Any]:
        return {"order": order, "secret": RESULT, "deep": [{"client_secret": RESULT}]}

    return app


def connect(dsn: str) -> None:
    """Fails with the DSN in its text and a password in its source line."""
    try:
        raise OSError(f"could not connect to {dsn}")
    except OSError as error:
        raise ConnectionError(f"giving up on {dsn} with password={LOCAL!r}") from error


@contextmanager
def logged(level: int = logging.DEBUG) -> Iterator[io.StringIO]:
    """All that is logged, in both formats."""
    stream = io.StringIO()
    root = logging.getLogger("holdfast")
    handlers = []
    for formatter in (TextFormatter(), JsonFormatter()):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        handlers.append(handler)
        root.addHandler(handler)
    before = root.level
    root.setLevel(level)
    try:
        yield stream
    finally:
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)


@pytest.fixture
def spilt(engine: Engine) -> Iterator[tuple[App, str]]:
    """An app whose jobs have run and spilt, and what it logged meanwhile."""
    app = make_app(engine.url)
    with logged() as log:
        app.tasks["spill"].options(
            idempotency_key=f"token={NAMED}", user=f"pw={NAMED}", project=f"redis://:{NAMED}@h"
        ).enqueue(**ARGUMENTS)
        app.tasks["login"].enqueue(order=1)
        app.tasks["keep"].enqueue(order=2)
        app.run_until_idle()
    yield app, log.getvalue()
    app.close()


async def outputs(app: App) -> dict[str, bytes]:
    """All that the API says, to the one who may see the most."""
    found: dict[str, bytes] = {}
    api = build_api(app, UNLIMITED)
    async with asking(api) as client:
        headers = {"X-Api-Key": HEADER, "Cookie": f"other={HEADER}"}
        for path in PATHS:
            answer = await client.get(path, headers=headers)
            assert answer.status_code in {200, 503}, path
            found[path] = answer.content + repr(answer.headers.multi_items()).encode()
        for item in (await client.get("/jobs")).json()["items"]:
            found[f"/jobs/{item['task']}"] = (await client.get(f"/jobs/{item['id']}")).content
            found[f"/dead-letters/{item['task']}"] = (await client.get(f"/dead-letters/{item['id']}")).content
        bad = {"order": "no number", "password": PASSWORD, "card": {"apiKey": NESTED}}
        asked = {
            "/tasks/spill/validate": {"arguments": bad},
            "/jobs": {"task": "spill", "arguments": bad},
            "/replays/preview": {"edit": {"password": PASSWORD}},
            "/session": {"token": f"hf_{PASSWORD}"},
            "/queues/a/pause": None,
        }
        for path, body in asked.items():
            found[f"POST {path}"] = (await client.post(path, json=body, headers=headers)).content
        target = f"/breakers/postgresql:%2F%2Fu:{DSN}@db%2Fx/reset"
        found["audit after a DSN as a key"] = (await client.post(target)).content + (await client.get("/audit")).content
    _, found["/events"] = await first_of(api, "GET", "/events", bearer("admin"), lines=1)
    return found


async def test_no_answer_of_the_api_shows_a_secret(spilt: tuple[App, str], report: Report) -> None:
    app, _ = spilt
    with logged() as log:
        found = await outputs(app)
    found["log of the server"] = log.getvalue().encode()
    assert len(found) > 30
    assert b"[redacted]" in found["/jobs/spill"]
    holding = {name: CANARY.findall(text) for name, text in found.items() if CANARY.search(text)}
    assert holding == {}
    secrets = [made.text.rpartition("_")[2] for made in CALLERS.values()]
    assert not [name for name, text in found.items() for secret in secrets if secret.encode() in text]
    report(
        "secrets in arguments, results, exceptions, tracebacks and headers",
        injected=len({PASSWORD, NESTED, DSN, BEARER, LOCAL, RESULT, HEADER, SPELT, NAMED}),
        note=f"{len(found)} answers and logs searched, holding one {len(holding)}",
    )


def test_no_log_of_a_worker_shows_a_secret_in_either_format(spilt: tuple[App, str]) -> None:
    _, log = spilt
    assert "spill" in log
    assert '"level"' in log
    assert CANARY.findall(log.encode()) == []


def test_no_command_shows_a_secret(spilt: tuple[App, str], engine: Engine) -> None:
    app, _ = spilt
    letters = [letter.id for letter in app.dead_letters.list().items]
    assert len(letters) == 2
    looks = [["jobs", "list"], ["dlq", "list"], ["dlq", "groups"], ["breakers", "list"]]
    looks += [[group, "show", one] for one in letters for group in ("jobs", "dlq")]
    for words in looks:
        for as_json in ([], ["--json"]):
            ran = CliRunner().invoke(main, [words[0], "--url", engine.url, *words[1:], *as_json])
            assert ran.exit_code == 0, ran.output
            assert CANARY.findall(ran.output.encode()) == [], words
    ran = CliRunner().invoke(main, ["top", "--url", engine.url, "--json"])
    assert (ran.exit_code, CANARY.findall(ran.output.encode())) == (0, [])


async def test_no_webhook_shows_a_secret() -> None:
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(re.findall(rb"(?i)content-length: (\d+)", head)[0])
        received.append(head + await reader.readexactly(size))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        secret = "signing-canary-99"
        hook = Webhook(f"http://127.0.0.1:{port}/hook", secret, allow=("127.0.0.0/8",))
        text = f"the store is away: could not connect to postgresql://shop:{DSN}@db.example/shop"
        await hook.deliver(
            Notice(id="1", name=f"password={PASSWORD}", state="firing", value=1.0, threshold=0.0, text=text, at=0.0)
        )
    assert len(received) == 1
    assert b"[redacted]" in received[0]
    assert CANARY.findall(received[0]) == []
