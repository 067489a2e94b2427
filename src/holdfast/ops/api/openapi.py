"""The OpenAPI document: `python -m holdfast.ops.api.openapi` prints it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast.ops.api.problems import MEDIA_TYPE
from holdfast.ops.api.schemas import Problem

Responses = dict[int | str, dict[str, Any]]

_WHY: Final = {
    400: "The request cannot be read.",
    401: "A token is missing, wrong or expired.",
    403: "The role, the tenant or the origin does not allow it, or the server is read-only.",
    404: "There is no such thing, or it is another tenant's.",
    408: "The body did not come in time.",
    409: "It is in a state that does not allow it.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header names another server.",
    422: "The request is not as described; `errors` says where.",
    429: "Too many requests; Retry-After says when.",
    500: "An error of the server's own; its log has more under the id in `detail`.",
    503: "The store is away, or has no room for now; Retry-After says when to ask again.",
    507: "The store cannot write it, and will not by itself: one of another version, say.",
}
_ALWAYS: Final = (400, 401, 403, 421, 429, 500, 503)
_WITH_BODY: Final = (408, 413, 415, 422)
_UNUSED: Final = ("HTTPValidationError", "ValidationError")


def looks(*more: int) -> Responses:
    """What a route that changes nothing may answer besides 200."""
    return _responses({*_ALWAYS, *more})


def opened(*more: int) -> Responses:
    """What a route that anybody may ask answers besides 200."""
    return _responses({400, 421, 429, 500, *more})


def changes(*more: int) -> Responses:
    """What a route that changes something may answer besides 2xx."""
    return _responses({*_ALWAYS, *_WITH_BODY, 409, 507, *more})


def _responses(statuses: set[int]) -> Responses:
    return {status: {"model": Problem, "description": _WHY[status]} for status in sorted(statuses)}


def document(api: FastAPI) -> dict[str, Any]:
    """The whole document, made once."""
    if api.openapi_schema is None:
        schema = get_openapi(
            title=api.title, version=api.version, description=api.description, routes=api.routes, tags=api.openapi_tags
        )
        for path in schema["paths"].values():
            for operation in path.values():
                _finish(operation)
        for name in _UNUSED:
            schema["components"]["schemas"].pop(name, None)
        schema["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "A token of the server's tokens file."},
            "session": {"type": "apiKey", "in": "cookie", "name": "holdfast_session"},
        }
        schema["security"] = [{"token": []}, {"session": []}, {}]
        api.openapi_schema = schema
    return api.openapi_schema


def _finish(operation: dict[str, Any]) -> None:
    """Problems have a media type of their own, also the one that FastAPI adds for wrong parameters."""
    for status, response in operation["responses"].items():
        content: dict[str, Any] = response.get("content", {})
        body: Mapping[str, Any] = content.get("application/json", {}).get("schema", {})
        name = str(body.get("$ref", "")).rpartition("/")[2]
        if name in ("Problem", "HTTPValidationError"):
            del content["application/json"]
            content[MEDIA_TYPE] = {"schema": {"$ref": "#/components/schemas/Problem"}}
            if name == "HTTPValidationError":
                response["description"] = _WHY[int(status)]


def methods_at(api: FastAPI, path: str) -> list[str]:
    """The methods that there are for a path; names and keys in it may have slashes, ids may not."""
    paths: dict[str, Any] = document(api)["paths"]
    found = {method.upper() for method in paths.get(path, ())}
    for template, operations in paths.items() if not found else ():
        pattern = "".join(_pattern(part) for part in re.split(r"(\{\w+\})", template))
        if re.fullmatch(pattern, path):
            found |= {method.upper() for method in operations}
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def _pattern(part: str) -> str:
    if not part.startswith("{"):
        return re.escape(part)
    return "[^/]+" if part == "{id}" else ".+"


def main() -> None:
    """Print the document of an app without tasks."""
    from holdfast.app import App  # noqa: PLC0415 - the routes import this module
    from holdfast.ops.api.build import build_api  # noqa: PLC0415

    json.dump(build_api(App("memory://")).openapi(), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
