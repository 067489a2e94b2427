"""One call of a script: what it is told, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import msgpack

from holdfast.clock import new_secret
from holdfast.stores.redis.scripts import Script

Answer = TypeVar("Answer")
_encode = msgpack.Encoder().encode


class Texts(list[bytes]):
    """The texts that go with a call: any bytes. Scripts know them by their number, from 1; 0 is none."""

    __slots__ = ()

    def number_of(self, text: bytes | None) -> int:
        """Take one along."""
        if text is None:
            return 0
        self.append(text)
        return len(self)


class Call(Generic[Answer]):
    """To be sent to a server, perhaps together with others; called with the reply, it answers."""

    __slots__ = ("script", "words", "texts", "read", "number", "line")

    def __init__(
        self, script: Script, words: tuple[Any, ...], read: Callable[[Any], Answer], texts: list[bytes] | None = None
    ) -> None:
        self.script = script
        self.words = _encode(words)
        self.texts: list[bytes] = texts or []
        self.read = read
        self.number = 0
        """Given when it is first sent, and kept when it is sent again: its connection numbers all that it sends."""
        self.line = 0
        """On the how many-th line of its connection it was sent last: behind a new one may be another server."""

    def __call__(self, reply: Any) -> Answer:
        """What the reply means."""
        return self.read(reply)


def new_name() -> str:
    """A name for a call by which the server knows it when it is sent again."""
    return new_secret().hex()
