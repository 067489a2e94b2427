"""Workers that share guards, in random interleavings: whatever is quicker, slower or lost, the promises hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.policy.breaker import FAILURE, SUCCESS, BreakerConfig, Outcome
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.limiter import Rate
from holdfast.policy.window import CountWindow, TimeWindow, Window
from holdfast.ports import Exchanged, Value, ValueChange
from holdfast.runtime.shared import windows
from holdfast.runtime.shared.breakers import read_breaker
from holdfast.runtime.shared.guards import Go, Hold, Request, Round, SharedGuards, limit_gate
from holdfast.types import BreakerMode

GATE, LIMIT, USER = "breaker:b", limit_gate("l"), limit_gate("l", "user", "7")
CLOSED, OPEN, HALF_OPEN = BreakerMode.CLOSED, BreakerMode.OPEN, BreakerMode.HALF_OPEN
COUNTED = (SUCCESS, FAILURE)

asked = st.lists(
    st.builds(
        Request,
        st.sampled_from([None, "b", "b"]),
        st.sampled_from([(), (LIMIT,), (USER,), (LIMIT, USER)]),
        st.sampled_from([None, "r"]),
        st.just("r"),
    ),
    min_size=1,
    max_size=3,
)


@dataclass(eq=False)
class Run:
    """A run that was granted."""

    go: Go
    began_at: float
    outcome: Outcome | None = None

    @property
    def period(self) -> int:
        return self.go.permit.period if self.go.permit is not None else 0

    @property
    def is_trial(self) -> bool:
        return self.go.permit is not None and self.go.permit.trial is not None


@dataclass(eq=False)
class Worker:
    """One exchange at a time: first it is sent, then the store does it, then the reply comes."""

    guards: SharedGuards
    out: list[Run] = field(default_factory=list)
    question: Round | None = None
    sent: list[ValueChange] | None = None
    seen: int = 0
    reply: tuple[list[bool], list[Value], int] | None = None


class Fleet(RuleBasedStateMachine):
    """Several workers and one table of values; every change of it is looked at."""

    @initialize(
        workers=st.integers(1, 4),
        threshold=st.integers(1, 4),
        trials=st.integers(1, 3),
        max_calls=st.sampled_from([1, 2, 5, 70]),
        burst=st.booleans(),
        ratio=st.sampled_from([0.0, 0.5, 1.0]),
        has_faults=st.booleans(),
    )
    def begin(
        self, workers: int, threshold: int, trials: int, max_calls: int, burst: bool, ratio: float, has_faults: bool
    ) -> None:
        self.has_faults = has_faults
        self.breaker = BreakerConfig(
            failure_threshold=threshold, half_open_max_calls=trials, recovery_timeout=2.0, trial_timeout=4.0
        )
        self.rates = {LIMIT: Rate(max_calls, 8.0, max(1, max_calls // 2) if burst else max_calls), USER: Rate(2, 4.0)}
        self.budget = BudgetConfig(ratio=ratio, cap=2.0)
        self.now = 64.0
        self.values: dict[str, Value] = {}
        self.version = 0
        self.modes = {1: CLOSED}
        self.runs = list[Run]()
        self.retries = 0
        self.successes = 0
        self.has_leak = False
        self.doubtful = set[int]()
        """Periods in which a reply was lost: a failure may have been counted twice, as `lost` says."""
        self.workers = [self.new_worker() for _ in range(workers)]

    def new_worker(self) -> Worker:
        guards = SharedGuards()
        guards.add_breaker("b", self.breaker)
        guards.add_limit("l", self.rates[LIMIT])
        guards.add_limit("l:user", self.rates[USER])
        guards.add_budget("r", self.budget)
        return Worker(guards)

    # ---- the store

    def change(self, change: ValueChange) -> bool:
        value = self.values.get(change.key)
        if change.expected != (value.version if value is not None and value.data is not None else 0):
            return False
        self.version += 1
        self.values[change.key] = Value(change.key, self.version, change.data)
        if change.key == GATE:
            assert change.data is not None
            self.look_at_breaker(change.data)
        return True

    def look_at_breaker(self, data: bytes) -> None:
        value = read_breaker(data)
        assert value is not None
        state, latest = value.state, max(self.modes)
        assert state.period >= latest, "the period only rises"
        assert len(state.trials) + state.trial_totals.calls <= self.breaker.half_open_max_calls
        before = self.modes[latest]
        if state.period == latest:
            assert state.mode is before
            return
        ended = [run for run in self.runs if run.outcome in COUNTED and run.period == latest]
        if before is CLOSED and latest not in self.doubtful:
            failed = sum(run.outcome is FAILURE for run in ended)
            assert failed >= self.breaker.failure_threshold, "opened without enough failures"
        if before is HALF_OPEN and state.mode is CLOSED:
            done = sum(run.is_trial and run.outcome is SUCCESS for run in ended)
            assert done >= self.breaker.half_open_max_calls, "closed without enough successes"
        self.modes[state.period] = state.mode

    # ---- time and faults

    @rule(quarters=st.sampled_from([0, 1, 1, 2, 8, 20]))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @precondition(lambda self: self.has_faults and len(self.workers) > 1)
    @rule(data=st.data())
    def a_worker_dies_and_another_comes(self, data: st.DataObject) -> None:
        self.workers.remove(self.some(data))
        self.workers.append(self.new_worker())
        self.has_leak = True

    @precondition(lambda self: self.has_faults)
    @rule(data=st.data())
    def a_reply_is_lost(self, data: st.DataObject) -> None:
        worker = self.some(data)
        if worker.sent is not None:
            if worker.reply is not None and any(change.key == GATE for change in worker.sent):
                self.doubtful.add(max(self.modes))
            worker.guards.lost(worker.sent)
            worker.question = worker.sent = worker.reply = None
            self.has_leak = True

    # ---- exchanges

    def some(self, data: st.DataObject) -> Worker:
        return self.workers[data.draw(st.integers(0, len(self.workers) - 1), label="worker")]

    def send(self, worker: Worker, changes: list[ValueChange]) -> None:
        worker.sent, worker.seen, worker.reply = changes, worker.guards.seen, None

    @rule(data=st.data(), requests=asked)
    def a_worker_asks(self, data: st.DataObject, requests: list[Request]) -> None:
        worker = self.some(data)
        if worker.sent is None:
            worker.question = worker.guards.ask(requests, self.now)
            if worker.question.changes:
                self.send(worker, list(worker.question.changes))
            else:
                self.answered(worker)

    @rule(data=st.data())
    def a_worker_flushes(self, data: st.DataObject) -> None:
        worker = self.some(data)
        if worker.sent is None:
            self.send(worker, worker.guards.changes(self.now))

    @rule(data=st.data())
    def the_store_does_it(self, data: st.DataObject) -> None:
        self.do(self.some(data))

    @rule(data=st.data())
    def the_reply_comes(self, data: st.DataObject) -> None:
        self.take_reply(self.some(data))

    def do(self, worker: Worker) -> None:
        if worker.sent is not None and worker.reply is None:
            newest = self.version
            changed = [self.change(change) for change in worker.sent]
            newer = [value for value in self.values.values() if value.version > worker.seen]
            worker.reply = changed, sorted(newer, key=lambda value: value.version), newest

    def take_reply(self, worker: Worker) -> None:
        if worker.sent is None or worker.reply is None:
            return
        sent, (changed, newer, newest) = worker.sent, worker.reply
        worker.sent = worker.reply = None
        worker.guards.absorb(Exchanged(now=self.now, values=newer, newest=newest))
        if worker.question is None:
            worker.guards.confirm(sent, changed, self.now)
        elif worker.guards.finish(worker.question, changed, self.now):
            self.answered(worker)
        else:
            assert worker.question.changes
            self.send(worker, list(worker.question.changes))

    @rule(data=st.data(), requests=st.tuples(asked, asked, asked, asked), rounds=st.integers(1, 3))
    def all_ask_at_once(self, data: st.DataObject, requests: tuple[list[Request], ...], rounds: int) -> None:
        """Each for its own, so that most of them lose a round or two, and some of them a part of it."""
        for worker, wanted in zip(self.workers, requests, strict=False):
            if worker.sent is None:
                worker.question = worker.guards.ask(wanted, self.now)
                if worker.question.changes:
                    self.send(worker, list(worker.question.changes))
                else:
                    self.answered(worker)
        for _ in range(rounds):
            for worker in data.draw(st.permutations(self.workers), label="order"):
                self.do(worker)
            for worker in self.workers:
                self.take_reply(worker)

    @precondition(lambda self: self.modes[max(self.modes)] is OPEN)
    @rule(requests=asked, late_s=st.sampled_from([0.0, 0.0, 0.5]))
    def the_recovery_time_is_over(self, requests: list[Request], late_s: float) -> None:
        """All know of it, and want trials."""
        data = self.values[GATE].data
        value = None if data is None else read_breaker(data)
        assert value is not None
        self.now = max(self.now, value.state.until + late_s)
        self.all_becomes_quiet()
        for worker in self.workers:
            worker.question = worker.guards.ask([Request("b", earns="r"), *requests], self.now)
            if worker.question.changes:
                self.send(worker, list(worker.question.changes))
            else:
                self.answered(worker)

    @rule(outcome=st.sampled_from(COUNTED), count=st.integers(1, 4), is_flushed=st.booleans())
    def runs_end_alike_everywhere(self, outcome: Outcome, count: int, is_flushed: bool) -> None:
        for worker in self.workers:
            for run in worker.out[:count]:
                self.end(worker, run, outcome)
        for worker in self.workers:
            if is_flushed and worker.sent is None:
                self.send(worker, worker.guards.changes(self.now))
        for worker in self.workers:
            self.do(worker)

    def answered(self, worker: Worker) -> None:
        assert worker.question is not None
        for request, answer in zip(worker.question.requests, worker.question.answers, strict=True):
            if isinstance(answer, Hold):
                assert answer.delay_s > 0.0
                continue
            run = Run(answer, self.now)
            self.runs.append(run)
            worker.out.append(run)
            self.retries += request.budget is not None
            if request.breaker is not None:
                expected = HALF_OPEN if run.is_trial else CLOSED
                assert self.modes.get(run.period) is expected, "a permit of a period that never was"
        worker.question = None

    # ---- runs

    @rule(data=st.data(), outcomes=st.lists(st.sampled_from(Outcome), min_size=1, max_size=4))
    def runs_end(self, data: st.DataObject, outcomes: list[Outcome]) -> None:
        worker = self.some(data)
        for outcome in outcomes[: len(worker.out)]:
            self.end(worker, worker.out[data.draw(st.integers(0, len(worker.out) - 1), label="run")], outcome)

    def end(self, worker: Worker, run: Run, outcome: Outcome) -> None:
        worker.out.remove(run)
        run.outcome = outcome
        self.successes += outcome is SUCCESS
        worker.guards.report(run.go, outcome, self.now, slow_s=0.0, cause="it failed")

    @rule()
    def all_becomes_quiet(self) -> None:
        """Every exchange ends and all is sent: then nothing is owed to anybody."""
        for _ in range(3):
            for worker in self.workers:
                while worker.sent is not None:
                    self.finish_exchange(worker)
                while changes := worker.guards.changes(self.now):
                    self.send(worker, changes)
                    self.finish_exchange(worker)
                assert not worker.guards.is_urgent
        for worker in self.workers:
            self.send(worker, [])
            self.finish_exchange(worker)
        self.check_row_of_failures()
        if not self.has_leak:
            self.check_nothing_is_kept()

    def finish_exchange(self, worker: Worker) -> None:
        self.do(worker)
        self.take_reply(worker)

    def check_row_of_failures(self) -> None:
        latest = max(self.modes)
        alive = {id(run) for worker in self.workers for run in worker.out}
        ended = [run for run in self.runs if run.period == latest and run.outcome in COUNTED and id(run) not in alive]
        if self.modes[latest] is CLOSED and not self.has_leak and all(run.outcome is FAILURE for run in ended):
            assert len(ended) < self.breaker.failure_threshold, "not opened by enough failures in a row"

    def check_nothing_is_kept(self) -> None:
        """What was granted is what the values remember, so nobody who was held kept a permit."""
        guards = self.workers[0].guards
        caps = guards.caps(self.now)
        for gate, rate in self.rates.items():
            dates = [
                date for run in self.runs for one, date in zip(run.go.limits, run.go.dates, strict=True) if one == gate
            ]
            if rate.burst == rate.max_calls <= 64:
                inside = sum(date > self.now - rate.time_window for date in dates)
                assert caps.get(gate, rate.max_calls) == rate.max_calls - inside
        if guards.state_of("b", self.now) is HALF_OPEN and HALF_OPEN is self.modes[max(self.modes)]:
            out = [run for run in self.trials_in_flight() if run.period == max(self.modes)]
            done = [run for run in self.runs if run.period == max(self.modes) and run.outcome is SUCCESS]
            free = caps[GATE]
            assert free >= self.breaker.half_open_max_calls - len(out) - len(done)

    # ---- what must always hold

    def trials_in_flight(self) -> list[Run]:
        limit_s = self.breaker.trial_timeout
        return [run for run in self.runs if run.is_trial and run.outcome is None and self.now < run.go.at + limit_s]

    @invariant()
    def never_too_many_trials(self) -> None:
        if hasattr(self, "runs"):
            periods = [run.period for run in self.trials_in_flight()]
            assert all(periods.count(one) <= self.breaker.half_open_max_calls for one in set(periods))

    @invariant()
    def never_too_many_starts(self) -> None:
        if hasattr(self, "runs"):
            for gate, rate in self.rates.items():
                runs = [run for run in self.runs if gate in run.go.limits]
                starts = [run.began_at for run in runs]
                is_prompt = all(run.began_at == run.go.at for run in runs)
                length_s = rate.time_window if is_prompt else 0.9 * rate.time_window  # a reply may take a tenth
                for begin in set(starts):
                    assert sum(begin <= one < begin + length_s for one in starts) <= rate.max_calls
                    assert not is_prompt or starts.count(begin) <= rate.burst

    @invariant()
    def never_too_many_retries(self) -> None:
        if hasattr(self, "runs"):
            assert self.retries <= self.budget.cap + self.budget.ratio * self.successes


TestFleet = Fleet.TestCase
TestFleet.settings = settings(stateful_step_count=60)


# ---- windows

gaps = st.integers(0, 40).map(lambda sixteenths: sixteenths / 16)
calls = st.lists(st.tuples(gaps, st.booleans(), st.booleans()), max_size=60)
sizes = st.integers(1, 20) | st.integers(1, 30).map(lambda part: timedelta(seconds=part * 10 / 16))


@given(sizes, calls)
def test_chunks_say_what_windows_say(size: windows.Size, steps: list[tuple[float, bool, bool]]) -> None:
    window: Window = CountWindow(size) if isinstance(size, int) else TimeWindow(size.total_seconds())
    chunks: windows.Chunks = ()
    now = 64.0
    for gap, failed, slow in steps:
        now += gap
        assert windows.totals(size, chunks, now) == window.totals(now)
        chunks = windows.added(size, chunks, now, failed=failed, slow=slow)
        window.add(now, failed=failed, slow=slow)
        assert windows.totals(size, chunks, now) == window.totals(now)


@given(st.integers(101, 350), st.integers(0, 800), st.integers(1, 7))
def test_chunks_of_many_calls_are_few_and_never_count_more_than_the_window(size: int, calls: int, nth: int) -> None:
    chunks: windows.Chunks = ()
    for number in range(calls):
        chunks = windows.added(size, chunks, 0.0, failed=number % nth == 0, slow=False)
    got = windows.totals(size, chunks, 0.0)
    step = -(-size // 100)
    assert min(calls, size - step + 1) <= got.calls <= min(calls, size)
    assert got.failures == sum(number % nth == 0 for number in range(calls - got.calls, calls))
    assert len(chunks) <= 101
