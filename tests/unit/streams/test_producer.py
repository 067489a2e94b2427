"""A producer keeps its promises: a bound on what is unsent, order, each message once, and no loss in silence."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import BufferFull, ConfigError, Invalid, NotSent, SourceAway, SourceError
from holdfast.ports import Progress
from holdfast.streams import Producer, Sent
from holdfast.streams import producer as producer_module
from holdfast.streams.batches import Batches
from holdfast.streams.memory import MemoryBroker, MemorySource
from holdfast.testing import ManualClock
from holdfast.types import Outgoing, Place
from tests.servers import free_port


class Server:
    """A server that takes numbered messages once, and does what servers do: be away, be slow, lose an answer."""

    def __init__(self) -> None:
        self.written: list[bytes | None] = []
        self.batches: list[int] = []
        self.ids: set[str] = set()
        self.faults: list[Callable[[], None]] = []
        """Called one by one, each before a batch is looked at; what it raises is the answer."""
        self.answers_lost = 0
        """So many batches are written, and nobody is told."""
        self.away_after = 0
        """Once, it goes away when so many of a batch are written."""
        self.poison = b""
        """What can never be written."""
        self.is_open = threading.Event()
        self.is_open.set()
        self.is_closed = False
        self._last = 0

    def send_once(self, producer_id: str, first: int, messages: Sequence[Outgoing]) -> list[tuple[int, int]]:
        assert self.is_open.wait(30)
        self.ids.add(producer_id)
        self.batches.append(len(messages))
        if self.faults:
            self.faults.pop(0)()
        places: list[tuple[int, int]] = []
        for number, message in enumerate(messages, first):
            if number <= self._last:
                places.append((0, -1))
                continue
            if message.value == self.poison:
                raise SourceError("this one cannot be written")
            self.written.append(message.value)
            self._last = number
            places.append((0, len(self.written) - 1))
            if len(places) == self.away_after:
                self.away_after = 0
                away()
        if self.answers_lost:
            self.answers_lost -= 1
            raise SourceAway("the answer was lost")
        return places

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def produce(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Producer]]:
    """Makes producers that send to the server in batches; whatever is left in the end is let go."""

    def carrier(url: str, place: object, buffer: Any, **options: Any) -> Batches:
        del options["size"], options["broker"]
        return Batches(server, buffer, **options)

    monkeypatch.setattr(producer_module, "carrier_for", carrier)
    with ExitStack() as made:

        def make(**options: Any) -> Producer:
            producer = Producer("memory://orders", **options)
            made.callback(_end, producer, server)
            return producer

        yield make


def _end(producer: Producer, server: Server) -> None:
    server.is_open.set()
    producer._end()


def away() -> None:
    raise SourceAway("the server is away")


# ---------------------------------------------------------------- sending


def test_what_is_sent_is_written_in_order_and_its_place_is_known(
    produce: Callable[..., Producer], server: Server
) -> None:
    producer = produce(batch=10)
    sents = [producer.send(value=f"{n}", key=n % 3) for n in range(100)]
    producer.flush()
    assert server.written == [b"%d" % n for n in range(100)]
    assert [sent.wait() for sent in sents] == [("orders", 0, n) for n in range(100)]
    assert producer.unsent == 0
    assert max(server.batches) <= 10


def test_while_one_batch_is_under_way_the_next_one_gathers(produce: Callable[..., Producer], server: Server) -> None:
    producer = produce(batch=10)
    server.is_open.clear()
    producer.send(value="first")
    _until(lambda: not producer._carrier._queue)  # type: ignore[attr-defined]
    for n in range(25):
        producer.send(value=n)
    server.is_open.set()
    producer.flush()
    assert server.batches == [1, 10, 10, 5]


def test_a_topic_may_be_left_out_where_the_url_names_one() -> None:
    broker = MemoryBroker()
    with Producer("memory://orders", broker=broker) as producer:
        producer.send(value="a")
        producer.send("others", "b", partition=0)
    assert [message.value for message in broker.log(("orders", 0))] == [b"a"]
    assert [message.value for message in broker.log(("others", 0))] == [b"b"]


def test_a_message_without_a_topic_or_a_value_is_refused() -> None:
    with Producer("memory://") as producer:
        with pytest.raises(Invalid, match="names none either"):
            producer.send(value="a")
        with pytest.raises(TypeError, match="nothing to send"):
            producer.send("orders")
        with pytest.raises(Invalid, match="without blanks"):
            producer.send("my orders", "a")
        with pytest.raises(Invalid, match="the value"):
            producer.send("orders", object())
        assert producer.send("orders", None).wait().offset == 0


def test_in_memory_a_message_is_there_when_send_returns() -> None:
    broker = MemoryBroker(partitions=4)
    with Producer("memory://orders", broker=broker, buffer=1) as producer:
        sents = [producer.send(value=n, key="k", headers={"h": "x"}) for n in range(5)]
        assert all(sent.done() for sent in sents)
        (partition,) = {sent.wait().partition for sent in sents}
        log = broker.log(("orders", partition))
        assert [(one.value, one.key, one.headers, one.offset) for one in log] == [
            (b"%d" % n, b"k", (("h", b"x"),), n) for n in range(5)
        ]
        broker.go_away()
        lost = producer.send(value="lost")
        with pytest.raises(NotSent, match="away"):
            lost.wait()
        with pytest.raises(NotSent, match="1 message was given up"):
            producer.flush()


class _Nobody:
    """An owner that takes what it is given."""

    def assigned(self, positions: object) -> None:
        pass

    async def revoked(self, places: object) -> dict[Place, Progress]:
        return {}

    def lost(self, places: object) -> None:
        pass

    def away(self, why: str) -> None:
        pass


async def test_what_a_thread_sends_in_memory_wakes_the_source_that_waits_for_it() -> None:
    asyncio.get_running_loop().set_debug(True)  # it then raises when another thread does what it may not
    broker = MemoryBroker()
    source = MemorySource("orders", "billing", SystemClock(), broker=broker)
    await source.open("orders", (), _Nobody())
    waiting = asyncio.create_task(source.receive(10, 30.0))
    await _turns()
    with Producer("memory://orders", broker=broker) as producer:
        await asyncio.to_thread(producer.send, value="a")
    assert [message.value for message in await waiting] == [b"a"]
    await source.close()


async def test_async_code_awaits_room_and_the_written_message(produce: Callable[..., Producer], server: Server) -> None:
    producer = produce(buffer=2)
    server.is_open.clear()
    first = [await producer.asend(value=n) for n in range(2)]
    later = [asyncio.create_task(producer.asend(value=n)) for n in range(2, 6)]
    await _turns()
    assert not any(task.done() for task in later)
    server.is_open.set()
    sents = [*first, *await asyncio.gather(*later)]
    assert await asyncio.gather(*sents) == [("orders", 0, n) for n in range(6)]
    await producer.aflush()
    assert server.written == [b"%d" % n for n in range(6)]


async def test_a_cancelled_wait_leaves_the_message_and_the_line_in_order(
    produce: Callable[..., Producer], server: Server
) -> None:
    producer = produce(buffer=1)
    server.is_open.clear()
    sent = await producer.asend(value="a")
    waiting = asyncio.ensure_future(_result(sent))
    in_line = [asyncio.create_task(producer.asend(value=value)) for value in ("b", "c")]
    await _turns()
    waiting.cancel()
    in_line[0].cancel()
    await _turns()
    server.is_open.set()
    assert await sent == ("orders", 0, 0)
    await (await in_line[1])
    assert server.written == [b"a", b"c"]
    assert sent._wakers == ()


# ---------------------------------------------------------------- the bound


def test_a_full_buffer_refuses_at_once_when_told_to(produce: Callable[..., Producer], server: Server) -> None:
    producer = produce(buffer=3, when_full="error")
    server.is_open.clear()
    for n in range(3):
        producer.send(value=n)
    for _ in range(2):
        with pytest.raises(BufferFull, match="3 messages are unsent") as caught:
            producer.send(value="refused")
        assert caught.value.retry_after == 0.1
    assert producer.unsent == 3
    server.is_open.set()
    producer.flush()
    producer.send(value="taken")
    producer.flush()
    assert server.written == [b"0", b"1", b"2", b"taken"]


def test_a_full_buffer_is_waited_for_no_longer_than_said(
    produce: Callable[..., Producer], server: Server, clock: ManualClock
) -> None:
    producer = produce(buffer=1, full_wait=5.0, clock=clock)
    server.is_open.clear()
    producer.send(value="a")
    failed = _in_thread(lambda: producer.send(value="b"))
    _until(lambda: bool(producer._buffer._line))
    clock.advance(4.9)
    assert producer._buffer._line
    clock.advance(0.2)
    with pytest.raises(BufferFull, match="no room for 5 s"):
        failed()
    server.is_open.set()
    producer.flush()
    assert server.written == [b"a"]


async def test_async_code_waits_for_room_no_longer_than_said(
    produce: Callable[..., Producer], server: Server, clock: ManualClock
) -> None:
    producer = produce(buffer=1, full_wait=5.0, clock=clock)
    server.is_open.clear()
    await producer.asend(value="a")
    refused = asyncio.create_task(producer.asend(value="b"))
    await _turns()
    clock.advance(5.0)
    with pytest.raises(BufferFull, match="no room for 5 s"):
        await refused
    server.is_open.set()
    await producer.aflush()
    assert server.written == [b"a"]


def test_many_threads_never_hold_more_than_the_buffer_and_each_keeps_its_order(
    produce: Callable[..., Producer], server: Server
) -> None:
    producer = produce(buffer=7, batch=3)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, producer.unsent)

    server.faults = [look] * 10_000

    def send(name: int) -> None:
        for m in range(300):
            producer.send(value=f"{name}:{m}")

    threads = [_in_thread(partial(send, n)) for n in range(4)]
    for finish in threads:
        finish()
    producer.flush()
    assert most <= 7
    values = [(value or b"").decode().split(":") for value in server.written]
    for n in range(4):
        assert [int(m) for name, m in values if name == str(n)] == list(range(300))


def test_who_comes_while_others_stand_in_line_goes_behind_them(
    produce: Callable[..., Producer], server: Server
) -> None:
    producer = produce(buffer=1)
    server.is_open.clear()
    producer.send(value="0")
    finishes = []
    for n in range(1, 5):
        finishes.append(_in_thread(partial(producer.send, value=f"{n}")))
        _until(partial(_is_long, producer, n))
    server.is_open.set()
    for finish in finishes:
        finish()
    producer.flush()
    assert server.written == [b"0", b"1", b"2", b"3", b"4"]


def test_a_flush_does_not_wait_for_somebody_who_has_left_the_line(
    produce: Callable[..., Producer], server: Server, clock: ManualClock
) -> None:
    producer = produce(buffer=1, full_wait=5.0, clock=clock)
    server.is_open.clear()
    producer.send(value="a")
    refused = _in_thread(lambda: producer.send(value="b"))
    _until(partial(_is_long, producer, 1))
    flushed = _in_thread(producer.flush)
    _until(lambda: bool(producer._buffer._flushes))
    clock.advance(5.0)
    with pytest.raises(BufferFull):
        refused()
    server.is_open.set()
    flushed()
    assert server.written == [b"a"]


def test_kafka_has_room_for_so_many_bytes_and_a_small_message_does_not_pass_a_large_one() -> None:
    url = f"kafka://127.0.0.1:{free_port()}/orders?queue.buffering.max.kbytes=10"
    producer = Producer(url, full_wait=30.0)
    with pytest.raises(SourceError, match=r"larger than queue\.buffering\.max\.kbytes"):
        producer.send(value=b"x" * 20_000)
    producer.send(value=b"x" * 6_000)
    in_line = []
    for n, value in enumerate((b"large" * 1_200, b"small"), start=1):
        in_line.append(_in_thread(partial(producer.send, value=value)))
        _until(partial(_is_long, producer, n))
    assert producer.unsent == 1
    with pytest.raises(NotSent, match="3 messages were given up"):
        producer.close(0.0)
    for finish in in_line:
        with pytest.raises(NotSent):
            finish()


# ---------------------------------------------------------------- again, and once


def test_a_batch_that_failed_is_sent_again_before_the_next_and_nothing_is_doubled(
    produce: Callable[..., Producer], server: Server, clock: ManualClock
) -> None:
    server.faults = [away, away]
    server.answers_lost = 2
    producer = produce(batch=5, clock=_Hasty(clock))
    sents = [producer.send(value=n) for n in range(50)]
    producer.flush()
    assert server.written == [b"%d" % n for n in range(50)]
    assert len(server.ids) == 1
    assert {sent.wait().offset for sent in sents} <= {-1, *range(50)}  # -1: its place was in the answer that was lost


def test_what_is_not_written_in_time_is_given_up_loudly_and_the_rest_goes_on(
    produce: Callable[..., Producer], server: Server, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    producer = produce(timeout=60.0, clock=_Hasty(clock))
    server.is_open.clear()
    old = [producer.send(value=f"old {n}") for n in range(3)]
    _until(lambda: not producer._carrier._queue)  # type: ignore[attr-defined]

    def late() -> None:
        clock.advance(61.0)
        away()

    server.faults = [late]
    server.is_open.set()
    with pytest.raises(NotSent, match=r"topic orders: not written within 60 s; the server is away"):
        old[0].wait()
    new = producer.send(value="new")
    assert new.wait() == ("orders", 0, 0)
    with pytest.raises(
        NotSent, match=r"3 messages were given up since the last flush; the last one: memory://orders: topic orders"
    ):
        producer.flush()
    producer.flush()
    assert server.written == [b"new"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "3 messages were given up" in caplog.text


def test_when_the_first_of_a_batch_run_out_of_time_the_others_keep_their_numbers(
    produce: Callable[..., Producer], server: Server, clock: ManualClock
) -> None:
    producer = produce(timeout=60.0, clock=_Hasty(clock))
    server.is_open.clear()
    producer.send(value="in the way")
    _until(lambda: not producer._carrier._queue)  # type: ignore[attr-defined]
    old = producer.send(value="old")
    clock.advance(59.0)
    producer.send(value="new")

    def be_late() -> None:
        clock.advance(2.0)
        server.away_after = 1

    server.faults = [lambda: None, be_late]
    server.is_open.set()
    with pytest.raises(NotSent):
        old.wait()
    with pytest.raises(NotSent, match="1 message was given up"):
        producer.flush()
    assert server.written == [b"in the way", b"old", b"new"]  # the old one is there, though nobody heard of it


def test_one_message_that_can_never_be_written_does_not_take_its_neighbours_along(
    produce: Callable[..., Producer], server: Server
) -> None:
    server.poison = b"bad"
    producer = produce()
    server.is_open.clear()
    sents = [producer.send(value=value) for value in ("a", "b", "bad", "c")]
    server.is_open.set()
    with pytest.raises(NotSent, match=r"1 message was given up .*cannot be written"):
        producer.flush()
    assert server.written == [b"a", b"b", b"c"]
    assert [sent.error is None for sent in sents] == [True, True, False, True]
    with pytest.raises(NotSent):
        sents[2].wait()


def test_a_mistake_in_the_sending_thread_fails_everybody_instead_of_leaving_them_waiting(
    produce: Callable[..., Producer], server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults = [lambda: cast("None", 1 / 0)]
    producer = produce()
    sent = producer.send(value="a")
    with pytest.raises(NotSent, match="has failed"):
        sent.wait()
    with pytest.raises(SourceError, match="has failed"):
        producer.send(value="b")
    assert "ZeroDivisionError" in caplog.text


# ---------------------------------------------------------------- flush and close


def test_a_flush_waits_for_what_was_sent_before_it_and_for_nothing_else(
    produce: Callable[..., Producer], server: Server, clock: ManualClock
) -> None:
    producer = produce(clock=clock, batch=1)
    server.is_open.clear()
    first = producer.send(value="a")
    flushed = _in_thread(producer.flush)
    _until(lambda: bool(producer._buffer._flushes))
    held = threading.Event()
    server.faults = [lambda: None, lambda: cast("None", held.wait(30))]
    producer.send(value="b")
    server.is_open.set()
    flushed()
    assert first.done()
    assert producer.unsent == 1
    held.set()
    producer.flush()


def test_a_flush_says_how_many_are_not_written_in_time_and_these_are_still_tried(
    produce: Callable[..., Producer], server: Server, clock: ManualClock
) -> None:
    producer = produce(clock=clock, buffer=3)
    server.is_open.clear()
    sents = [producer.send(value=n) for n in range(3)]
    in_line = _in_thread(lambda: producer.send(value=3))
    _until(partial(_is_long, producer, 1))
    flushing = _in_thread(lambda: producer.flush(timeout=2.0))
    _until(lambda: bool(producer._buffer._flushes))
    clock.advance(2.0)
    with pytest.raises(NotSent, match="4 messages were not written within 2 s, and still on the way"):
        flushing()
    with pytest.raises(TimeoutError, match="still on its way"):
        sents[0].wait(timeout=0.0)
    server.is_open.set()
    in_line()
    producer.flush()
    assert server.written == [b"0", b"1", b"2", b"3"]


async def test_an_async_flush_has_a_time_limit_too(
    produce: Callable[..., Producer], server: Server, clock: ManualClock
) -> None:
    producer = produce(clock=clock)
    server.is_open.clear()
    await producer.asend(value=1)
    flushing = asyncio.create_task(producer.aflush(timeout=2.0))
    await _turns()
    clock.advance(2.0)
    with pytest.raises(NotSent, match="1 message was not written within 2 s"):
        await flushing
    assert producer._buffer._flushes == []
    server.is_open.set()
    await producer.aflush()


def test_leaving_the_block_flushes_and_then_nothing_more_is_taken(
    produce: Callable[..., Producer], server: Server
) -> None:
    with produce() as producer:
        for n in range(10):
            producer.send(value=n)
    assert len(server.written) == 10
    assert server.is_closed
    with pytest.raises(SourceError, match="the producer is closed"):
        producer.send(value="late")
    producer.close()


async def test_leaving_the_async_block_flushes(produce: Callable[..., Producer], server: Server) -> None:
    async with produce() as producer:
        for n in range(10):
            await producer.asend(value=n)
    assert len(server.written) == 10
    with pytest.raises(SourceError, match="closed"):
        await producer.asend(value="late")


def test_what_is_not_written_when_the_producer_is_closed_is_given_up_loudly(
    produce: Callable[..., Producer], server: Server, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults = [away] * 1000
    producer = produce(buffer=2, clock=clock)
    sents = [producer.send(value=n) for n in range(2)]
    in_line = _in_thread(lambda: producer.send(value="in line"))
    _until(lambda: bool(producer._buffer._line))
    closing = _in_thread(lambda: producer.close(timeout=3.0))
    _until(lambda: bool(producer._buffer._flushes))
    clock.advance(3.0)
    with pytest.raises(NotSent, match=r"3 messages were given up .*not written when the producer was closed"):
        closing()
    with pytest.raises(NotSent, match="not written when the producer was closed"):
        in_line()
    for sent in sents:
        with pytest.raises(NotSent):
            sent.wait()
    assert "3 messages were given up" in caplog.text


def test_an_error_in_the_block_is_not_hidden_by_what_was_lost(clock: ManualClock) -> None:
    broker = MemoryBroker()
    with pytest.raises(ZeroDivisionError), Producer("memory://orders", broker=broker) as producer:
        broker.go_away()
        producer.send(value="lost")
        raise ZeroDivisionError
    with pytest.raises(NotSent), Producer("memory://orders", broker=broker) as producer:
        producer.send(value="lost")


def test_a_process_that_ends_without_closing_says_what_was_lost() -> None:
    code = f"""
from holdfast.streams import producer, Producer
producer._AT_EXIT_S = 0.05
Producer("kafka://127.0.0.1:{free_port()}/orders").send(value="lost")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "1 message was given up" in found.stderr
    assert "not written when the producer was closed" in found.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_is_told_to_make_its_own_and_ends_without_delay() -> None:
    code = f"""
import os, sys
from holdfast.streams import producer, Producer
producer._AT_EXIT_S = 0.05
one = Producer("kafka://127.0.0.1:{free_port()}/orders")
sent = one.send(value="the parent's")
pid = os.fork()
if pid == 0:
    for call in (lambda: one.send(value="x"), lambda: sent.wait(5)):
        try:
            call()
        except Exception as error:
            print(type(error).__name__, str(error).partition(": the ")[2])
    one.flush(), one.close()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print(one.unsent)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    told = "SourceError producer was made before this process was forked: make one in each process"
    assert found.stdout.splitlines() == [told, told, "1"]


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"buffer": 0}, "buffer=0"),
        ({"buffer": 10**7}, "at most 1,000,000"),
        ({"batch": 0}, "batch=0"),
        ({"batch": 1.5}, "batch=1.5"),
        ({"timeout": 0}, "timeout=0"),
        ({"when_full": "drop"}, "when_full='drop'"),
        ({"full_wait": -1}, "full_wait=-1"),
        ({"full_wait": 1, "when_full": "error"}, "does not wait"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Producer("memory://orders", **options)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kafka://host/orders?acks=1", "acks cannot be set"),
        ("kafka://host/orders?delivery.timeout.ms=1", "say timeout= instead"),
        ("kafka://host/orders?queue.buffering.max.messages=1", "say buffer= instead"),
        ("kafka://host/orders?no.such.thing=1", "No such configuration property"),
        ("ftp://host/orders", "must be one such as"),
    ],
)
def test_a_url_that_cannot_work_is_refused_in_one_line(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Producer(url)
    assert "\n" not in str(caught.value)


def test_a_broker_is_for_memory_alone() -> None:
    with pytest.raises(ConfigError, match="for memory:// alone"):
        Producer("kafka://host/orders", broker=MemoryBroker())


# ---------------------------------------------------------------- inside


class _Hasty:
    """A clock that does not wait between tries."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        return event.wait(0.0 if seconds is not None else 30)


def _is_long(producer: Producer, count: int) -> bool:
    return len(producer._buffer._line) == count


async def _result(sent: Sent) -> object:
    return await sent


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251 - lets others run


def _until(holds: Callable[[], bool]) -> None:
    """Other threads are about to make it so."""
    clock = SystemClock()
    end = clock.monotonic() + 30
    while not holds():
        assert clock.monotonic() < end
        clock.sleep(0.001)


def _in_thread(work: Callable[[], object]) -> Callable[[], None]:
    """Begin it; the function that is returned waits for its end, and raises what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def finish() -> None:
        thread.join(30)
        assert not thread.is_alive()
        if errors:
            raise errors[0]

    return finish
