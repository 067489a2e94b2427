"""Headers of the user's own: those that cannot be sent are refused before anything is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App
from holdfast.crawl import Crawler
from holdfast.crawl.request_headers import checked_headers
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


def test_a_refusal_does_not_tell_the_value() -> None:
    with pytest.raises(ConfigError) as caught:
        checked_headers({"Authorization": "secret\n"})
    assert "secret" not in str(caught.value)
