"""`holdfast demo`: a shop through an outage, a killed worker and a bug, told live; nothing is lost."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from holdfast.clock import SystemClock
from holdfast.extras import how_to_install
from holdfast.ops.flaky_server import FlakyServer, Mood
from holdfast.ports import Clock

Tell = Callable[[str, str], None]
"""Told a kind ("scene", "event", "result", "status", "summary") and a line; a status may be overwritten by the next."""

ORDERS = 1_000
_CANARIES = 5
_DRAIN_S = 60.0
_LOOK_S = 0.25
_MOST_SENT = 30  # of two processes four failures each, before one that opens it, and eight in flight; then a few trials
_SERVICES = ("payments", "shipping", "mail")


@dataclass
class Demo:
    """The story, and whether it came out as promised."""

    tell: Tell
    orders: int = ORDERS
    clock: Clock = field(default_factory=SystemClock)
    patience_s: float = 45.0
    stays: bool = False
    """After the story the shop goes on trading, with its page up, until Ctrl-C."""
    surprises: list[str] = field(default_factory=list)

    def run(self) -> bool:
        """Tell it all; True when every promise held."""
        logging.getLogger("holdfast").addHandler(logging.NullHandler())
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder, ExitStack() as services:
            self._services = {name: services.enter_context(FlakyServer()) for name in _SERVICES}
            self._log = Path(folder, "worker.log")
            self._env = {
                **os.environ,
                "HOLDFAST_URL": f"sqlite:///{Path(folder, 'shop.db')}",
                "HOLDFAST_DEMO": self._settings("1"),
            }
            self._shop = _load_shop(self._env)
            try:
                with self._page() as page:
                    self._tell_all()
                    if self.stays and page and not self.surprises:
                        self._trade(page)
            except TimeoutError as error:
                self.surprises.append(str(error))
            finally:
                self._shop.app.close()
        return not self.surprises

    # ---- the story

    def _tell_all(self) -> None:
        began_s = self.clock.monotonic()
        shop = self._shop
        self.tell("scene", "A shop has three services: payments, shipping and mail. Its jobs live in a SQLite file,")
        self.tell("scene", "and `holdfast worker --processes 2` runs them.")
        with self._worker():
            self._charge(shop)
            self._ship(shop)
            self._mail(shop)
        self.tell("scene", "The bug is fixed and deployed. The group is replayed: five canaries first, then the rest.")
        self._env["HOLDFAST_DEMO"] = self._settings("2")
        with self._worker():
            self._replay(shop)
        self._sum_up(shop, self.clock.monotonic() - began_s)

    def _charge(self, shop: ModuleType) -> None:
        service = self._services["payments"]
        service.failing_share = 0.1
        shop.app.enqueue_many([shop.charge.bind(order, cents=1999) for order in range(self.orders)])
        self.tell("scene", f"{self.orders:,} orders come in. Payments fails one request in ten; failures are retried.")
        self._until(lambda: self._count("charge", "completed") >= self.orders // 5, "charge")
        pid = self._kill_one()
        self.tell("event", f"worker process {pid} is killed in the middle of its jobs (SIGKILL)")
        self._until(lambda: self._count("charge", "completed") == self.orders, "charge")
        charged = set(service.seen)
        again = sum(service.seen.values()) - len(charged) - service.failures
        retried = shop.app.stats().retried
        self.tell("result", f"all {self.orders:,} charged; {retried} attempts failed and healed;")
        self.tell("result", f"{max(0, again)} requests were made twice, because of the killed process")
        self._check(charged == set(range(self.orders)), "every order is charged")

    def _ship(self, shop: ModuleType) -> None:
        service = self._services["shipping"]
        service.mood = Mood.DOWN
        before = service.requests
        self.tell("scene", "Shipping goes down: every request is answered with 503.")
        shop.app.enqueue_many([shop.ship.bind(order) for order in range(self.orders)])
        self._until(lambda: self._breaker("shipping") == "open", "ship")
        self.tell("event", "breaker shipping: closed → open, in both processes at once")
        self.clock.sleep(1.0)
        sent = service.requests - before
        waiting = self.orders - self._count("ship", "completed")
        self.tell("result", f"{waiting:,} parcels wait and cost no attempt; {sent} requests reached the broken service")
        self._check(sent <= _MOST_SENT, "an open breaker holds the others back")
        service.mood = Mood.WELL
        self.tell("scene", "Shipping is back. Trial requests find out, and the rest follows.")
        self._until(lambda: self._count("ship", "completed") == self.orders, "ship")
        self._check(self._breaker("shipping") == "closed", "the breaker is closed again")
        self._check(set(service.seen) == set(range(self.orders)), "every parcel is sent")
        self.tell("result", f"all {self.orders:,} parcels sent; breaker shipping: {self._breaker('shipping')}")

    def _mail(self, shop: ModuleType) -> None:
        names = shop.NAMES
        self.tell("scene", "The mails go out, with a bug: who has no last name cannot be greeted.")
        shop.app.enqueue_many([shop.mail.bind(order, name=names[order % len(names)]) for order in range(self.orders)])
        self._until(lambda: self._count("mail", "completed", "dead_letter") == self.orders, "mail")
        groups = shop.app.dead_letters.groups()
        for group in groups:
            self.tell("event", f"inbox: {group.count} letters, one cause: {group.error_name}: {group.message}")
        self._group = groups[0].fingerprint if groups else ""
        self._letters = sum(group.count for group in groups)
        self._check(len(groups) == 1, "one cause is one group")
        self._check(self._letters == self.orders // len(names), "every letter is there")

    def _replay(self, shop: ModuleType) -> None:
        replay = shop.app.dead_letters.replay(group=self._group, canary=_CANARIES)
        is_over = {"done", "stopped"}

        def state() -> Any:
            return next(one for one in shop.app.dead_letters.replays() if one.id == replay.id)

        self._until(lambda: state().state in is_over, "mail")
        self._until(lambda: self._count("mail", "completed") == self.orders, "mail")
        self.tell("result", f"replay {state().state}: canaries {state().verdict}, {state().sent} letters sent")
        self._check(state().sent == self._letters, "every letter is replayed once")

    def _sum_up(self, shop: ModuleType, took_s: float) -> None:
        stats = shop.app.stats()
        total = 3 * self.orders
        done = stats.jobs.get("completed", 0)
        self._check(stats.jobs == {"completed": total}, "every job is completed")
        self.tell("summary", f"{total:,} jobs enqueued, {done:,} completed, {total - done} lost, in {took_s:.0f} s:")
        self.tell(
            "summary",
            f"{stats.executed:,} attempts, {stats.retried} retried; one process killed; one outage; "
            f"{self._letters} dead letters replayed.",
        )

    def _trade(self, page: str) -> None:
        """The shop's days after the story, for whoever looks at its page: orders, outages, and now and then a bug."""
        self.tell("scene", f"The shop goes on trading, and its page stays up at {page} until Ctrl-C.")
        shop, order = self._shop, self.orders
        with self._worker(), suppress(KeyboardInterrupt):
            for second in count():
                self._services["shipping"].mood = Mood.DOWN if second % 40 >= 30 else Mood.WELL
                for _ in range(5):
                    order += 1
                    cents = 0 if order % 23 == 0 else 1999
                    name = shop.NAMES[order % len(shop.NAMES)]
                    shop.app.enqueue_many(
                        [shop.charge.bind(order, cents=cents), shop.ship.bind(order), shop.mail.bind(order, name=name)]
                    )
                self.clock.sleep(1.0)

    # ---- what it needs

    @contextmanager
    def _page(self) -> Iterator[str]:
        """`holdfast serve`, as a user would start it; its address is empty where the web extra is missing."""
        if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")):
            self.tell("scene", f"No page to look at: it needs {how_to_install('web')}.")
            yield ""
            return
        address = f"http://127.0.0.1:{_free_port()}"
        command = [
            sys.executable,
            "-m",
            "holdfast",
            "serve",
            "holdfast.ops.shop:app",
            "--port",
            address.rpartition(":")[2],
        ]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log, process_group=0)  # noqa: S603
        try:
            self._until(lambda: _answers(f"{address}/health/live"), "page")
            self.tell("scene", f"Watch it live{'' if self.stays else ' while the story lasts'}: {address}")
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            self._check(process.wait(timeout=_DRAIN_S) == 0, "the page's server exits with 0")

    def _settings(self, version: str) -> str:
        return json.dumps({"version": version, **{name: one.url for name, one in self._services.items()}})

    @contextmanager
    def _worker(self) -> Iterator[None]:
        """`holdfast worker`, as a user would start it."""
        command = [sys.executable, "-m", "holdfast", "worker", "holdfast.ops.shop:app", "--processes", "2"]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log, process_group=0)  # noqa: S603
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=_DRAIN_S)
            self._check(code == 0, "the worker drains and exits with 0")

    def _kill_one(self) -> int:
        pids: list[int] = [worker.pid for worker in self._shop.app.stats().workers]
        os.kill(pids[0], signal.SIGKILL)
        return pids[0]

    def _until(self, is_so: Callable[[], bool], task: str) -> None:
        """Wait for it, telling how far the jobs are; give up after a while."""
        deadline_s = self.clock.monotonic() + self.patience_s
        while not is_so():
            if self.clock.monotonic() > deadline_s:
                log = self._log.read_text(errors="replace")[-2000:]
                raise TimeoutError(f"{task}: not done in {self.patience_s:g} s; the end of the worker's log:\n{log}")
            self._tell_status(task)
            self.clock.sleep(_LOOK_S)

    def _tell_status(self, task: str) -> None:
        stats = self._shop.app.stats()
        states = ", ".join(f"{n:,} {state}" for state, n in sorted(stats.by_task.get(task, {}).items()))
        opened = ", ".join(f"{key} {mode.value}" for key, mode in stats.breakers.items() if mode.value != "closed")
        self.tell("status", f"{task}: {states}" + (f"; breakers: {opened}" if opened else ""))

    def _count(self, task: str, *states: str) -> int:
        of_task = self._shop.app.stats().by_task.get(task, {})
        return sum(of_task.get(state, 0) for state in states)

    def _breaker(self, key: str) -> str:
        return next((view.mode.value for view in self._shop.app.breakers.list() if view.key == key), "closed")

    def _check(self, is_so: bool, promise: str) -> None:
        if not is_so:
            self.surprises.append(promise)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=1.0) as answer:  # noqa: S310 - our own loopback URL
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _load_shop(env: dict[str, str]) -> ModuleType:
    """The shop's tasks, on the demo's own store; anew for each demo."""
    os.environ.update({name: env[name] for name in ("HOLDFAST_URL", "HOLDFAST_DEMO")})
    sys.modules.pop("holdfast.ops.shop", None)
    return importlib.import_module("holdfast.ops.shop")
