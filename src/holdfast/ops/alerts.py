"""Looks at an app's alerts again and again, and sends their notices: once over all servers, or again after a death."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, cast

from holdfast.app import App
from holdfast.app.alerts import AWAY, Callback
from holdfast.clock import new_id
from holdfast.errors import StoreError
from holdfast.fingerprint import in_a_line
from holdfast.policy.alerts import HOLD_S, AlertState, Notice, Pending, sent, step, taken
from holdfast.policy.redact import error_in_words
from holdfast.ports import Clock, Exchange
from holdfast.runtime.alerts import Target, change_of, metrics_of, read, states_in
from holdfast.runtime.aside import aside
from holdfast.runtime.guards.functions import is_async
from holdfast.wiring import shown

EVERY_S: Final = 5.0
"""How often the rules are looked at."""
AWAY_S: Final = 10.0
"""After so long without an answer the store is said to be away."""
_LOOK_S: Final = 5.0
_SEND_S: Final = HOLD_S * 0.75
_ATTEMPTS: Final = 20

_logger = logging.getLogger("holdfast.alerts")


class AlertLoop:
    """Watches the alerts of one app, beside any number of other servers that do the same.

    What is found becomes a change of the alert's shared state, by compare and set: who makes the change sends the
    notice, and says so in the state. A notice whose sender has died is sent by another one after two minutes, with the
    same id. While the store cannot be asked, every server tells by itself, under the name "store away".
    """

    def __init__(self, app: App, clock: Clock | None = None, *, name: str = "", every_s: float = EVERY_S) -> None:
        self._app = app
        self._clock = app.clock if clock is None else clock
        self._name = name or app.target or shown(app.url)
        self._every_s = every_s
        self._unsure: dict[str, Notice] = {}
        """What was to be sent when a change of state got no answer: it may be ours, and the state will tell."""
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._away_since_s: float | None = None
        self._away_told = False

    async def run(self) -> None:
        """Look at the alerts until this is cancelled; what is being sent then is left to other servers."""
        try:
            while True:
                try:
                    await self.once()
                except Exception:
                    _logger.exception("the alerts could not be looked at; they will be again in %g s", self._every_s)
                await self._clock.asleep(self._every_s)
        finally:
            for task in self._sending.values():
                task.cancel()

    async def once(self) -> None:
        """Look once; notices are sent in the background."""
        if not self._app.alerts.watches:
            return
        score = await self._app.alerts.score()  # takes as long as the slowest health check, and never fails
        try:
            async with self._clock.timeout(_LOOK_S):
                await self._look(score)
        except (StoreError, TimeoutError) as error:
            self._miss(error)
        else:
            self._find()

    async def sent(self) -> None:
        """Wait until everything that is being sent has ended."""
        while self._sending:
            await asyncio.gather(*self._sending.values())

    # ---- rules

    async def _look(self, score: float | None) -> None:
        desk = self._app.alerts
        look = await desk.look()
        now, states, metrics = look.reply.now, states_in(look.reply.values), metrics_of(look, score)
        changes, ours = [], []
        for name, watch in desk.watches.items():
            before, version = states.get(name, (AlertState(), 0))
            reading = read(watch.alert.rule, look, score, metrics)
            state, notice = step(watch.alert, before, reading, now, id=new_id(), app=self._name)
            state, overdue = taken(state, now)
            for pending in before.pending:
                if pending.notice.id in self._unsure:
                    self._begin(pending)
                elif pending.notice.id not in {one.notice.id for one in state.pending}:
                    _logger.error("alert %s: notice %s is dropped, as it could not be sent", name, pending.notice.id)
            if state != before:
                new = [pending for pending in state.pending if notice is not None and pending.notice.id == notice.id]
                changes.append(change_of(name, state, version))
                ours.append([*new, *overdue])
        self._unsure.clear()
        if not changes:
            return
        self._unsure = {pending.notice.id: pending.notice for mine in ours for pending in mine}
        reply = await self._app.store.exchange(Exchange(changes=changes, seen=max(one.expected for one in changes)))
        self._unsure.clear()
        for mine, is_ours in zip(ours, reply.changed, strict=True):
            for pending in mine if is_ours else ():
                self._begin(pending)

    # ---- the store itself

    def _miss(self, error: BaseException) -> None:
        now_s = self._clock.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
        away_s = now_s - self._away_since_s
        if away_s >= AWAY_S and not self._away_told:
            self._away_told = True
            why = error_in_words(error) if isinstance(error, StoreError) else f"no answer within {_LOOK_S:g} s"
            self._tell_of_store("firing", away_s, f"the store has not answered for {away_s:.0f} s: {why}")

    def _find(self) -> None:
        if self._away_since_s is not None and self._away_told:
            away_s = self._clock.monotonic() - self._away_since_s
            self._tell_of_store("resolved", away_s, f"the store answers again, after {away_s:.0f} s")
        self._away_since_s, self._away_told = None, False

    def _tell_of_store(self, state: Any, away_s: float, text: str) -> None:
        notice = Notice(
            id=new_id(),
            name=AWAY,
            state=state,
            value=away_s,
            threshold=AWAY_S,
            text=text,
            at=self._clock.now(),
            app=self._name,
        )
        _log(notice)
        targets = {id(target): target for watch in self._app.alerts.watches.values() for target in watch.to}
        self._spawn(notice.id, self._deliver(notice, enumerate(targets.values())))

    # ---- sending

    def _begin(self, pending: Pending) -> None:
        if pending.notice.id not in self._sending:
            _log(pending.notice)
            self._spawn(pending.notice.id, self._send(pending))

    def _spawn(self, id: str, work: Coroutine[Any, Any, Any]) -> None:  # noqa: A002
        task = asyncio.get_running_loop().create_task(work, name=f"holdfast-alert-{id}")
        self._sending[id] = task
        task.add_done_callback(lambda _: self._sending.pop(id, None))

    async def _send(self, pending: Pending) -> None:
        name = pending.notice.name
        watch = self._app.alerts.watches[name]
        left = [(place, target) for place, target in enumerate(watch.to) if place not in pending.done]
        done = await self._deliver(pending.notice, left)
        try:
            await self._remember(name, pending.notice.id, done, len(watch.to))
        except StoreError as error:
            _logger.warning("alert %s: notice %s may be sent again: %s", name, pending.notice.id, error_in_words(error))

    async def _deliver(self, notice: Notice, targets: Iterable[tuple[int, Callback | Target]]) -> frozenset[int]:
        """Give it to all of these at once; which of them have it."""
        places = list(targets)
        answers = await asyncio.gather(*(self._hand(notice, target) for _, target in places))
        return frozenset(place for (place, _), is_done in zip(places, answers, strict=True) if is_done)

    async def _hand(self, notice: Notice, target: Callback | Target) -> bool:
        try:
            async with self._clock.timeout(_SEND_S):
                await _call(target, notice)
        except TimeoutError as error:
            # A thread cannot be stopped: it has begun with the notice, and a second one would not help it.
            is_left = callable(target) and not is_async(target)
            _logger.error("alert %s: %s did not end: %s", notice.name, _named(target), error_in_words(error))
            return is_left
        except Exception as error:
            _logger.error("alert %s: %s failed: %s", notice.name, _named(target), error_in_words(error))
            return False
        return True

    async def _remember(self, name: str, id: str, done: frozenset[int], targets: int) -> None:  # noqa: A002
        store, seen = self._app.store, 0
        for _ in range(_ATTEMPTS):
            reply = await store.exchange(Exchange(seen=seen))
            state, version = states_in(reply.values).get(name, (AlertState(), 0))
            after = sent(state, id, done, targets, reply.now)
            if after == state:
                return
            change = change_of(name, after, version)
            if (await store.exchange(Exchange(changes=[change], seen=version))).changed[0]:
                return
        _logger.warning("alert %s: notice %s may be sent again: its state is changed all the time", name, id)


async def _call(target: Callback | Target, notice: Notice) -> None:
    if not callable(target):
        await target.deliver(notice)
    elif is_async(target):
        await cast(Awaitable[object], target(notice))
    else:
        await asyncio.wrap_future(aside(partial(target, notice), f"holdfast-alert-{notice.id}"))


def _log(notice: Notice) -> None:
    level = logging.WARNING if notice.state == "firing" else logging.INFO
    still = "still " if notice.is_reminder else ""
    fields = {"alert": notice.name, "state": notice.state, "value": notice.value, "notice": notice.id}
    _logger.log(level, "alert %s is %s%s: %s", notice.name, still, notice.state, in_a_line(notice.text), extra=fields)


def _named(target: object) -> str:
    return getattr(target, "__qualname__", None) or repr(target)
