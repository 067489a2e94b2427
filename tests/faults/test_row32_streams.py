"""Row 32 for streams: a slow network that cuts connections at random. No message is lost, and no order broken."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from holdfast.testing import FaultProxy
from tests.faults import stream_checker
from tests.faults.checker import Fault
from tests.faults.conftest import waits
from tests.faults.load import Dice
from tests.faults.report import Report
from tests.faults.stream_arena import Channel, Stream, orders_for, stream_arena
from tests.faults.stream_shop import StreamPlan
from tests.faults.test_row30_streams import BACK_S, faulty
from tests.faults.workers import CLOCK

__all__ = ["faulty"]
pytestmark = waits
STORE = "streams"
PROBABILITY = 0.05
RESETS = 6
"""With fewer, a run shows nothing."""
MORE_S = 30.0
"""So much longer the load lasts where they are late; it is ended with them."""


def test_random_resets_and_latency_lose_no_message(
    faulty: tuple[str, Channel, FaultProxy],
    tmp_path: Path,
    is_full: bool,
    report: Report,
) -> None:
    dice = Dice()
    name, channel, proxy = faulty
    seconds = 40.0 if is_full else 2.0
    options = {} if name == "kafka" else {"claim_after_s": 2.0, "answer_within_s": 1.0}
    over_s = seconds + MORE_S
    sender = Stream(channel, orders_for(round(over_s * 80), dice, failures=0.05, dead=0.02), over_s=over_s)
    with stream_arena(tmp_path, channel, StreamPlan(options=options)) as arena:
        pids = arena.start_many(2)
        sender.start()
        arena.wait_for_runs(20)
        began_s = CLOCK.monotonic()
        proxy.latency_s, proxy.jitter_s, proxy.reset_probability = 0.005, 0.02, PROBABILITY
        arena.look_until(lambda: CLOCK.monotonic() > began_s + seconds and proxy.traffic.resets >= RESETS)
        assert sender.is_alive(), "the load was over too soon"
        sender.stop()
        proxy.heal()
        ended_s = CLOCK.monotonic()
        arena.quiesce()
        assert arena.fleet.running == pids, f"a worker ended by itself: {arena.fleet.log()[-3000:]}"
        for pid in pids:
            arena.drain(pid)
        faults = [Fault("resets", pid, began_s, ended_s + BACK_S) for pid in pids]
        evidence = replace(arena.evidence(), faults=faults)

    assert stream_checker.check(evidence) == []
    assert proxy.traffic.resets >= RESETS, "too few resets: this run shows nothing"
    report(
        "connections cut at random, on a slow network",
        injected=proxy.traffic.resets,
        figures=stream_checker.figures(evidence),
        note=f"{PROBABILITY:.0%} of all chunks, latency 5 to 25 ms, {stream_checker.told(evidence, arena.seconds)}",
        seed=dice.seed,
        store=channel.name,
    )
