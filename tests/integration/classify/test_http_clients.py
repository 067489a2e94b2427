"""httpx, requests, aiohttp and the standard library, failing in earnest against a local server."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
import httpx
import pytest
import requests

from holdfast.policy.classify import classify

if TYPE_CHECKING:
    from tests.integration.classify.conftest import Ask, AskAsync, FailingServer

PATIENT_S = 10.0
TRUST = ssl.create_default_context()  # made once: httpx would read all authorities again for every client
Get = Callable[[str], object]


def limit_s(url: str) -> float:
    """Only a server that never answers is worth a short time limit."""
    return 0.1 if url.endswith("/hang") else PATIENT_S


def get_httpx(url: str) -> object:
    with httpx.Client(timeout=limit_s(url), trust_env=False, verify=TRUST) as client:
        return client.get(url).raise_for_status()


def get_httpx_async(url: str) -> object:
    async def get() -> object:
        async with httpx.AsyncClient(timeout=limit_s(url), trust_env=False, verify=TRUST) as client:
            return (await client.get(url)).raise_for_status()

    return asyncio.run(get())


def get_requests(url: str) -> object:
    with requests.Session() as session:
        session.trust_env = False
        response = session.get(url, timeout=limit_s(url))
        response.raise_for_status()
        return response


def get_aiohttp(url: str) -> object:
    async def get() -> object:
        limit = aiohttp.ClientTimeout(total=limit_s(url))
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as response:
            response.raise_for_status()
            return await response.read()

    return asyncio.run(get())


def get_urllib(url: str) -> object:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=limit_s(url)) as response:
            return response.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def get_http_client(url: str) -> object:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, timeout=limit_s(url))
    else:
        connection = http.client.HTTPConnection(host, timeout=limit_s(url))
    try:
        connection.request("GET", "/" + path)
        return connection.getresponse().read()
    finally:
        connection.close()


WITH_STATUS = pytest.mark.parametrize("get", [get_httpx, get_httpx_async, get_requests, get_aiohttp, get_urllib])
ALL = pytest.mark.parametrize(
    "get", [get_httpx, get_httpx_async, get_requests, get_aiohttp, get_urllib, get_http_client]
)


@WITH_STATUS
def test_every_status_from_400_to_599_has_its_meaning(
    get: Get, server: FailingServer, failure_of: Ask, meanings: dict[int, str]
) -> None:
    found = {status: failure_of(partial(get, f"{server.url}/status/{status}")).type for status in meanings}
    assert found == meanings


@ALL
def test_a_refused_port_is_a_network_failure(get: Get, refused_url: str, failure_of: Ask) -> None:
    assert failure_of(lambda: get(refused_url)).type == "network"


@ALL
def test_a_reset_connection_is_a_network_failure(get: Get, server: FailingServer, failure_of: Ask) -> None:
    assert failure_of(lambda: get(f"{server.url}/reset")).type == "network"


@ALL
def test_a_time_out_is_a_network_failure(get: Get, server: FailingServer, failure_of: Ask) -> None:
    assert failure_of(lambda: get(f"{server.url}/hang")).type == "network"


@ALL
def test_an_unknown_host_is_a_network_failure(get: Get, failure_of: Ask) -> None:
    assert failure_of(lambda: get("http://nothing.invalid/")).type == "network"


@ALL
def test_a_truncated_body_is_a_network_failure(get: Get, server: FailingServer, failure_of: Ask) -> None:
    assert failure_of(lambda: get(f"{server.url}/truncated")).type == "network"


@ALL
def test_an_answer_that_is_no_http_is_a_network_failure(get: Get, server: FailingServer, failure_of: Ask) -> None:
    assert failure_of(lambda: get(f"{server.url}/garbage")).type == "network"


@ALL
def test_a_certificate_nobody_trusts_needs_a_person(get: Get, tls_server: FailingServer, failure_of: Ask) -> None:
    failure = failure_of(lambda: get(f"{tls_server.url}/status/200"))
    assert failure.type == "permanent"
    assert not failure.is_retriable


@ALL
def test_plain_http_where_tls_is_spoken_is_a_network_failure(get: Get, server: FailingServer, failure_of: Ask) -> None:
    assert failure_of(lambda: get(server.url.replace("http:", "https:"))).type == "network"


@WITH_STATUS
@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (429, {"Retry-After": "7"}, ("rate_limited", 7.0)),
        (429, {}, ("rate_limited", None)),
        (503, {"Retry-After": "2.5"}, ("transient", 2.5)),
        (
            503,
            {"Date": "Sun, 06 Nov 1994 08:49:37 GMT", "Retry-After": "Sun, 06 Nov 1994 08:50:37 GMT"},
            ("transient", 60.0),
        ),
        (429, {"retry-after-ms": "1500"}, ("rate_limited", 1.5)),
        (429, {"RateLimit": '"default";r=0;t=12'}, ("rate_limited", 12.0)),
        (429, {"X-RateLimit-Reset-After": "0.75"}, ("rate_limited", 0.75)),
        (429, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, ("rate_limited", 360.0)),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "90"}, ("rate_limited", 90.0)),
        (403, {"Retry-After": "60"}, ("rate_limited", 60.0)),
        (403, {"X-RateLimit-Remaining": "55"}, ("authentication", None)),
    ],
)
def test_headers_say_when_to_come_back(
    get: Get,
    status: int,
    headers: dict[str, str],
    expected: tuple[str, float | None],
    server: FailingServer,
    failure_of: Ask,
) -> None:
    failure = failure_of(lambda: get(server.reply(status, headers)))
    assert (failure.type, failure.retry_after) == expected


@pytest.mark.parametrize("get", [get_httpx, get_requests, get_aiohttp])
@pytest.mark.parametrize("url", ["nothing://here/", "no url at all"])
def test_what_is_no_url_is_invalid_input(get: Get, url: str, failure_of: Ask) -> None:
    assert failure_of(lambda: get(url)).type == "validation"


def test_urllib_tells_no_url_only_from_what_it_cannot_parse(failure_of: Ask) -> None:
    assert failure_of(lambda: get_urllib("no url at all")).type == "validation"
    assert failure_of(lambda: get_urllib("nothing://here/")).type == "network"  # a URLError like any other


@pytest.mark.parametrize("get", [get_httpx, get_requests, get_aiohttp, get_urllib])
def test_a_redirect_to_itself_is_permanent(get: Get, server: FailingServer, failure_of: Ask) -> None:
    url = server.reply(302, {"Location": f"/reply/{len(server.replies)}"})
    assert failure_of(lambda: get(url)).type == "permanent"


async def test_a_page_where_json_was_agreed_is_structural(server: FailingServer, afailure_of: AskAsync) -> None:
    url = server.reply(200, {"Content-Type": "text/html"}, b"<h1>Are you a robot?</h1>")

    async def get() -> object:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return await response.json()

    assert (await afailure_of(get)).type == "structural"


@pytest.mark.parametrize("client", ["httpx", "requests"])
def test_a_body_that_is_no_json_is_invalid(client: str, server: FailingServer, failure_of: Ask) -> None:
    url = server.reply(200, {}, b"<h1>")
    read = {"httpx": lambda: httpx.get(url).json(), "requests": lambda: requests.get(url, timeout=5).json()}
    assert failure_of(read[client]).type == "validation"


def test_an_error_wrapped_in_the_users_own_is_still_understood(server: FailingServer) -> None:
    class CannotCharge(Exception):
        pass

    def charge() -> None:
        try:
            get_httpx(server.reply(429, {"Retry-After": "4"}))
        except httpx.HTTPError as error:
            raise CannotCharge from error

    with pytest.raises(CannotCharge) as caught:
        charge()
    failure = classify(caught.value)
    assert (failure.type, failure.retry_after) == ("rate_limited", 4.0)
    assert failure.error is caught.value
