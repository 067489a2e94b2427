"""The body of a request: read whole, within its limit, and handed on."""

from __future__ import annotations

from starlette.types import Message, Receive

from holdfast.ops.api.problems import ProblemError


class Gone(Exception):
    """The client went away before its body was there."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body; never more of it in memory than allowed."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise ProblemError(413, f"the body is larger than {limit} bytes")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def read_again(body: bytes, receive: Receive) -> Receive:
    """For the route: the body that was read, then whatever comes."""
    is_sent = False

    async def read() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read
