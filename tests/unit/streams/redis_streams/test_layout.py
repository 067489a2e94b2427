"""What a consumer holds of a stream, and the names of keys."""

from __future__ import annotations

from holdfast.streams.redis_streams.entries import Batch, read_entries
from holdfast.streams.redis_streams.layout import SHARED, Layout, Stream


def _batch(*ids: bytes) -> Batch:
    batch = Batch()
    read_entries("orders", 0, [[one, [b"value", one]] for one in ids], b"value", batch)
    return batch


def _values(stream: Stream, *ids: bytes) -> list[bytes | None]:
    return [message.value for message in stream.keep(_batch(*ids))]


def _stream() -> Stream:
    stream = Stream(("orders", 0), "orders", b"billing", SHARED, deletes=False)
    stream.begin()
    return stream


def test_what_was_finished_while_its_entries_were_taken_over_does_not_come_again() -> None:
    stream = _stream()
    stream.adopted(None)
    (one, two) = stream.keep(_batch(b"1-1", b"1-2"))
    stream.doubt()  # an answer was lost, and all that is pending is asked for
    stream.let_go([one.offset])  # and this one is committed before the answer to that is here
    assert _values(stream, b"1-1", b"1-2", b"1-3") == [b"1-3"]
    assert one.offset not in stream.held
    assert two.offset in stream.held


def test_what_the_server_delivers_again_after_that_comes_again() -> None:
    stream = _stream()
    (one,) = stream.keep(_batch(b"1-1"))
    stream.let_go([one.offset])
    stream.adopted(None)
    assert _values(stream, b"1-1") == [b"1-1"]  # the server has lost its latest writes


def test_keys_of_a_group_begin_with_the_stream_and_are_nobody_elses() -> None:
    names = [("orders", b"eu.billing"), ("orders.eu", b"billing"), ("orders", b"eu:billing"), ("orders:eu", b"billing")]
    assert len({Layout(topic, group, 1).base for topic, group in names}) == len(names)
    assert Layout("{orders}", b"billing", 1).base.startswith(b"{orders}")
