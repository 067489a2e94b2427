"""A stream as the runtime sees it: where its messages come from, and how a handler is given them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Literal

from msgspec import Struct, json

from holdfast.errors import ConfigError, Invalid, MessageGone
from holdfast.json_values import UNSTORABLE, from_json, refuse_unknown, why
from holdfast.outgoing import Headers, Key, outgoing
from holdfast.ports import Delivery, Outputs
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.streams.parcels import packed, packed_outputs, unpacked, unpacked_outputs
from holdfast.types import Attempt, Message, Outgoing, Place

Decode = Callable[[Message], Any]
"""A decoder of the user's own: from a message to the value that the handler gets. What it raises is VALIDATION."""
Order = Literal["key", "none"]
Start = Literal["earliest", "latest"]


class StreamSpec(Struct, frozen=True, kw_only=True, eq=False):
    """Everything that is needed to receive, run, judge and finish the messages of one stream."""

    task: TaskSpec
    """How a message is run and judged; its name is the stream's."""
    url: str
    location: str
    """The URL as it may be shown."""
    topic: str
    group: str
    in_flight: int
    """Messages begun and not finished, in one worker."""
    max_gap: int
    """Messages of one partition that may be received behind its first unfinished one."""
    batch: int
    """How many the handler gets at a time at most; 0 is one by one."""
    is_ordered: bool
    """Whether the messages of one key are run one after the other."""
    is_blocking: bool
    """Whether a message that failed is retried in place; otherwise it goes through the retry topics."""
    is_bisected: bool
    """Whether a batch that is given up is halved, to find those that are to blame."""
    is_transactional: bool
    start: Start
    steps: tuple[float, ...] = ()
    """The delays of the retry topics; empty where it is retried in place."""

    @property
    def widest(self) -> int:
        """So many messages may be in flight."""
        return max(self.in_flight, self.batch)

    @property
    def careful_span(self) -> int:
        """So far from a partition's committed position messages are begun where care is needed."""
        return 2 * self.widest

    @property
    def twin_key(self) -> tuple[str, str]:
        """The same for streams that would take each other's messages: one topic of one server, as one group."""
        return self.location.partition("?")[0].rpartition("@")[2], self.group

    @property
    def name(self) -> str:
        """What its dead letters, breaker and counts are found under."""
        return self.task.name


class MessageDelivery(Delivery, kw_only=True):
    """A message, or a batch of them, on its way through the runner."""

    messages: Sequence[Message]
    """As the handler sees them; one, or a batch of one partition in its order."""
    place: Place
    """The partition that it was received from: that of a retry topic, where it came through one."""
    offsets: Sequence[int]
    """Where the messages are there."""
    values: Sequence[Any] | None = None
    """Of a batch: what was decoded already."""
    history: tuple[Attempt, ...] = ()
    """The attempts before this one."""
    letter: str = ""
    """The id of its record in the inbox, where it was replayed from there."""
    outputs: Collected | None = None
    part: Any = None
    """The partition in its pump's hands."""


class Collected:
    """The outputs of one run."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []

    def send(self, topic: str, value: Any, key: Key = None, headers: Headers = None) -> None:
        """One more message."""
        self.messages.append(outgoing(topic, value, key, headers))


class Values:
    """From a delivery to a handler's arguments: the decoded value, and the Message and Outputs where it asks for them.

    The annotations are looked up at the first use, so that they may name what is defined further down.
    """

    def __init__(self, fn: Callable[..., Any], decode: Decode | None, *, is_batch: bool) -> None:
        self._fn = fn
        self._own = decode
        self._is_batch = is_batch
        self._extras: tuple[Literal["message", "outputs"], ...] = ()
        self._decode: Callable[[Any], Any] | None = None
        self._parameters = _positional(fn)

    def check(self) -> None:
        """Look at the annotations now; ConfigError says which cannot work."""
        self._resolve()

    def pack(self, delivery: MessageDelivery) -> Delivery:
        """The same delivery as another process can be handed it."""
        return packed(delivery, delivery.messages)

    def unpack(self, delivery: Delivery) -> MessageDelivery:
        """What was packed, in that process."""
        fields = {name: getattr(delivery, name) for name in Delivery.__struct_fields__}
        return MessageDelivery(**fields, messages=unpacked(delivery), place=("", 0), offsets=())

    def pack_outputs(self, delivery: MessageDelivery) -> bytes:
        """What its handler has sent there."""
        return packed_outputs(delivery.outputs.messages if delivery.outputs is not None else [])

    def take_outputs(self, delivery: MessageDelivery, outputs: bytes) -> None:
        """The same, back here."""
        delivery.outputs = Collected()
        delivery.outputs.messages = unpacked_outputs(outputs)

    def of(self, delivery: MessageDelivery) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one run; Invalid where a value is not what the handler takes."""
        if self._decode is None:
            self._resolve()
        messages = delivery.messages
        value: Any
        if self._is_batch:
            value = delivery.values if delivery.values is not None else [self.decode(one) for one in messages]
        else:
            value = self.decode(messages[0])
        if not self._extras:
            return (value,), {}
        return (value, *[self._extra(name, delivery) for name in self._extras]), {}

    def _extra(self, name: str, delivery: MessageDelivery) -> Any:
        if name == "message":
            return list(delivery.messages) if self._is_batch else delivery.messages[0]
        delivery.outputs = Collected()
        return delivery.outputs

    def decode(self, message: Message) -> Any:
        """The value of one message."""
        decode = self._decode or self._resolve()
        if message.is_gone:
            raise MessageGone(f"message {message.id} was deleted, or trimmed, before anybody had finished it")
        if self._own is not None:
            try:
                return self._own(message)
            except Exception as error:
                raise Invalid(f"message {message.id} cannot be decoded: {type(error).__name__}: {error}") from error
        try:
            return decode(message.value)
        except UNSTORABLE as error:
            if message.value is None:
                mistake = f"message {message.id} has no value (a tombstone), and the handler does not take None"
                raise Invalid(mistake) from error
            raise Invalid(f"message {message.id} is not what the handler takes: {why(error)}") from error

    def decode_many(self, messages: Sequence[Message]) -> list[Any] | None:
        """All values of a batch; None where one of them is not what the handler takes, or may not be."""
        decode = self._decode or self._resolve()
        if self._own is not None or any(one.is_gone for one in messages):
            return None
        try:
            return [decode(one.value) for one in messages]
        except UNSTORABLE:
            return None

    def _resolve(self) -> Callable[[Any], Any]:
        first, *others = self._parameters
        hints = _hints(self._fn)
        wanted = hints.get(first.name, Any)
        if self._is_batch:
            wanted = _element(self._fn, first.name, wanted)
        self._extras = tuple(self._kind(one, hints.get(one.name)) for one in others)
        if self._own is not None:
            self._decode = _as_it_is
            return self._decode
        kinds = typing.get_args(wanted)
        is_pair = len(kinds) == 2 and NoneType in kinds
        plain = next((one for one in (bytes, str) if is_pair and one in kinds), wanted)
        decode = self._decode = _decoder(plain, self._fn)
        if NoneType in kinds:
            self._decode = lambda value: None if value is None else decode(value)
        return self._decode

    def _kind(self, parameter: inspect.Parameter, hint: Any) -> Literal["message", "outputs"]:
        if hint is Outputs:
            return "outputs"
        many = typing.get_args(hint)[:1] if self._is_batch and typing.get_origin(hint) in {list, Sequence} else ()
        if (many == (Message,)) if self._is_batch else (hint is Message):
            return "message"
        kinds = "list[Message] or Outputs" if self._is_batch else "Message or Outputs"
        raise ConfigError(
            f"{self._fn.__name__}(): the parameter {parameter.name!r} must be annotated {kinds}; only the first one "
            "is the value"
        )


def _positional(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(fn).parameters.values())
    is_fine = parameters and all(
        one.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD} for one in parameters
    )
    if not is_fine:
        raise ConfigError(
            f"{getattr(fn, '__name__', fn)!s}(): a handler takes the value first, then a Message or Outputs if it asks"
        )
    return parameters


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except NameError as error:
        raise ConfigError(f"{fn.__name__}(): an annotation cannot be found: {error}") from error


def _element(fn: Callable[..., Any], name: str, wanted: Any) -> Any:
    if wanted is Any or wanted is list:
        return Any
    if typing.get_origin(wanted) in {list, Sequence}:
        return typing.get_args(wanted)[0]
    raise ConfigError(f"{fn.__name__}(): with batch= the parameter {name!r} must be a list, such as list[Order]")


def _decoder(wanted: Any, fn: Callable[..., Any]) -> Callable[[Any], Any]:
    if wanted is bytes:
        return _as_it_is
    if wanted is str:
        return _as_text
    refuse_unknown(wanted, f"the first parameter of {fn.__name__}()")
    decode = json.Decoder(wanted, dec_hook=from_json).decode
    if wanted is Any:
        return lambda value: None if value is None else decode(value)
    return decode


def _as_it_is(value: bytes) -> bytes:
    if value is None:
        raise TypeError
    return value


def _as_text(value: bytes) -> str:
    if value is None:
        raise TypeError
    return value.decode()
