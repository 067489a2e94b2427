from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request

from holdfast.errors import ConfigError
from holdfast.ops.api.access import (
    ADDRESS,
    GUARD,
    PRINCIPAL,
    SCHEME,
    address_of,
    is_change,
    is_open,
    needs,
    principal_of,
    sign_in,
    sign_out_cookie,
)
from holdfast.ops.api.guard import Guard
from holdfast.ops.api.problems import ProblemError
from holdfast.ops.api.roles import Principal, Role
from holdfast.ops.api.settings import ApiSettings
from holdfast.testing import ManualClock
from tests.unit.ops.api.guarding import ADMIN, EXPIRED, TOKENS, Inner


def request(principal: Principal | None = None, scope: Mapping[str, Any] | None = None) -> Request:
    guard = Guard(Inner(), ApiSettings(tokens=TOKENS, login_rate="2/minute"), clock=ManualClock())
    return Request(
        {"type": "http", "headers": [], GUARD: guard, PRINCIPAL: principal, ADDRESS: "203.0.113.9", **(scope or {})}
    )


@pytest.mark.parametrize(("has", "wanted"), list(itertools.product(Role, Role)))
async def test_a_role_may_do_all_that_the_ones_before_it_may(has: Role, wanted: Role) -> None:
    somebody = request(Principal(name="x", role=has))
    if list(Role).index(has) >= list(Role).index(wanted):
        assert (await needs(wanted)(somebody)).role is has
        return
    with pytest.raises(ProblemError) as caught:
        await needs(wanted.value)(somebody)
    assert caught.value.status == 403
    assert wanted.value in caught.value.detail


async def test_nobody_may_do_nothing() -> None:
    with pytest.raises(ProblemError) as caught:
        await needs("viewer")(request())
    assert (caught.value.status, "WWW-Authenticate" in (caught.value.headers or {})) == (401, True)
    with pytest.raises(ProblemError):
        principal_of(request())


async def test_one_tenants_token_may_nothing_about_the_whole_fleet_whatever_its_role() -> None:
    somebody = request(Principal(name="x", role=Role.ADMIN, tenant="acme"))
    assert (await needs("admin")(somebody)).tenant == "acme"
    with pytest.raises(ProblemError) as caught:
        await needs("viewer", is_fleet=True)(somebody)
    assert caught.value.status == 403


def test_a_rule_with_an_unknown_role_is_found_when_the_route_is_made() -> None:
    with pytest.raises(ConfigError, match="role='owner'"):
        needs("owner")


def test_signing_in_gives_a_cookie_that_scripts_and_other_sites_cannot_use() -> None:
    signed_in = sign_in(request(), ADMIN.text)
    assert signed_in.principal.name == "ada"
    assert signed_in.cookie == f"holdfast_session={ADMIN.text}; Path=/; HttpOnly; SameSite=Strict"


def test_over_tls_and_below_a_prefix_the_cookie_stays_there() -> None:
    there = request(scope={SCHEME: "https", "root_path": "/ops/holdfast"})
    assert sign_in(there, ADMIN.text).cookie.endswith("Path=/ops/holdfast; HttpOnly; SameSite=Strict; Secure")
    assert sign_out_cookie(there).startswith("holdfast_session=; Path=/ops/holdfast;")
    assert sign_out_cookie(there).endswith("Max-Age=0")


def test_over_tls_at_the_root_no_other_host_can_set_the_cookie() -> None:
    there = request(scope={SCHEME: "https"})
    assert sign_in(there, ADMIN.text).cookie == (
        f"__Host-holdfast={ADMIN.text}; Path=/; HttpOnly; SameSite=Strict; Secure"
    )
    assert sign_out_cookie(there) == "__Host-holdfast=; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0"


def test_a_prefix_cannot_end_the_cookies_path() -> None:
    assert "Path=/axDomain=evil;" in sign_out_cookie(request(scope={"root_path": "/a; x\r\nDomain=evil"}))


@pytest.mark.parametrize(
    "text",
    ["", "garbage", EXPIRED.text, ADMIN.text[:-1], "x" * 500, "\ud800", "ünï"],
    ids=["nothing", "garbage", "expired", "cut", "long", "half a pair", "not ascii"],
)
def test_signing_in_with_what_is_no_good_token_is_refused_and_limited(text: str) -> None:
    one = request()
    statuses = []
    for _ in range(3):
        with pytest.raises(ProblemError) as caught:
            sign_in(one, text)
        statuses.append(caught.value.status)
    assert statuses == [401, 401, 429]
    assert caught.value.retry_after == 60.0


def test_the_address_is_what_the_guard_found() -> None:
    assert address_of(request()) == "203.0.113.9"


@pytest.mark.parametrize(
    ("method", "path", "changes"),
    [
        ("GET", "/jobs", False),
        ("HEAD", "/jobs", False),
        ("OPTIONS", "/jobs", False),
        ("POST", "/jobs", True),
        ("DELETE", "/session", False),
        ("POST", "/session", False),
        ("POST", "/replays/preview", False),
        ("DELETE", "/replays/preview", True),
        ("POST", "/tasks/a\nb/validate", False),
        ("POST", "/tasks/validate", True),
        ("POST", "/tasks//validate", True),
        ("PATCH", "/tasks/a/validate", True),
        ("POST", "/x/tasks/a/validate", True),
    ],
)
def test_what_changes_something_is_known(method: str, path: str, changes: bool) -> None:
    assert is_change(method, path) is changes


@pytest.mark.parametrize("path", ["/", "/index.html", "/assets/a.js", "/favicon.svg", "/health/ready"])
def test_only_reading_the_page_is_open(path: str) -> None:
    assert is_open("GET", path)
    assert is_open("HEAD", path)
    assert not is_open("POST", path)
    assert not is_open("DELETE", path)
