"""Every error is application/problem+json, and the document says which there may be."""

from __future__ import annotations

import asyncio
import errno
import re
from pathlib import Path

import pytest
from fastapi import FastAPI

from holdfast.ops.api import build_api
from holdfast.ops.api.page_files import Page
from tests.unit.ops.api.shopfront import Shopfront, new_app


async def test_a_path_that_is_not_there_is_a_problem(front: Shopfront) -> None:
    problem = await front.get("/nowhere", 404)
    assert problem == {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "", "errors": []}


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/jobs", "GET, HEAD, POST"),
        ("/dead-letters/groups", "GET, HEAD"),
        ("/dead-letters/x", "DELETE, GET, HEAD"),
        ("/breakers/a%2Fb/reset", "POST"),
        ("/session", "DELETE, GET, HEAD, POST"),
    ],
)
async def test_another_method_is_refused_with_those_that_there_are(front: Shopfront, path: str, methods: str) -> None:
    answer = await front.client.request("PUT", path)
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["allow"] == methods


@pytest.mark.parametrize(
    "path",
    ["/health/live", "/health/ready", "/health", "/metrics", "/openapi.json", "/", "/jobs", "/dead-letters/export"],
)
async def test_head_answers_what_get_does_without_the_body(front: Shopfront, path: str) -> None:
    whole, head = await front.client.get(path), await front.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert head.headers["x-frame-options"] == "DENY"


async def test_head_of_the_events_takes_no_place(front: Shopfront) -> None:
    async with asyncio.timeout(5.0):
        head = await front.client.head("/events")
    assert head.headers["content-type"].startswith("text/event-stream")
    assert head.content == b""
    assert front.server.live.clients == 0


async def test_head_is_refused_as_get_is_and_where_there_is_no_get(front: Shopfront) -> None:
    refused = await front.client.head("/jobs/no-such")
    assert (refused.status_code, refused.content) == (404, b"")
    assert (await front.client.head("/replays/preview")).status_code == 405


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs?limit=1&limit=2"),
        ("GET", "/jobs?tenant=&tenant=a"),
        ("GET", "/dead-letters?cursor=&cursor=x"),
        ("GET", "/dead-letters/groups?task=a&state=x&task=a"),
        ("GET", "/dead-letters/export?format=csv&format=jsonl"),
        ("DELETE", "/dead-letters?older_than_hours=9999&older_than_hours=0"),
        ("DELETE", "/retry/dead-letters?older_than_hours=9999&older_than_hours=0"),
        ("POST", "/retry/simulate-failure?task_type=a&task_type=b"),
    ],
)
async def test_a_parameter_with_one_value_is_refused_when_it_is_given_twice(
    front: Shopfront, method: str, path: str
) -> None:
    problem = await front.ask(method, path, 422)
    assert [error["message"] for error in problem["errors"]] == ["is given more than once"]


async def test_states_may_be_given_several_times(front: Shopfront) -> None:
    await front.letters(5, 500)
    page = await front.ask("GET", "/jobs?state=completed&state=dead_letter&limit=5")
    assert len(page["items"]) == 2


async def test_want_of_descriptors_is_no_bug_and_those_who_ask_again_may_be_answered(
    front: Shopfront, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def short() -> None:
        raise OSError(errno.EMFILE, "Too many open files", "/srv/s3cret")

    monkeypatch.setattr(front.app.breakers, "alist", short)
    answer = await front.client.get("/breakers")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "s3cret" not in answer.text


async def test_a_bug_is_told_without_what_is_inside(front: Shopfront, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("s3cret")

    monkeypatch.setattr(front.app.breakers, "alist", broken)
    answer = await front.client.get("/breakers")
    assert answer.status_code == 500
    assert "s3cret" not in answer.text
    assert "its log has more under" in answer.json()["detail"]


def test_every_operation_documents_its_errors_as_problems(front: Shopfront) -> None:
    document = front.api.openapi()
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len(operations) > 45
    for operation in operations:
        assert operation["operationId"]
        assert operation["description"]
        for status, response in operation["responses"].items():
            if int(status) >= 400 and operation["operationId"] not in ("get_health", "get_ready"):
                assert list(response["content"]) == ["application/problem+json"], (operation["operationId"], status)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_route_is_in_the_reference(front: Shopfront) -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "http-api.md").read_text()
    routes = {f"{method.upper()} {path}" for path, one in front.api.openapi()["paths"].items() for method in one}
    assert routes == set(re.findall(r"`((?:GET|POST|DELETE) /[^`]*)`", page)) - {"GET /openapi.json"}


async def test_it_can_be_mounted_under_a_prefix() -> None:
    app = new_app()
    outer = FastAPI()
    outer.mount("/ops/holdfast", build_api(app))
    front = Shopfront(app)
    front.api = outer
    front.client = front.client_with(None)
    assert (await front.get("/ops/holdfast/health/live"))["status"] == "ok"
    made = await front.post("/ops/holdfast/jobs", {"task": "shop.charge", "arguments": {"order_id": 1}}, status=201)
    assert (await front.get(f"/ops/holdfast/jobs/{made['id']}"))["task"] == "shop.charge"
    page = await front.client.get("/ops/holdfast/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    answer = await front.client.request("PUT", "/ops/holdfast/session")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, POST"
    await app.aclose()


@pytest.fixture
def built(tmp_path: Path) -> Page:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "assets" / "app-1.js").write_text("1;" * 99)
    (tmp_path / "assets" / "app-1.js.gz").write_bytes(b"packed")
    (tmp_path.parent / "secret.txt").write_text("s3cret")
    return Page(tmp_path)


def test_hashed_files_are_kept_for_ever_and_the_page_is_asked_for_again(built: Page) -> None:
    assert "immutable" in built.answer("assets/app-1.js", {}).headers["cache-control"]
    page = built.answer("", {})
    assert page.headers["cache-control"] == "no-cache"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    again = built.answer("", {b"if-none-match": page.headers["etag"].encode()})
    assert (again.status_code, again.body) == (304, b"")


def test_what_was_packed_is_sent_so_to_whoever_takes_it(built: Page) -> None:
    packed = built.answer("assets/app-1.js", {b"accept-encoding": b"br, gzip"})
    assert (packed.body, packed.headers["content-encoding"]) == (b"packed", "gzip")
    plain = built.answer("assets/app-1.js", {b"accept-encoding": b"gzip;q=0"})
    assert plain.body == b"1;" * 99
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("name", ["../secret.txt", "assets/../../secret.txt", "/etc/passwd", "assets", "app-1.js.gz"])
def test_no_name_leads_out_of_the_folder(built: Page, name: str) -> None:
    assert built.answer(name, {}).status_code == 404


def test_without_a_built_page_there_is_a_line_that_says_how_to_build_it(tmp_path: Path) -> None:
    page = Page(tmp_path / "none")
    assert b"make page" in bytes(page.answer("", {}).body)
    assert page.answer("assets/x.js", {}).status_code == 404
