"""`POST /jobs`: the one route that programs call thousands of times a second, so it goes without FastAPI's machinery.

The body is read once, straight into a record whose arguments stay bytes until the task's own types read them. What is
wrong with a body is then said by the same model that the document is made of.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from fastapi.routing import APIRoute
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from holdfast.app.sending import asend
from holdfast.app.task import Options
from holdfast.errors import HoldfastError, IdempotencyConflict, Invalid, UnknownTask
from holdfast.json_values import MAX_BYTES
from holdfast.ops.api.access import allowed
from holdfast.ops.api.problems import ProblemError, answer_to, field_errors, unexpected
from holdfast.ops.api.roles import Role
from holdfast.ops.api.schemas import NewJobAnswer, NewJobRequest
from holdfast.ops.api.server import Server
from holdfast.runtime.tracing import current_trace_id, trace_from

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Owner = Annotated[str, Meta(max_length=200)]


class NewJobBody(Struct, forbid_unknown_fields=True):
    """`NewJobRequest`, with the same bounds, as it is read quickest."""

    task: _Name
    arguments: Raw = Raw(b"{}")
    queue: _Name | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    delay_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    idempotency_key: _Name | None = None
    tenant: _Owner | None = None
    user: _Owner | None = None
    project: _Owner | None = None


_decode: Final = msgspec.json.Decoder(NewJobBody).decode
_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = b"application/json"


class SubmitRoute(APIRoute):
    """Documented as any other route, but answered by `answer`."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer it, without dependencies and models."""
        if scope["method"] != "POST":
            raise HTTPException(405)
        await answer(scope, receive, send)


async def submit_job(asked: NewJobRequest) -> NewJobAnswer:
    """Make a durable job of one call of a task; it is in the store when the answer is sent.

    201 for a new job; 200 where one with the same idempotency key was there already. The headers `traceparent` and
    `tracestate` (W3C) go with the job, so that its attempts are part of the caller's trace.
    """
    raise AssertionError(f"{asked.task}: SubmitRoute answers")  # only its signature is used, for the document


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """The route itself."""
    try:
        status, body = await _submit(scope, await _read(receive))
    except (HoldfastError, ProblemError) as error:
        response = answer_to(error, "POST")
    except Exception as error:
        response = unexpected(error, "POST /jobs")
    else:
        headers = [(b"content-type", _JSON), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    if response is not None:
        await response(scope, receive, send)


async def _read(receive: Receive) -> bytes:
    message = await receive()
    if not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return body
    chunks = [message.get("body", b"")]
    while message.get("more_body", False):
        message = await receive()
        chunks.append(message.get("body", b""))
    return b"".join(chunks)


async def _submit(scope: Scope, body: bytes) -> tuple[int, bytes]:
    principal = allowed(scope, Role.OPERATOR)
    server: Server = scope["app"].state.holdfast
    app = server.app
    asked = _body(body)
    task = app.tasks.get(asked.task)
    if task is None:
        raise UnknownTask(f"no task is named {asked.task!r} here")
    if len(asked.arguments) > MAX_BYTES:
        raise ProblemError(413, f"the arguments take more than {MAX_BYTES:,} bytes")
    try:
        args, kwargs = task.spec.arguments.decode(bytes(asked.arguments))
    except Invalid as error:
        raise ProblemError(422, str(error), errors=[("body.arguments", str(error))]) from None
    options = Options(
        queue=asked.queue,
        priority=asked.priority,
        delay=asked.delay_s,
        tenant=(asked.tenant or "") if principal.tenant is None else principal.tenant,
        user=asked.user or "",
        project=asked.project or "",
        idempotency_key=asked.idempotency_key,
    )
    job = task.new_job(options, args, kwargs)
    if (trace := _trace(scope)) is not None:
        job = replace(job, trace=trace)
    (made,) = await asend(app, [job])
    if made.is_conflict:
        raise IdempotencyConflict(job.idempotency_key or "", made.id)
    fields = {"id": made.id, "is_new": made.is_new, "state": made.state.value}
    return (201 if made.is_new else 200), _encode(fields)


def _trace(scope: Scope) -> str | None:
    """The caller's trace, by its headers; None where there is none, or where this server has a span of its own."""
    parents, states = [], []
    for name, value in scope["headers"]:
        if name == b"traceparent":
            parents.append(value.decode("latin-1"))
        elif name == b"tracestate":
            states.append(value.decode("latin-1"))
    return trace_from(parents, states) if parents and not current_trace_id() else None


def _body(body: bytes) -> NewJobBody:
    """What is asked for; what is wrong with it is said in the words of the documented model."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        mistake = str(error)
    try:
        NewJobRequest.model_validate_json(body)
    except ValidationError as error:
        errors = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_input=False, include_url=False)]
        raise ProblemError(422, "the request is not as described", errors=field_errors(errors)) from None
    raise ProblemError(422, f"the body cannot be read: {mistake}")
