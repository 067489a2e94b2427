"""Row 47: no, old or other credentials on every route. The table below is all there is: a route without a row fails."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from click.testing import CliRunner
from starlette.routing import Route

from holdfast import App
from holdfast.ops.api import build_api, routes
from holdfast.ops.cli import main
from tests.faults.report import Report
from tests.faults.web import UNLIMITED, bearer, first_of

STORE: Final = "memory"
PUBLIC, OPEN, VIEWER, OPERATOR, ADMIN = range(5)
"""Public is what is the same for all: no credential is looked at, good or bad."""
RANKS: Final = {"viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN, "tenant a": ADMIN, "tenant b": ADMIN}
CREDENTIALS: Final = ("none", "garbage", "expired", *RANKS)


class Rule(NamedTuple):
    """Who may call a route, and what it answers to those who may."""

    least: int
    is_fleet: bool
    answer: int
    body: Any = None
    query: str = ""


def own(least: int, answer: int, body: Any = None, query: str = "") -> Rule:
    """A route about jobs, each of which is somebody's."""
    return Rule(least, False, answer, body, query)


def fleet(least: int, answer: int, body: Any = None, query: str = "") -> Rule:
    """A route about what all tenants share."""
    return Rule(least, True, answer, body, query)


BUILT: Final = 0
"""200, or 404 where nobody has built the page."""
NO_IDS: Final = {"ids": ["nope"]}
RULES: Final = {
    "POST /jobs": own(OPERATOR, 404, {"task": "nope"}),
    "GET /jobs": own(VIEWER, 200),
    "POST /jobs/cancel": own(OPERATOR, 200, NO_IDS),
    "POST /jobs/retry": own(OPERATOR, 200, NO_IDS),
    "GET /jobs/{id}": own(VIEWER, 404),
    "POST /jobs/{id}/cancel": own(OPERATOR, 404),
    "POST /jobs/{id}/retry": own(OPERATOR, 404),
    "GET /dead-letters": own(VIEWER, 200),
    "DELETE /dead-letters": fleet(ADMIN, 200, query="older_than_hours=1"),
    "GET /dead-letters/groups": own(VIEWER, 200),
    "GET /dead-letters/export": own(OPERATOR, 200),
    "GET /dead-letters/{id}": own(VIEWER, 404),
    "DELETE /dead-letters/{id}": own(OPERATOR, 404),
    "POST /dead-letters/{id}/retry": own(OPERATOR, 404),
    "POST /replays/preview": own(OPERATOR, 200, {}),
    "GET /replays": own(VIEWER, 200),
    "POST /replays": own(OPERATOR, 201, {}),
    "POST /replays/{id}/pause": own(OPERATOR, 404),
    "POST /replays/{id}/resume": own(OPERATOR, 404),
    "POST /replays/{id}/stop": own(OPERATOR, 404),
    "GET /tasks": own(VIEWER, 200),
    "POST /tasks/{name}/validate": own(VIEWER, 404, {"arguments": {}}),
    "GET /breakers": fleet(VIEWER, 200),
    "POST /breakers/{key}/reset": fleet(OPERATOR, 404),
    "POST /breakers/{key}/force-open": fleet(OPERATOR, 404),
    "POST /breakers/{key}/disable": fleet(OPERATOR, 404),
    "GET /queues": fleet(VIEWER, 200),
    "GET /streams": fleet(VIEWER, 200),
    "GET /streams/{name}": fleet(VIEWER, 404),
    "GET /rings": fleet(VIEWER, 200),
    "GET /rings/{name}": fleet(VIEWER, 404),
    "GET /crawls": fleet(VIEWER, 200),
    "GET /crawls/{name}": fleet(VIEWER, 404),
    "POST /queues/{name}/pause": fleet(OPERATOR, 200),
    "POST /queues/{name}/resume": fleet(OPERATOR, 200),
    "GET /workers": fleet(VIEWER, 200),
    "GET /schedules": fleet(VIEWER, 200),
    "POST /schedules/{name}/pause": fleet(OPERATOR, 404),
    "POST /schedules/{name}/resume": fleet(OPERATOR, 404),
    "GET /retry/circuit-breakers": fleet(VIEWER, 200),
    "POST /retry/circuit-breakers/{type}/reset": fleet(OPERATOR, 404),
    "GET /retry/dead-letters": own(VIEWER, 200),
    "DELETE /retry/dead-letters": fleet(ADMIN, 200, query="older_than_hours=1"),
    "POST /retry/dead-letters/{id}/retry": own(OPERATOR, 404),
    "GET /retry/stats": fleet(VIEWER, 200),
    "POST /retry/simulate-failure": fleet(OPERATOR, 404, query="task_type=nope"),
    "GET /overview": fleet(VIEWER, 200),
    "GET /alerts": fleet(VIEWER, 200),
    "GET /audit": fleet(ADMIN, 200),
    "GET /health": fleet(VIEWER, 200),
    "GET /health/live": own(PUBLIC, 200),
    "GET /health/ready": own(PUBLIC, 200),
    "GET /metrics": fleet(VIEWER, 200),
    "GET /events": own(VIEWER, 200),
    "GET /session": own(OPEN, 200),
    "POST /session": own(OPEN, 401, {"token": "nope"}),
    "DELETE /session": own(OPEN, 204),
    # Not in the document: the page's files, which are there once the page is built, and the document itself.
    "GET /": own(PUBLIC, 200),
    "GET /index.html": own(PUBLIC, BUILT),
    "GET /favicon.svg": own(PUBLIC, BUILT),
    "GET /theme.js": own(PUBLIC, BUILT),
    "GET /assets/{file}": own(PUBLIC, 404),
    "GET /openapi.json": own(PUBLIC, 200),
}


def expected(rule: Rule, caller: str) -> int:
    """The status that the table has for a caller."""
    if rule.least == PUBLIC:
        return rule.answer
    if caller in {"garbage", "expired"} or (caller == "none" and rule.least > OPEN):
        return 401
    if caller == "none" or rule.least == OPEN:
        return rule.answer
    if RANKS[caller] < rule.least or (rule.is_fleet and caller.startswith("tenant")):
        return 403
    return rule.answer


@pytest.fixture(scope="module")
def api() -> Any:
    return build_api(App("memory://"), UNLIMITED)


def test_every_route_has_a_row_in_the_table(api: Any) -> None:
    documented = {f"{method.upper()} {path}" for path, ways in api.openapi()["paths"].items() for method in ways}
    beside = {
        f"GET {route.path.replace(':path', '')}"
        for route in api.routes
        if isinstance(route, Route) and not route.include_in_schema
    }
    assert documented | beside == set(RULES)
    for module in pkgutil.iter_modules(routes.__path__):
        router = importlib.import_module(f"{routes.__name__}.{module.name}").router
        assert [route.path for route in router.routes if not route.include_in_schema] == [], module.name


@pytest.mark.parametrize("caller", CREDENTIALS)
async def test_every_route_answers_every_credential_as_the_table_has_it(api: Any, caller: str, report: Report) -> None:
    found = {}
    for route, rule in RULES.items():
        method, _, path = route.partition(" ")
        for name in ("id", "name", "key", "type", "file"):
            path = path.replace(f"{{{name}}}", "nope")
        target = f"{path}?{rule.query}" if rule.query else path
        status, _ = await first_of(api, method, target, bearer(caller), rule.body)
        found[route] = BUILT if rule.answer == BUILT and status in {200, 404} else status
    wanted = {route: expected(rule, caller) for route, rule in RULES.items()}
    assert found == wanted
    open_ones = sum(status not in {401, 403} for status in found.values())
    beyond = sum(found[route] not in {401, 403} and status in {401, 403} for route, status in wanted.items())
    report(
        "every route asked with no, unknown, old and other credentials",
        injected=len(found),
        note=f"{caller}: let in at {open_ones} of {len(found)}, beyond the table {beyond}",
    )


@pytest.mark.parametrize("caller", ["none", "garbage", "viewer", "tenant a"])
async def test_methods_and_paths_that_are_no_route_let_nobody_further(api: Any, caller: str) -> None:
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "POST"):
        for path in ("/jobs/x", "/nope", "//jobs", "/jobs/", "/assets/../audit", "/session/../audit", "/%2e%2e/audit"):
            status, body = await first_of(api, method, path, bearer(caller))
            assert status in {401, 403, 404, 405}, (method, path, status)
            assert b"items" not in body


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "shop.example"])
def test_a_server_that_others_could_reach_does_not_start_without_tokens(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, ["serve", "nothing:app", "--host", host, "--port", "0"])
    assert found.exit_code == 2
    assert "--tokens" in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
