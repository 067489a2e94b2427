"""Bodies: put together, decompressed, and never larger than allowed."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.crawl.bodies import Body
from holdfast.errors import FetchFailed, PageError, PageRefused
from holdfast.types import FailureType
from tests.unit.crawl.raw_site import Answer, RawSite, answer, fetching, sends

URL = "http://a.example/"
TEXT = b"<p>hello</p>" * 300
MB = 1024 * 1024


def gzipped(data: bytes) -> bytes:
    """Without the time: parameters of tests must be the same in every process."""
    return gzip.compress(data, mtime=0)


def raw_deflate(body: bytes) -> bytes:
    made = zlib.compressobj(wbits=-15)
    return made.compress(body) + made.flush()


def read(sent: bytes, encodings: str = "", *, max_bytes: int = 10 * MB, piece: int = 65_536) -> bytes:
    body = Body(URL, encodings, max_bytes)
    for start in range(0, len(sent), piece):
        body.add(sent[start : start + piece])
    body.end()
    return body.so_far()


ENCODED = [
    ("", TEXT),
    ("identity", TEXT),
    ("gzip", gzipped(TEXT)),
    (" X-GZip ", gzipped(TEXT)),
    ("deflate", zlib.compress(TEXT)),
    ("deflate", raw_deflate(TEXT)),
    ("deflate, gzip", gzipped(zlib.compress(TEXT))),
    ("gzip,identity,gzip", gzipped(gzipped(TEXT))),
    ("gzip", gzipped(TEXT[:100]) + gzipped(b"") + gzipped(TEXT[100:])),
    ("gzip", gzipped(TEXT) + b"\0" * 50),
    ("gzip", gzipped(TEXT) + b"\x1f"),
    ("deflate", zlib.compress(TEXT) + b"junk"),
]


@pytest.mark.parametrize(("encodings", "sent"), ENCODED)
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_bodies_are_decoded_however_they_are_cut_into_pieces(encodings: str, sent: bytes, piece: int) -> None:
    assert read(sent, encodings, piece=piece) == TEXT


@pytest.mark.parametrize("more", [0, 1, 3, 258])
def test_what_waits_inside_when_all_input_is_read_is_not_lost(more: int) -> None:
    body = b"x" * (65_536 + more)
    assert read(raw_deflate(body), "deflate") == body


@pytest.mark.parametrize("encodings", ["gzip", "deflate", "deflate, gzip"])
def test_nothing_is_a_whole_body(encodings: str) -> None:
    assert read(b"", encodings) == b""


@pytest.mark.parametrize("encodings", ["br", "zstd", "compress", "gzip, br", "gzip, gzip, gzip", "x" * 5_000])
def test_an_encoding_that_was_not_offered_is_refused(encodings: str) -> None:
    with pytest.raises(PageRefused) as caught:
        Body(URL, encodings, 100)
    assert caught.value.cause == "a.example: content encoding"
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(("encodings", "sent"), ENCODED[2:8])
def test_a_compressed_body_that_is_cut_is_a_failure_of_the_network(encodings: str, sent: bytes) -> None:
    for end in range(1, len(sent)):
        with pytest.raises(FetchFailed) as caught:
            read(sent[:end], encodings)
        assert caught.value.cause in {"a.example: truncated", "a.example: corrupt body"}
        assert caught.value.failure_type is FailureType.NETWORK


@pytest.mark.parametrize("sent", [b"<html>plain</html>", gzipped(TEXT)[:-8] + b"12345678", b"\x1f\x8b\x09" * 9])
def test_a_damaged_body_is_a_failure_of_the_network(sent: bytes) -> None:
    with pytest.raises(FetchFailed, match="damaged") as caught:
        read(sent, "gzip")
    assert caught.value.cause == "a.example: corrupt body"
    assert isinstance(caught.value.__cause__, zlib.error)


@settings(max_examples=60, deadline=None)
@given(
    body=st.binary(max_size=300).map(lambda part: part * 700),
    piece=st.integers(1, 5_000),
    encode=st.sampled_from([("gzip", gzipped), ("deflate", zlib.compress), ("deflate", raw_deflate)]),
)
def test_any_body_comes_back(body: bytes, piece: int, encode: tuple[str, object]) -> None:
    name, compress = encode
    assert callable(compress)
    assert read(compress(body), name, piece=piece) == body


@settings(max_examples=60, deadline=None)
@given(sent=st.binary(max_size=200), encodings=st.sampled_from(["gzip", "deflate", "gzip, deflate"]))
def test_any_bytes_are_a_body_or_an_error_of_ours(sent: bytes, encodings: str) -> None:
    with suppress(PageError):
        read(sent, encodings)


async def test_a_compressed_page_that_is_cut_is_no_page() -> None:
    page = answer(gzipped(TEXT)[:-4], Content_Encoding="gzip")
    async with RawSite({"/": page}) as site, fetching() as fetcher:
        with pytest.raises(FetchFailed, match="stops in the middle"):
            await fetcher.get(site.url())


# ---------------------------------------------------------------- size


@pytest.mark.parametrize(
    ("encodings", "sent"),
    [("", b"x" * 1_000), ("gzip", gzipped(b"x" * 1_000)), ("deflate", raw_deflate(b"x" * 1_000))],
)
def test_the_size_is_bounded_to_the_byte(encodings: str, sent: bytes) -> None:
    assert len(read(sent, encodings, max_bytes=1_000)) == 1_000
    with pytest.raises(PageRefused, match="larger than max_bytes=999") as caught:
        read(sent, encodings, max_bytes=999)
    assert caught.value.cause == "a.example: too large"


def test_a_body_is_bounded_as_it_is_sent_too() -> None:
    with pytest.raises(PageRefused):
        read(gzipped(b"x") + b"\0" * 1_000, "gzip", max_bytes=999)


def test_endless_small_members_are_refused() -> None:
    assert read(gzipped(b"x") * 900, "gzip") == b"x" * 900
    with pytest.raises(PageRefused, match="larger"):
        read(gzipped(b"") * 5_000, "gzip")


def bomb() -> bytes:
    """1 GB of zeros in 1 MB: a thousand times the same block, and a wrong checksum that nobody should come to."""
    made = zlib.compressobj(9, wbits=-15)
    block = made.compress(bytes(MB)) + made.flush(zlib.Z_FULL_FLUSH)
    return gzipped(b"")[:10] + block * 1_000 + b"\x03\0" + b"\0" * 8


@pytest.mark.parametrize("encodings", ["gzip", "gzip, gzip"])
async def test_a_compressed_bomb_is_refused_before_it_fills_the_memory(encodings: str) -> None:
    sent = bomb() if encodings == "gzip" else gzipped(bomb())
    assert len(sent) < 1.1 * MB
    async with RawSite({"/": answer(sent, Content_Encoding=encodings)}) as site, fetching(max_bytes=2 * MB) as fetcher:
        tracemalloc.start()
        try:
            with pytest.raises(PageRefused, match="larger than max_bytes") as caught:
                await fetcher.get(site.url())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert caught.value.failure_type is FailureType.PERMANENT
    assert peak < 2 * MB + len(sent) + 1 * MB, f"{peak / MB:.1f} MB"


def _endless(sent: list[int], head: bytes, part: bytes) -> Answer:
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(part)
            sent.append(len(part))
            await writer.drain()

    return send


@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"])
async def test_an_endless_page_is_cut_and_its_connection_closed(head: bytes) -> None:
    sent: list[int] = []
    part = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    page = _endless(sent, b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", part)
    async with RawSite({"/": page, "/b": answer(b"x")}) as site, fetching(max_bytes=MB) as fetcher:
        with pytest.raises(PageRefused) as caught:
            await fetcher.get(site.url())
        assert (await fetcher.get(site.url("/b"))).body == b"x"
    assert caught.value.cause == f"127.0.0.1:{site.port}: too large"
    assert site.connections == 2
    assert sum(sent) < 30 * MB


async def test_a_page_that_says_that_it_is_too_large_is_not_read() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
    sent: list[int] = []
    async with RawSite({"/": _endless(sent, head, b"x" * 1_000)}) as site, fetching() as fetcher:
        with pytest.raises(PageRefused, match="larger than"):
            await fetcher.get(site.url())
    assert sum(sent) < 5 * MB


@pytest.mark.parametrize(("encoding", "encode"), [("identity", bytes), ("gzip", gzipped)])
async def test_of_a_larger_body_the_first_part_can_be_had(encoding: str, encode: Callable[[bytes], bytes]) -> None:
    whole = bytes(range(250)) * 4_000
    page = answer(encode(whole), Content_Encoding=encoding)
    async with RawSite({"/": page, "/b": answer(b"x")}) as site, fetching(max_bytes=100) as fetcher:
        fetched = await fetcher.get(site.url(), first_bytes=300_000)
        assert (await fetcher.get(site.url("/b"), first_bytes=1)).body == b"x"
    assert whole.startswith(fetched.body)
    assert 300_000 < len(fetched.body) < len(whole)
    assert site.connections == (2 if encoding == "identity" else 1), "what is left is not read"


async def test_the_first_part_of_a_body_that_is_cut_before_is_none() -> None:
    cut = sends(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b"x" * 500)
    async with RawSite({"/": cut}) as site, fetching() as fetcher:
        with pytest.raises(FetchFailed):
            await fetcher.get(site.url(), first_bytes=600)
