"""One soak on one store: a producer, supervised workers that are killed again and again, a server, and who watches."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import httpx
from msgspec import Struct
from msgspec.structs import replace

from holdfast import App
from holdfast.ports import Query, Stats
from holdfast.types import JobRecord
from tests.faults.checker import quantile
from tests.faults.load import Dice
from tests.faults.soak_errands import Errand, Errands
from tests.faults.soak_judging import dead, judge, kept_letters, letters_among, lost, missed_letters, page_miscounts
from tests.faults.soak_ledger import ClientBook, EffectBook
from tests.faults.soak_places import Place, open_place
from tests.faults.soak_plan import Plan, Seen, Soaked
from tests.faults.soak_probe import ClaimProbe
from tests.faults.soak_producer import AT_ONCE, SoakProducer
from tests.faults.soak_programs import Programs, lived_s, strike, usage, worker_words
from tests.faults.soak_shop import DOOMED, FOLDER, KEEP, MENDED, TARGET, TASKS, TICK_EVERY_S, doomed_below, open_shop
from tests.faults.soak_verdicts import DONE
from tests.faults.workers import CLOCK, poll

PATHS: Final = ("/metrics", "/health")
_AHEAD_S: Final = 2.0
"""So much work is always there in a burst: an errand that takes long must not let it run out."""
_BURST_WITHIN_S: Final = 60.0
_KILLED_WITHIN_S: Final = 60.0
_FEWEST: Final = 200
"""Jobs by which a rate is measured."""
_DRAINED_WITHIN_S: Final = 180.0
_PAGE: Final = 500


def soak(plan: Plan, folder: Path, say: Callable[[str], None] = print) -> Soaked:
    """Run it, and say what came of it; every process has ended when this returns or raises."""
    effects = folder / "effects"
    effects.mkdir(parents=True)
    with open_place(plan.store, folder) as place:
        env = {"HOLDFAST_URL": place.url, FOLDER: str(effects), KEEP: repr(plan.keep_s)}
        with (
            closing(open_shop(place.url, effects, plan.keep_s)) as app,
            Programs(folder, env) as programs,
            ClaimProbe(app) as probe,
        ):
            return _Soak(plan, folder, place, app, programs, probe, say).run()


class _Soak:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        place: Place,
        app: App,
        programs: Programs,
        probe: ClaimProbe,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._ledger = folder / "client"
        self._place = place
        self._app = app
        self._programs = programs
        self._probe = probe
        self._say = say
        self._dice = Dice()
        self._effects = EffectBook(folder / "effects")
        self._client = ClientBook(self._ledger)
        self._seen = Seen()
        self._began_s = 0.0
        self._sampled = (0.0, 0)
        self._spared = 0
        self._pids: dict[str, int] = {}
        """Of all workers that the store has ever told of."""

    def run(self) -> Soaked:
        plan = self._plan
        words = worker_words(
            TARGET,
            processes=plan.processes,
            concurrency=plan.concurrency,
            threads=plan.threads,
            lease_s=plan.lease_s,
            queues=("default",),
        )
        started_s = CLOCK.monotonic()
        self._programs.start("supervisor", "holdfast", *words)
        self._programs.start_server(TARGET)
        poll(lambda: len(self._stats().workers) > plan.processes, 60, "all workers register")  # and the probe
        began_s = CLOCK.monotonic()
        self._spared = self._worker_pids(self._stats())[0]
        seen = self._seen
        with httpx.Client(base_url=self._programs.server_url(), timeout=30) as client:
            seen.drain_rate = self._drain_rate(client)
            seen.rate = plan.share * seen.drain_rate
            self._say(f"{plan.store}: drains {seen.drain_rate:,.0f} jobs a second here; the load is {seen.rate:,.0f}")
            first = self._client.attempted
            arguments = (str(self._ledger), str(first), repr(seen.rate), repr(plan.work_s))
            self._programs.start("producer", "tests.faults.soak_producer", *arguments)
            poll(lambda: self._folded() and self._client.attempted > first, 30, "the producer begins")
            self._watch(client)
        seen.codes["producer"] = self._programs.stop("producer")
        self._client.fold()
        seen.drained_s = self._drain()
        seen.ticked_s = (CLOCK.monotonic() - began_s, CLOCK.monotonic() - started_s)
        for name in ("supervisor", "server"):
            seen.codes[name] = self._programs.stop(name)
        seen.log = self._programs.log("supervisor")
        self._effects.fold()
        return self._soaked()

    def _soaked(self) -> Soaked:
        plan, seen, client, effects = self._plan, self._seen, self._client, self._effects
        records = [record for task in (*TASKS, DOOMED) for record in self._records(task)]
        now_s = CLOCK.monotonic()
        missed = missed_letters(plan, seen, client, effects, records, now_s)
        verdicts = judge(plan, seen, client, effects, records, self._stats(), now_s)
        return Soaked(
            store=plan.store,
            minutes=plan.seconds / 60,
            rate=seen.rate,
            drain_rate=seen.drain_rate,
            done=effects.done,
            kills=len(seen.killed),
            hits=seen.hits,
            acked=client.acked,
            refused=client.refused,
            lost=len(lost(client, effects, missed)),
            twice=effects.twice,
            dead=dead(client, effects, missed),
            recoveries_s=effects.recoveries_s,
            seed=self._dice.seed,
            samples=seen.samples,
            verdicts=verdicts,
        )

    @property
    def _log(self) -> str:
        return self._programs.log("supervisor")[-2_000:]

    # ---- before: how much the machine can do

    def _drain_rate(self, client: httpx.Client) -> float:
        """Jobs a second while there is always more to do, in the second half of a burst; then everything is drained.

        With what goes on under the load as well: one producer, a server that is asked, and kills, which cost places
        and, for the start of others, processors. Without them it would be more than can be done then.
        """
        plan = self._plan
        producer = SoakProducer(self._app, self._ledger, 0, plan.work_s)
        self._began_s = began_s = CLOCK.monotonic()
        errands = Errands(*self._errands(client))
        half: tuple[float, int] | None = None
        ahead = AT_ONCE
        while (now_s := CLOCK.monotonic()) - began_s < plan.burst_s or self._effects.done < _FEWEST:
            assert now_s - began_s < plan.burst_s + _BURST_WITHIN_S, f"too little is done here: {self._log}"
            self._effects.fold()
            if half is None and now_s - began_s > plan.burst_s / 2 and self._effects.done >= _FEWEST / 2:
                half = (now_s, self._effects.done)
            ahead = max(ahead, int(_AHEAD_S * self._effects.done / (now_s - began_s)))
            while producer.next - self._effects.done < ahead:
                producer.send(100)
            errands.run_due()
            CLOCK.sleep(0.01)
        assert half is not None, "the burst was too short"
        rate = (self._effects.done - half[1]) / (CLOCK.monotonic() - half[0])
        self._drain()
        self._client.fold()
        self._effects.waits_s.clear()
        self._effects.recoveries.clear()
        return rate

    def _drain(self) -> float:
        """Replay what is refused until every job has ended; seconds until nothing was left to run."""
        began_s = CLOCK.monotonic()
        took_s = replayed_s = 0.0

        def is_done() -> bool:
            nonlocal took_s, replayed_s
            self._effects.fold()
            self._bereave()
            stats = self._stats()
            refused = self._tallies(stats)["dead_letter"]
            live = _live(self._tallies(stats, (*TASKS, DOOMED)))
            if not took_s and not live:
                took_s = CLOCK.monotonic() - began_s
            if refused and CLOCK.monotonic() - replayed_s > 1.0:
                self._replay()
                replayed_s = CLOCK.monotonic()
            return not live and not refused

        poll(is_done, _DRAINED_WITHIN_S, "all jobs end")
        self._seek_letters(settled_s=0.0)
        return took_s

    # ---- meanwhile

    def _errands(self, client: httpx.Client) -> list[Errand]:
        """What goes on all the time."""
        plan = self._plan
        low, high = plan.kill_s
        return [
            (lambda: low + (high - low) * self._dice.draw(), self._kill),
            (lambda: plan.ask_s, lambda: self._ask(client)),
            (lambda: plan.replay_s, self._replay),
            (lambda: plan.look_s, self._look),
            # A worker that cannot settle what it has for as long as a lease has lost it.
            (lambda: plan.ask_s, lambda: self._seek_letters(settled_s=plan.lease_s)),
        ]

    def _watch(self, client: httpx.Client) -> None:
        plan = self._plan
        self._began_s = CLOCK.monotonic()
        self._sampled = (self._began_s, self._effects.done)
        kills = len(self._seen.killed) + plan.kills
        errands = Errands(*self._errands(client), (lambda: plan.sample_s, self._sample))
        while (now_s := CLOCK.monotonic()) - self._began_s < plan.seconds or len(self._seen.killed) < kills:
            assert now_s - self._began_s < plan.seconds + _KILLED_WITHIN_S, f"nobody is there to be killed: {self._log}"
            self._effects.fold()
            errands.run_due()
            for name in ("supervisor", "server", "producer"):
                code = self._programs.ended(name)
                assert code is None, f"the {name} ended by itself with {code}: {self._programs.log(name)[-2000:]}"
            CLOCK.sleep(0.05)

    def _kill(self) -> None:
        """One that is not spared, in the middle of a job."""
        safe = {self._spared, *self._seen.killed}
        pids = [pid for pid in self._worker_pids(self._stats()) if pid not in safe]
        if not pids:
            return
        victim = pids[self._dice.below(len(pids))]
        at, until = strike(victim, lambda: self._effects.is_amid(victim), self._plan.amid_s)
        self._seen.killed[victim] = at
        self._seen.hits += self._effects.excuse(victim, at) > 0
        self._seen.gaps_s.append(until - at)
        self._bereave()

    def _bereave(self) -> None:
        """Find what was cut off, and taken back by one that was killed before it had begun it.

        A request of the victim's may take effect after its death: so the store is asked at each look as well, and long
        before anybody may take that job from the dead.
        """
        if not (cut_off := self._effects.cut_off()):
            return
        died_s = {}
        for record in self._app.bridge.run(self._app.store.get(list(cut_off))):
            if record is not None and record.state == "running":
                at = self._seen.killed.get(self._pids.get(record.worker, 0), 0.0)
                if at > cut_off[record.id]:
                    died_s[record.id] = at
        self._effects.bereave(died_s)

    def _ask(self, client: httpx.Client) -> None:
        self._client.fold()
        acked, before = self._client.acked, self._stats()
        page = self._get(client, "/overview")
        after = self._stats()
        self._client.fold()
        if page.is_success:
            come = self._client.attempted - acked + 2 + int((after.now - before.now) / TICK_EVERY_S)
            self._seen.miscounts += page_miscounts(page.json(), before, after, come)
            self._seen.pages += page.json()["now_at"] >= before.now
        for path in PATHS:
            self._get(client, path)

    def _get(self, client: httpx.Client, path: str) -> httpx.Response:
        began_s = CLOCK.monotonic()
        answer = client.get(path)
        self._seen.answers_s.append(CLOCK.monotonic() - began_s)
        if not answer.is_success or not answer.content:
            self._seen.complaints.append(f"{path} {answer.status_code} {answer.text[:200]}")
        return answer

    def _replay(self) -> None:
        for task in TASKS:
            self._app.dead_letters.replay(task=task, edit=MENDED)

    def _look(self) -> None:
        """How long ago the workers that live were heard of, and whether the counts add up."""
        self._folded()
        self._bereave()
        acked, done_before = self._client.acked, self._effects.done
        stats = self._stats()
        self._folded()
        attempted, done_after = self._client.attempted, self._effects.done
        alive = [one for one in stats.workers if one.pid not in self._seen.killed and one.pid != os.getpid()]
        self._seen.gaps_s += [stats.now - one.seen_at for one in alive]
        starts_s = [lived_s(one.pid) - (CLOCK.now() - one.started_at) for one in alive]
        self._seen.start_s = max([self._seen.start_s, *starts_s])
        open_ = self._tallies(stats)
        counted = _live(open_) + open_["dead_letter"]
        low = acked - doomed_below(acked) - done_after
        # What has just come to its end, or was cut off after it, is settled within a moment, or by another worker.
        high = attempted - doomed_below(attempted) - done_before + self._unsettled
        if not low <= counted <= high:
            self._seen.miscounts.append(f"{counted} open jobs counted, {low} to {high} are")

    def _seek_letters(self, settled_s: float) -> None:
        """Whether every dead letter is there that has to be: at the end most of them are pruned."""
        now_s = CLOCK.monotonic()
        self._folded()
        wanted = kept_letters(self._plan, self._client, self._effects, now_s, settled_s=settled_s)
        self._seen.letters |= wanted
        self._seen.missed |= wanted - letters_among(self._records(DOOMED))

    @property
    def _unsettled(self) -> int:
        took_s = max(CLOCK.monotonic() - self._began_s, 1.0)
        return 4 * self._plan.slots + int(2 * self._effects.done / took_s)

    def _sample(self) -> None:
        stats = self._stats()
        now_s, done = CLOCK.monotonic(), self._effects.done
        tallies = Counter[str]()
        for tally in stats.tallies:
            tallies[tally.state.value] += tally.n
        waits_s, self._effects.waits_s = self._effects.waits_s, []
        claims_s = self._probe.claims_s(10)
        pids = self._worker_pids(stats)
        sample = {
            "at_s": now_s - self._began_s,
            DONE: done,
            f"spared_worker.{DONE}": self._effects.done_by[self._spared],
            "done_per_s": (done - self._sampled[1]) / (now_s - self._sampled[0]),
            "wait_p50_ms": 1e3 * quantile(waits_s, 0.5) if waits_s else 0.0,
            "wait_p99_ms": 1e3 * quantile(waits_s, 0.99) if waits_s else 0.0,
            "claim_p50_ms": 1e3 * quantile(claims_s, 0.5),
            "claim_p99_ms": 1e3 * quantile(claims_s, 0.99),
            "heartbeat_gap_s": max(self._seen.gaps_s, default=0.0),
            "live": _live(self._tallies(stats)),
            "workers": len(pids),
            "workers.rss_mib": max((usage([pid]).rss_mib for pid in pids), default=0.0),
        }
        sample |= {f"jobs.{state}": n for state, n in tallies.items()}
        sample |= _prefixed("spared_worker", usage([self._spared]))
        for name in ("server", "supervisor", "producer"):
            sample |= _prefixed(name, usage([self._programs.pid(name)]))
        if servers := self._place.pids():
            sample |= _prefixed("store", usage(servers))
        sample |= {f"store.{name}": value for name, value in self._place.sizes().items()}
        self._seen.samples.append({name: round(value, 3) for name, value in sample.items()})
        self._sampled = (now_s, done)

    # ---- looking

    def _records(self, task: str) -> list[JobRecord]:
        """All of a task that the store has."""
        found: list[JobRecord] = []
        query = Query(task=task, limit=_PAGE)
        while True:
            page = self._app.bridge.run(self._app.store.find(query))
            found += page.items
            if not page.cursor:
                return found
            query = replace(query, cursor=page.cursor)

    def _stats(self) -> Stats:
        stats = self._app.bridge.run(self._app.store.stats())
        self._pids.update((one.id, one.pid) for one in stats.workers)
        return stats

    def _tallies(self, stats: Stats, tasks: Sequence[str] = TASKS) -> Counter[str]:
        """By state. tasks: those of the jobs that complete at last, unless others are named."""
        counts = Counter[str]()
        for tally in stats.tallies:
            if tally.task in tasks:
                counts[tally.state.value] += tally.n
        return counts

    def _worker_pids(self, stats: Stats) -> list[int]:
        pids = {one.pid for one in stats.workers} - {os.getpid()}
        return sorted(pid for pid in pids if Path(f"/proc/{pid}").exists())

    def _folded(self) -> bool:
        self._effects.fold()
        self._client.fold()
        return True


def _live(tallies: Counter[str]) -> int:
    return sum(tallies[state] for state in ("queued", "running", "retrying", "waiting"))


def _prefixed(name: str, taken: Struct) -> dict[str, float]:
    return {f"{name}.{field}": getattr(taken, field) for field in taken.__struct_fields__}
