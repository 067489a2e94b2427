"""Sends the notices of alerts: one after the other to each target, and to all targets at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, cast

from msgspec.structs import replace

from holdfast.app import App
from holdfast.app.alerts import AWAY, Callback, named_targets
from holdfast.clock import new_id
from holdfast.errors import StoreError
from holdfast.fingerprint import in_a_line
from holdfast.policy.alerts import AlertState
from holdfast.policy.notices import HOLD_S, Notice, Outbox, given, left_over, refused, taken, told, waiting
from holdfast.ports import Clock, Exchange
from holdfast.redact import error_in_words
from holdfast.runtime.alerts import Target, change_of, states_in
from holdfast.runtime.aside import aside
from holdfast.runtime.guards.functions import is_async

LOG: Final = "log"
"""The target that every alert has."""
_SEND_S: Final = HOLD_S * 0.75
_LEAVE_S: Final = 2.0
_ATTEMPTS: Final = 20

_logger = logging.getLogger("holdfast.alerts")

Change = Callable[[Outbox, float], Outbox]


class Sender:
    """Sends what is this server's to send, and marks it in the alerts' states.

    What is told of the store itself is kept here, as there is nowhere else to keep it.
    """

    def __init__(self, app: App, clock: Clock) -> None:
        self.id = new_id()
        self._app = app
        self._clock = clock
        self._own = Outbox()
        self._locks: dict[str, asyncio.Lock] = {}
        self._sending: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._unmarked: dict[tuple[str, str], str] = {}
        """What a target has, though the state could not be told."""

    @property
    def busy(self) -> frozenset[tuple[str, str]]:
        """The alerts and targets for which something is on its way."""
        return frozenset(self._sending)

    def targets(self, name: str) -> Mapping[str, Callback | Target | None]:
        """Who is told of an alert, the log first."""
        if name != AWAY:
            return {LOG: None, **self._app.alerts.watches[name].targets}
        each = {id(target): target for watch in self._app.alerts.watches.values() for target in watch.to}
        return {LOG: None, **named_targets(each.values())}

    def begin(self, name: str, outbox: Outbox, busy: frozenset[tuple[str, str]]) -> None:
        """Send what this server holds. busy: what was on its way before this outbox was read, and may have changed."""
        for target in self.targets(name):
            lane, notice, key = outbox.lanes.get(target), waiting(outbox, target), (name, target)
            is_free = key not in busy and key not in self._sending
            if notice is not None and lane is not None and lane.by == self.id and is_free:
                task = asyncio.get_running_loop().create_task(
                    self._send(name, target, notice), name=f"holdfast-alert-{notice.id}"
                )
                self._sending[key] = task
                task.add_done_callback(partial(self._ended, key))

    def _ended(self, key: tuple[str, str], _: asyncio.Task[None]) -> None:
        self._sending.pop(key, None)

    def tell_of_store(self, notice: Notice) -> None:
        """Send this to everybody, whatever the store does."""
        self._own = told(self._own, notice, tuple(self.targets(AWAY)), self.id, self._clock.now())
        self.go_on()

    def go_on(self) -> None:
        """Try again what was told of the store and not taken."""
        targets = [target for target in self.targets(AWAY) if (AWAY, target) not in self._sending]
        self._own, _ = taken(self._own, targets, self.id, self._clock.now(), is_patient=True)
        self.begin(AWAY, self._own, frozenset())

    async def sent(self) -> None:
        """Wait until everything that is being sent has ended."""
        while self._sending:
            await asyncio.gather(*self._sending.values())

    async def leave(self) -> None:
        """Stop sending, and leave what is on its way to whoever comes next, at once."""
        ours = dict(self._sending)
        for task in ours.values():
            task.cancel()
        await asyncio.gather(*ours.values(), return_exceptions=True)
        try:
            async with self._clock.timeout(_LEAVE_S):
                for name, target in ours:
                    await self._change(name, partial(self._left_over, target))
        except (StoreError, TimeoutError) as error:
            _logger.warning("what was to be sent is left to others, after %g s: %s", HOLD_S, error_in_words(error))

    def _left_over(self, target: str, outbox: Outbox, now: float) -> Outbox:
        return left_over(outbox, target, self.id, now)

    # ---- one target

    async def _send(self, name: str, target: str, notice: Notice) -> None:
        """This notice and those that wait behind it, up to the first that is not taken."""
        following: Notice | None = notice
        while following is not None:
            notice = following
            is_there = self._unmarked.get((name, target)) == notice.id or await self._hand(notice, name, target)
            try:
                following = await self._mark(name, target, notice.id, is_there=is_there)
            except StoreError as error:
                if is_there:
                    self._unmarked[name, target] = notice.id
                _logger.warning("alert %s: notice %s may be sent again: %s", name, notice.id, error_in_words(error))
                return

    async def _mark(self, name: str, target: str, id: str, *, is_there: bool) -> Notice | None:  # noqa: A002
        """Write down what became of a notice; the next one for this target, if there is one to be sent now."""
        if not is_there:
            await self._change(name, lambda outbox, now: refused(outbox, target, self.id, now))
            return None
        after = await self._change(name, lambda outbox, now: given(outbox, target, id, self.id, now))
        self._unmarked.pop((name, target), None)
        lane = after.lanes.get(target)
        return waiting(after, target) if lane is not None and lane.by == self.id else None

    async def _change(self, name: str, change: Change) -> Outbox:
        if name == AWAY:
            self._own = change(self._own, self._clock.now())
            return self._own
        store, seen = self._app.store, 0
        async with self._locks.setdefault(name, asyncio.Lock()):  # or targets of one alert would disturb each other
            for _ in range(_ATTEMPTS):
                reply = await store.exchange(Exchange(seen=seen))
                state, version = states_in(reply.values).get(name, (AlertState(), 0))
                after = replace(state, outbox=change(state.outbox, reply.now))
                if after == state:
                    return after.outbox
                wanted = change_of(name, after, version)
                if (await store.exchange(Exchange(changes=[wanted], seen=version))).changed[0]:
                    return after.outbox
        raise StoreError(f"alert {name}: its state is changed all the time")

    async def _hand(self, notice: Notice, name: str, target: str) -> bool:
        """Give it to a target; whether it has it."""
        to = self.targets(name).get(target)
        if to is None:
            log(notice)
            return True
        try:
            async with self._clock.timeout(_SEND_S):
                await _call(to, notice)
        except TimeoutError as error:
            # A thread cannot be stopped: it has begun with the notice, and a second one would not help it.
            is_left = callable(to) and not is_async(to)
            _logger.error("alert %s: %s did not end: %s", name, _named(to), error_in_words(error))
            return is_left
        except BaseException as error:  # sys.exit() of a callback is a failure of it, and must not end the server
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            _logger.error("alert %s: %s failed: %s", name, _named(to), error_in_words(error))
            return False
        return True


async def _call(target: Callback | Target, notice: Notice) -> None:
    if not callable(target):
        await target.deliver(notice)
    elif is_async(target):
        await cast(Awaitable[object], target(notice))
    else:
        await asyncio.wrap_future(aside(partial(target, notice), f"holdfast-alert-{notice.id}"))


def log(notice: Notice) -> None:
    """A notice as a line of the log."""
    level = logging.WARNING if notice.state == "firing" else logging.INFO
    still = "still " if notice.is_reminder else ""
    fields = {"alert": notice.name, "state": notice.state, "value": notice.value, "notice": notice.id}
    _logger.log(level, "alert %s is %s%s: %s", notice.name, still, notice.state, in_a_line(notice.text), extra=fields)


def _named(target: object) -> str:
    return getattr(target, "__qualname__", None) or repr(target)
