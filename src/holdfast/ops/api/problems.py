"""Errors as RFC 9457 has them: application/problem+json, for everything that goes wrong."""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.clock import new_id
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    IdempotencyConflict,
    IllegalChange,
    Invalid,
    NotFound,
    StoreAway,
    StoreError,
    UnknownTask,
)
from holdfast.ops.redact import redacted_text

if TYPE_CHECKING:
    from fastapi import FastAPI

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 2.0
"""What clients are told to wait while the store is away."""

OUT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What the machine says when it has no descriptor or no memory to give."""

_logger = logging.getLogger("holdfast.api")
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_ERRORS: Final = 50
_LONGEST: Final = 1000


class ProblemError(Exception):
    """Ends a request with this problem."""

    def __init__(
        self,
        status: int,
        detail: str = "",
        *,
        errors: Sequence[tuple[str, str]] = (),
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.retry_after = retry_after
        self.headers = headers


def problem(
    status: int,
    detail: str = "",
    *,
    errors: Sequence[tuple[str, str]] = (),
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer for a problem; `errors` are pairs of a place in the request and what is wrong there."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _sendable(redacted_text(detail)),
        "errors": [
            {"where": _sendable(where), "message": _sendable(redacted_text(message))} for where, message in errors
        ],
    }
    all_headers = dict(headers or {})
    if retry_after is not None:
        all_headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    return Response(msgspec.json.encode(body), status, all_headers, MEDIA_TYPE)


def answer_to(error: Exception, method: str) -> Response | None:
    """The answer for an error of Holdfast's own; None for any other."""
    match error:
        case ProblemError():
            return problem(
                error.status,
                error.detail,
                errors=error.errors,
                retry_after=error.retry_after,
                headers=error.headers,
            )
        case StoreAway():
            return problem(503, f"the store is away: {error}", retry_after=RETRY_AFTER_S)
        case StoreError():
            return problem(503 if method in _READING else 507, str(error))
        case NotFound() | UnknownTask():
            return problem(404, str(error))
        case IdempotencyConflict() | IllegalChange():
            return problem(409, str(error))
        case Invalid() | ConfigError():
            return problem(422, str(error))
        case HoldfastError():
            return problem(409, str(error))
        case _:
            return None


def install(api: FastAPI) -> None:
    """Answer every error of this API so."""
    api.add_exception_handler(HTTPException, _on_http)
    api.add_exception_handler(RequestValidationError, _on_invalid)
    api.add_exception_handler(HoldfastError, _on_known)
    api.add_exception_handler(ProblemError, _on_known)
    api.add_exception_handler(RecursionError, _on_too_deep)


async def _on_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    headers = dict(error.headers or {})
    if error.status_code == 405:  # the router knows the methods of one route alone
        headers["Allow"] = ", ".join(_methods_at(request)) or headers.get("Allow", "")
    detail = "" if error.detail == HTTPStatus(error.status_code).phrase else str(error.detail)
    return problem(error.status_code, detail, headers=headers)


def _methods_at(request: Request) -> list[str]:
    from holdfast.ops.api.openapi import methods_at  # noqa: PLC0415 - it imports this module

    return methods_at(request.app, get_route_path(request.scope))


async def _on_invalid(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    return problem(422, "the request is not as described", errors=field_errors(error.errors()))


async def _on_known(request: Request, error: Exception) -> Response:
    answer = answer_to(error, request.method)
    if answer is None:
        raise error
    return answer


async def _on_too_deep(request: Request, error: Exception) -> Response:
    return problem(422, "the request is nested too deeply")


def unexpected(error: Exception, where: str) -> Response:
    """The answer for a bug: an id that is in the log beside the traceback, and nothing of what is inside.

    That the machine has nothing left to give is none: whoever asks again soon may be answered.
    """
    if isinstance(error, OSError) and error.errno in OUT_OF:
        _logger.error("%s cannot be answered: %s", where, error)
        return problem(503, "the server is out of file descriptors or memory", retry_after=RETRY_AFTER_S)
    number = new_id()
    _logger.error("error %s in %s", number, where, exc_info=error)
    return problem(500, f"an error of the server's own; its log has more under {number}")


def field_errors(errors: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Places and messages out of pydantic's errors, without the values that were sent."""
    found = [(".".join(map(str, one["loc"])), str(one["msg"])) for one in errors[:_MOST_ERRORS]]
    if len(errors) > _MOST_ERRORS:
        found.append(("", f"and {len(errors) - _MOST_ERRORS} more"))
    return found


def _sendable(text: str) -> str:
    """Short, and such that it can be written as JSON."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()
