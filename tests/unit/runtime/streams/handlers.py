"""Handlers that write down what they are given, and do what a test tells them to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.types import Message
from tests.unit.runtime.streams.stage import Stage


class Handler:
    """Writes down when each value began and ended; what a value does is a list of outcomes, run after run."""

    def __init__(self, stage: Stage, takes_s: float = 0.0) -> None:
        self._stage = stage
        self._takes_s = takes_s
        self.outcomes: dict[int, list[object]] = {}
        self.began: list[tuple[float, int]] = []
        self.ended: list[tuple[float, int]] = []
        self.running = 0
        self.most = 0
        self.messages: list[Message] = []

    @property
    def order(self) -> list[int]:
        return [value for _, value in self.began]

    def times_of(self, value: int) -> list[float]:
        return [at for at, one in self.began if one == value]

    @property
    def fn(self) -> Callable[[int, Message], Coroutine[Any, Any, object]]:
        async def handle(value: int, msg: Message) -> object:
            self.began.append((self._stage.now(), value))
            self.messages.append(msg)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                if self._takes_s:
                    await self._stage.clock.asleep(self._takes_s)
                outcome = self.outcomes[value].pop(0) if self.outcomes.get(value) else None
                if isinstance(outcome, Exception):
                    raise outcome
                self.ended.append((self._stage.now(), value))
                return outcome
            finally:
                self.running -= 1

        return handle


class Gates:
    """A handler whose runs wait until they are let through."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.done: Counter[int] = Counter()
        self.cancelled: list[int] = []
        self._gates: dict[int, asyncio.Event] = {}

    def open(self, *values: int) -> None:
        for value in values:
            self._gates.setdefault(value, asyncio.Event()).set()

    async def handle(self, value: int) -> None:
        self.began.append(value)
        try:
            await self._gates.setdefault(value, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(value)
            raise
        self.done[value] += 1


def send_keyed(stage: Stage, n: int, partitions: int = 1) -> None:
    for value in range(n):
        stage.send(value, f"k{value}", partition=value % partitions)
