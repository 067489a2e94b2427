"""One message that never ends, of one key among 1,000: what becomes of its partition, of the others, and of memory."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from jobs_bars import Bar
from jobs_rounds import say
from jobs_timing import Failed
from streams_order import KEYS, Order
from streams_servers import Kafka
from streams_subject import LOOK_S, Subject, Topic, consumer, said
from streams_tally import Tally

from holdfast import App
from holdfast.health import making_progress
from holdfast.streams import Message

STUCK_AFTER_S = 2.0
"""For so long a message may be the first: the default of 60 s would only make us wait."""
STUCK = 5 * KEYS + 7
"""The number of the order that never ends."""
KEY = f"customer-{STUCK % KEYS:04}"
MAX_GAP = 10_000
OVER = 2_000
"""What one receive, and one that was under way, may bring beyond it."""
GROUP = "bench-stuck"
WATCH_S = 0.5
WITHIN_S = 150.0
FLAT_MB = 20.0
"""So much more at the end than in the middle, and memory is not flat."""


@dataclass(slots=True)
class Outcome:
    """What was seen from outside, and what the app's own health says."""

    count: int
    left: dict[int, int] = field(default_factory=dict)
    """Messages that are not committed, by partition."""
    stuck_partition: int = -1
    received: int = 0
    """How many messages of its partition were taken from the broker, from the stuck one on."""
    paused: str = ""
    health: str = ""
    memory_mb: list[float] = field(default_factory=list)
    """Resident, twice a second, from the first message to the end."""
    drained_s: float = 0.0


def consume() -> None:
    """In the consumer's process: it writes down once a second what the app says of itself."""
    asyncio.run(_consume())


async def _consume() -> None:
    tally = Tally()
    folder = Path(os.environ["STREAMS_FOLDER"])
    app = App(f"sqlite:///{folder / 'holdfast.db'}")
    url = f"kafka://{os.environ['STREAMS_ADDRESS']}/{os.environ['STREAMS_TOPIC']}"
    never = asyncio.Event()
    handled: Counter[int] = Counter()

    @app.stream(url, group=os.environ["STREAMS_GROUP"], name="orders", max_gap=MAX_GAP)
    async def handle(order: Order, message: Message) -> None:
        if order.number == STUCK:
            await never.wait()
        handled[message.partition] += 1
        tally.one()

    app.health_check("orders move", making_progress(app, within=STUCK_AFTER_S))
    telling = asyncio.create_task(_tell(app, folder, handled))
    await app.worker().run()
    await telling


async def _tell(app: App, folder: Path, handled: Counter[int]) -> None:
    while True:
        await asyncio.sleep(1.0)
        health = await app.ahealth()
        views = await app.streams.alist()
        found = [
            {
                "why": one.paused,
                "received": handled[one.partition] + one.in_flight + one.buffered - int(one.position or 0),
            }
            for view in views
            for one in view.partitions
            if one.paused
        ]
        text = json.dumps({"health": health.checks["orders move"].error or "", "paused": found})
        written = folder / "says.new"
        written.write_text(text)
        written.replace(folder / "says")


def measure_stuck(kafka: Kafka, topic: Topic, folder: Path) -> Outcome:
    """Until all other partitions are drained, and the app says what holds it up."""
    say(f"a stuck key among {topic.count:,} messages")
    subject = Subject("a stuck key", "streams_stuck")
    outcome = Outcome(topic.count)
    ends = kafka.ends(topic)
    own = folder / "stuck"
    with consumer(subject, topic, GROUP, own) as process:
        began = looked_at = time.monotonic()
        while True:
            if process.poll() is not None:
                raise Failed(f"it ended with {process.returncode}: {said(own)}")
            now = time.monotonic()
            if now - looked_at >= WATCH_S:
                looked_at = now
                committed = kafka.committed(GROUP, topic)
                outcome.left = {number: end - committed.get(number, 0) for number, end in ends.items()}
                if committed:
                    outcome.memory_mb.append(_resident_mb(process.pid))
                _hear(own, outcome)
            unfinished = [number for number, left in outcome.left.items() if left]
            if outcome.left and len(unfinished) == 1 and not outcome.drained_s:
                outcome.drained_s, outcome.stuck_partition = now - began, unfinished[0]
            if outcome.drained_s and KEY in outcome.health and outcome.paused:
                return outcome
            if now - began > WITHIN_S:
                raise Failed(f"after {WITHIN_S:.0f} s there is left {outcome.left}; health: {outcome.health!r}")
            time.sleep(LOOK_S * 10)


def _hear(folder: Path, outcome: Outcome) -> None:
    path = folder / "says"
    if path.exists():
        says = json.loads(path.read_text())
        outcome.health = says["health"]
        for one in says["paused"]:
            outcome.paused, outcome.received = one["why"], one["received"]


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def print_outcome(outcome: Outcome) -> None:
    memory = outcome.memory_mb
    third = len(memory) // 3
    print(f"\na stuck key among {outcome.count:,} messages in {len(outcome.left)} partitions, max_gap={MAX_GAP:,}")
    print(f"  left, by partition      {outcome.left}; all but one drained after {outcome.drained_s:.0f} s")
    print(f"  its partition           {outcome.stuck_partition}: {outcome.paused}")
    print(f"  received there          {outcome.received:,} messages from the stuck one on")
    print(f"  health                  {outcome.health}")
    print(
        f"  resident, MB            {memory[0]:.1f} at the start, {memory[third]:.1f} after a third, "
        f"{memory[2 * third]:.1f} after two, {memory[-1]:.1f} at the end"
    )


def bars(outcome: Outcome) -> list[Bar]:
    others = {number: left for number, left in outcome.left.items() if number != outcome.stuck_partition}
    memory = outcome.memory_mb
    grown = memory[-1] - memory[len(memory) // 3] if memory else float("inf")
    return [
        Bar("a stuck key: all other partitions are drained", f"{sum(others.values())} left", not any(others.values())),
        Bar(
            f"a stuck key: its partition stops at the gap bound of {MAX_GAP:,}",
            f"{outcome.received:,} received",
            bool(outcome.paused) and MAX_GAP <= outcome.received <= MAX_GAP + OVER,
        ),
        Bar("a stuck key: health names it", KEY if KEY in outcome.health else "not named", KEY in outcome.health),
        Bar(
            f"a stuck key: memory grows by ≤ {FLAT_MB:.0f} MB from the first third to the end",
            f"{grown:+.1f} MB",
            grown <= FLAT_MB,
        ),
    ]
