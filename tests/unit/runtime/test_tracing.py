"""Traces from producer to worker, with the real SDK: on the loop, on threads and in processes of their own."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast.app import App
from holdfast.errors import Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.runtime import tracing
from holdfast.runtime.logs import JsonFormatter
from holdfast.runtime.tracing import find_tracer, trace_from
from holdfast.types import JobState

RETRY = RetryPolicy(max_retries=1)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What a provider of this test's own exports."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def own_tracer() -> Any:
    return trace.get_tracer_provider().get_tracer("shop")


def by_name(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    return span.get_span_context().span_id  # type: ignore[union-attr]


def trace_id(span: ReadableSpan) -> int:
    return span.get_span_context().trace_id  # type: ignore[union-attr]


async def test_a_trace_goes_from_the_producer_through_every_attempt_to_what_it_does(
    spans: InMemorySpanExporter,
) -> None:
    app = App("memory://")
    seen: list[int] = []

    @app.task(name="mail", queue="post", retry=RETRY, breaker=None)
    async def mail(n: int) -> None:
        seen.append(n)
        with own_tracer().start_as_current_span("smtp"):
            if len(seen) == 1:
                raise Transient("busy, password=hunter2")

    with own_tracer().start_as_current_span("request"):
        job = await mail.options(tenant="acme").aenqueue(1)
    await app.arun_until_idle()
    found = by_name(spans)
    (request,), (enqueue,), (first, second), works = (
        found["request"],
        found["enqueue mail"],
        found["mail"],
        found["smtp"],
    )
    assert {trace_id(span) for span in spans.get_finished_spans()} == {trace_id(request)}
    assert (enqueue.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_id(enqueue) == id_of(request)
    assert parent_id(first) == parent_id(second) == id_of(enqueue)
    assert [parent_id(work) for work in works] == [id_of(first), id_of(second)]
    assert first.attributes is not None
    worker = first.attributes["holdfast.worker"]
    expected = {
        "messaging.system": "holdfast",
        "messaging.operation.type": "process",
        "messaging.destination.name": "post",
        "messaging.message.id": job.id,
        "holdfast.task": "mail",
        "holdfast.worker": worker,
        "holdfast.tenant": "acme",
    }
    failed = {
        "error.type": "holdfast.errors.Transient",
        "holdfast.failure_type": "transient",
        "holdfast.outcome": "retried",
    }
    assert dict(first.attributes) == expected | {"holdfast.attempt": 1} | failed
    assert dict(second.attributes or {}) == expected | {"holdfast.attempt": 2}
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    (event,) = first.events
    assert event.attributes is not None
    assert (event.name, event.attributes["exception.type"]) == ("exception", "holdfast.errors.Transient")
    assert event.attributes["exception.message"] == "busy, password=[redacted]"
    assert "hunter2" not in str(event.attributes["exception.stacktrace"])
    assert second.events == ()


async def test_sync_jobs_run_inside_of_their_span_and_leave_none_behind(spans: InMemorySpanExporter) -> None:
    app = App("memory://")
    current: list[int] = []

    @app.task(name="mail", breaker=None)
    def mail() -> None:
        current.append(trace.get_current_span().get_span_context().span_id)

    await app.aenqueue_many([mail.bind() for _ in range(5)])
    await app.arun_until_idle()
    attempts = by_name(spans)["mail"]
    assert sorted(current) == sorted(id_of(span) for span in attempts)
    assert {parent_id(span) for span in attempts} == {None}
    assert len({trace_id(span) for span in attempts}) == 5


async def test_a_batch_is_one_span_and_every_job_of_it_goes_on_from_there(spans: InMemorySpanExporter) -> None:
    app = App("memory://")

    @app.task(name="a", breaker=None)
    async def a() -> None: ...

    @app.task(name="b", breaker=None)
    async def b() -> None: ...

    with own_tracer().start_as_current_span("request"):
        await app.aenqueue_many([a.bind(), b.bind()])
    await app.arun_until_idle()
    found = by_name(spans)
    (enqueue,) = found["enqueue"]
    assert (enqueue.attributes or {})["messaging.batch.message_count"] == 2
    assert {parent_id(found["a"][0]), parent_id(found["b"][0])} == {id_of(enqueue)}


async def test_outside_of_a_span_enqueueing_makes_none_and_the_attempt_begins_a_trace(
    spans: InMemorySpanExporter,
) -> None:
    app = App("memory://")

    @app.task(name="mail", breaker=None)
    async def mail() -> None: ...

    job = await mail.aenqueue()
    assert (await job.arefresh()).record.trace is None
    await app.arun_until_idle()
    assert list(by_name(spans)) == ["mail"]


async def test_a_span_that_is_not_recorded_is_carried_on_with_its_state(spans: InMemorySpanExporter) -> None:
    app = App("memory://")

    @app.task(name="mail", breaker=None)
    async def mail() -> None: ...

    state = trace.TraceState([("vendor", "x;y")])
    remote = trace.SpanContext(
        trace_id=5, span_id=7, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state
    )
    with trace.use_span(trace.NonRecordingSpan(remote)):
        job = await mail.aenqueue()
    assert (await job.arefresh()).record.trace == f"00-{5:032x}-{7:016x}-01 vendor=x;y"
    await app.arun_until_idle()
    (attempt,) = by_name(spans)["mail"]
    assert (trace_id(attempt), parent_id(attempt)) == (5, 7)
    assert attempt.get_span_context().trace_state == state  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "hostile", ["", " ", "00-zz", "x" * 9999, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\x00 a=b"]
)
async def test_nonsense_in_a_jobs_trace_begins_a_trace_of_its_own(spans: InMemorySpanExporter, hostile: str) -> None:
    tracer = find_tracer()
    assert tracer is not None
    from holdfast.runtime.inline import inline_delivery

    delivery = inline_delivery("mail")
    delivery.trace = hostile
    span = tracer.begin(delivery, "w")
    assert span is not None
    tracer.end(span)
    assert parent_id(by_name(spans)["mail"][0]) is None


async def test_a_listener_that_raises_does_not_stop_the_job(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def start_span(self, *_: object, **__: object) -> None:
            raise RuntimeError("the exporter is broken")

    monkeypatch.setattr(trace, "get_tracer", lambda _: Broken())
    app = App("memory://")

    @app.task(name="mail", breaker=None)
    async def mail() -> None: ...

    @app.task(name="post", breaker=None)
    def post() -> None: ...

    jobs = [await mail.aenqueue(), await post.aenqueue()]
    await app.arun_until_idle()
    assert [(await job.arefresh()).state for job in jobs] == [JobState.COMPLETED] * 2
    assert caplog.text.count("cannot be traced: RuntimeError: the exporter is broken") == 1


def test_without_a_provider_or_without_the_package_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    assert find_tracer() is None
    monkeypatch.delitem(sys.modules, tracing.API)
    assert find_tracer() is None


def test_importing_and_working_loads_no_opentelemetry() -> None:
    code = """
import sys, holdfast
app = holdfast.App("memory://")
@app.task(name="t")
def t(): ...
t.enqueue()
app.run_until_idle()
heavy = {"opentelemetry", "prometheus_client", "fastapi", "uvicorn"}
loaded = [name for name in sys.modules if name.split(".")[0] in heavy]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


SHOP = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
import holdfast

class ToFile(SpanExporter):
    def export(self, spans):
        with open("spans.jsonl", "a") as file:
            for span in spans:
                context, parent = span.get_span_context(), span.parent
                line = {"name": span.name, "pid": os.getpid(), "id": context.span_id, "trace": context.trace_id,
                        "parent": parent and parent.span_id, "status": span.status.status_code.name}
                file.write(json.dumps(line) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
app = holdfast.App("sqlite:///shop.db")

@app.task(name="crunch", isolate="process", breaker=None, retry=holdfast.RetryPolicy(max_retries=0))
def crunch(n: int) -> None:
    with trace.get_tracer("shop").start_as_current_span(f"inside {n}"):
        if n == 2:
            raise ValueError("two")
        if n == 3:
            os._exit(9)

if __name__ == "__main__":
    import shop
    with trace.get_tracer("shop").start_as_current_span("request"):
        shop.app.enqueue_many([shop.crunch.bind(n) for n in (1, 2, 3)])
    shop.app.run_until_idle()
"""


def test_isolated_jobs_run_inside_of_their_span_which_outlives_their_process(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    subprocess.run([sys.executable, "-c", "import runpy; runpy.run_module('shop', run_name='__main__')"],
                   cwd=tmp_path, check=True, timeout=60, capture_output=True)  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "spans.jsonl").read_text().splitlines()]
    assert len({line["trace"] for line in lines}) == 1
    attempts = {line["id"]: line for line in lines if line["name"] == "crunch"}
    inside = {line["name"]: line for line in lines if line["name"].startswith("inside")}
    assert sorted(line["status"] for line in attempts.values()) == ["ERROR", "ERROR", "UNSET"]
    assert sorted(inside) == ["inside 1", "inside 2"]
    for name, status in (("inside 1", "UNSET"), ("inside 2", "ERROR")):
        parent = attempts[inside[name]["parent"]]
        assert parent["status"] == status
        assert parent["pid"] != inside[name]["pid"]


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("parents", "states", "expected"),
    [
        ([f"00-{TRACE}-{SPAN}-01"], [], f"00-{TRACE}-{SPAN}-01"),
        ([f" 00-{TRACE}-{SPAN}-00 "], ["a=1", " b=2 ", ""], f"00-{TRACE}-{SPAN}-00 a=1,b=2"),
        ([f"42-{TRACE}-{SPAN}-01-more"], [], f"00-{TRACE}-{SPAN}-01"),  # of a version to come
        ([f"00-{TRACE}-{SPAN}-01"], ["a=" + "x" * 600], f"00-{TRACE}-{SPAN}-01"),
        ([f"00-{TRACE}-{SPAN}-01"], ["a=\n"], f"00-{TRACE}-{SPAN}-01 a="),
        ([f"00-{TRACE}-{SPAN}-01"], ["a=\x00b"], f"00-{TRACE}-{SPAN}-01"),
        ([], ["a=1"], None),
        ([f"00-{TRACE}-{SPAN}-01"] * 2, [], None),
        ([f"00-{TRACE}-{SPAN}-01-more"], [], None),
        ([f"ff-{TRACE}-{SPAN}-01"], [], None),
        ([f"00-{TRACE.upper()}-{SPAN}-01"], [], None),
        ([f"00-{'0' * 32}-{SPAN}-01"], [], None),
        ([f"00-{TRACE}-{'0' * 16}-01"], [], None),
        (["nonsense"], [], None),
    ],
)
def test_headers_are_taken_as_w3c_has_them(parents: list[str], states: list[str], expected: str | None) -> None:
    assert trace_from(parents, states) == expected


async def test_the_workers_own_lines_name_the_trace_that_the_tasks_lines_name(spans: InMemorySpanExporter) -> None:
    app = App("memory://")
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())

    @app.task(name="mail", breaker=None, retry=RetryPolicy(max_retries=0))
    async def mail() -> None:
        logging.getLogger("shop").warning("mine")
        raise Transient("no")

    await mail.aenqueue()  # outside of any span: the attempt begins a trace of its own
    logging.getLogger().addHandler(handler)
    try:
        await app.arun_until_idle()
    finally:
        logging.getLogger().removeHandler(handler)
    found = {line["logger"]: line.get("trace_id") for line in map(json.loads, lines.getvalue().splitlines())}
    (attempt,) = by_name(spans)["mail"]
    assert found == dict.fromkeys(("shop", "holdfast.worker"), f"{trace_id(attempt):032x}")
