"""A call's arguments as JSON, by name, and back; results, and edits of a stored payload."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import msgspec
from msgspec import UNSET, json

from holdfast import json_values
from holdfast.errors import Invalid
from holdfast.json_values import ENCODER, MAX_BYTES, UNSTORABLE, difference, shown, text_of, why
from holdfast.runtime import parameters
from holdfast.runtime.parameters import (
    KEYWORD_ONLY,
    POSITIONAL_ONLY,
    POSITIONAL_OR_KEYWORD,
    VAR_KEYWORD,
    VAR_POSITIONAL,
    Form,
)

_MISSING: Final = re.compile(r"Object missing required field `([^`]*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_PLACED: Final = re.compile(r"(.*) - at (`key` in )?`\$\.([^.\[`]+)(.*)`", re.DOTALL)
_VAGUE: Final = re.compile("Expected (object|array)")

_convert = msgspec.convert
_encode = ENCODER.encode
_values_of = msgspec.structs.astuple


class Arguments:
    """How the calls of one function are stored: a JSON object of what was given, by the parameters' names.

    What was not given is left to the function's own defaults, when it runs. `skip_first` leaves out the first
    parameter, which is the job's context. The annotations are looked up at the first use, so that they may name what is
    defined further down; `check` looks at once. No annotation stands for any JSON.
    """

    def __init__(self, fn: Callable[..., Any], *, skip_first: bool, max_bytes: int = MAX_BYTES) -> None:
        self._fn = fn
        self._name = parameters.name_of(fn)
        self._max_bytes = max_bytes
        self._parameters = parameters.read(fn, skip_first=skip_first)
        of_kind = {kind: [one.name for one in self._parameters if one.kind is kind] for kind in parameters.KINDS}
        self._positional = tuple(of_kind[POSITIONAL_ONLY] + of_kind[POSITIONAL_OR_KEYWORD])
        self._positional_only = frozenset(of_kind[POSITIONAL_ONLY])
        self._keywords = frozenset(of_kind[POSITIONAL_OR_KEYWORD] + of_kind[KEYWORD_ONLY])
        self._rest = "".join(of_kind[VAR_POSITIONAL])
        self._others = "".join(of_kind[VAR_KEYWORD])
        self._required = frozenset(one.name for one in self._parameters if parameters.is_required(one))
        self._is_simple = len(self._required) == len(self._positional) == len(self._parameters)
        self._form: Form | None = None

    def check(self) -> None:
        """Look at the annotations now; ConfigError names the parameter whose annotation cannot work."""
        self._resolve()

    def _resolve(self) -> Form:
        self._form = form = parameters.form_of(self._fn, self._parameters)
        return form

    # ------------------------------------------------------------ there

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments of a call as JSON that decodes to equal ones of the same types; Invalid says what will not."""
        form = self._form or self._resolve()
        given = self._bind(args, kwargs)
        try:
            record = _convert(given, form.record, dec_hook=json_values.from_value)
            data = _encode(record)
            if not form.is_exact or b"null" in data:
                self._compare(record, form.decoder.decode(data))
        except UNSTORABLE as error:
            self._refuse(error, given, form)
        if len(data) > self._max_bytes:
            _refuse_size(f"{self._name}(): the arguments", len(data), self._max_bytes)
        return data

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What was given, by name, as a call would have it."""
        names = self._positional
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names):
            if not self._rest:
                raise Invalid(f"{self._name}() takes {len(names)} arguments by position, but {len(args)} were given")
            given[self._rest] = args[len(names) :]
        if kwargs:
            if not self._keywords.issuperset(kwargs) or not given.keys().isdisjoint(kwargs):
                kwargs = self._sort_out(given, kwargs)
            given.update(kwargs)
        if not given.keys() >= self._required:
            missing = [one.name for one in self._parameters if one.name in self._required and one.name not in given]
            raise Invalid(_missing(self._name, missing))
        return given

    def _sort_out(self, given: dict[str, Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords, where some are not those of plain parameters."""
        known: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in self._keywords:
                if name in given:
                    raise Invalid(f"{self._name}() was given the argument {name!r} twice")
                known[name] = value
            elif self._others:
                others[name] = value
            elif name in self._positional_only:
                raise Invalid(f"{self._name}() takes the argument {name!r} by position only")
            else:
                raise Invalid(_unknown(self._name, name))
        return {**known, self._others: others} if others else known

    def _compare(self, record: Any, back: Any) -> None:
        for one, value, value_back in zip(self._parameters, _values_of(record), _values_of(back), strict=True):
            if value is not value_back and (found := difference(value, value_back)):
                raise Invalid(f"{self._name}(): argument {one.name!r}: {found}")

    # ------------------------------------------------------------ and back

    def decode(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for a call of the function, without its context; Invalid says why the payload will not do."""
        form = self._form or self._resolve()
        try:
            values = _values_of(form.decoder.decode(payload))
        except UNSTORABLE as error:
            self._refuse(error, _object_in(payload), form)
        return (values, {}) if self._is_simple else self._spread(values)

    def _spread(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """By position as far as it goes. A gap before what only goes by position is filled with the default itself."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        filled = self._filled(values)
        has_gap = False
        for i, (one, value) in enumerate(zip(self._parameters, values, strict=True)):
            kind = one.kind
            if value is UNSET:
                if i < filled:
                    args.append(one.default)
                else:
                    has_gap = True
            elif kind is VAR_POSITIONAL:
                args.extend(value)
            elif kind is VAR_KEYWORD:
                kwargs.update(value)
            elif has_gap or kind is KEYWORD_ONLY:
                kwargs[one.name] = value
            else:
                args.append(value)
        return tuple(args), kwargs

    def _filled(self, values: tuple[Any, ...]) -> int:
        """How many of the first parameters must go by position."""
        count = len(self._positional)
        if self._rest and values[count] is not UNSET:
            return count
        for i in range(len(self._positional_only), 0, -1):
            if values[i - 1] is not UNSET:
                return i
        return 0

    # ------------------------------------------------------------ what was wrong

    def _refuse(self, error: Exception, given: Mapping[str, Any], form: Form) -> NoReturn:
        text = str(error)
        if isinstance(error, msgspec.ValidationError):
            if match := _PLACED.fullmatch(text):
                raise Invalid(self._mismatch(match, given, form)) from error
            if match := _MISSING.fullmatch(text):
                raise Invalid(_missing(self._name, [match[1]])) from error
            if match := _UNKNOWN.fullmatch(text):
                raise Invalid(_unknown(self._name, match[1])) from error
        for name, value in given.items():  # which one it was, nobody said
            if found := json_values.why_unstorable(value):
                raise Invalid(f"{self._name}(): argument {name!r}: {found}") from error
        raise Invalid(f"{self._name}() cannot be called with this payload: {why(error)}") from error

    def _mismatch(self, match: re.Match[str], given: Mapping[str, Any], form: Form) -> str:
        """One line: which parameter, what was expected, what came."""
        mistake, in_key, name, path = match.groups()
        where = f"argument {name!r}" + (f", at {name}{path}" if path else "") + (", in a key" if in_key else "")
        if "got `null`" in mistake and (found := json_values.why_unstorable(given.get(name))):
            return f"{self._name}(): argument {name!r}: {found}"  # a NaN, which has become a null
        mistake = why(ValueError(mistake))
        if path or in_key or name not in given:
            return f"{self._name}(): {where}: {mistake}"
        came = given[name]
        value = shown(came, name)
        expected = text_of(form.types[name])
        if mistake.startswith("Expected "):
            mistake = _VAGUE.sub(f"Expected {expected}", mistake)
            mistake = f"e{mistake[1:]}" + ("" if ", got " in mistake else f", got {type(came).__name__}")
            return f"{self._name}(): {where}: {mistake}{' ' if value else ''}{value}"
        if mistake.startswith("Invalid "):
            mistake = f"expected {expected}, got {value or type(came).__name__}"
        return f"{self._name}(): {where}: {mistake}"


def _missing(name: str, names: list[str]) -> str:
    plural = "s" if len(names) > 1 else ""
    return f"{name}() is missing the argument{plural} {' and '.join(map(repr, names))}"


def _unknown(name: str, argument: str) -> str:
    return f"{name}() has no argument {argument[:100]!r}"


def _refuse_size(what: str, size: int, limit: int) -> NoReturn:
    raise Invalid(
        f"{what} take {size:,} bytes as JSON, and at most {limit:,} are stored: keep the data elsewhere, and pass where"
    )


def _object_in(payload: bytes) -> Mapping[str, Any]:
    """What a payload says, for a message about it."""
    try:
        found = json.decode(payload)
    except UNSTORABLE:
        return {}
    return found if isinstance(found, dict) else {}


# ---------------------------------------------------------------- results


def encode_result(value: Any, max_bytes: int = MAX_BYTES) -> bytes:
    """What a task returned, as JSON; Invalid if it cannot be stored.

    A result has no type to come back to but the reader's, so a set is a list in it and a datetime is text. A NaN is
    refused: it would be read as None.
    """
    try:
        data = _encode(value)
        json_values.refuse_lies(value, data)
    except UNSTORABLE as error:
        raise Invalid(f"the result ({type(value).__name__}) cannot be stored: {why(error)}") from error
    if len(data) > max_bytes:
        _refuse_size("the contents of the result", len(data), max_bytes)
    return data


def decode_result(data: bytes, annotation: Any = Any) -> Any:
    """A stored result as the annotation has it; Invalid if it is something else, ConfigError if nothing could be."""
    try:
        decoder = _cached_decoder(annotation)
    except TypeError:  # it cannot be hashed
        decoder = _result_decoder(annotation)
    try:
        return decoder.decode(data)
    except UNSTORABLE as error:
        raise Invalid(f"the result is not {text_of(annotation)}: {why(error)}") from error


def _result_decoder(annotation: Any) -> json.Decoder[Any]:
    json_values.refuse_unknown(annotation, "the result")
    return json.Decoder(annotation, dec_hook=json_values.from_json)


_cached_decoder = functools.lru_cache(maxsize=256)(_result_decoder)


# ---------------------------------------------------------------- edits

# Numbers stay as they were written: as a Decimal 1.5e1 would become 15, which is no float any more.
_edit_decoder: Final = json.Decoder(float_hook=lambda text: msgspec.Raw(text.encode()))
_edit_encoder: Final = json.Encoder()


def merged(payload: bytes, patch: bytes, max_bytes: int = MAX_BYTES) -> bytes:
    """The payload after a JSON merge patch (RFC 7396): null removes an argument, an object changes one within."""
    try:
        result = _edit_encoder.encode(_merge(_edited("payload", payload), _edited("patch", patch)))
    except UNSTORABLE as error:
        raise Invalid(f"the payload cannot be edited: {why(error)}") from error
    if len(result) > max_bytes:
        _refuse_size("the edited arguments", len(result), max_bytes)
    return result


def _edited(what: str, data: bytes) -> dict[str, Any]:
    try:
        found = _edit_decoder.decode(data)
    except UNSTORABLE as error:
        raise Invalid(f"the {what} is not JSON: {why(error)}") from error
    if not isinstance(found, dict):
        raise Invalid(f"the {what} must be a JSON object of arguments by name, not {type(found).__name__}")
    return found


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge(result.get(name), value)
    return result
