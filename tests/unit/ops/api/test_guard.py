from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Message

from holdfast.ops.api import guard
from holdfast.ops.api.guard import SECURITY_HEADERS, Guard
from holdfast.ops.api.limits import BadBody
from holdfast.ops.api.settings import ApiSettings
from holdfast.ops.api.tokens import TokenFile, lines_of, make_token
from holdfast.testing import ManualClock
from tests.unit.ops.api.guarding import ACME, ADMIN, EXPIRED, OPERATOR, TOKENS, VIEWER, Caller, Inner

JSON = {"Content-Type": "application/json"}
OWN = {"Origin": "http://localhost:8080"}
WITH_TOKENS = ApiSettings(tokens=TOKENS)

# ---------------------------------------------------------------- who


async def test_without_tokens_this_machine_is_let_in_as_an_admin() -> None:
    for address in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        answer = await Caller().call(address=address)
        assert (answer.status_code, answer.json()["who"]) == (200, "local")


@pytest.mark.parametrize("address", ["10.0.0.5", "203.0.113.9", "fe80::1", "", "not an address"])
async def test_without_tokens_no_other_machine_is_let_in(address: str) -> None:
    answer = await Caller().call(address=address)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert "holdfast token new" in answer.json()["detail"]


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Via", "X-Forwarded-Host"])
async def test_without_tokens_a_proxy_on_this_machine_is_not_this_machine(header: str) -> None:
    assert await Caller().status(headers={header: "127.0.0.1"}) == 401


async def test_a_server_that_others_can_reach_lets_nobody_in_without_tokens() -> None:
    assert await Caller(ApiSettings(is_loopback=False)).status() == 401


async def test_with_tokens_this_machine_needs_one_too() -> None:
    assert await Caller(WITH_TOKENS).status() == 401


async def test_an_empty_tokens_file_does_not_open_the_door(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("")
    assert await Caller(ApiSettings(tokens=TokenFile(tmp_path / "t.toml"))).status() == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_token_is_taken_from_the_authorization_header(scheme: str) -> None:
    answer = await Caller(WITH_TOKENS).call(headers={"Authorization": f"{scheme} {OPERATOR.text}"})
    assert (answer.status_code, answer.json()["who"]) == (200, "otto")


async def test_a_token_is_taken_from_the_cookie() -> None:
    answer = await Caller(WITH_TOKENS).call(cookie=VIEWER.text)
    assert answer.json()["who"] == "vera"


async def test_a_cookie_that_somebody_set_beside_ours_does_not_sign_out() -> None:
    headers = {"Cookie": f"holdfast_session=theirs; other=1; holdfast_session={VIEWER.text}"}
    assert (await Caller(WITH_TOKENS).call(headers=headers)).json()["who"] == "vera"


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer garbage", f"Basic {ADMIN.text}", f"Bearer {ADMIN.text}x", "\x7f", ADMIN.text],
    ids=["nothing", "no token", "a space", "garbage", "basic", "too long", "a control", "no scheme"],
)
async def test_a_wrong_credential_is_refused_with_a_challenge(given: str) -> None:
    answer = await Caller(WITH_TOKENS).call(headers={"Authorization": given})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_two_authorization_headers_are_refused_even_if_the_first_is_good() -> None:
    caller = Caller(WITH_TOKENS)
    scope = _scope([(b"host", b"localhost"), *[(b"authorization", f"Bearer {ADMIN.text}".encode())] * 2])
    assert await _status(caller.guard, scope) == 401


async def test_an_expired_token_is_refused_and_says_so() -> None:
    answer = await Caller(WITH_TOKENS).call(token=EXPIRED.text)
    assert (answer.status_code, answer.json()["detail"]) == (401, "the token has expired")


async def test_a_token_that_expires_ends_the_session_it_was_used_in() -> None:
    clock = ManualClock()
    made = make_token(name="soon", role="viewer", expires_at=clock.now() + 10)
    caller = Caller(ApiSettings(tokens=[made.token]), clock=clock)
    assert await caller.status(cookie=made.text) == 200
    clock.advance(10)
    assert await caller.status(cookie=made.text) == 401


async def test_a_token_that_is_taken_out_of_the_file_is_refused_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(lines_of(ADMIN.token))
    caller = Caller(ApiSettings(tokens=TokenFile(path)))
    assert await caller.status(token=ADMIN.text) == 200
    path.write_text(lines_of(VIEWER.token) + "\n")
    assert await caller.status(token=ADMIN.text) == 401


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/assets/x.js"), ("GET", "/openapi.json"), ("GET", "/health/live"), ("POST", "/session")],
)
async def test_the_page_and_the_way_in_are_open_also_with_a_cookie_that_has_expired(method: str, path: str) -> None:
    caller = Caller(WITH_TOKENS)
    assert await caller.status(method, path) == 200
    assert await caller.status(method, path, cookie=EXPIRED.text, headers=OWN) == 200


@pytest.mark.parametrize("path", ["/", "/assets/x.js", "/health/live", "/health/ready"])
async def test_where_all_see_the_same_credentials_are_not_looked_at(path: str) -> None:
    caller = Caller(ApiSettings(tokens=TOKENS, login_rate="1/minute"))
    for token in ("hf_old", "hf_old", EXPIRED.text, ADMIN.text):
        answer = await caller.call("GET", path, token=token)
        assert (answer.status_code, answer.json()["who"]) == (200, None)
    assert await caller.status("GET", "/jobs", token="hf_old") == 401  # none of these counted as a wrong one


async def test_one_good_cookie_among_twenty_is_found_and_more_are_not_tried() -> None:
    for others, status in ((19, 200), (20, 401)):
        line = "; ".join([*["holdfast_session=theirs"] * others, f"holdfast_session={VIEWER.text}"])
        assert await Caller(WITH_TOKENS).status(headers={"Cookie": line}) == status


async def test_over_tls_a_cookie_that_another_host_could_have_set_is_not_taken() -> None:
    caller = Caller(ApiSettings(tokens=TOKENS, hosts=["shop.example"]))
    for name, status in (("__Host-holdfast", 200), ("holdfast_session", 401)):
        headers = {"Cookie": f"{name}={VIEWER.text}"}
        assert await caller.status(headers=headers, url="https://shop.example") == status
    below = {"Cookie": f"holdfast_session={VIEWER.text}"}
    assert await caller.status("GET", "/h/jobs", headers=below, url="https://shop.example", root="/h") == 200


@pytest.mark.parametrize(
    "path", ["/assets", "/health", "/healthx", "/health/live/x", "/metrics", "/events", "/a/assets/"]
)
async def test_whatever_is_not_named_as_open_is_closed(path: str) -> None:
    assert await Caller(WITH_TOKENS).status("GET", path) == 401


# ---------------------------------------------------------------- Host


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.",
        "127.0.0.1:1",
        "[::1]",
        "[::1]:8080",
        "[0:0:0:0:0:0:0:1]",
        "shop.example",
    ],
)
async def test_our_own_names_are_taken_however_they_are_written(host: str) -> None:
    assert await Caller(ApiSettings(hosts=["Shop.Example."])).status(headers={"Host": host}) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "xlocalhost", "127.0.0.1.nip.io", "0.0.0.0", "[::]", "2130706433"],
)
async def test_any_other_name_is_misdirected(host: str) -> None:
    answer = await Caller(ApiSettings(hosts=["shop.example"])).call(headers={"Host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize(
    "host",
    [
        "", ":80", "local host", "localhost:", "localhost:x", "localhost:123456", "a@localhost", "localhost/x", "[::1",
        "localhost,evil.example", "ünï", "-",
    ],
)  # fmt: skip
async def test_what_is_no_name_is_refused(host: str) -> None:
    scope = _scope([(b"host", host.encode("latin-1"))])
    assert await _status(Caller().guard, scope) == 400


@pytest.mark.parametrize("hosts", [[], [b"localhost", b"localhost"], [b"localhost", b"evil.example"]])
async def test_no_host_or_several_are_refused(hosts: list[bytes]) -> None:
    assert await _status(Caller().guard, _scope([(b"host", host) for host in hosts])) == 400


async def test_a_forwarded_host_counts_only_behind_a_proxy_that_is_trusted() -> None:
    headers = {"X-Forwarded-Host": "evil.example, shop.example", "X-Forwarded-For": "6.6.6.6, 203.0.113.9"}
    settings = ApiSettings(tokens=TOKENS, hosts=["shop.example"])
    ignoring = await Caller(settings).call(token=ADMIN.text, headers=headers)
    trusting = await Caller(ApiSettings(tokens=TOKENS, hosts=["shop.example"], trusts_proxy=True)).call(
        token=ADMIN.text, headers={**headers, "X-Forwarded-Proto": "https"}, url="http://10.0.0.1"
    )
    assert (ignoring.json()["address"], ignoring.json()["scheme"]) == ("127.0.0.1", "http")
    assert (trusting.json()["address"], trusting.json()["scheme"]) == ("203.0.113.9", "https")


# ---------------------------------------------------------------- other sites' pages


@pytest.mark.parametrize(
    "headers",
    [
        {},
        OWN,
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {**OWN, "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://LOCALHOST:8080"},
    ],
)
async def test_without_tokens_changes_of_programs_and_of_our_own_page_are_taken(headers: dict[str, str]) -> None:
    assert await Caller().status("POST", "/queues/a/pause", headers=headers) == 200


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://localhost"},
    {"Origin": "http://localhost:8080.evil.example"},
    {"Origin": "http://localhost:8080@evil.example"},
    {"Origin": "http://127.0.0.1:8080"},
    {"Origin": "file://localhost:8080"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {**OWN, "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_change_that_another_sites_page_sends_is_refused(headers: dict[str, str]) -> None:
    local, signed_in = Caller(), Caller(WITH_TOKENS)
    assert await local.status("POST", "/queues/a/pause", headers=headers) == 403
    assert await signed_in.status("POST", "/queues/a/pause", headers=headers, cookie=ADMIN.text) == 403
    assert await signed_in.status("POST", "/session", headers=headers) == 403
    assert (local.inner.calls, signed_in.inner.calls) == (0, 0)


async def test_a_change_by_cookie_needs_a_word_about_its_page() -> None:
    caller = Caller(WITH_TOKENS)
    assert await caller.status("DELETE", "/dead-letters/1", cookie=ADMIN.text) == 403
    assert await caller.status("DELETE", "/dead-letters/1", cookie=ADMIN.text, headers=OWN) == 200


async def test_a_token_in_the_header_needs_no_origin_and_may_have_any() -> None:
    for headers in ({}, {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}):
        assert await Caller(WITH_TOKENS).status("POST", "/queues/a/pause", token=ADMIN.text, headers=headers) == 200


async def test_an_https_page_is_not_changed_by_its_http_twin() -> None:
    caller = Caller(ApiSettings(tokens=TOKENS, hosts=["shop.example"]))
    for origin, status in (
        ("http://shop.example", 403),
        ("https://shop.example", 200),
        ("https://shop.example:443", 200),
    ):
        got = await caller.status(
            "POST", "/queues/a/pause", cookie=ADMIN.text, headers={"Origin": origin}, url="https://shop.example"
        )
        assert got == status


async def test_another_sites_page_may_link_here_but_not_fetch_from_here() -> None:
    caller = Caller()
    assert await caller.status(headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}) == 200
    for mode in ("cors", "no-cors", "websocket"):
        assert await caller.status(headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}) == 403


# ---------------------------------------------------------------- read-only


async def test_a_read_only_api_refuses_every_change_whoever_asks() -> None:
    caller = Caller(ApiSettings(tokens=TOKENS, read_only=True))
    for method, path in (("POST", "/jobs"), ("DELETE", "/dead-letters/1"), ("PUT", "/x"), ("POST", "/tasks/validate")):
        assert await caller.status(method, path, token=ADMIN.text) == 403
    for method, path in (("GET", "/jobs"), ("POST", "/replays/preview"), ("POST", "/tasks/a/b/validate")):
        assert await caller.status(method, path, token=ADMIN.text) == 200
    assert await caller.status("POST", "/session") == 200


# ---------------------------------------------------------------- bodies


async def _chunks(size: int, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * size


async def test_a_body_up_to_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    caller = Caller(ApiSettings(max_body=1000))
    whole = b'"' + b"x" * 998 + b'"'
    assert (await caller.call("POST", content=whole, headers=JSON)).json()["size"] == 1000
    assert await caller.status("POST", content=whole + b" ", headers=JSON) == 413
    assert (await caller.call("POST", content=_chunks(100, 10), headers=JSON)).json()["size"] == 1000
    assert await caller.status("POST", content=_chunks(100, 11), headers=JSON) == 413


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    read: list[int] = []

    async def receive() -> Message:
        read.append(1)
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    guard = Caller(ApiSettings(max_body=10_000)).guard
    head = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    assert await _status(guard, _scope([*head, (b"content-length", b"64000000")], "POST"), receive) == 413
    assert read == []
    assert await _status(guard, _scope([*head, (b"transfer-encoding", b"chunked")], "POST"), receive) == 413
    assert len(read) == 11


@pytest.mark.parametrize(
    "kind", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonx", "text/json"]
)
async def test_a_body_that_is_not_said_to_be_json_is_refused(kind: str) -> None:
    assert await Caller().status("POST", content=b"{}", headers={"Content-Type": kind}) == 415


async def test_a_change_without_a_body_needs_no_type() -> None:
    assert await Caller().status("POST", "/queues/a/pause") == 200
    assert (
        await Caller().status("POST", content=b"{}", headers={"Content-Type": "Application/JSON; charset=utf-8"}) == 200
    )


async def test_a_body_that_does_not_come_is_waited_for_no_longer_than_allowed() -> None:
    clock = ManualClock(auto=False)
    caller = Caller(ApiSettings(body_s=7), clock=clock)
    is_asked = asyncio.Event()

    async def receive() -> Message:
        is_asked.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    head = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"9")]
    answer = asyncio.create_task(_status(caller.guard, _scope(head, "POST"), receive))
    await is_asked.wait()
    clock.advance(6.9)
    await asyncio.sleep(0)  # noqa: TID251 - lets the other coroutine run
    assert not answer.done()
    clock.advance(0.1)
    assert await answer == 408


async def test_a_client_that_goes_away_within_its_body_reaches_no_route() -> None:
    caller = Caller()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    head = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"9")]
    assert await _status(caller.guard, _scope(head, "POST"), receive) == 0
    assert caller.inner.calls == 0


async def test_a_large_body_is_looked_through_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def looked(body: bytes) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        raise BadBody("no good")

    monkeypatch.setattr(guard, "check_json", looked)
    for size in (1000, 100_000):
        answer = await Caller().call("POST", content=b'"' + b"x" * size + b'"', headers=JSON)
        assert (answer.status_code, answer.json()["detail"]) == (422, "no good")
    assert threads == [True, False]


async def test_json_that_means_two_things_is_refused() -> None:
    answer = await Caller().call("POST", content=b'{"a": 1, "a": 2}', headers=JSON)
    assert (answer.status_code, answer.json()["detail"]) == (422, "the body has an object with one key twice")


# ---------------------------------------------------------------- signing in


async def test_the_body_of_a_sign_in_is_small() -> None:
    caller = Caller(WITH_TOKENS)
    for options in ({}, {"token": ADMIN.text}):
        small, large = (b'"' + b"x" * size + b'"' for size in (1022, 1023))
        assert await caller.status("POST", "/session", content=small, headers=JSON, **options) == 200
        assert await caller.status("POST", "/session", content=large, headers=JSON, **options) == 413
        assert await caller.status("POST", "/session", content=_chunks(1, 1025), headers=JSON, **options) == 413


class Stalled:
    """Requests whose bodies do not come."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.tasks: list[asyncio.Task[int]] = []

    async def post(self, path: str, address: str, token: str = "") -> asyncio.Task[int]:
        """One more."""
        head = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"9")]
        if token:
            head.append((b"authorization", f"Bearer {token}".encode()))
        scope = _scope(head, "POST") | {"path": path, "client": (address, 1)}
        self.tasks.append(asyncio.create_task(_status(self._guard, scope, self._receive)))
        for _ in range(5):
            await asyncio.sleep(0)  # noqa: TID251 - lets the other coroutine run
        return self.tasks[-1]

    async def _receive(self) -> Message:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


async def test_the_body_of_a_sign_in_is_waited_for_three_seconds_only() -> None:
    clock = ManualClock(auto=False)
    answer = await Stalled(Caller(WITH_TOKENS, clock=clock).guard).post("/session", "203.0.113.9")
    clock.advance(2.9)
    await asyncio.sleep(0)  # noqa: TID251 - lets the other coroutine run
    assert not answer.done()
    clock.advance(0.1)
    assert await answer == 408


async def test_one_address_has_few_sign_ins_on_their_way_and_all_together_are_bounded() -> None:
    clock = ManualClock(auto=False)
    stalled = Stalled(Caller(ApiSettings(tokens=TOKENS, login_rate=None), clock=clock).guard)
    for _ in range(16):
        assert not (await stalled.post("/session", "203.0.113.9")).done()
    refused = await stalled.post("/session", "203.0.113.9")
    assert refused.done()
    assert refused.result() == 429
    for number in range(1024 - 16):
        assert not (await stalled.post("/session", f"10.0.{number // 16}.1")).done()
    refused = await stalled.post("/session", "203.0.113.8")
    assert refused.done()
    assert refused.result() == 429
    assert not (await stalled.post("/queues/a/pause", "203.0.113.9", ADMIN.text)).done()
    clock.advance(3)
    assert {await task for task in stalled.tasks[:-1]} == {408, 429}
    assert not (await stalled.post("/session", "203.0.113.9")).done()
    clock.advance(30)
    await asyncio.gather(*stalled.tasks)


async def test_sign_ins_of_one_address_have_a_rate_of_their_own() -> None:
    caller = Caller(ApiSettings(tokens=TOKENS, login_rate="2/minute"))
    assert [await caller.status("POST", "/session") for _ in range(3)] == [200, 200, 429]
    assert await caller.status("POST", "/session", address="203.0.113.9") == 200
    assert await caller.status("DELETE", "/session") == 200
    assert await caller.status("GET", "/jobs", token="hf_guess") == 401


# ---------------------------------------------------------------- streams


class Streams:
    """An app whose answers last until they are ended."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        await self.end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]


@pytest.mark.parametrize(("max_clients", "each"), [(10, 20), (500, 100)])
async def test_one_token_may_take_a_part_of_the_streams_only(max_clients: int, each: int) -> None:
    inner = Streams()
    caller = Caller()
    caller.guard = Guard(inner, ApiSettings(tokens=TOKENS, max_clients=max_clients), clock=ManualClock())

    async def listening(token: str) -> asyncio.Task[httpx.Response]:
        task = asyncio.create_task(caller.call("GET", "/events", token=token))
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 - lets the other coroutine run
        return task

    taken = [await listening(VIEWER.text) for _ in range(each)]
    refused = await listening(VIEWER.text)
    assert refused.done()
    assert (refused.result().status_code, refused.result().headers["Retry-After"]) == (429, "5")
    taken.append(await listening(ADMIN.text))
    assert not any(task.done() for task in taken)
    inner.end.set()
    assert {answer.status_code for answer in await asyncio.gather(*taken)} == {200}
    assert await caller.status("GET", "/events", token=VIEWER.text) == 200


async def test_without_tokens_this_machine_listens_as_often_as_it_likes() -> None:
    inner = Streams()
    caller = Caller()
    caller.guard = Guard(inner, ApiSettings(max_clients=10), clock=ManualClock())
    tasks = [asyncio.create_task(caller.status("GET", "/events")) for _ in range(40)]
    await asyncio.sleep(0)  # noqa: TID251 - lets the other coroutines run
    inner.end.set()
    assert set(await asyncio.gather(*tasks)) == {200}


# ---------------------------------------------------------------- rates


async def test_two_tokens_of_one_name_have_a_rate_each() -> None:
    twins = [make_token(name="ci", role="viewer") for _ in range(2)]
    caller = Caller(ApiSettings(tokens=[one.token for one in twins], read_rate="1/minute"))
    assert [await caller.status(token=one.text) for one in (*twins, *twins)] == [200, 200, 429, 429]


async def test_beyond_its_rate_a_token_is_asked_to_wait_and_others_are_not() -> None:
    clock = ManualClock()
    caller = Caller(
        ApiSettings(tokens=TOKENS, rate="2/minute", read_rate="3/minute", submit_rate="4/minute"), clock=clock
    )
    for path, method, allowed in (("/queues/a/pause", "POST", 2), ("/jobs", "GET", 3), ("/jobs", "POST", 4)):
        for _ in range(allowed):
            assert await caller.status(method, path, token=OPERATOR.text) == 200
        clock.advance(15)
        answer = await caller.call(method, path, token=OPERATOR.text)
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "45")
        assert await caller.status(method, path, token=ACME.text) == 200
    clock.advance(60)
    assert await caller.status("POST", "/queues/a/pause", token=OPERATOR.text) == 200


async def test_without_tokens_addresses_are_limited_each_by_itself() -> None:
    caller = Caller(ApiSettings(read_rate="1/minute"))
    assert [await caller.status(address=address) for address in ("127.0.0.1", "127.0.0.1", "127.0.0.2")] == [
        200,
        429,
        200,
    ]


async def test_wrong_tokens_of_one_address_are_limited_and_the_right_one_still_works() -> None:
    caller = Caller(ApiSettings(tokens=TOKENS, login_rate="3/minute"))
    wrong = [await caller.status(token="hf_guess", address="203.0.113.9") for _ in range(5)]
    assert wrong == [401, 401, 401, 429, 429]
    assert await caller.status(token="hf_guess", address="203.0.113.8") == 401
    assert await caller.status(token=ADMIN.text, address="203.0.113.9") == 200


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("options", [{}, {"address": "10.0.0.5"}, {"headers": {"Host": "evil.example"}}])
async def test_every_answer_has_the_security_headers(options: dict[str, object]) -> None:
    answer = await Caller().call(**options)  # type: ignore[arg-type]
    assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert answer.headers["Cache-Control"] == "no-store"
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


async def test_an_answer_that_says_how_it_is_cached_keeps_that() -> None:
    async def asset(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=9")]})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    caller = Caller()
    caller.guard = Guard(asset, ApiSettings())
    assert (await caller.call()).headers.get_list("Cache-Control") == ["max-age=9"]


async def test_a_route_that_breaks_is_answered_with_the_headers_and_without_what_is_inside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(scope: object, receive: object, send: object) -> None:
        raise KeyError("inside")

    caller = Caller()
    caller.guard = Guard(broken, ApiSettings())
    answer = await caller.call()
    assert answer.status_code == 500
    assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert "inside" not in answer.text
    assert "KeyError" in caplog.text


@pytest.mark.parametrize("root", ["/holdfast", "/a/b"])
async def test_below_a_prefix_the_same_paths_are_open(root: str) -> None:
    caller = Caller(WITH_TOKENS)
    assert await caller.status("GET", f"{root}/health/live", root=root) == 200
    assert await caller.status("GET", root, root=root) == 200
    assert await caller.status("GET", f"{root}x/health/live", root=root) == 401
    assert await caller.status("GET", f"{root}/jobs", root=root) == 401


async def test_a_websocket_is_closed() -> None:
    inner = Inner()
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    await Guard(inner, ApiSettings())({"type": "websocket", "path": "/events", "headers": []}, receive, send)
    assert ([message["type"] for message in sent], inner.calls) == (["websocket.close"], 0)


# ---------------------------------------------------------------- raw ASGI


def _scope(headers: list[tuple[bytes, bytes]], method: str = "GET") -> dict[str, object]:
    return {"type": "http", "method": method, "path": "/jobs", "headers": headers, "client": ("127.0.0.1", 1)}


async def _nothing() -> Message:
    return {"type": "http.request", "body": b""}


async def _status(guard: Guard, scope: dict[str, object], receive: object = _nothing) -> int:
    """The status of the answer; 0 where there is none."""
    statuses: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await guard(scope, receive, send)  # type: ignore[arg-type]
    return statuses[0] if statuses else 0
