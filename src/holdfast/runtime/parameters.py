"""A function's parameters and their types, read from its signature, as one record that JSON can fill."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, json

from holdfast.errors import ConfigError
from holdfast.json_values import from_json, refuse_unknown, type_info

POSITIONAL_ONLY: Final = inspect.Parameter.POSITIONAL_ONLY
POSITIONAL_OR_KEYWORD: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
VAR_POSITIONAL: Final = inspect.Parameter.VAR_POSITIONAL
KEYWORD_ONLY: Final = inspect.Parameter.KEYWORD_ONLY
VAR_KEYWORD: Final = inspect.Parameter.VAR_KEYWORD
KINDS: Final = (POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD, VAR_POSITIONAL, KEYWORD_ONLY, VAR_KEYWORD)
_VARIABLE: Final = (VAR_POSITIONAL, VAR_KEYWORD)


class Form(Struct, frozen=True):
    """What a payload of one task looks like."""

    record: type[Struct]
    """A field for each parameter, in the signature's order, with its name in JSON. UNSET is what was not given."""
    decoder: json.Decoder[Any]
    types: dict[str, Any]
    is_exact: bool
    """Whether every value that was converted comes back from JSON as it is, if there is no null in it."""


def read(fn: Callable[..., Any], *, skip_first: bool) -> list[inspect.Parameter]:
    """The parameters that a caller gives."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{fn!r} has no signature, so its arguments cannot be stored: wrap it in a function"
        ) from error
    if not skip_first:
        return parameters
    if not parameters or parameters[0].kind not in (POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD):
        raise ConfigError(
            f"{fn!r} has no first parameter for its context: write `def {name_of(fn)}(job: JobContext, …)`"
        )
    return parameters[1:]


def name_of(fn: Callable[..., Any]) -> str:
    """The function's own name, as messages have it."""
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def is_required(parameter: inspect.Parameter) -> bool:
    """Whether a call without it is a mistake."""
    return parameter.default is inspect.Parameter.empty and parameter.kind not in _VARIABLE


def form_of(fn: Callable[..., Any], parameters: list[inspect.Parameter]) -> Form:
    """The record for these parameters; ConfigError names the one whose annotation cannot work."""
    types = {parameter.name: _type_of(fn, parameter) for parameter in parameters}
    # The fields have names of our own: a parameter may have one that a Struct needs for itself.
    fields = [
        (f"p{i}", types[parameter.name]) if is_required(parameter) else (f"p{i}", types[parameter.name], UNSET)
        for i, parameter in enumerate(parameters)
    ]
    names = {f"p{i}": parameter.name for i, parameter in enumerate(parameters)}
    record = msgspec.defstruct("Payload", fields, rename=names, kw_only=True, forbid_unknown_fields=True)
    decoder = json.Decoder(record, dec_hook=from_json)
    return Form(record, decoder, types, all(_is_exact(type_info(annotation)) for annotation in types.values()))


def _type_of(fn: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    annotation = _resolved(fn, parameter)
    if typing.get_origin(annotation) is typing.Unpack:
        annotation = typing.get_args(annotation)[0]
    elif parameter.kind is VAR_POSITIONAL:
        annotation = list[annotation]  # type: ignore[valid-type]
    elif parameter.kind is VAR_KEYWORD:
        annotation = dict[str, annotation]  # type: ignore[valid-type]
    refuse_unknown(annotation, f"{name_of(fn)}(): parameter {parameter.name!r}")
    return annotation


def _resolved(fn: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation itself where it was written as text; looked up one by one, so that no other one is in its way."""
    if parameter.annotation is inspect.Parameter.empty:
        return Any

    def holder() -> None:
        """Carries one annotation to `get_type_hints`."""

    holder.__annotations__ = {"it": parameter.annotation}
    inner = inspect.unwrap(fn)
    try:
        hint = typing.get_type_hints(holder, getattr(inner, "__globals__", {}), _locals_of(inner), include_extras=True)
    except Exception as error:  # an annotation is an expression: it may raise anything
        raise ConfigError(
            f"{name_of(fn)}(): parameter {parameter.name!r} has an annotation that cannot be resolved, "
            f"{parameter.annotation!r}: {error}; import or define it at the module's level, not under TYPE_CHECKING"
        ) from error
    return hint["it"]


def _locals_of(fn: Any) -> dict[str, Any]:
    """What a nested function sees of the functions around it, and its type parameters."""
    names = {parameter.__name__: parameter for parameter in getattr(fn, "__type_params__", ())}
    if isinstance(fn, FunctionType) and fn.__closure__:
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__, strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
    return names


_EXACT: Final = tuple(
    getattr(msgspec.inspect, f"{name}Type")
    for name in "Int Float Str Bool None Bytes UUID Date Decimal Enum Literal".split()
)
_EXACT_OF: Final = tuple(
    getattr(msgspec.inspect, f"{name}Type") for name in "List Set FrozenSet VarTuple Tuple Dict Union".split()
)
_EXACT_KEYS: Final = (msgspec.inspect.StrType, msgspec.inspect.IntType)


def _is_exact(node: Any) -> bool:
    if isinstance(node, _EXACT):
        return True
    if not isinstance(node, _EXACT_OF):
        return False
    if isinstance(node, msgspec.inspect.DictType):
        return isinstance(node.key_type, _EXACT_KEYS) and _is_exact(node.value_type)
    if isinstance(node, msgspec.inspect.UnionType | msgspec.inspect.TupleType):
        parts = node.types if isinstance(node, msgspec.inspect.UnionType) else node.item_types
        return all(map(_is_exact, parts))
    return _is_exact(node.item_type)
