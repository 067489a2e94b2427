"""The soak, in a few seconds; and each of its verdicts, which must be able to say no."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from holdfast.ports import Count, Operation, Stats, Tally, WorkerRecord
from holdfast.types import Change, JobRecord, JobState
from tests.faults import soak_ledger
from tests.faults.checker import SETTLED_S, quantile
from tests.faults.conftest import full_only, waits
from tests.faults.report import Figures, Report
from tests.faults.soak import finding_of
from tests.faults.soak_judging import dead, judge, kept_letters, lost, missed_letters, page_miscounts
from tests.faults.soak_ledger import ClientBook, ClientPen, EffectBook, EffectPen, Recovery
from tests.faults.soak_plan import Plan, Seen, Soaked
from tests.faults.soak_run import _Soak, soak
from tests.faults.soak_shop import DOOMED, doomed_to, is_doomed
from tests.faults.soak_verdicts import ALWAYS, DEAD, FEWEST, SAW, Level, Verdict, flat, flats, level_of, unjudged
from tests.faults.workers import CLOCK, ROOT, poll
from tests.servers import children

JOBS = 400
SMALL = Plan(
    store="sqlite",
    seconds=3.0,
    processes=2,
    burst_s=1.0,
    sample_s=0.5,
    look_s=0.2,
    kill_s=(0.8, 1.2),
    kills=2,
    amid_s=10.0,
    ask_s=1.0,
    replay_s=1.0,
)


# ---- the real thing, small


@waits
def test_a_short_soak_keeps_every_promise(tmp_path: Path, report: Report) -> None:
    found = soak(SMALL, tmp_path / "run")
    assert [one for one in found.verdicts if not one.is_kept] == []
    assert found.kills >= 2
    assert found.hits == found.kills, "a kill hit nothing"
    assert found.acked == found.done + found.dead > 200
    assert found.samples
    assert all(one["spared_worker.fds"] > 0 for one in found.samples), "it lives from the beginning to the end"
    assert 0 < found.samples[-1]["spared_worker.done"] < found.samples[-1]["done"]
    took = found.recoveries_s
    report(
        "a short soak, with kills",
        injected=found.kills,
        figures=Figures(
            acked=found.acked,
            completed=found.done,
            dead=found.dead,
            lost=found.lost,
            twice=found.twice,
            recoveries=took,
        ),
        note=finding_of(found).note,
        seed=found.seed,
    )


@full_only
@waits
def test_a_soak_that_cannot_find_its_dead_letters_has_lost_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: set[str] = set()

    def forget(self: Any) -> None:
        letters = {record.id for record in self._records(DOOMED) if record.state == JobState.DEAD_LETTER}
        self._app.bridge.run(self._app.store.change(Operation(change=Change.REMOVE, ids=sorted(letters))))
        gone.update(letters)

    monkeypatch.setattr("tests.faults.soak_run._Soak._look", forget)
    found = soak(SMALL, tmp_path / "run")
    assert "no job is lost" in {one.name for one in found.verdicts if not one.is_kept}
    assert len(gone) >= found.lost > 0
    assert found.dead + found.lost == found.acked - found.done


@waits
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=full_only), signal.SIGTERM])
def test_a_soak_that_is_interrupted_leaves_no_process(tmp_path: Path, number: int) -> None:
    words = [sys.executable, "-m", "tests.faults.soak", "--store", "sqlite", "--minutes", "5"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(words, cwd=ROOT, env=env, stdout=log, stderr=log) as one,
    ):
        try:
            poll(lambda: len(children(one.pid)) >= 4, 30, "supervisor, workers and server run")
            family = children(one.pid)
            one.send_signal(number)
            assert one.wait(60) != 0
        finally:
            one.kill()
    poll(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), 10, "all of them are gone")


# ---- growth


def steady(name: str, count: int = 60) -> list[float]:
    """A figure that goes up and down a little around where it is."""
    level = {"rss_mib": 60.0, "fds": 15.0, "threads": 4.0}.get(name, 100.0)
    return [level + (n * 7 % 5 - 2) * 0.01 * level for n in range(count)]


JUDGED = [
    "spared_worker.rss_mib",
    "spared_worker.fds",
    "spared_worker.threads",
    "server.rss_mib",
    "supervisor.fds",
    "producer.threads",
    "store.pss_mib",
    "store.sessions",
    "store.file_mib",
    "store.tables_mib",
    "store.indexes_mib",
    "store.memory_mib",
    "store.wal_mib",
    "store.aof_mib",
]


@pytest.mark.parametrize("name", JUDGED)
def test_what_stays_where_it_is_is_flat_and_what_grows_is_not(name: str) -> None:
    level = level_of(name)
    assert level is not None
    calm = steady(name.rpartition(".")[2])
    assert flat(name, calm, level).is_kept
    leaking = [value * (0.1 + 3 * n / len(calm)) for n, value in enumerate(calm)]
    assert not flat(name, leaking, level).is_kept


def test_a_leak_of_a_few_bytes_a_job_is_found() -> None:
    level = level_of("server.rss_mib")
    assert level is not None
    jobs_a_sample, leaked = 5_000, 40
    leaking = [value + n * jobs_a_sample * leaked / 2**20 for n, value in enumerate(steady("rss_mib"))]
    assert not flat("server.rss_mib", leaking, level).is_kept


def test_what_a_leak_would_have_to_be_of_each_job_is_said_and_is_what_is_found() -> None:
    samples = [{"done": 2_450.0 * n, "spared_worker.done": 600.0 * n, "live": 1.0} for n in range(120)]

    def judged(name: str, level: float, of_each: float, jobs: str = "done") -> Verdict:
        leaking = [{**one, name: level + one[jobs] * of_each / 2**20} for one in samples]
        (found,) = flats(leaking)
        return found

    # By the slope of the last two thirds, 79 steps; by the peaks of thirds, 40. The rooms are 3, 3 and 8 MiB.
    for name, level, jobs, told, bound in (
        ("server.rss_mib", 40.0, "done", "16 bytes a job", 3 * 2**20 / (79 * 2_450)),
        ("spared_worker.rss_mib", 40.0, "spared_worker.done", "66 bytes a job", 3 * 2**20 / (79 * 600)),
        ("store.file_mib", 1.0, "done", "86 bytes a job", 8 * 2**20 / (40 * 2_450)),
    ):
        assert judged(name, level, 0.0).figure.endswith(f", {told})")
        assert judged(name, level, 0.99 * bound, jobs).is_kept
        assert not judged(name, level, 1.01 * bound, jobs).is_kept
    assert "bytes" not in judged("server.fds", 40.0, 0.0).figure


def test_a_jump_at_the_end_is_found_though_the_slope_does_not_see_it() -> None:
    level = Level(share=0.05, floor=3.0)
    assert not flat("server.rss_mib", [*steady("rss_mib")[:-6], *[90.0] * 6], level).is_kept


def test_a_start_that_takes_more_is_not_growth() -> None:
    level = Level(share=0.05, floor=3.0)
    assert flat("server.rss_mib", [*[20.0] * 10, *steady("rss_mib", 50)], level).is_kept


def test_a_saw_is_flat_while_its_peaks_are() -> None:
    saw = [n % 9 * 10.0 for n in range(90)]
    assert flat("store.aof_mib", saw, SAW).is_kept
    rising = [value * n / 30 for n, value in enumerate(saw)]
    assert not flat("store.aof_mib", rising, SAW).is_kept
    never_cut = [10.0 + n for n in range(90)]
    assert not flat("store.aof_mib", never_cut, SAW).is_kept
    # As seen of Redis: what is kept of it differs from one rewriting to the next, and peaks are far above the median.
    seen = [20.0, 25.0, 15.0, 30.0, 12.0, 47.0] * 10 + [20.0, 25.0, 15.0, 30.0, 12.0, 56.0] * 5
    assert flat("store.aof_mib", seen, SAW).is_kept


def test_what_is_cut_back_once_a_minute_is_flat_while_what_is_left_is() -> None:
    # As seen of PostgreSQL: a look may meet all that was pruned a moment ago, or none of it.
    seen = [4_000.0, 15_000.0, 20_000.0, 33_000.0, 34_000.0] * 14 + [3_000.0, 72_000.0, 25_000.0, 9_000.0, 30_000.0] * 7
    assert flat("store.dead_rows", seen, DEAD).is_kept
    held = [value + 400.0 * n for n, value in enumerate(seen)]
    assert not flat("store.dead_rows", held, DEAD).is_kept


def test_nothing_is_said_about_growth_in_too_short_a_time() -> None:
    samples = [{"server.rss_mib": 10.0 * n, "wait_p50_ms": 1.0} for n in range(FEWEST)]
    assert flats(samples[:-1]) == []
    assert [one.is_kept for one in flats(samples)] == [False], "only what is judged"


def test_what_is_not_judged_though_it_has_to_stay_flat_is_named() -> None:
    samples = [dict.fromkeys((*ALWAYS, "store.file_mib", "live"), 10.0) for _ in range(FEWEST)]
    verdicts = flats(samples)
    assert unjudged(samples, verdicts) == ""
    assert unjudged(samples[:-1], flats(samples[:-1])) == f"{FEWEST - 1} samples, and it takes {FEWEST}"
    assert unjudged(samples, verdicts[1:]) == f"no verdict on {ALWAYS[0]}"
    gone = [{name: value for name, value in one.items() if name != "server.fds"} for one in samples]
    assert unjudged(gone, flats(gone)) == "no verdict on server.fds", "it was not even sampled"
    bare = [dict.fromkeys(ALWAYS, 10.0) for _ in range(FEWEST)]
    assert unjudged(bare, flats(bare)) == "no verdict on the store's own"


# ---- ledgers against the store


class Told:
    """A made-up soak in which everything is as it should be, until somebody changes something."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "effects"
        self.folder.mkdir()
        self.ledger = folder / "client"
        self.pen = EffectPen(self.folder)
        self.plan = replace(SMALL, keep_s=1_000.0)
        self.seen = Seen(
            hits=1, killed={1: 0.0}, log="worker process 1 ended with 137 and is started again\n", rate=100.0
        )
        self.seen.pages = 1
        self.seen.samples = [{"live": 20.0} for _ in range(9)]
        client = ClientPen(self.ledger)
        client.write("attempt", 0, JOBS)
        client.write("acked", 0, JOBS)
        self.records = [job(number) for number in range(JOBS)]
        self.missing: set[int] = set()
        """Jobs whose end is not in the ledger."""
        self.recoveries: list[Recovery] = []

    def books(self) -> tuple[ClientBook, EffectBook]:
        """Both ledgers, of a run that is over."""
        for number in range(JOBS):
            self.pen.write(number, "start")
            if number not in self.missing:
                self.pen.write(number, "fail" if is_doomed(number) else "end")
        effects, client = EffectBook(self.folder), ClientBook(self.ledger)
        effects.fold()
        client.fold()
        effects.recoveries = self.recoveries
        return client, effects

    def verdicts(self) -> dict[str, bool]:
        """By name: whether each holds."""
        found = judge(self.plan, self.seen, *self.books(), self.records, self.stats(), CLOCK.monotonic())
        return {one.name: one.is_kept for one in found}

    def stats(self) -> Stats:
        """The store's counts."""
        doomed = sum(map(is_doomed, range(JOBS)))
        return Stats(
            now=0.0,
            tallies=[
                Tally(task="work", queue="default", state=JobState.COMPLETED, n=JOBS - doomed),
                Tally(task="doomed", queue="default", state=JobState.DEAD_LETTER, n=doomed),
            ],
            totals=[Count(0, "work", "completed", JOBS - doomed), Count(0, "doomed", "dead", doomed)],
        )

    def broken(self) -> set[str]:
        """The names of the verdicts that do not hold."""
        return {name for name, is_kept in self.verdicts().items() if not is_kept}


def job(number: int, **fields: Any) -> JobRecord:
    """The record of a job that has ended as it should."""
    task, state = ("doomed", JobState.DEAD_LETTER) if is_doomed(number) else ("work", JobState.COMPLETED)
    record = JobRecord(id=str(number), task=task, payload=json.encode({"number": number}), state=state)
    return replace(record, **fields)


def leaking(name: str, start: float, step: float) -> list[dict[str, float]]:
    """Samples of a run in which one figure grows a little from each to the next."""
    return [{"live": 20.0, name: start + step * n} for n in range(60)]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_what_goes_well_is_kept(told: Told) -> None:
    assert told.broken() == set()


def test_a_job_that_never_came_to_its_end_is_lost(told: Told) -> None:
    told.missing.add(77)
    del told.records[77]
    assert "no job is lost" in told.broken()


def test_a_job_that_is_completed_but_never_ran_to_its_end_is_found(told: Told) -> None:
    told.missing.add(77)
    assert {"no job is lost", "the store has what the ledgers say"} <= told.broken()


def test_a_job_that_runs_again_without_a_failure_or_a_kill_is_found(told: Told) -> None:
    told.pen.write(5, "start")
    told.pen.write(5, "end")
    assert told.broken() == {"no job runs again but for a failure or a kill"}


def test_a_job_that_runs_again_after_a_failure_is_not_a_duplicate(told: Told) -> None:
    told.pen.write(5, "start")
    told.pen.write(5, "fail")
    assert told.broken() == set()


def test_a_record_that_is_pruned_too_early_is_found(told: Told) -> None:
    del told.records[77]
    assert "the store has what the ledgers say" in told.broken()


def test_a_dead_letter_that_is_gone_is_lost_though_its_handler_has_failed(told: Told) -> None:
    (first, second) = doomed_to(JOBS)
    del told.records[second]
    assert {"no job is lost", "the store has what the ledgers say"} <= told.broken()
    client, effects = told.books()
    missed = missed_letters(told.plan, told.seen, client, effects, told.records, CLOCK.monotonic())
    assert lost(client, effects, missed) == [second]
    assert dead(client, effects, missed) == 1, "it is not in the inbox"
    assert effects.has_failed(first)


def test_a_dead_letter_that_was_not_there_at_a_look_is_lost_though_it_is_there_at_the_end(told: Told) -> None:
    told.seen.missed = {doomed_to(JOBS)[0]}
    assert told.broken() == {"no job is lost"}


def test_a_dead_letter_may_be_pruned_after_its_time(told: Told) -> None:
    client, effects = told.books()
    now_s = CLOCK.monotonic()
    assert kept_letters(told.plan, client, effects, now_s) == set(doomed_to(JOBS))
    assert kept_letters(told.plan, client, effects, now_s + told.plan.keep_s) == set()


def test_while_workers_are_killed_letters_are_asked_for_that_must_have_been_settled(told: Told) -> None:
    client, effects = told.books()
    now_s = CLOCK.monotonic()
    assert kept_letters(told.plan, client, effects, now_s, settled_s=5.0) == set(), "just now"
    assert kept_letters(told.plan, client, effects, now_s + 6.0, settled_s=5.0) == set(doomed_to(JOBS))
    effects.excuse(os.getpid(), now_s)
    assert kept_letters(told.plan, client, effects, now_s + 6.0, settled_s=5.0) == set(), "a kill may have hit them"
    assert kept_letters(told.plan, client, effects, now_s + 6.0) == set(doomed_to(JOBS)), "they have run again since"


def test_a_run_in_which_no_dead_letter_had_to_be_there_shows_nothing(told: Told) -> None:
    told.plan = replace(told.plan, keep_s=0.0)
    assert told.broken() == {"dead letters that had to be there, and were looked for"}


def test_a_dead_letter_of_a_job_that_never_failed_is_found(told: Told) -> None:
    told.missing.add(doomed_to(JOBS)[0])
    assert {"no job is lost", "the store has what the ledgers say"} <= told.broken()


@pytest.mark.parametrize(
    "wrong",
    [job(JOBS), job(3, id="again"), job(JOBS - 1, id="open", state=JobState.RUNNING)],
    ids=["that nobody enqueued", "twice", "that has not ended"],
)
def test_a_record_that_should_not_be_there_is_found(told: Told, wrong: JobRecord) -> None:
    told.records.append(wrong)
    assert {"the store has what the ledgers say", "the counts add up"} <= told.broken()


@pytest.mark.parametrize("place", [0, 1], ids=["of completions", "of dead letters"])
def test_a_count_that_drifts_is_found(told: Told, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    stats = told.stats()
    totals = list(stats.totals)
    totals[place] = replace(totals[place], n=1)
    monkeypatch.setattr(told, "stats", lambda: replace(stats, totals=totals))
    assert told.broken() == {"the counts add up"}


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("log", "worker process 9 is replaced\n", "nobody ends by himself"),
        ("log", "worker process 9 ended with 1 and is started again\n", "nobody ends by himself"),
        ("codes", {"server": 1}, "nobody ends by himself"),
        ("complaints", ["/overview 500"], "the server answers"),
        ("answers_s", [6.0], "the server's slowest answer"),
        ("gaps_s", [SMALL.lease_s + 0.1], "the longest time without a heartbeat"),
        ("miscounts", ["3 open jobs counted, 5 to 9 are"], "the counts add up"),
        ("pages", 0, "pages whose counts were compared with the store's"),
        ("hits", 0, "kills that hit a running job"),
        ("ticked_s", (100.0, 100.0), "ticks of the schedule that ran"),
        ("drained_s", 100.0, "the backlog is bounded"),
        ("samples", [{"live": 100.0 * n} for n in range(60)], "the backlog is bounded"),
        ("samples", leaking("spared_worker.rss_mib", 60.0, 0.2), "spared_worker.rss_mib is flat"),
        ("samples", leaking("spared_worker.fds", 20.0, 0.2), "spared_worker.fds is flat"),
        ("samples", leaking("spared_worker.threads", 9.0, 0.2), "spared_worker.threads is flat"),
        ("log", "worker process 2 ended with 137 and is started again\n", "nobody ends by himself"),
    ],
)
def test_every_other_verdict_can_say_no(told: Told, field: str, value: Any, name: str) -> None:
    setattr(told.seen, field, value)
    assert told.broken() == {name}


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("start_s", "lasted_s", "turn_s", "deaths"),
    [(0.5, 7.0, 0.0, 1), (3.0, 9.0, 0.0, 1), (0.5, 8.0, 1.0, 1), (0.5, 14.0, 0.0, 2)],
    ids=["at once", "a slow start", "in turn", "two deaths"],
)
def test_what_a_kill_cut_off_has_a_lease_a_sweep_and_a_start_for_each_death(
    told: Told, start_s: float, lasted_s: float, turn_s: float, deaths: int, is_late: bool
) -> None:
    told.seen.start_s = start_s
    one = Recovery(job="x", lasted_s=lasted_s, turn_s=turn_s, deaths=deaths)
    told.recoveries = [one, replace(one, lasted_s=lasted_s + 0.01)] if is_late else [one]
    assert told.broken() == ({"what a kill cut off runs again in time"} if is_late else set())


def looked(now: float, queued: int) -> Stats:
    """A look at the store that has so many open jobs, a letter and a hundred that have completed."""
    counts = {JobState.QUEUED: queued, JobState.DEAD_LETTER: 1, JobState.COMPLETED: 100}
    return Stats(now=now, tallies=[Tally(task="work", queue="default", state=one, n=n) for one, n in counts.items()])


@pytest.mark.parametrize("queued", [9, 20, 23])
def test_a_page_may_show_whatever_has_come_and_gone_between_two_looks(queued: int) -> None:
    page = {"now_at": 10.5, "states": {"queued": queued, "dead_letter": 1, "completed": 50}}
    assert page_miscounts(page, looked(10.0, 20), looked(11.0, 12), come=3) == []


@pytest.mark.parametrize("queued", [8, 24])
def test_a_page_that_counts_other_jobs_than_the_store_is_found(queued: int) -> None:
    page = {"now_at": 10.5, "states": {"queued": queued, "dead_letter": 1, "completed": 50}}
    (found,) = page_miscounts(page, looked(10.0, 20), looked(11.0, 12), come=3)
    assert found == f"{queued + 1} open jobs on the page, 10 to 24 are"


def test_a_page_of_an_earlier_look_is_not_compared_and_an_old_one_is_found() -> None:
    page = {"now_at": 9.5, "states": {"queued": 5_000}}
    assert page_miscounts(page, looked(10.0, 20), looked(11.0, 12), come=3) == []
    (found,) = page_miscounts(page, looked(20.0, 20), looked(21.0, 12), come=3)
    assert found == "the page is 10.5 s old"


# ---- the ledgers themselves


def test_a_kill_excuses_what_its_process_had_begun_and_nothing_else(tmp_path: Path) -> None:
    pen, book = EffectPen(tmp_path), EffectBook(tmp_path)
    for number in (1, 2, 3):
        pen.write(number, "start")
    pen.write(2, "end")
    assert book.is_amid(os.getpid())
    assert book.excuse(os.getpid(), CLOCK.monotonic()) == 2, "two were running"
    later = EffectPen(tmp_path)
    for number in (1, 2, 3, 4, 4):
        later.write(number, "start")
        later.write(number, "end")
    book.fold()
    assert book.unexcused() == [4]
    assert book.twice == 2, "2 and 4"
    assert len(book.recoveries_s) == 2


def test_a_kill_excuses_nothing_that_had_ended_long_before(tmp_path: Path) -> None:
    pen, book = EffectPen(tmp_path), EffectBook(tmp_path)
    for number in (1, 2):
        pen.write(number, "start")
    pen.write(2, "end")
    assert book.excuse(os.getpid(), CLOCK.monotonic() + SETTLED_S + 0.1) == 1, "one was running"
    later = EffectPen(tmp_path)
    for number in (1, 2):
        later.write(number, "start")
    book.fold()
    assert book.unexcused() == [2]


def test_what_was_cut_off_waits_for_each_worker_that_dies_with_it_and_for_its_turn(tmp_path: Path) -> None:
    book = EffectBook(tmp_path)
    for name, lines in {
        "100-1-0": ["1 start 10.0 0 one", "2 start 10.0 0 two", "3 start 10.0 0 three"],
        "200-1-0": ["4 start 10.0 0 four", "4 end 10.5 0 -"],
    }.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    assert book.excuse(100, 11.0) == 3
    assert book.cut_off() == {"one": 11.0, "two": 11.0, "three": 11.0}
    book.bereave({"two": 15.0})
    assert book.cut_off() == {"one": 11.0, "two": 15.0, "three": 11.0}
    lines = ["1 start 16.5 0 one", "1 end 17.0 0 -", "2 start 21.0 0 two", "2 end 21.2 0 -", "3 start 22.0 0 three"]
    (tmp_path / "201-200-0").write_text("".join(f"{line}\n" for line in lines))
    book.fold()
    found = [(one.job, one.lasted_s, one.turn_s, one.deaths) for one in book.recoveries]
    assert found == [("one", 5.5, 0.0, 1), ("two", 10.0, 0.5, 2), ("three", 11.0, pytest.approx(0.7), 1)]
    assert book.recoveries_s == [5.5, 5.0, 11.0]
    assert book.cut_off() == {}


def test_the_store_says_who_had_what_was_cut_off_when_he_died_too(tmp_path: Path) -> None:
    (tmp_path / "effects").mkdir()
    states = {
        "the_victim's": ("victim", JobState.RUNNING),
        "another's": ("other", JobState.RUNNING),
        "the_first_one's": ("first", JobState.RUNNING),
        "a_forgotten_one's": ("forgotten", JobState.RUNNING),
        "free": ("first", JobState.QUEUED),
    }
    records = {
        name: job(n, id=name, worker=worker, state=state) for n, (name, (worker, state)) in enumerate(states.items())
    }
    workers = [
        WorkerRecord(id=name, lease_s=5.0, pid=pid) for pid, name in enumerate(["first", "victim", "other"], 100)
    ]

    class Store:
        def get(self, ids: list[str]) -> list[JobRecord]:
            return [records[one] for one in ids]

        def stats(self) -> Stats:
            return Stats(now=0.0, workers=workers)

    app: Any = SimpleNamespace(store=Store(), bridge=SimpleNamespace(run=lambda found: found))
    unused: Any = None

    (tmp_path / "effects" / "100-1-0").write_text("".join(f"{n} start 9.0 0 {one}\n" for n, one in enumerate(records)))
    soak = _Soak(SMALL, tmp_path, unused, app, unused, unused, print)
    soak._stats()
    workers.clear()  # the store forgets who is gone
    soak._effects.excuse(100, 10.0)
    soak._seen.killed = {100: 10.0, 101: 14.0, 103: 9.0}

    def deaths() -> dict[str, tuple[int, float]]:
        soak._bereave()
        return {one.job: (one.deaths, one.died_s) for one in soak._effects._cut.values() if one.deaths > 1}

    assert deaths() == {"the_victim's": (2, 14.0)}
    records["free"] = job(
        4, id="free", worker="victim", state=JobState.RUNNING
    )  # what the victim had asked for came late
    assert deaths() == {"the_victim's": (2, 14.0), "free": (2, 14.0)}


def test_what_was_read_is_removed_and_a_torn_line_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_ledger, "SEGMENT_BYTES", 100)
    pen, book = EffectPen(tmp_path), EffectBook(tmp_path)
    for number in range(20):
        pen.write(number, "start")
        pen.write(number, "end")
    assert len(list(tmp_path.iterdir())) > 5
    book.fold()
    assert book.done == 20
    (last,) = tmp_path.iterdir()
    with last.open("ab") as file:
        file.write(b"21 end 1")
    book.fold()
    book.fold()
    assert book.done == 20
    assert quantile(book.waits_s, 0.5) == 0.0


def test_a_gap_in_the_producers_numbers_is_refused(tmp_path: Path) -> None:
    pen, book = ClientPen(tmp_path / "client"), ClientBook(tmp_path / "client")
    pen.write("attempt", 0, 10)
    pen.write("refused", 0, 10)
    book.fold()
    assert (book.attempted, book.acked, book.refused) == (10, 0, 1)
    pen.write("acked", 5, 10)
    with pytest.raises(AssertionError, match="gap"):
        book.fold()


def test_a_soak_that_broke_a_promise_says_so_in_the_report() -> None:
    good = Soaked(
        store="sqlite", minutes=1, rate=8, drain_rate=10, done=1, kills=1, hits=1, acked=1, refused=0, lost=0, twice=0,
        dead=0, recoveries_s=[1.0], seed="x", samples=[], verdicts=[flat("a", [1.0] * 9, Level(share=0, floor=1))],
    )  # fmt: skip
    assert finding_of(good).is_kept
    bad = replace(good, verdicts=[flat("a", [float(n * n) for n in range(30)], Level(share=0, floor=1))])
    assert not finding_of(bad).is_kept
    assert "a is flat" in finding_of(bad).note
