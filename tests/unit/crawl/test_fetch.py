"""One request over real sockets: what is sent, what comes back, and where redirects lead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.addresses import AddressGuard, networks
from holdfast.clock import SystemClock
from holdfast.crawl import connecting
from holdfast.crawl.fetch import Fetched, Fetcher, FetchLimits, refuse_status
from holdfast.errors import BadStatus, ConfigError, PageRefused
from holdfast.testing import ManualClock
from holdfast.types import FailureType
from tests.unit.crawl.raw_site import (
    AGENT,
    LOOPBACK,
    RawSite,
    answer,
    breathe,
    fetching,
    pass_time,
    redirect,
    sends,
    stays_silent,
)

PAGE = answer(b"<p>hello", Content_Type='Text/HTML; Charset="UTF-8"')


async def test_an_answer_is_its_status_headers_and_body(clock: ManualClock) -> None:
    head = (
        b"HTTP/1.1 203 So\r\nX-One: a\r\nx-one: b\r\nSet-Cookie: a=1, 2\r\nSet-Cookie: b=2\r\nX-Odd: \xff\xc3\xa9\r\n"
    )
    page = head + b'Content-Type: Text/HTML; Charset="UTF-8"\r\nContent-Length: 5\r\n\r\nhello'
    async with RawSite({"/": page}) as site, fetching(clock=clock) as fetcher:
        fetched = await fetcher.get(site.url())
    assert fetched == Fetched(
        url=site.url(),
        final_url=site.url(),
        status=203,
        headers={
            "x-one": "a, b",
            "set-cookie": "a=1, 2\nb=2",
            "x-odd": "\ufffdé",
            "content-type": 'Text/HTML; Charset="UTF-8"',
            "content-length": "5",
        },
        body=b"hello",
        elapsed_s=0.0,
        first_byte_s=0.0,
        fetched_at=clock.now(),
        content_type="text/html",
        charset="utf-8",
    )


@pytest.mark.parametrize(
    ("header", "media", "charset"),
    [
        ("", "", ""),
        ("text/html", "text/html", ""),
        ("text/html;charset=utf-8", "text/html", "utf-8"),
        ("text/html ; a=b; charset='latin-1'", "text/html", "latin-1"),
        ("text/html; charset=\u00e9", "text/html", ""),
        ("; charset=x", "", "x"),
        ("text/\xff; charset=x", "text/\ufffd", "x"),
        ("a" * 5_000, "a" * 100, ""),
    ],
)
async def test_the_media_type_is_told_apart_from_the_charset(header: str, media: str, charset: str) -> None:
    async with RawSite({"/": answer(Content_Type=header)}) as site, fetching() as fetcher:
        fetched = await fetcher.get(site.url())
    assert (fetched.content_type, fetched.charset) == (media, charset)


async def test_a_url_is_sent_as_it_is_and_says_who_asks() -> None:
    path = "/a%2Fb/;x=1/%C3%A9?q=a+b&e=%20%26&&x=[]"
    async with RawSite({path: PAGE}) as site, fetching() as fetcher:
        assert (await fetcher.get(site.url(path), headers={"If-None-Match": '"7"'})).status == 200
    line, *headers = site.asked[0].strip().split("\r\n")
    assert line == f"GET {path} HTTP/1.1"
    sent = dict(header.split(": ", 1) for header in headers)
    assert sent["Host"] == f"127.0.0.1:{site.port}"
    assert sent["User-Agent"] == AGENT
    assert sent["Accept-Encoding"] == "gzip, deflate"
    assert sent["Accept"].startswith("text/html")
    assert sent["If-None-Match"] == '"7"'


async def test_connections_are_kept_and_cookies_are_not() -> None:
    page = answer(b"x", Set_Cookie="session=1; Path=/")
    guard = AddressGuard(networks("allow", LOOPBACK), lambda *_: ["127.0.0.1"])  # of an address no jar keeps cookies
    async with RawSite({"/": page}) as site, fetching(guard=guard) as fetcher:
        for _ in range(3):
            assert (await fetcher.get(site.url("/", "shop.example"))).body == b"x"
    assert site.connections == 1
    assert len(site.asked) == 3
    assert not any("cookie" in head.lower() for head in site.asked)


async def test_proxies_and_passwords_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawSite() as proxy, RawSite({"/": PAGE}) as site, fetching() as fetcher:
        monkeypatch.setenv("http_proxy", proxy.url())
        assert (await fetcher.get(site.url())).status == 200
    assert proxy.connections == 0


async def test_with_too_many_connections_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "MOST_IDLE", 2)
    async with RawSite({"/": PAGE}, host="0.0.0.0") as site, fetching(connections=1) as fetcher:
        for host in range(1, 8):
            await fetcher.get(site.url(host=f"127.0.0.{host}"))
    assert ["connection: close" in head.lower() for head in site.asked] == [False] * 4 + [True] * 3


# ---------------------------------------------------------------- redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(status: int) -> None:
    pages = {"/a/b": redirect("../c?x=1#part", status), "/c?x=1": redirect("//127.0.0.2:{}/d", status), "/d": PAGE}
    async with RawSite(pages, host="0.0.0.0") as site, fetching() as fetcher:
        site.pages["/c?x=1"] = redirect(f"//127.0.0.2:{site.port}/d", status)
        fetched = await fetcher.get(site.url("/a/b", "127.0.0.1"))
    assert fetched.url == site.url("/a/b", "127.0.0.1")
    assert fetched.final_url == site.url("/d", "127.0.0.2")
    assert fetched.redirects == (site.url("/c?x=1", "127.0.0.1"), site.url("/d", "127.0.0.2"))
    assert (fetched.status, fetched.body, fetched.redirect_to) == (200, b"<p>hello", "")


@pytest.mark.parametrize(("sent", "path"), [(b"/\xc3\xa9", "/%C3%A9"), (b"/\xe9", "/%E9"), (b"/a b", "/a%20b")])
async def test_a_redirect_with_bytes_that_should_be_escaped_leads_where_they_say(sent: bytes, path: str) -> None:
    pages = {"/": b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + sent + b"\r\n\r\n", path: PAGE}
    async with RawSite(pages) as site, fetching() as fetcher:
        assert (await fetcher.get(site.url())).final_url == site.url(path)


@pytest.mark.parametrize("pages", [{"/": "/"}, {"/": "/#x"}, {"/": "/b", "/b": "/c", "/c": "/b"}])
async def test_a_circle_of_redirects_is_refused(pages: dict[str, str]) -> None:
    async with RawSite({path: redirect(to) for path, to in pages.items()}) as site, fetching() as fetcher:
        with pytest.raises(PageRefused, match="in a circle") as caught:
            await fetcher.get(site.url())
    assert caught.value.cause == f"127.0.0.1:{site.port}: redirect loop"
    assert len(site.asked) == len(pages)


async def test_redirects_are_counted() -> None:
    pages = {f"/{n}": redirect(f"/{n + 1}") for n in range(5)} | {"/5": PAGE}
    async with RawSite(pages) as site:
        async with fetching(max_redirects=5) as fetcher:
            assert len((await fetcher.get(site.url("/0"))).redirects) == 5
        async with fetching(max_redirects=4) as fetcher:
            with pytest.raises(PageRefused, match="more than 4 times") as caught:
                await fetcher.get(site.url("/0"))
    assert caught.value.url == site.url("/0")
    assert site.paths[-1] == "/4"


@pytest.mark.parametrize(
    "to", ["ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "javascript:1", "http://", "http://a:b@c/"]
)
async def test_a_redirect_to_something_else_than_a_web_page_is_refused(to: str) -> None:
    async with RawSite({"/": redirect(to)}) as site, fetching() as fetcher:
        with pytest.raises(PageRefused) as caught:
            await fetcher.get(site.url())
    assert caught.value.cause == f"127.0.0.1:{site.port}: bad redirect"
    assert caught.value.failure_type is FailureType.PERMANENT


async def test_a_redirect_to_nowhere_is_an_answer() -> None:
    async with RawSite({"/": answer(b"lost", 302)}) as site, fetching() as fetcher:
        fetched = await fetcher.get(site.url())
    assert (fetched.status, fetched.body, fetched.redirect_to) == (302, b"lost", "")
    with pytest.raises(BadStatus):
        refuse_status(fetched)


async def test_a_redirect_that_nobody_wants_followed_is_the_answer() -> None:
    asked = []

    def follows(url: str) -> bool:
        asked.append(url)
        return url.endswith("/b")

    async with RawSite({"/": redirect("/b"), "/b": redirect("/c?utm_source=x")}) as site, fetching() as fetcher:
        fetched = await fetcher.get(site.url(), follows=follows)
    assert asked == [site.url("/b"), site.url("/c")]
    assert (fetched.final_url, fetched.redirect_to, fetched.status) == (site.url("/b"), site.url("/c"), 302)
    assert site.paths == ["/", "/b"]


@pytest.mark.parametrize(
    "page", [answer(b"x" * 200, 301, Location="/b"), answer(b"?", 301, Location="/b", Content_Encoding="br")]
)
async def test_a_redirect_that_is_not_followed_counts_whatever_its_body_is(page: bytes) -> None:
    async with RawSite({"/": page}) as site, fetching(max_bytes=100, max_redirects=0) as fetcher:
        assert (await fetcher.get(site.url(), follows=lambda _: False)).redirect_to == site.url("/b")


async def test_headers_of_the_caller_go_to_the_origin_they_were_meant_for() -> None:
    async with RawSite(host="0.0.0.0") as site, fetching() as fetcher:
        site.pages = {
            "/": redirect("/own"),
            "/own": redirect(site.url("/other", "127.0.0.2")),
            "/other": redirect(site.url("/back", "127.0.0.1")),
            "/back": PAGE,
        }
        await fetcher.get(site.url("/", "127.0.0.1"), headers={"Authorization": "secret"})
    assert site.paths == ["/", "/own", "/other", "/back"]
    assert ["secret" in head for head in site.asked] == [True, True, False, True]


# ---------------------------------------------------------------- statuses


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (304, FailureType.PERMANENT),
        (400, FailureType.VALIDATION),
        (401, FailureType.AUTHENTICATION),
        (403, FailureType.AUTHENTICATION),
        (404, FailureType.PERMANENT),
        (408, FailureType.TRANSIENT),
        (410, FailureType.PERMANENT),
        (429, FailureType.RATE_LIMITED),
        (500, FailureType.TRANSIENT),
        (503, FailureType.TRANSIENT),
    ],
)
async def test_a_status_other_than_2xx_is_an_error_of_its_type(status: int, failure: FailureType) -> None:
    async with RawSite({"/": answer(b"" if status == 304 else b"why", status)}) as site, fetching() as fetcher:
        fetched = await fetcher.get(site.url())
    assert fetched.status == status
    with pytest.raises(BadStatus) as caught:
        refuse_status(fetched)
    error = caught.value
    assert (error.status, error.failure_type, error.retry_after) == (status, failure, None)
    assert error.cause == f"127.0.0.1:{site.port}: {status}"
    assert str(error) == f"{site.url()}: status {status}"


@pytest.mark.parametrize("status", [200, 201, 204, 206])
async def test_a_status_of_2xx_is_none(status: int) -> None:
    async with RawSite({"/": answer(status=status)}) as site, fetching() as fetcher:
        refuse_status(await fetcher.get(site.url()))


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry_After": "17"}, 17.0),
        ({"Retry_After": "Sun, 09 Sep 2001 01:47:10 GMT"}, 30.0),
        ({"Retry_After": "Mon, 01 Jan 2024 00:01:00 GMT", "Date": "Mon, 01 Jan 2024 00:00:00 GMT"}, 60.0),
        ({"Retry_After": "soon"}, None),
    ],
)
async def test_when_to_ask_again_is_read_in_both_forms(
    headers: dict[str, Any], wait_s: float | None, clock: ManualClock
) -> None:
    async with RawSite({"/": answer(status=503, **headers)}) as site, fetching(clock=clock) as fetcher:
        with pytest.raises(BadStatus) as caught:
            refuse_status(await fetcher.get(site.url()))
    assert caught.value.retry_after == wait_s


@pytest.mark.parametrize(
    "page",
    [
        answer(b"x" * 200, 503, Retry_After="5"),
        answer(b"not gzip", 503, Retry_After="5", Content_Encoding="gzip"),
        answer(b"?", 503, Retry_After="5", Content_Encoding="zstd"),
        sends(b"HTTP/1.1 503 So\r\nRetry-After: 5\r\nContent-Length: 9\r\n\r\nwai"),
    ],
)
async def test_a_refusal_counts_whatever_its_body_is(page: Any) -> None:
    async with RawSite({"/": page}) as site, fetching(max_bytes=100) as fetcher:
        fetched = await fetcher.get(site.url())
    with pytest.raises(BadStatus) as caught:
        refuse_status(fetched)
    assert caught.value.retry_after == 5.0


async def test_a_refusal_counts_though_its_body_does_not_come(clock: ManualClock) -> None:
    page = stays_silent(b"HTTP/1.1 503 So\r\nRetry-After: 5\r\nContent-Length: 9\r\n\r\nwai")
    async with RawSite({"/": page}) as site, fetching(clock=clock) as fetcher:
        task = asyncio.ensure_future(fetcher.get(site.url()))
        while not site.asked:
            await breathe()
        await breathe()
        pass_time(fetcher, clock, 15.0)
        with pytest.raises(BadStatus) as caught:
            refuse_status(await task)
    assert caught.value.retry_after == 5.0


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("field", "value"),
    [("total_s", 0), ("connect_s", -1), ("read_s", "1"), ("max_bytes", 0), ("max_bytes", 1.5), ("max_redirects", -1)],
)
def test_limits_that_cannot_work_are_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{field}="):
        FetchLimits(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("user_agent", " "), ("user_agent", "a\r\nb"), ("connections", 0)])
def test_settings_that_cannot_work_are_refused(field: str, value: Any) -> None:
    settings: dict[str, Any] = {"user_agent": AGENT, "connections": 1, field: value}
    with pytest.raises(ConfigError, match=f"^{field}="):
        Fetcher(clock=SystemClock(), limits=FetchLimits(), guard=AddressGuard(), **settings)


@pytest.mark.parametrize(
    "url",
    ["ftp://a/", "file:///x", "/x", "", "http://a/ b", "http://a/\r\nX: y", "http://[::1", "http://a:b/", "http:///x"],
)
async def test_what_is_no_web_address_is_not_asked_for(url: str) -> None:
    async with fetching() as fetcher:
        with pytest.raises(PageRefused) as caught:
            await fetcher.get(url)
    assert caught.value.cause.endswith(": not http")
