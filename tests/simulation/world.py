"""One simulation: a store, workers, producers and operators on machines that fail, and the evidence that is left."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Worker, WorkerSettings
from holdfast.stores.memory.job import StoredJob
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.memory.workers import StoredWorker
from holdfast.types import JobState
from tests.faults.checker import Evidence, Fault, Sample, Transition
from tests.faults.ledger import Effect
from tests.simulation.loop import MACHINE, Machine, SimLoop, Stuck, outside
from tests.simulation.parts import SimClock, simulated
from tests.simulation.people import Operator, Producer
from tests.simulation.shop import APP, LIMIT, SCHEDULES, WORLD
from tests.simulation.watch import Watch
from tests.simulation.weather import LEASE_S, Weather, weather_of
from tests.simulation.wire import Wire

SETTINGS: Final = WorkerSettings(
    room=Room(concurrency=4, threads=1, isolates=1), lease_s=LEASE_S, heartbeat_s=0.5, sweep_s=0.5, grace_s=8.0
)
CRASHED: Final = "unhandled"
"""Violations begin so where code has ended with an error that nobody expects."""
TROUBLE_S: Final = 12.0
"""How long things go wrong."""
PEACE_S: Final = 90.0
"""How long after that everything may take to come to its end."""
_UNHEARD_S: Final = 4.0
"""By then what was under way unheard has arrived."""
_CALM: Final = Weather()
_SLOTS: Final = 3
_BY_MACHINE: Final = ("kill", "hold", "cut", "stop")
_LATEST_S: Final = 10.0
"""The tick of a schedule may be under way for so long; a newer one always is."""
_AFTERWARDS_S: Final = 6.0
"""So long after a call that failed its sender may still wait before it asks again."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What one seed has come to."""

    seed: int
    violations: list[str]
    faults: Counter[str]
    digest: str
    """Of all that happened, in order: the same for the same seed."""
    states: frozenset[int]
    """Digests of the situations it went through."""
    seconds: float
    """Of the time inside."""


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, *, is_told: bool = False) -> None:
        self.seed = seed
        self.dice = random.Random(f"{seed} faults")
        self.weather = weather_of(random.Random(f"{seed} weather"))
        self.loop = SimLoop()
        self.clock = SimClock(self.loop)
        self.store = MemoryStore(self.clock)
        self.effects: list[Effect] = []
        self.steps: list[tuple[str, int]] = []
        self.transitions: list[Transition] = []
        self.faults: list[Fault] = []
        self.kinds: Counter[str] = Counter()
        """How often each kind of trouble has struck."""
        self.samples: list[Sample] = []
        self.attempted: list[str] = []
        self.acked: list[str] = []
        self.cancelled: set[str] = set()
        """What operators were told is cancelled."""
        self.replays: list[str] = []
        """The ids of replays that operators began."""
        self.is_fixed = False
        """Whether what is doomed can be done by now."""
        self.is_other_down = False
        self.states: set[int] = set()
        self._is_told = is_told
        self._happened: list[tuple[float, int, str, str]] = []
        self._numbers = itertools.count(1)
        self._machines: dict[int, Machine] = {}
        """Those that live, by number."""
        self._workers: dict[int, Worker] = {}
        self._cut_until: dict[int, float] = {}
        self._all_cut_until = 0.0
        self._is_over = False
        """Whether nothing goes wrong any more."""
        self._is_closing = False
        """Whether all is done, and workers are told to stop."""
        self.watch = Watch(self.store, self.clock)
        self._audit()

    # ---- one run

    def run(self) -> Outcome:
        """From the beginning to the end."""
        violations: list[str] = []
        with simulated(self.seed, self.loop):
            asyncio.set_event_loop(None)
            try:
                self.loop.run_until_complete(self.loop.start(self._main(), None))
            except Stuck as error:
                violations.append(str(error))
            except AssertionError as error:
                violations.append(f"{error}")
            violations += [f"{CRASHED}: {one}" for one in (*self.loop.failures, *self.loop.unheard())]
            evidence = self.evidence()
            outcome_s = self.loop.time()
            self.loop.close()
        from tests.simulation.checks import check

        return Outcome(
            seed=self.seed,
            violations=violations + check(self, evidence),
            faults=self.kinds,
            digest=hashlib.blake2b(repr(self._happened).encode(), digest_size=8).hexdigest(),
            states=frozenset(self.states),
            seconds=outcome_s,
        )

    async def _main(self) -> None:
        WORLD.set(self)
        plan = random.Random(f"{self.seed} plan")
        favourite = plan.choice(["", "", "", "call", "paced", "doomed"])
        people: list[Producer | Operator] = [Producer(self, plan, favourite) for _ in range(plan.choice([1, 1, 2]))]
        people += [Operator(self, plan) for _ in range(plan.choice([0, 1, 2]))]
        for _ in range(plan.choice([1, 2, _SLOTS])):
            self._start_worker()
        for one in people:
            self.loop.start(one.run(), one.machine)
        self.loop.start(self._trouble(), None)
        self.loop.start(self._other_side(plan), None)
        await asyncio.sleep(TROUBLE_S)
        self._is_over = True
        self.weather = _CALM
        self._cut_until.clear()
        self._all_cut_until = 0.0
        self.is_other_down = False
        if not any(one.is_alive for one in people if isinstance(one, Operator)):
            self.is_fixed = True
        if not self._workers:
            self._start_worker()
        await self._come_to_rest(people)
        self._is_closing = True
        for worker, machine in [(worker, self._machines[number]) for number, worker in self._workers.items()]:
            self._on(machine, worker.stop)
        await self._until(lambda: not self._workers, 30.0, "all workers drain")

    async def _come_to_rest(self, people: list[Producer | Operator]) -> None:
        await asyncio.sleep(_UNHEARD_S)
        if self._is_anybody_held():  # with a request on its way, perhaps, that makes work for those who are there
            await self._until(lambda: not self._is_anybody_held(), PEACE_S, "everybody goes on")
            await asyncio.sleep(_UNHEARD_S)
        await self._until(lambda: not any(one.is_alive for one in people), PEACE_S, "all people come to an end")
        await self._until(self._is_at_rest, PEACE_S, "all jobs come to an end")
        await self._until(self._are_ticks_run, PEACE_S, "all but the latest ticks come to an end")

    def _is_anybody_held(self) -> bool:
        return any(one.is_held and not one.is_dead for one in self._machines.values())

    def _is_at_rest(self) -> bool:
        tallies = self.store._jobs.tallies()
        return not any(tally.n for tally in tallies if not tally.state.is_terminal and tally.task != "tick")

    def _are_ticks_run(self) -> bool:
        before = self.clock.now() - _LATEST_S
        jobs = self.store._jobs.newest_first()
        return all(job.state.is_terminal or job.created_at >= before for job in jobs if job.new.task == "tick")

    async def _until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        end_s = self.loop.time() + within_s
        while not condition():
            if self.loop.time() > end_s:
                raise AssertionError(f"not within {within_s:g} s of peace: {what}")
            await asyncio.sleep(0.25)
            self.look()

    # ---- machines

    def new_machine(self) -> Machine:
        """One more process."""
        machine = Machine(next(self._numbers))
        self._machines[machine.number] = machine
        return machine

    def _start_worker(self) -> None:
        if not self._is_closing:
            machine = self.new_machine()
            self.loop.start(self._serve(machine), machine)

    async def _serve(self, machine: Machine) -> None:
        skew_s = self.weather.skew_s * self.dice.uniform(-1.0, 1.0)
        worker = Worker(
            Wire(self, machine),
            APP.specs,
            settings=SETTINGS,
            schedules=SCHEDULES if self.seed % 4 == 0 else (),
            clock=SimClock(self.loop, skew_s),
            rng=self.dice.random,
        )
        self._workers[machine.number] = worker
        self.watch.born(machine.number)
        code = await worker.run()
        self.trace("left", str(code))
        self._gone(machine)

    def leave(self, machine: Machine) -> None:
        """Somebody has done all there was to do."""
        self._machines.pop(machine.number, None)

    def _gone(self, machine: Machine) -> None:
        """A worker's machine is no more; another one takes its place, while there is anything to do."""
        self._machines.pop(machine.number, None)
        is_worker = self._workers.pop(machine.number, None) is not None
        if is_worker:
            self.watch.ends(machine.number)
            self.loop.call_later(self.dice.random() * 1.5, self._start_worker, context=outside())

    def kill(self, machine: Machine | None) -> None:
        """It is gone in this very instant."""
        assert machine is not None
        if machine.is_dead:
            return
        machine.is_dead = True
        if machine.number in self._workers:
            self.watch.killed(machine.number, self._workers[machine.number].id)
        self.note_fault("kill", machine, 0.0)
        self.trace("killed", str(machine.number))
        self._gone(machine)

    def is_cut(self, machine: Machine | None) -> bool:
        """Whether it reaches nobody just now."""
        now_s = self.loop.time()
        return now_s < self._all_cut_until or (machine is not None and now_s < self._cut_until.get(machine.number, 0.0))

    def note_fault(self, kind: str, machine: Machine, lasts_s: float) -> None:
        """Something that explains another run of what it held."""
        now_s = self.loop.time()
        self.faults.append(Fault(kind, machine.number, now_s, now_s + lasts_s))
        self.kinds[kind] += 1

    def _on(self, machine: Machine, what: Callable[[], Any]) -> None:
        async def step() -> None:
            what()

        self.loop.start(step(), machine)

    # ---- trouble

    def fate_of_call(self) -> str:
        """What becomes of one call."""
        weather, draw = self.weather, self.dice.random()
        for kind in ("away", "lost", "late", "twice", "slow", "dies_before", "dies_after"):
            draw -= getattr(weather, kind)
            if draw < 0.0:
                self.kinds[kind] += 1
                machine = MACHINE.get()
                if machine is not None:
                    self.watch.ill(machine.number, _AFTERWARDS_S)
                return kind
        return ""

    async def _trouble(self) -> None:
        """Strikes again and again, as the weather says."""
        kinds = [kind for kind in (*_BY_MACHINE, "outage") if getattr(self.weather, f"{kind}_s")]
        if not kinds:
            return
        rates = [1.0 / getattr(self.weather, f"{kind}_s") for kind in kinds]
        while not self._is_over:
            await asyncio.sleep(self.dice.expovariate(sum(rates)))
            if not self._is_over:
                self._strike(self.dice.choices(kinds, rates)[0])

    def _strike(self, kind: str) -> None:
        seconds = self.dice.random() * 3 * LEASE_S
        if kind == "outage":
            seconds /= 3
            self._all_cut_until = self.loop.time() + seconds
            for machine in self._machines.values():
                self.note_fault(kind, machine, seconds + 2 * LEASE_S)
                self.watch.ill(machine.number, seconds + _AFTERWARDS_S)
            return
        numbers = list(self._workers if kind == "stop" else self._machines)
        if not numbers:
            return
        machine = self._machines[self.dice.choice(numbers)]
        self.trace(kind, f"{machine.number} {seconds:.3f}")
        if kind in {"hold", "cut"}:
            self.watch.ill(machine.number, seconds + _AFTERWARDS_S)
        match kind:
            case "kill":
                self.kill(machine)
            case "hold":
                machine.is_held = True
                self.note_fault(kind, machine, seconds + LEASE_S)  # it may begin what it had, before it knows
                self.loop.call_later(seconds, self._release, machine, context=outside())
            case "cut":
                self._cut_until[machine.number] = self.loop.time() + seconds
                self.note_fault(kind, machine, seconds + 2 * LEASE_S)
            case _:
                self.kinds[kind] += 1
                worker = self._workers[machine.number]
                self.watch.ends(machine.number)
                grace_s = self.dice.choice([None, None, 0.2])
                if grace_s is not None:  # what it runs is cut off, and runs elsewhere
                    self.note_fault("short grace", machine, LEASE_S)
                self._on(machine, lambda: worker.stop(grace_s=grace_s))

    def _release(self, machine: Machine) -> None:
        self.watch.releases.add((machine.number, self.loop.time()))
        self.loop.release(machine)

    async def _other_side(self, plan: random.Random) -> None:
        """What the tasks call goes down and comes back."""
        while not self._is_over:
            await asyncio.sleep(plan.uniform(1.0, 6.0))
            self.is_other_down = not self._is_over and not self.is_other_down

    # ---- what is known of it

    def trace(self, what: str, how: str) -> None:
        """Write down what happens."""
        machine = MACHINE.get()
        one = (round(self.loop.time(), 6), machine.number if machine else 0, what, how)
        self._happened.append(one)
        if self._is_told:
            print(f"{one[0]:10.4f}  {one[1]:3d}  {what} {how}")

    def look(self) -> None:
        """Whether the store's counts add up just now; ticks are made by workers, not by producers."""
        counted = sum(tally.n for tally in self.store._jobs.tallies() if tally.task != "tick")
        self.samples.append(Sample(len(set(self.acked)), counted, len(set(self.attempted))))

    def _audit(self) -> None:
        """Every change of a job's state goes through one place of the memory store."""
        table, workers = self.store._jobs, self.store._workers
        enter, let_go = table._enter, workers.let_go
        latest: dict[str, bytes] = {}

        def noted(job: StoredJob) -> StoredWorker | None:
            latest[job.new.id] = job.token
            return let_go(job)

        def audited(job: StoredJob, state: JobState | None) -> None:
            before = job.state
            token = job.token or latest.get(job.new.id, b"")
            enter(job, state)
            after = "" if state is None else state.value
            self.watch.changed(job.new.id, after, token.hex())
            if state is not None or not before.is_terminal:  # what has ended may be removed
                self.transitions.append(Transition(job.new.id, before.value, after, token.hex()))
            self.trace(f"{job.new.task} {job.new.id[-6:]}", f"{before.value} -> {after}")
            tallies = tuple((task, state_, min(n, 3)) for (_, task, state_), n in sorted(table._tallies.items()) if n)
            situation = (tallies, len(self._workers), any(one.is_held for one in self._machines.values()))
            self.states.add(int.from_bytes(hashlib.blake2b(repr(situation).encode(), digest_size=8).digest()))

        table._enter, workers.let_go = audited, noted  # type: ignore[method-assign]

    def note_permit(self, job: str, token: str) -> None:
        """What the breaker has allowed a run that begins on this machine."""
        machine = MACHINE.get()
        assert machine is not None
        permit = self._workers[machine.number].runner.runs[job].go.permit
        assert permit is not None
        self.watch.permits[job, token] = permit

    def evidence(self) -> Evidence:
        """Everything that the checker may ask for."""
        jobs = {job.new.id: job.to_record(is_whole=True) for job in self.store._jobs.newest_first()}
        ticks = [job.id for job in jobs.values() if job.task == "tick"]
        tallies: Counter[str] = Counter()
        for tally in self.store._jobs.tallies():
            tallies[tally.state.value] += tally.n
        return Evidence(
            attempted=[*self.attempted, *ticks],
            acked=self.acked,
            effects=self.effects,
            jobs=jobs,
            transitions=self.transitions,
            faults=self.faults,
            hindrances=self._hindrances(),
            samples=self.samples,
            tallies=tallies,
            limits=() if self._is_begun_late() else (LIMIT,),
            recovery_s=None,  # that of a run: it may have to wait for a place, or for its gates; see `checks`
        )

    def _hindrances(self) -> list[Fault]:
        """When something was wrong with a worker, or with its way to the store: then a settlement may take long."""
        lives = self.watch.lives.items()
        return [Fault("ill", number, first, last) for number, life in lives for first, last in life.ills]

    def is_hit(self, start: Effect, last: Effect | None) -> bool:
        """Whether a fault may have cut off a run, or made it stale."""
        until_s = float("inf") if last is None else last.at + 2 * LEASE_S
        return any(one.pid == start.pid and start.at <= one.until and one.at <= until_s for one in self.faults)

    def _is_begun_late(self) -> bool:
        """Whether a machine was held between the permit of a limit and the first line of a run: no limit sees that."""
        starts = {(one.pid, one.at) for one in self.effects if one.what == "start" and one.task == LIMIT.task}
        return not starts.isdisjoint(self.watch.releases)
