"""What a task's arguments look like, as JSON schema: made out of its signature."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter
from typing import Any, Final

import msgspec

from holdfast.errors import ConfigError
from holdfast.ops.redact import hides, redacted
from holdfast.runtime import parameters
from holdfast.runtime.spec import TaskSpec

_REF: Final = "#/$defs/{name}"
_KNOWN: Final = ("default", "examples", "const", "enum")
"""Values of the app's own in a schema."""


def arguments_schema(spec: TaskSpec) -> dict[str, Any]:
    """JSON schema of a task's arguments by name. A type that JSON schema cannot describe allows anything."""
    try:
        names = parameters.read(spec.fn, skip_first=spec.takes_context)
        types = parameters.form_of(spec.fn, names).types
    except ConfigError:  # an annotation that cannot be resolved: enqueueing says so, a form need not
        return {"type": "object"}
    schemas, defs = _schemas(list(types.values()))
    properties = _without_secrets(
        {one.name: _with_default(schema, one) for one, schema in zip(names, schemas, strict=True)}
    )
    required = [one.name for one in names if parameters.is_required(one)]
    form: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return form | {"$defs": {name: _with_safe_properties(schema) for name, schema in defs.items()}} if defs else form


def _schemas(types: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    try:
        found, defs = msgspec.json.schema_components(types, schema_hook=_anything, ref_template=_REF)
    except (TypeError, ValueError, NotImplementedError):
        if len(types) == 1:
            return [{}], {}
        schemas: list[dict[str, Any]] = []
        defs = {}
        for one in types:
            (schema,), own = _schemas([one])
            schemas.append(schema)
            defs.update(own)
        return schemas, defs
    return list(found), defs


def _anything(kind: type) -> dict[str, Any]:
    del kind
    return {}


def _with_safe_properties(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return schema | {"properties": _without_secrets(properties)} if isinstance(properties, dict) else schema


def _without_secrets(properties: dict[str, Any]) -> dict[str, Any]:
    """Without the defaults that are not to be shown: a form must not be filled with [redacted]."""
    return {
        name: {key: one for key, one in schema.items() if key not in _KNOWN or _is_harmless(name, one)}
        for name, schema in properties.items()
    }


def _is_harmless(name: str, value: Any) -> bool:
    return not hides(name, value) and bool(redacted(value) == value)


def _with_default(schema: dict[str, Any], parameter: Parameter) -> dict[str, Any]:
    if parameter.default is Parameter.empty:
        return schema
    try:
        return schema | {"default": msgspec.to_builtins(parameter.default)}
    except (TypeError, ValueError, RecursionError):
        return schema
