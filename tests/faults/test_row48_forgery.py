"""Row 48: a page of another site makes a browser send what its user never wanted. Nothing of it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx
import pytest
from msgspec import json

from holdfast import App
from holdfast.ops.api import ApiSettings, build_api
from tests.faults.report import Report
from tests.faults.web import CALLERS, UNLIMITED

STORE: Final = "memory"
COOKIE: Final = f"holdfast_session={CALLERS['admin'].text}"
OURS: Final = {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}
THEIRS: Final = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
JSON: Final = "application/json"
JOB: Final = json.encode({"task": "touch", "arguments": {}})

SIGN_IN: Final = json.encode({"token": CALLERS["viewer"].text})
FORM: Final = "application/x-www-form-urlencoded"
TEXT: Final = "text/plain"
PAUSE: Final = "POST /queues/mail/pause"
ELSEWHERE: Final = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}
REBOUND: Final = {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}


class Forgery(NamedTuple):
    """What a browser can be made to send, and the status it gets."""

    status: int
    route: str
    headers: Mapping[str, str]
    kind: str = ""
    body: bytes = b""


FORGERIES: Final = {
    "form": Forgery(403, PAUSE, THEIRS, FORM, b"a=1"),
    "form without a body": Forgery(403, PAUSE, THEIRS),
    "form from a sandbox": Forgery(403, PAUSE, {"Origin": "null"}),
    "form of an old browser": Forgery(403, PAUSE, {"Origin": "http://evil.example"}),
    "JSON as text": Forgery(403, "POST /jobs", THEIRS, TEXT, JOB),
    "JSON as text, Origin hidden": Forgery(403, "POST /jobs", {"Sec-Fetch-Site": "cross-site"}, TEXT, JOB),
    "JSON as text from our page": Forgery(415, "POST /jobs", OURS, TEXT, JOB),
    "JSON without a type from our page": Forgery(415, "POST /jobs", OURS, "", JOB),
    "fetch": Forgery(403, "POST /jobs", THEIRS, JSON, JOB),
    "fetch from another port": Forgery(403, "POST /jobs", ELSEWHERE, JSON, JOB),
    "a form opened": Forgery(403, PAUSE, {**THEIRS, "Sec-Fetch-Mode": "navigate"}),
    "delete": Forgery(403, "DELETE /dead-letters?older_than_hours=0", THEIRS),
    "method in a header": Forgery(403, PAUSE, {**THEIRS, "X-HTTP-Method-Override": "GET"}),
    "rebound name": Forgery(421, PAUSE, REBOUND),
    "rebound name, looking": Forgery(421, "GET /jobs", REBOUND),
    "looking": Forgery(403, "GET /jobs", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
    "listening": Forgery(403, "GET /events", {**THEIRS, "Sec-Fetch-Mode": "cors"}),
    "signing in as somebody else": Forgery(403, "POST /session", THEIRS, JSON, SIGN_IN),
    "signing out": Forgery(403, "DELETE /session", THEIRS),
}


class Shop:
    """An app whose only queue must never be paused, and which must never get a job."""

    def __init__(self, settings: ApiSettings) -> None:
        self.app = App("memory://")

        @self.app.task(name="touch")
        def touch() -> None: ...

        self.api = build_api(self.app, settings)

    async def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        transport = httpx.ASGITransport(self.api)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
            return await client.request(method, path, headers=headers, content=body)

    async def is_untouched(self) -> bool:
        paused = [queue.name for queue in await self.app.queues.alist() if queue.is_paused]
        return not paused and not (await self.app.jobs.alist()).items


WAYS: Final = ("signed in by cookie", "without tokens")


def opened(way: str) -> tuple[Shop, dict[str, str]]:
    if way == "without tokens":
        return Shop(ApiSettings()), {}
    return Shop(UNLIMITED), {"Cookie": COOKIE}


@pytest.fixture(params=WAYS, scope="module")
def shop(request: pytest.FixtureRequest) -> tuple[Shop, dict[str, str]]:
    """Shared, for nothing may ever change it."""
    return opened(request.param)


@pytest.mark.parametrize("name", FORGERIES)
async def test_what_another_site_sends_is_refused(shop: tuple[Shop, Any], name: str, report: Report) -> None:
    one, cookie = shop
    forgery = FORGERIES[name]
    method, _, path = forgery.route.partition(" ")
    kind = {"Content-Type": forgery.kind} if forgery.kind else {}
    answer = await one.send(method, path, {**forgery.headers, **kind, **cookie}, forgery.body)
    assert answer.status_code == forgery.status
    is_untouched = await one.is_untouched()
    assert is_untouched
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "Set-Cookie" not in answer.headers
    report(
        "what a page of another site makes a browser send",
        injected=1,
        note=f"{answer.status_code}, accepted {int(not is_untouched)}",
    )


async def test_a_cookie_without_a_word_about_its_page_changes_nothing() -> None:
    one = Shop(UNLIMITED)
    answer = await one.send("POST", "/queues/mail/pause", {"Cookie": COOKIE}, b"")
    assert answer.status_code == 403
    assert await one.is_untouched()


async def test_a_preflight_allows_nothing(shop: tuple[Shop, Any]) -> None:
    headers = {**THEIRS, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    answer = await shop[0].send("OPTIONS", "/jobs", headers, b"")
    assert answer.status_code in {401, 403, 405}
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("way", WAYS)
async def test_our_own_page_and_programs_are_not_taken_for_forgers(way: str) -> None:
    one, cookie = opened(way)
    assert (await one.send("POST", "/queues/mail/pause", {**OURS, **cookie}, b"")).status_code == 200
    assert (await one.send("POST", "/jobs", {**OURS, **cookie, "Content-Type": JSON}, JOB)).status_code == 201
    assert not await one.is_untouched()
    if not cookie:
        assert (await one.send("POST", "/queues/mail/resume", {}, b"")).status_code == 200


@pytest.mark.parametrize("path", ["/", "/jobs", "/openapi.json", "/assets/none.js", "/nope", "/events/none"])
async def test_no_answer_may_be_shown_in_a_frame(shop: tuple[Shop, Any], path: str) -> None:
    one, cookie = shop
    answer = await one.send("GET", path, cookie, b"")
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
