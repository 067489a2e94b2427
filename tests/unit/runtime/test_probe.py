"""A worker's own port: what it says of processes that work, drain, hang, wait for their store or are gone."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec
import pytest

from holdfast.runtime import probe
from holdfast.runtime.exposition import Metric, Sample
from holdfast.runtime.probe import served
from holdfast.runtime.reports import Line, metrics_of, reports_to
from holdfast.runtime.worker import Report
from holdfast.testing import ManualClock


class Fake:
    """A process that says what the test wants."""

    live = ready = ""

    def metrics(self) -> list[Metric]:
        return [Metric("m", "gauge", "A number.", [Sample({"process": "0"}, 1)])]

    def why_not_live(self) -> str:
        return self.live

    def why_not_ready(self) -> str:
        return self.ready


def ask(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"] or "", answer.read().decode()
    finally:
        connection.close()


def test_it_answers_for_who_is_asked() -> None:
    fake = Fake()
    with served(fake, "127.0.0.1", 0) as port:
        text = '# HELP m A number.\n# TYPE m gauge\nm{process="0"} 1\n'
        assert ask(port, "/metrics") == (200, "text/plain; version=0.0.4; charset=utf-8", text)
        assert ask(port, "/health/live")[::2] == ask(port, "/health/ready?x=1")[::2] == (200, "ok\n")
        fake.ready = "it is draining"
        assert ask(port, "/health/ready")[::2] == (503, "it is draining\n")
        assert ask(port, "/health/live")[0] == 200
        fake.live = "it hangs"
        assert ask(port, "/health/live")[::2] == (503, "it hangs\n")
        assert ask(port, "/metrics", "HEAD")[::2] == (200, "")
        assert [ask(port, path)[0] for path in ("/", "/metrics/", "/../etc/passwd")] == [404] * 3
        assert ask(port, "/metrics", "POST")[0] == 501
    with pytest.raises(OSError, match="refused"):
        ask(port, "/metrics")


def slow_client(port: int) -> socket.socket:
    """One that has begun with a request, and takes its time."""
    one = socket.create_connection(("127.0.0.1", port), timeout=10)
    one.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    return one


def test_slow_clients_do_not_keep_a_probe_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_MOST_AT_ONCE", 2)
    with served(Fake(), "127.0.0.1", 0, clock=ManualClock()) as port, ExitStack() as stack:
        first, second = (stack.enter_context(slow_client(port)) for _ in range(2))
        assert ask(port, "/health/live")[0] == 200
        assert first.recv(10) == b"", "who came first has to go"
        second.sendall(b"\r\n\r\n")
        assert second.recv(100).startswith(b"HTTP/1.0 200"), "and nobody else"


def test_a_client_that_sends_drop_by_drop_has_five_seconds_in_all() -> None:
    clock = ManualClock()
    with served(Fake(), "127.0.0.1", 0, clock=clock) as port, slow_client(port) as slow:
        assert ask(port, "/health/live")[0] == 200  # by now the slow one is being answered
        for _ in range(4):
            clock.advance(1.0)
            slow.sendall(b"a")
        with slow_client(port) as late:
            assert ask(port, "/health/live")[0] == 200
            clock.advance(1.0)
            assert slow.recv(10) == b""
            late.sendall(b"\r\n\r\n")
            assert late.recv(100).startswith(b"HTTP/1.0 200")


def test_a_port_that_is_taken_is_an_error() -> None:
    with (
        served(Fake(), "127.0.0.1", 0) as port,
        pytest.raises(OSError, match="in use"),
        served(Fake(), "127.0.0.1", port),
    ):
        pass


# ---------------------------------------------------------------- what processes report


def report(why_not_ready: str = "", **counts: int) -> bytes:
    one = Report(worker="w", pid=7, why_not_ready=why_not_ready, last_exchange_s=0.5, running=2, counts=counts)
    return msgspec.json.encode(one) + b"\n"


@contextmanager
def line_to(clock: ManualClock) -> Iterator[tuple[Line, int]]:
    """A line, and the end of it that a process writes to."""
    line = Line(clock, is_open=True)
    with line.opened() as fd:
        assert fd is not None
        theirs = os.dup(fd)
    try:
        yield line, theirs
    finally:
        os.close(theirs)
        line.close()


def test_a_process_is_live_and_ready_while_it_says_so() -> None:
    clock = ManualClock()
    with line_to(clock) as (line, fd):
        assert (line.why_not_live(), line.why_not_ready()) == ("", "no process has begun")
        os.write(fd, report("it has not begun") + report())
        line.hear()
        assert (line.why_not_live(), line.why_not_ready()) == ("", "")
        os.write(fd, report("the store does not answer"))
        line.hear()
        assert (line.why_not_live(), line.why_not_ready()) == ("", "the store does not answer")


def test_a_process_that_falls_silent_is_neither() -> None:
    clock = ManualClock()
    with line_to(clock) as (line, fd):
        os.write(fd, report())
        line.hear()
        clock.advance(15.0)
        assert (line.why_not_live(), line.why_not_ready()) == ("", "")
        clock.advance(1.0)
        line.hear()
        assert line.why_not_live() == "worker process 7 has not turned its event loop for 16 s"
        assert line.why_not_ready() == "no process has begun"


def test_a_process_may_take_a_minute_to_begin() -> None:
    clock = ManualClock()
    with line_to(clock) as (line, _):
        clock.advance(60.0)
        assert line.why_not_live() == ""
        clock.advance(1.0)
        assert line.why_not_live() == "a worker process has not turned its event loop for 61 s"


def test_half_a_line_and_nonsense_change_nothing() -> None:
    clock = ManualClock()
    with line_to(clock) as (line, fd):
        os.write(fd, report()[:20])
        line.hear()
        assert line.why_not_ready() == "no process has begun"
        os.write(fd, report()[20:])
        line.hear()
        assert line.why_not_ready() == ""
        os.write(fd, b"nonsense\n")
        line.hear()
        assert line.why_not_ready() == ""


def test_a_process_that_is_gone_says_nothing_any_more() -> None:
    clock = ManualClock()
    with line_to(clock) as (line, fd):
        os.write(fd, report())
        line.hear()
        line.close()
        line.hear()
        assert (line.report, line.why_not_live(), line.why_not_ready()) == (None, "", "no process has begun")


def test_a_process_that_could_not_be_started_leaves_nothing_open_and_is_not_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    line = Line(clock, is_open=True)
    ends = os.pipe()
    monkeypatch.setattr(os, "pipe", lambda: ends)
    with pytest.raises(BlockingIOError), line.opened():
        raise BlockingIOError
    for fd in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    clock.advance(61.0)
    assert (line.why_not_live(), line.why_not_ready()) == ("", "no process has begun")


def test_metrics_are_those_of_each_process() -> None:
    clock = ManualClock()
    with line_to(clock) as (line, fd):
        os.write(fd, report("it is draining", completed=5, failed=1, lost=9) + b"")
        line.hear()
        metrics = metrics_of([line, Line(clock, is_open=True)], 3)
    found = {(one.name, *sorted(s.labels.values())): s.value for one in metrics for s in one.samples}
    assert found == {
        ("holdfast_worker_up", "0"): 1,
        ("holdfast_worker_up", "1"): 0,
        ("holdfast_worker_ready", "0"): 0,
        ("holdfast_worker_last_exchange_seconds", "0"): 0.5,
        ("holdfast_worker_jobs_running", "0"): 2,
        ("holdfast_worker_attempts_total", "0", "completed"): 5,
        ("holdfast_worker_attempts_total", "0", "failed"): 1,
        ("holdfast_worker_restarts_total",): 3,
    }


def test_a_process_knows_where_to_report() -> None:
    assert (reports_to(["8080", "--reports-to=7"]), reports_to(["8080"]), reports_to([])) == (7, None, None)
