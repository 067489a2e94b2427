"""Row 36: single messages that fail, poison and copies, in groups whose members are killed at the wrong moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.faults import stream_checker
from tests.faults.conftest import waits
from tests.faults.load import Dice
from tests.faults.report import Report
from tests.faults.stream_arena import Stream, orders_for, stream_arena
from tests.faults.stream_channels import KafkaChannel, name_of
from tests.faults.stream_ledger import Handling
from tests.faults.stream_shop import Order, StreamPlan
from tests.faults.test_row30_streams import Line
from tests.faults.workers import CLOCK, poll
from tests.kafka_broker import KafkaBroker

pytestmark = waits
STORE = "kafka"
DELAY_S = 0.4
CLOCKS_S = 0.01
"""When a retry is due is told by the store's clock, which a process knows to milliseconds: by how quick replies are."""
FAILING = ("failing", 0)
_WITHIN_S = 20.0


@pytest.mark.parametrize("is_blocking", [True, False])
def test_a_failed_message_is_never_skipped_and_its_delays_are_kept(
    kafka: KafkaBroker, tmp_path: Path, is_blocking: bool, report: Report
) -> None:
    channel = KafkaChannel(kafka, partitions=1, session_s=1.0, tag="failed")
    plan = StreamPlan(is_blocking=is_blocking, max_retries=3, delay_s=DELAY_S)
    channel.send([Order(*FAILING, fails=3), *(Order(f"k{n % 10}", n // 10) for n in range(50))])
    with stream_arena(tmp_path, channel, plan) as arena:
        (first,) = arena.start_many(1)
        poll(lambda: len(stream_checker.finished_by(arena.handlings())) == 50, 20, "all others are handled")
        if is_blocking:
            CLOCK.sleep(0.5)
            arena.look()
            assert FAILING not in arena.looks[-1].done
        else:
            poll(lambda: len(channel.done()) == 51, 20, "all others are committed, and it is in a retry topic")
        arena.fleet.kill(first)
        (second,) = arena.start_many(1)
        arena.quiesce()
        arena.drain(second)
        evidence = replace(arena.evidence(), commit_s=stream_checker.COMMIT_S + 1.0)

    own = [one for one in evidence.handlings if one.name == FAILING]
    assert stream_checker.check(evidence) == []
    assert own[-1].what == "end"
    counted = [one.attempt for one in own if one.what == "fail"]
    assert counted[0] == 1, "its first attempt"
    assert 3 in counted, "attempts before the kill were not counted"
    waited = list(_waits(own))
    assert all(wait_s >= DELAY_S * 2 ** (n - 2) - CLOCKS_S for n, wait_s in waited), waited
    how = "in place" if is_blocking else "through retry topics"
    told = ", ".join(f"{wait_s:.2f}" for _, wait_s in waited)
    report(
        f"a message that fails, retried {how}, its worker killed after all later ones",
        injected=1,
        figures=stream_checker.figures(evidence),
        note=f"its retries were waited for {told} s",
    )


def _waits(own: list[Handling]) -> Iterator[tuple[int, float]]:
    """The number of each attempt but the first, and how long it was waited for since the one before it failed.

    A kill may make two of a message that is on its way through retry topics: the second of an attempt is the second's.
    """
    failed: dict[int, list[float]] = defaultdict(list)
    begun: Counter[int] = Counter()
    for one in own:
        if one.what == "fail":
            failed[one.attempt].append(one.at)
        elif one.what == "start" and one.attempt > 1:
            before = failed[one.attempt - 1]
            yield one.attempt, one.at - before[min(begun[one.attempt], len(before) - 1)]
            begun[one.attempt] += 1


def test_a_poison_message_in_a_batch_of_500_is_found_and_the_others_handled(
    kafka: KafkaBroker, tmp_path: Path, report: Report
) -> None:
    channel = KafkaChannel(kafka, partitions=1, tag="poison")
    channel.keeps_order = False  # a batch is handled at once
    plan = StreamPlan(kind="batch", batch=500, in_flight=1_000, max_retries=0)
    channel.send([Order(f"k{n}", 0, is_poison=n == 333) for n in range(500)])
    with stream_arena(tmp_path, channel, plan) as arena:
        (pid,) = arena.start_many(1)
        arena.quiesce()
        arena.drain(pid)
        evidence = arena.evidence()

    assert stream_checker.check(evidence) == []
    assert evidence.letters == evidence.dead == {("k333", 0): 1}
    runs = stream_checker.runs_by_name(evidence.handlings)
    largest = max(Counter(one.at for one in evidence.handlings if one.what == "start").values())
    report(
        "a poison message in a large batch",
        injected=1,
        figures=stream_checker.figures(evidence),
        note=f"a batch of {largest}, given up after {len(runs['k333', 0])} runs",
    )


def test_two_groups_do_not_see_each_others_retries(kafka: KafkaBroker, tmp_path: Path, report: Report) -> None:
    channel = KafkaChannel(kafka, partitions=3, tag="groups")
    robust = StreamPlan(url=channel.url, name="audit", group=f"audit-{channel.topic}", is_robust=True)
    plan = StreamPlan(is_blocking=False, delay_s=0.1)
    channel.send([Order(f"k{n % 10}", n // 10, fails=1) for n in range(60)])
    with stream_arena(tmp_path, channel, plan, beside=[robust]) as arena:
        (pid,) = arena.start_many(1)
        arena.quiesce()
        poll(lambda: len(stream_checker.finished_by(arena.handlings("audit"))) == 60, 20, "the other group is done")
        CLOCK.sleep(0.3)  # for what should not come
        arena.drain(pid)
        evidence, others = arena.evidence(), arena.handlings("audit")

    assert stream_checker.no_loss(evidence) + stream_checker.nothing_skipped(evidence) == []
    assert sum(one.what == "fail" for one in evidence.handlings) == 60
    assert sum(one.what == "end" for one in evidence.handlings) == 60
    assert Counter(one.what for one in others) == {"start": 60, "end": 60}
    report(
        "messages retried through topics in one of two groups",
        injected=sum(one.what == "fail" for one in evidence.handlings),
        figures=stream_checker.figures(evidence),
        note=f"runs in the other group {sum(one.what == 'start' for one in others)}",
    )


@pytest.fixture
def quick_to_abort() -> Iterator[Line]:
    """A broker that looks often whether a transaction has taken too long."""
    with Line({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as server:
        yield server


def test_copies_by_transactions_are_there_once_however_workers_die(
    quick_to_abort: Line, tmp_path: Path, is_full: bool, report: Report
) -> None:
    dice = Dice()
    kills, each_s = (12, 3.0) if is_full else (1, 2.0)
    channel = KafkaChannel(
        quick_to_abort,
        partitions=3,
        session_s=1.0,
        options="&transaction.timeout.ms=2000&socket.timeout.ms=2000",
        tag="copies",
    )
    channel.keeps_order = False  # a batch is handled at once
    copies = f"{channel.topic}.copies"
    quick_to_abort.create_topic(copies, 3)
    plan = StreamPlan(kind="copy", copies_to=copies, batch=20, in_flight=40)
    longest_s = kills * each_s + _WITHIN_S + 60.0  # it ends with the last kill
    orders = orders_for(round(longest_s * 80 / each_s), dice, seconds=0.05, failures=0.0, dead=0.01)
    sender = Stream(channel, orders, over_s=longest_s)

    def is_open() -> bool:
        """Whether some copies are in a transaction that goes on: of the only worker, of which none was aborted yet."""
        there = quick_to_abort.read(copies, isolation="read_uncommitted")
        return len(there) > len(quick_to_abort.read(copies))  # looked at last: a commit under way has arrived by then

    with stream_arena(tmp_path, channel, plan) as arena:
        pids = arena.start_many(1)
        quick_to_abort.proxy.latency_s = 0.02  # so that most of the time is that of transactions
        sender.start()
        poll(lambda: len(arena.handlings()) > 10, 30, "batches are handled")
        hit = arena.fleet.kill_amid(pids.pop(), is_open, _WITHIN_S)
        assert hit, "no kill hit a transaction: this run shows nothing"
        pids += arena.start_many(2)
        for _ in range(kills - 1):
            seen = len(arena.handlings())
            poll(lambda: len(arena.handlings()) > seen + 10, 30, "batches are handled")  # noqa: B023
            CLOCK.sleep(0.3 * dice.draw())
            victim = arena.busiest(pids)
            pids.remove(victim)
            arena.fleet.kill(victim)
            pids.append(arena.start())
        assert sender.is_alive(), "the load was over too soon"
        sender.stop()
        quick_to_abort.proxy.heal()
        arena.quiesce(90)
        for pid in pids:
            arena.drain(pid)
        evidence = replace(
            arena.evidence(), commit_s=30.0
        )  # a partition waits for the end of the dead one's transaction

    written = Counter(name_of(message.value()) for message in quick_to_abort.read(copies))
    all_of_them = quick_to_abort.read(copies, isolation="read_uncommitted")
    assert stream_checker.check(evidence) == []
    assert written == Counter(evidence.sent.keys() - evidence.letters.keys())
    assert len(all_of_them) > len(written), "nothing was aborted: this run shows nothing"
    missing = evidence.sent.keys() - evidence.letters.keys() - written.keys()
    report(
        "workers killed (SIGKILL) that copy messages in transactions",
        injected=kills,
        figures=stream_checker.figures(evidence),
        note=f"{written.total():,} copies, missing {len(missing)}, twice {written.total() - len(written)}, aborted "
        f"copies that nobody sees {len(all_of_them) - len(written)}, {stream_checker.told(evidence, arena.seconds)}",
        seed=dice.seed,
    )
