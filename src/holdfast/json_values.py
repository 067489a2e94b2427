"""Python values as JSON and back: what survives the way there and back, and a line for what does not."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, json

from holdfast.errors import ConfigError

MAX_BYTES: Final = 1024 * 1024
"""What is stored of one call, or of one result, unless said otherwise: more belongs into a store of its own."""
MAX_DEPTH: Final = 200
"""Lists and objects within each other. The same on every side, whatever is left of the stack when it is read."""

UNSTORABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
"""What encoding, decoding and converting raise for a value that will not do."""

_SHOWN: Final = 60
_SECRET: Final = re.compile(r"pass(word|wd|phrase)|secret|token|credential|api_?key|private_?key|authorization", re.I)

type_info = msgspec.inspect.type_info


# ---------------------------------------------------------------- hooks for what msgspec does not know


def is_model(cls: object) -> bool:
    """Whether it is a pydantic model, or behaves like one; pydantic itself is never imported."""
    return hasattr(cls, "model_validate_json") and hasattr(cls, "model_dump_json")


def _to_json(value: Any) -> Any:
    if is_model(value):
        # Aliases, because validation asks for them; a value of the wrong type is found by reading it back.
        return Raw(value.model_dump_json(by_alias=True, round_trip=True, warnings=False).encode())
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain.__str__(value) if plain is str else plain(value)
    what = _name(type(value))
    # What JSON knows comes here only where it does not know it: as a key.
    raise TypeError(f"{f'a dict with {what} keys' if isinstance(value, _NO_KEYS) else what} cannot be stored as JSON")


_NO_KEYS: Final = (type(None), tuple, frozenset)


def from_json(cls: Any, value: Any) -> Any:
    """A model from what was read from JSON."""
    return value if cls is object else _validated(lambda: cls.model_validate_json(json.encode(value)))


def from_value(cls: Any, value: Any) -> Any:
    """A model from what a caller gave: an instance as it is, or a dict."""
    if isinstance(value, cls):
        return value
    return _validated(lambda: cls.model_validate(value))


def _validated(validate: Callable[[], Any]) -> Any:
    try:
        return validate()
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        raise ValueError("; ".join(map(_mistake, mistakes[:3]))) from error


def _mistake(mistake: dict[str, Any]) -> str:
    place = ".".join(map(str, mistake["loc"]))
    return f"{place}: {mistake['msg']}" if place else str(mistake["msg"])


ENCODER: Final = json.Encoder(enc_hook=_to_json)


def refuse_unknown(annotation: Any, what: str) -> None:
    """Refuse an annotation that no JSON could be turned into; `what` begins the line."""
    try:
        unknown = _unknown(type_info(annotation), set())
        json.Decoder(annotation, dec_hook=from_json)
    except NameError as error:
        raise ConfigError(
            f"{what}: {error} in {text_of(annotation)}; import or define it at the module's level"
        ) from error
    except TypeError as error:
        raise ConfigError(f"{what}: {text_of(annotation)} cannot be read from JSON: {error}") from error
    if unknown is not None:
        raise ConfigError(
            f"{what}: {_name(unknown)} cannot be stored as JSON; pass an id or a plain value in its place, "
            "or make it a dataclass, a msgspec Struct or a pydantic model"
        )


def _unknown(node: Any, seen: set[int]) -> Any:
    """The first class in the tree of a type that is neither msgspec's nor a model's; None if there is none."""
    if id(node) in seen:
        return None
    seen.add(id(node))
    if isinstance(node, msgspec.inspect.CustomType):
        return None if node.cls is object or is_model(node.cls) else node.cls
    for part in _parts(node):
        if (found := _unknown(part, seen)) is not None:
            return found
    return None


def _parts(node: Any) -> list[Any]:
    parts: list[Any] = []
    for field in ("type", "item_type", "key_type", "value_type"):
        if isinstance(part := getattr(node, field, None), msgspec.inspect.Type):
            parts.append(part)
    for field in ("types", "item_types", "fields"):
        parts.extend(getattr(node, field, ()))
    return parts


# ---------------------------------------------------------------- there and back


def difference(given: Any, back: Any, depth: int = 0) -> str:
    """What the way through JSON made of a value, in words; empty if it came back equal, and of the same type.

    A tuple without an annotation may come back as a list, and a subclass of str, int, float, list or dict as the plain
    type, if it is equal to it.
    """
    if depth > MAX_DEPTH:
        raise RecursionError
    kind = type(back)
    if isinstance(given, kind) if kind in _BASES else type(given) is kind:
        pass
    elif type(given) is not tuple or kind is not list:
        return _would_be(given, back)
    if kind is dict:
        return _dict_difference(given, back, depth)
    if kind is list or kind is tuple:
        return _first(zip(given, back, strict=True), depth)
    if kind in _LEAVES:
        return "" if given == back else _would_be(given, back)
    if (names := _field_names(back)) is not None:
        return _first(((getattr(given, name, None), getattr(back, name, None)) for name in names), depth)
    return "" if _are_equal(given, back) else _would_be(given, back)


def _dict_difference(given: dict[Any, Any], back: dict[Any, Any], depth: int) -> str:
    if len(given) != len(back):
        return "some of its keys would be lost"
    for (key, value), (key_back, value_back) in zip(given.items(), back.items(), strict=True):
        if type(key_back) is str and not isinstance(key, str):
            return f"the key {shown(key)} would come back as text"
        if found := difference(key, key_back, depth + 1) or difference(value, value_back, depth + 1):
            return found
    return ""


def _first(pairs: Any, depth: int) -> str:
    for given, back in pairs:
        if found := difference(given, back, depth + 1):
            return found
    return ""


def _field_names(value: Any) -> list[str] | None:
    """What a record is made of, whether or not it can be compared; None if it is no record."""
    if isinstance(value, Struct):
        return list(value.__struct_fields__)
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    if is_model(value):
        return [name for name, _ in value]
    if hasattr(type(value), "__attrs_attrs__"):
        return [field.name for field in type(value).__attrs_attrs__]
    return None


def _are_equal(given: Any, back: Any) -> bool:
    if isinstance(given, Decimal):
        return str(given) == str(back)  # also for NaN, which equals nothing
    if isinstance(given, datetime) and given.tzinfo is not None and back.tzinfo is not None:
        return bool(given.astimezone(UTC) == back.astimezone(UTC))  # `==` between zones is False in a repeated hour
    return bool(given == back)


_BASES: Final = frozenset({str, int, float, list, dict})
_LEAVES: Final = frozenset({str, int, float, bool, type(None), bytes})


def refuse_lies(value: Any, data: bytes) -> None:
    """Raise ValueError where JSON says null and the value is a NaN or infinite, RecursionError where it is too deep.

    msgspec writes null for both; so without a null, or many brackets, there is nothing to look for.
    """
    if b"null" in data or data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _refuse_lies(msgspec.to_builtins(value, str_keys=True, enc_hook=_opened), 0)


def why_unstorable(value: Any) -> str:
    """Why a value has no JSON, whatever its type is to be; empty if it has one."""
    try:
        refuse_lies(value, ENCODER.encode(value))
    except UNSTORABLE as error:
        return why(error)
    return ""


def _opened(value: Any) -> Any:
    return dict(value) if is_model(value) else None  # what else there is has been encoded, so it is no number


def _refuse_lies(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be stored as JSON")
    elif not isinstance(value, list | tuple):
        return
    for part in value:
        _refuse_lies(part, depth + 1)


# ---------------------------------------------------------------- words


def shown(value: Any, name: str = "") -> str:
    """A short value as it is, nothing of a long one, and nothing under the name of a secret."""
    if isinstance(value, str | int | float | None) and not _SECRET.search(name):
        if isinstance(value, int) and value.bit_length() > 200:
            return "a very large number"
        text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return ""


def text_of(annotation: Any) -> str:
    """An annotation as a person would write it, cut where it gets long."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        text = f"{annotation.__name__} ({', '.join(repr(member.value) for member in list(annotation)[:8])})"
    else:
        text = annotation.__qualname__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}…"


def why(error: Exception) -> str:
    """What was wrong with a value, from the error that encoding or decoding it raised, in one short line."""
    if isinstance(error, RecursionError):
        return f"it is nested deeper than {MAX_DEPTH} levels, or contains itself"
    if isinstance(error, UnicodeEncodeError):
        return "its text has a lone surrogate, which no UTF-8 can hold"
    line = " ".join(str(error).replace("`", "").split())
    return line if len(line) <= 300 else f"{line[:300]}…"


def _would_be(given: Any, back: Any) -> str:
    if isinstance(given, float) and back is None:
        return f"{given} cannot be stored as JSON"
    return f"{_name(type(given))} would come back as {_name(type(back))}" + (
        "; annotate it with its type" if type(given) is not type(back) else f", but another one: {shown(given)}"
    )


def _name(cls: Any) -> str:
    return getattr(cls, "__qualname__", None) or str(cls)
