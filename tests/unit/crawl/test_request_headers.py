"""Headers of the user's own: those that cannot be sent are refused before anything is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App
from holdfast.crawl import Crawler
from holdfast.crawl.request_headers import checked_headers, trusted_by, without_secrets
from holdfast.errors import ConfigError


def test_ordinary_headers_are_sent_as_they_are() -> None:
    given = {"Accept-Language": "de, en;q=0.5", "X-Name": "größe\t", "Authorization": "Bearer x", "X-Empty": ""}
    assert checked_headers(given) == given
    assert checked_headers(None) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("X", "a")], "headers=.*: must be a mapping"),
        ({"": "a"}, "'' is no name of a header"),
        ({"X Y": "a"}, "'X Y' is no name of a header"),
        ({"X\r\nY": "a"}, "is no name of a header"),
        ({7: "a"}, "7 is no name of a header"),
        ({"X": "a\r\nY: b"}, "the value of X must be a text on one line"),
        ({"X": "a\0"}, "the value of X must be"),
        ({"X": "\ud800"}, "the value of X must be"),
        ({"X": 7}, "the value of X must be"),
        ({"Host": "a"}, "Host is set by the crawl itself"),
        ({"content-length": "7"}, "content-length is set by the crawl itself"),
        ({"Accept-Encoding": "br"}, "Accept-Encoding is set by the crawl itself"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Crawler(App("memory://"), headers=given)
    assert "\n" not in str(caught.value)


def test_what_any_domain_may_see_has_no_secret_however_it_is_called() -> None:
    secrets = dict.fromkeys(("Authorization", "cookie", "X-Api-Key", "X-Auth-Token", "Proxy-Authorization"), "s")
    assert without_secrets({**secrets, "Accept-Language": "en", "Referer": "r"}) == {
        "Accept-Language": "en",
        "Referer": "r",
    }


def test_secrets_go_where_the_seeds_are_and_never_from_https_down_to_http() -> None:
    assert trusted_by(["https://a.example/x", "https://a.example/y"]) == {"https://a.example"}
    assert trusted_by(["http://a.example:8080/"]) == {"http://a.example:8080", "https://a.example:8080"}


def test_a_refusal_does_not_tell_the_value() -> None:
    with pytest.raises(ConfigError) as caught:
        checked_headers({"Authorization": "secret\n"})
    assert "secret" not in str(caught.value)
