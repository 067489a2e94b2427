"""Looks at an app's alerts again and again, and tells what is found: once over all servers, or again after a death."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, Literal, TypeVar

from msgspec.structs import replace

from holdfast.app import App
from holdfast.app.alerts import AWAY
from holdfast.clock import new_id
from holdfast.errors import StoreError
from holdfast.ops.notices import Sender
from holdfast.policy.alerts import AlertState, step
from holdfast.policy.notices import Notice, Outbox, taken
from holdfast.policy.rules import HealthScore
from holdfast.ports import Clock, Exchange
from holdfast.redact import error_in_words
from holdfast.runtime.alerts import change_of, metrics_of, read, states_in
from holdfast.runtime.health import Look
from holdfast.wiring import shown

EVERY_S: Final = 5.0
"""How often the rules are looked at."""
AWAY_S: Final = 10.0
"""So long after its last answer the store is said to be away."""
_LOOK_S: Final = 5.0
_SCORE_S: Final = 2.0

_logger = logging.getLogger("holdfast.alerts")

T = TypeVar("T")


class AlertLoop:
    """Watches the alerts of one app, beside any number of other servers that do the same.

    What is found becomes a change of the alert's shared state, by compare and set: who makes the change sends the
    notice, and says so in the state. A notice whose sender has died is sent by another one after two minutes, with the
    same id; one that stops in good order leaves it to the others at once. While the store cannot be asked, every server
    tells by itself, under the name "store away".
    """

    def __init__(self, app: App, clock: Clock | None = None, *, name: str = "", every_s: float = EVERY_S) -> None:
        self._app = app
        self._clock = app.clock if clock is None else clock
        self._name = name or app.target or shown(app.url)
        self._every_s = every_s
        self._sender = Sender(app, self._clock)
        self._scoring: asyncio.Task[float | None] | None = None
        self._answered_s: float | None = None
        self._away_told_s: float | None = None

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
            if self._scoring is not None:
                self._scoring.cancel()
            await self._sender.leave()

    async def once(self) -> None:
        """Look once; notices are sent in the background."""
        if not self._app.alerts.watches:
            return
        if self._answered_s is None:
            self._answered_s = self._clock.monotonic()  # from when on an answer could be expected
        busy = self._sender.busy
        self._begin_score()
        try:
            look = await self._bounded(self._app.alerts.look())
            await self._bounded(self._judge(look, await self._score(), busy))
        except (StoreError, TimeoutError) as error:
            self._miss(error)
        else:
            self._find()
        self._sender.go_on()

    async def sent(self) -> None:
        """Wait until everything that is being sent has ended."""
        await self._sender.sent()

    async def _bounded(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._clock.timeout(_LOOK_S):
            return await work

    # ---- rules

    async def _judge(self, look: Look, score: float | None, busy: frozenset[tuple[str, str]]) -> None:
        now, states, metrics = look.reply.now, states_in(look.reply.values), metrics_of(look, score)
        changes, after = [], []
        for name, watch in self._app.alerts.watches.items():
            before, version = states.get(name, (AlertState(), 0))
            state, targets = before, self._sender.targets(name)
            if score is not None or not isinstance(watch.alert.rule, HealthScore):
                reading = read(watch.alert.rule, look, score, metrics)
                ours = {"id": new_id(), "app": self._name, "by": self._sender.id}
                state, _ = step(watch.alert, before, reading, now, to=tuple(targets), **ours)
            free = [target for target in targets if (name, target) not in busy]
            outbox, _ = taken(state.outbox, free, self._sender.id, now)
            state = replace(state, outbox=outbox)
            if state == before:
                self._sender.begin(name, outbox, busy)  # where the answer to an earlier change was lost
            else:
                changes.append(change_of(name, state, version))
                after.append((name, before.outbox, outbox))
        if not changes:
            return
        reply = await self._app.store.exchange(Exchange(changes=changes, seen=max(one.expected for one in changes)))
        for (name, outbox_before, outbox), is_ours in zip(after, reply.changed, strict=True):
            if is_ours:
                _tell_dropped(name, outbox_before, outbox)
                self._sender.begin(name, outbox, busy)

    # ---- the health score, which takes as long as the slowest health check

    def _begin_score(self) -> None:
        is_wanted = any(isinstance(watch.alert.rule, HealthScore) for watch in self._app.alerts.watches.values())
        if is_wanted and self._scoring is None:
            self._scoring = asyncio.get_running_loop().create_task(self._app.alerts.score())

    async def _score(self) -> float | None:
        """The score, if it is there soon; or else a later look has it, and until then nothing is known of it."""
        if self._scoring is None:
            return None
        try:
            async with self._clock.timeout(_SCORE_S):
                await asyncio.wait([self._scoring])
        except TimeoutError:
            if not self._scoring.done():
                return None
        ended, self._scoring = self._scoring, None
        return ended.result()

    # ---- the store itself

    def _miss(self, error: BaseException) -> None:
        now_s = self._clock.monotonic()
        away_s = now_s - (now_s if self._answered_s is None else self._answered_s)
        if away_s < AWAY_S:
            return
        repeats = [watch.alert.repeat_s for watch in self._app.alerts.watches.values() if watch.alert.repeat_s]
        is_reminder = self._away_told_s is not None
        if self._away_told_s is not None and now_s - self._away_told_s < min(repeats, default=float("inf")):
            return
        self._away_told_s = now_s
        why = error_in_words(error) if isinstance(error, StoreError) else f"no answer within {_LOOK_S:g} s"
        text = f"the store has not answered for {away_s:.0f} s: {why}"
        self._tell_of_store("firing", away_s, text, is_reminder=is_reminder)

    def _find(self) -> None:
        now_s = self._clock.monotonic()
        if self._away_told_s is not None and self._answered_s is not None:
            away_s = now_s - self._answered_s
            self._tell_of_store("resolved", away_s, f"the store answers again, after {away_s:.0f} s")
        self._answered_s, self._away_told_s = now_s, None

    def _tell_of_store(
        self, state: Literal["firing", "resolved"], away_s: float, text: str, *, is_reminder: bool = False
    ) -> None:
        notice = Notice(
            id=new_id(),
            name=AWAY,
            state=state,
            value=away_s,
            threshold=AWAY_S,
            text=text,
            at=self._clock.now(),
            app=self._name,
            is_reminder=is_reminder,
        )
        self._sender.tell_of_store(notice)


def _tell_dropped(name: str, before: Outbox, after: Outbox) -> None:
    left = {one.notice.id: set(one.left) for one in after.pending}
    for one in before.pending:
        for target in sorted(set(one.left) - left.get(one.notice.id, set())):
            _logger.error("alert %s: notice %s is dropped, as it could not be sent to %s", name, one.notice.id, target)
