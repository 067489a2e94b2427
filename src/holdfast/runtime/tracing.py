"""Traces from producer to worker, by OpenTelemetry; off and free of cost in a program that does not use it.

Nothing here imports OpenTelemetry. A program that traces has imported its API already, so that is where it is looked
for: a producer's cost without it is one look into a dictionary.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import Token
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from holdfast.fingerprint import in_a_line
from holdfast.ports import Delivery
from holdfast.redact import redacted_text
from holdfast.types import Failure, NewJob

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

_logger = logging.getLogger("holdfast.worker")

API: Final = "opentelemetry.trace"
"""Where it is among the loaded modules, if the program traces."""
_SCOPE: Final = "holdfast"
_LONGEST_STATE: Final = 512
_PARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_STATE: Final = re.compile(rf"[\x20-\x7e]{{1,{_LONGEST_STATE}}}")


# ---------------------------------------------------------------- producers


@contextmanager
def carrying(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The jobs with the caller's trace on them; enqueue them inside of the block.

    Inside of a span that is recorded, the enqueueing is a span of its own; otherwise the current context is carried on
    as it is, if there is one. A job that has a trace keeps it.
    """
    api = sys.modules.get(API)
    if api is None or not api.get_current_span().get_span_context().is_valid:
        yield jobs
        return
    if not api.get_current_span().is_recording():
        yield _with_trace(jobs)
        return
    tasks = {job.task for job in jobs}
    name = f"enqueue {tasks.pop()}" if len(tasks) == 1 else "enqueue"
    with api.get_tracer(_SCOPE).start_as_current_span(
        name, kind=api.SpanKind.PRODUCER, attributes=_produced(jobs), record_exception=False
    ):
        yield _with_trace(jobs)


def _produced(jobs: Sequence[NewJob]) -> dict[str, Any]:
    attributes: dict[str, Any] = {"messaging.system": _SCOPE, "messaging.operation.type": "send"}
    if len(queues := {job.queue for job in jobs}) == 1:
        attributes["messaging.destination.name"] = queues.pop()
    if len(jobs) == 1:
        attributes["messaging.message.id"] = jobs[0].id
        attributes["holdfast.task"] = jobs[0].task
    else:
        attributes["messaging.batch.message_count"] = len(jobs)
    return attributes


def _with_trace(jobs: Sequence[NewJob]) -> list[NewJob]:
    trace = _written(None)
    return [job if job.trace is not None or trace is None else replace(job, trace=trace) for job in jobs]


# ---------------------------------------------------------------- workers


class Tracer:
    """Makes a span of every attempt."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._tracer = api.get_tracer(_SCOPE)
        self._has_complained = False

    def begin(self, delivery: Delivery, worker: str) -> Span | None:
        """The span of an attempt that begins now, below the one that its job was enqueued in; None when that fails."""
        attributes = {
            "messaging.system": _SCOPE,
            "messaging.operation.type": "process",
            "messaging.destination.name": delivery.queue,
            "messaging.message.id": delivery.id,
            "holdfast.task": delivery.task,
            "holdfast.attempt": delivery.attempt,
            "holdfast.worker": worker,
        }
        if delivery.tenant:
            attributes["holdfast.tenant"] = delivery.tenant
        try:
            span: Span = self._tracer.start_span(
                delivery.task, context=_read(delivery.trace), kind=self._api.SpanKind.CONSUMER, attributes=attributes
            )
            context = span.get_span_context()
            if context.is_valid and trace_id_of(delivery.trace) != f"{context.trace_id:032x}":
                delivery.trace = self.trace_of(span)  # so that whatever is logged about it names this trace
        except Exception as error:
            self._complain(error)
            return None
        return span

    def enter(self, span: Span | None) -> Token[Context] | None:
        """Make it the current one in this context."""
        from opentelemetry.context import attach  # noqa: PLC0415 - where this is reached, it is loaded

        return None if span is None else attach(self._api.set_span_in_context(span))

    def leave(self, token: Token[Context] | None) -> None:
        """Go back to what was the current one."""
        from opentelemetry.context import detach  # noqa: PLC0415

        if token is not None:
            detach(token)

    def trace_of(self, span: Span | None) -> str | None:
        """The span as another process can take it up."""
        return None if span is None else _written(self._api.set_span_in_context(span))

    def fail(self, span: Span, failure: Failure, outcome: str) -> None:
        """Put the failure on the span; what it says is redacted, as everywhere."""
        with self._forgiving():
            message = redacted_text(failure.message)
            span.add_event(
                "exception",
                {
                    "exception.type": failure.error_name,
                    "exception.message": message,
                    "exception.stacktrace": redacted_text(failure.traceback),
                },
            )
            span.set_attribute("error.type", failure.error_name)
            span.set_attribute("holdfast.failure_type", failure.type.value)
            span.set_attribute("holdfast.outcome", outcome)
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, f"{failure.error_name}: {message}"))

    def end(self, span: Span) -> None:
        """The attempt is over."""
        with self._forgiving():
            span.end()

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        """Whoever listens to spans must not stop a job."""
        try:
            yield
        except Exception as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            _logger.warning("an attempt cannot be traced: %s: %s", type(error).__name__, in_a_line(str(error)))


def find_tracer() -> Tracer | None:
    """A tracer, where the program has set up OpenTelemetry's SDK, or another provider, by now."""
    api = sys.modules.get(API)
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return Tracer(api)


def take_up(trace: str | None) -> None:
    """Make the span of another process the current one, in a context that is thrown away afterwards."""
    if trace and API in sys.modules:
        from opentelemetry.context import attach  # noqa: PLC0415

        attach(_read(trace))


# ---------------------------------------------------------------- W3C trace contexts


def trace_from(parents: Sequence[str], states: Sequence[str] = ()) -> str | None:
    """What a job carries of the headers `traceparent` and `tracestate`; None where these are not as W3C has them."""
    found = _PARENT.fullmatch(parents[0].strip()) if len(parents) == 1 else None
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["more"]):
        return None
    if not found["trace"].strip("0") or not found["span"].strip("0"):
        return None
    parent = f"00-{found['trace']}-{found['span']}-{found['flags']}"
    state = ",".join(filter(None, (one.strip() for one in states)))
    return f"{parent} {state}" if _STATE.fullmatch(state) else parent


def trace_id_of(trace: str | None) -> str:
    """The trace's id in what a job carries; empty where there is none."""
    parts = (trace or "").split("-", 3)
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 and parts[1].isalnum() else ""


def current_trace_id() -> str:
    """The id of the trace that the caller is in; empty outside of one."""
    api = sys.modules.get(API)
    if api is None:
        return ""
    context = api.get_current_span().get_span_context()
    return api.format_trace_id(context.trace_id) if context.is_valid else ""


def _written(context: Context | None) -> str | None:
    """A context as a job carries it: traceparent, and after a blank tracestate where there is one."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    parent, state = carrier.get("traceparent"), carrier.get("tracestate", "")
    if parent is None:
        return None
    return f"{parent} {state}" if 0 < len(state) <= _LONGEST_STATE else parent


def _read(trace: str | None) -> Context:
    """What a job carries as a context; an empty one, and so a trace of its own, where that is nothing or nonsense."""
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    parent, _, state = (trace or "").partition(" ")
    carrier = {"traceparent": parent} | ({"tracestate": state} if state else {})
    return TraceContextTextMapPropagator().extract(carrier, Context())
