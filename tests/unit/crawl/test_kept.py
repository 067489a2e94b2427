from __future__ import annotations

import base64
import zlib
from hashlib import shake_128

import msgspec
import pytest

from holdfast.crawl.kept import MOST_BODY, MOST_BYTES, pack, unpack
from holdfast.crawl.page import Page
from holdfast.errors import Invalid
from holdfast.json_values import MAX_BYTES
from holdfast.runtime.crawl_origins import PagePayload
from tests.unit.crawl.pages import fetched

NOW = 1_700_000_123.0


def as_json(value: object) -> bytes:
    return msgspec.json.encode(value)


def noise(size: int) -> bytes:
    return shake_128(b"a page").digest(size)


def test_a_page_comes_back_as_it_was() -> None:
    answer = fetched("<h1>Straße</h1>".encode("latin-1"), content_type="text/html; charset=latin1", status=203)
    packed = msgspec.json.decode(as_json(pack(answer, NOW)))
    again = unpack(packed)
    assert (again.url, again.final_url, again.status, again.body) == (answer.url, answer.final_url, 203, answer.body)
    assert (again.content_type, again.charset, again.fetched_at) == ("text/html", "latin1", answer.fetched_at)
    assert packed["is_cut"] is False
    assert Page(again, payload=PagePayload(url=again.url)).text("h1") == "Straße"


def test_headers_are_kept_without_secrets() -> None:
    headers = {"set-cookie": "session=secret", "server": "nginx", "x-api-key": "secret", "etag": "e" * 10_000}
    packed = pack(fetched("x", headers=headers), NOW)
    assert "secret" not in as_json(packed).decode()
    assert packed["headers"]["server"] == "nginx"
    assert len(packed["headers"]["etag"]) < 1_000


@pytest.mark.parametrize("size", [0, 1, 100_000, 5_000_000])
def test_what_can_be_compressed_is_kept_whole(size: int) -> None:
    body = (b"<p class=price>12.00</p>" * (size // 24 + 1))[:size]
    packed = pack(fetched(body), NOW)
    assert packed["is_cut"] is False
    assert unpack(packed).body == body
    assert len(as_json(packed)) <= MOST_BYTES


@pytest.mark.parametrize("size", [150_000, 160_000, 300_000, 3_000_000])
def test_what_cannot_is_cut_and_says_so(size: int) -> None:
    body = noise(size)
    packed = pack(fetched(body), NOW)
    kept = unpack(packed).body
    assert packed["is_cut"] is (len(kept) < size)
    assert body.startswith(kept)
    assert len(kept) >= min(size, 130_000)
    assert len(as_json(packed)) <= MOST_BYTES < MAX_BYTES


def test_a_huge_body_that_compresses_well_is_cut_where_it_is_read_back() -> None:
    packed = pack(fetched(b"a" * (MOST_BODY + 1)), NOW)
    assert packed["is_cut"] is True
    assert unpack(packed).body == b"a" * MOST_BODY


@pytest.mark.parametrize("start", ["", "a", "ab"])
def test_a_cut_does_not_part_a_character(start: str) -> None:
    text = start + "".join(chr(0x4E00 + byte * 80) for byte in noise(300_000))
    kept = unpack(pack(fetched(text.encode()), NOW)).body
    assert len(kept) < len(text.encode())
    assert text.startswith(kept.decode("utf-8", "strict"))


def test_the_worst_of_everything_stays_within_the_limit() -> None:
    names = ["date", "server", "etag", "last-modified", "retry-after", "content-language", "x-robots-tag", "x-datadome"]
    url = "https://example.org/" + "\x01" * 100_000
    answer = fetched(
        noise(1_000_000), url=url, headers=dict.fromkeys(names, "\x01" * 10_000), content_type="\x01" * 9_000
    )
    assert len(as_json(pack(answer, NOW))) <= MOST_BYTES


@pytest.mark.parametrize(
    "change",
    [
        {"body": "!!"},
        {"body": base64.b64encode(b"no zlib").decode()},
        {"status": "200"},
        {"url": None},
        {"url": "nowhere"},
        {"final_url": "http://[::1/"},
        {"headers": []},
    ],
)
def test_what_is_no_kept_page_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="the kept page cannot be read"):
        unpack(pack(fetched("x"), NOW) | change)


def test_a_bomb_in_the_place_of_a_body_is_not_unpacked() -> None:
    bomb = base64.b64encode(zlib.compress(b"\0" * (2 * MOST_BODY), 1)).decode()
    assert len(unpack(pack(fetched("x"), NOW) | {"body": bomb}).body) == MOST_BODY


def test_a_page_without_a_time_gets_the_time_of_keeping() -> None:
    answer = msgspec.structs.replace(fetched("x"), fetched_at=0.0)
    assert pack(answer, NOW)["fetched_at"] == NOW
