"""The checker goes red for each broken promise: a checker that cannot fail is no evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.types import JobRecord, JobState
from tests.faults import checker
from tests.faults.checker import SETTLED_S, Evidence, Fault, Limit, Sample, Transition, check
from tests.faults.ledger import ClientLedger, Effect, EffectLedger
from tests.faults.outages import HEARD_S, outage_faults
from tests.faults.workers import LEASE_S, SWEEP_S, recovery_bound


def record(name: str, state: JobState = JobState.COMPLETED, attempt: int = 1, **fields: object) -> JobRecord:
    result = b'"t%d"' % attempt if state is JobState.COMPLETED else None
    plain = JobRecord(id=name, task="work", payload=b"{}", state=state, attempt=attempt, result=result)
    return replace(plain, **fields)


def good() -> Evidence:
    """Job a ran once; b failed and was retried; c was cut off by a kill, and came back."""
    return Evidence(
        attempted=["a", "b", "c", "d"],
        acked=["a", "b", "c"],
        jobs={"a": record("a"), "b": record("b", attempt=2), "c": record("c", attempt=2)},
        effects=[
            Effect("a", 1, "t1", "start", "work", 10, 1, 1.0),
            Effect("a", 1, "t1", "end", "work", 10, 1, 1.1),
            Effect("b", 1, "t1", "start", "work", 10, 1, 1.0),
            Effect("b", 1, "t1", "fail", "work", 10, 1, 1.1),
            Effect("b", 2, "t2", "start", "work", 11, 1, 1.5),
            Effect("b", 2, "t2", "end", "work", 11, 1, 1.6),
            Effect("c", 1, "t1", "start", "work", 10, 1, 2.0),
            Effect("c", 2, "t2", "start", "work", 30, 11, 4.0),
            Effect("c", 2, "t2", "end", "work", 30, 11, 4.1),
        ],
        transitions=[
            Transition("a", "queued", "running", "t1"),
            Transition("a", "running", "completed", "t1"),
            Transition("b", "running", "retrying", "t1"),
            Transition("c", "running", "completed", "t2"),
        ],
        faults=[Fault("kill", 10, 2.5, 2.6)],
        samples=[Sample(acked=1, counted=2, attempted=4)],
        tallies={"completed": 3, "queued": 0},
        max_retries={"work": 0},
        limits=[Limit("work", 3, 0.9)],
        recovery_s=2.0,
    )


def test_a_good_run_has_no_violations() -> None:
    assert check(good()) == []


Break = Callable[[Evidence], Evidence]


def with_job(job: JobRecord) -> Break:
    return lambda run: replace(run, jobs={**run.jobs, job.id: job}, tallies={})


def with_effects(*effects: Effect) -> Break:
    return lambda run: replace(run, effects=[*run.effects, *effects])


BROKEN: list[tuple[str, Break]] = [
    ("I1 lost", lambda run: replace(run, acked=[*run.acked, "d"])),
    ("I1 unfinished", with_job(record("a", JobState.RUNNING))),
    (
        "I1 not run",
        lambda run: replace(run, effects=[one for one in run.effects if (one.job, one.what) != ("a", "end")]),
    ),
    ("I1 unexpected", with_job(record("x"))),
    (
        "I1 twice",
        lambda run: with_job(record("d", idempotency_key="k"))(with_job(record("a", idempotency_key="k"))(run)),
    ),
    ("I2 illegal change", lambda run: replace(run, transitions=[Transition("a", "completed", "completed", "t1")])),
    ("I2 illegal change", lambda run: replace(run, transitions=[Transition("a", "dead_letter", "running", "t1")])),
    ("I2 stale result", with_job(record("c", attempt=2, result=b'"t1"'))),
    ("I2 one lease ran twice", with_effects(Effect("a", 1, "t1", "start", "work", 10, 1, 2.2))),
    ("I3 duplicate", with_effects(Effect("a", 2, "t2", "start", "work", 11, 1, 1.2))),
    ("I3 duplicate", lambda run: replace(run, faults=[])),
    (
        "I3 duplicate",
        lambda run: with_effects(Effect("c", 1, "t1", "stop", "work", 10, 1, 2.5))(replace(run, faults=[])),
    ),
    ("I3 duplicate", lambda run: replace(run, faults=[Fault("kill", 99, 2.5, 2.6)])),
    ("I3 duplicate", lambda run: replace(run, faults=[Fault("kill", 10, 1.8, 1.9)])),
    ("I3 duplicate", with_effects(Effect("a", 2, "t2", "start", "work", 11, 1, 4.0))),  # it ended long before the kill
    (
        "I4 too many",
        with_effects(
            Effect("c", 3, "t3", "start", "work", 11, 1, 5.0),
            Effect("c", 3, "t3", "fail", "work", 11, 1, 5.0),
            Effect("c", 4, "t4", "start", "work", 11, 1, 6.0),
        ),
    ),
    ("I4 no reason", with_job(record("a", JobState.DEAD_LETTER))),
    ("I5 late", lambda run: replace(run, recovery_s=1.4)),
    ("I6 at a look", lambda run: replace(run, samples=[Sample(acked=3, counted=2, attempted=4)])),
    ("I6 at a look", lambda run: replace(run, samples=[Sample(acked=3, counted=5, attempted=4)])),
    ("I6 at the end", lambda run: replace(run, tallies={"completed": 2, "running": 1})),
    ("I7 too fast", lambda run: replace(run, limits=[Limit("work", 3, 1.1)])),
]


@pytest.mark.parametrize(("red", "breaks"), BROKEN)
def test_each_broken_promise_is_named(red: str, breaks: Break) -> None:
    found = check(breaks(good()))

    assert any(one.startswith(red) for one in found), found


def stale(*faults: Fault) -> Evidence:
    """The worker of t1 begins after that of t2 has completed the job."""
    run = good()
    effects = [one for one in run.effects if one.job != "c"]
    effects += [
        Effect("c", 2, "t2", "start", "work", 30, 11, 3.0),
        Effect("c", 2, "t2", "end", "work", 30, 11, 3.1),
        Effect("c", 1, "t1", "start", "work", 10, 1, 4.0),
    ]
    changes = [Transition("c", "queued", "running", "t1"), Transition("c", "running", "queued", "t2")]
    changes += [Transition("c", "queued", "running", "t2"), Transition("c", "running", "completed", "t2")]
    return replace(run, effects=effects, transitions=changes, faults=faults)


def test_a_stale_holder_that_begins_late_is_explained_by_what_held_it_up_alone() -> None:
    assert check(stale(Fault("pause", 10, 1.0, 1.1))) == []
    assert len(checker.bounded_duplicates(stale())) == 1
    assert len(checker.bounded_duplicates(stale(Fault("pause", 30, 1.0, 1.1)))) == 1


def again(*faults: Fault, hindrances: Sequence[Fault] = ()) -> list[str]:
    """What is said of job a, which ended at 1.1 in process 10, and ran again in another one at 9.0."""
    run = good()
    effects = [one for one in run.effects if one.job == "a"] + [Effect("a", 2, "t2", "start", "work", 11, 1, 9.0)]
    return checker.bounded_duplicates(replace(run, effects=effects, faults=faults, hindrances=hindrances))


def test_a_run_that_ended_just_before_a_fault_or_within_it_may_not_have_been_settled() -> None:
    just_before, long_before = 1.1 + SETTLED_S - 0.01, 1.1 + SETTLED_S + 0.01
    assert again(Fault("kill", 10, just_before, just_before)) == []
    assert again(Fault("outage", 10, 0.5, 5.0)) == []
    assert len(again(Fault("kill", 10, long_before, long_before))) == 1
    assert len(again(Fault("outage", 10, long_before, 8.0))) == 1, "the store was there for long enough"


def test_time_in_which_a_worker_was_kept_from_settling_does_not_count() -> None:
    kill = Fault("kill", 10, 4.0, 4.0)
    assert again(kill, hindrances=[Fault("slow", 10, 1.0, 3.5)]) == []
    assert again(kill, hindrances=[Fault("slow", 10, 2.5, 3.9), Fault("slow", 10, 1.2, 2.0), kill]) == []
    assert len(again(kill, hindrances=[Fault("slow", 10, 1.0, 2.9)])) == 1, "it had the time after that"
    assert len(again(kill, hindrances=[Fault("slow", 10, 2.2, 3.9)])) == 1, "it had the time before that"
    assert len(again(kill, hindrances=[Fault("slow", 11, 1.0, 4.0)])) == 1, "another one was slow"
    assert len(again(hindrances=[Fault("slow", 10, 1.0, 9.0)])) == 1, "nothing has hit it"


def test_a_job_that_was_removed_on_purpose_is_not_lost() -> None:
    assert check(replace(good(), acked=["a", "b", "c", "d"], removed=frozenset({"d"}))) == []


def test_recoveries_are_measured_from_the_fault_to_the_next_start() -> None:
    assert list(checker.recoveries(good())) == [("c", 1.5)]


def test_what_a_worker_stopped_that_had_lost_its_lease_has_to_run_again_too() -> None:
    stopped = with_effects(Effect("c", 1, "t1", "stop", "work", 10, 1, 3.0))(good())
    outages = [Fault("outage", 10, at, at + 1.0) for at in (1.8, 3.25, 9.0)]
    assert list(checker.recoveries(replace(stopped, faults=outages[:1]))) == [("c", 2.0)]  # it began amid the outage
    assert list(checker.recoveries(replace(stopped, faults=outages))) == [("c", 1.25)], "and another one began at 3.25"
    assert list(checker.recoveries(replace(stopped, faults=outages[1:]))) == [("c", 0.75)]
    assert list(checker.recoveries(replace(stopped, faults=[]))) == []
    assert len(check(replace(stopped, faults=outages[:1], recovery_s=1.9))) == 1
    assert len(check(replace(stopped, faults=outages, recovery_s=1.2))) == 1, "it had the time between them"
    assert check(replace(stopped, faults=outages, recovery_s=1.3)) == []


def cut_off_with_c(*again: Effect) -> Evidence:
    """Another job was cut off with it, and ran again for 0.4 s before it."""
    run = with_job(record("d", attempt=2))(good())
    first = Effect("d", 1, "t1", "start", "work", 10, 1, 2.0)
    run = with_effects(first, *again)(run)
    return replace(run, attempted=[*run.attempted, "d"], acked=[*run.acked, "d"], recovery_s=1.2, limits=[])


def test_a_suspect_waits_for_its_turn_behind_others_that_were_cut_off_too() -> None:
    again = Effect("d", 2, "t2", "start", "work", 30, 11, 3.5)
    waited = cut_off_with_c(again, replace(again, what="end", at=3.9))
    assert check(waited) == []
    assert checker.told_bound(waited).startswith(
        ", 2 jobs cut off, running again after at most 1.50 s, 0.40 s of it the turns of others (bound"
    )
    elsewhere = [replace(one, pid=31) if one.token == "t2" and one.job == "d" else one for one in waited.effects]
    assert len(check(replace(waited, effects=elsewhere))) == 1, "the other one ran elsewhere"
    direct = [replace(one, parent=1) if one.pid == 30 else one for one in waited.effects]
    assert len(check(replace(waited, effects=direct))) == 1, "a worker runs several at once"
    fresh = Effect("a", 2, "t9", "start", "work", 30, 11, 3.5)
    other = with_effects(fresh, replace(fresh, what="end", at=3.9))(replace(good(), recovery_s=1.2))
    assert any(one.startswith("I5 late") for one in check(other)), "the other one was not cut off"


def test_faults_of_its_workers_give_a_job_runs_that_are_not_counted_but_no_more_than_those_that_are_free() -> None:
    more = [
        Effect("c", 2, "t3", "start", "work", 32, 12, 5.0),
        Effect("c", 2, "t3", "end", "work", 32, 12, 5.1),
        Effect("b", 2, "t9", "start", "toil", 12, 1, 0.5),
        Effect("b", 2, "t9", "end", "toil", 12, 1, 0.6),
    ]
    run = with_effects(*more)(good())

    def too_many(*faults: Fault, effects: Sequence[Effect] = ()) -> list[str]:
        found = replace(run, effects=[*run.effects, *effects], faults=[*run.faults, *faults])
        return [one for one in checker.bounded_attempts(found) if "I4 too many: c" in one]

    assert len(too_many()) == 1
    assert too_many(Fault("outage", 11, 4.2, 4.9)) == [], "its second worker lost its lease before it could tell"
    assert len(too_many(Fault("abort", 30, 4.1, 4.1))) == 1, "its own process died, which is its own"
    third = Effect("c", 2, "t4", "start", "work", 33, 12, 6.0)
    outages = [Fault("outage", pid, at, at + 0.5) for pid, at in ((11, 4.2), (12, 5.2))]
    assert len(too_many(*outages, effects=[third])) == 1, "the third death is counted"


def test_a_replay_gives_a_job_its_runs_anew_and_no_more_than_that() -> None:
    def again(*tokens: str, replayed_after: str) -> list[str]:
        """What is found of a job that fails under each of these leases, with one retry, and was replayed once."""
        starts = [Effect("d", n, one, "start", "toil", 10, 1, float(n)) for n, one in enumerate(tokens, start=1)]
        changes = []
        for one in tokens:
            after = "dead_letter" if one == replayed_after else "retrying"
            changes += [Transition("d", "queued", "running", one), Transition("d", "running", after, one)]
            if one == replayed_after:
                changes.append(Transition("d", "dead_letter", "queued", one))
        effects = [*starts, *(replace(one, what="fail", at=one.at + 0.5) for one in starts)]
        return checker.bounded_attempts(Evidence(effects=effects, transitions=changes, max_retries={"toil": 1}))

    assert again("t1", "t2", "t3", "t4", replayed_after="t2") == []
    assert len(again("t1", "t2", "t3", "t4", replayed_after="none")) == 1, "nobody replayed it"
    assert len(again("t1", "t2", "t3", "t4", "t5", replayed_after="t1")) == 1, "too many after it"
    assert len(again("t1", "t2", "t3", "t4", "t5", replayed_after="t4")) == 1, "too many before it"


def test_the_bound_of_a_recovery_grows_only_for_reasons() -> None:
    usual_s = LEASE_S + SWEEP_S + 1.0
    assert recovery_bound() == recovery_bound(start_s=0.9) == recovery_bound(start_s=0.4, in_turn=2) == usual_s
    assert recovery_bound(start_s=1.5) == usual_s + 0.5
    assert recovery_bound(start_s=1.5, in_turn=2, at_once=3) == usual_s + 8.0
    assert recovery_bound(LEASE_S + 1.0, blocked_s=4.0, sweeps=2) == usual_s + 1.0 + 4.0 + SWEEP_S
    assert recovery_bound(away_s=3.0) == usual_s - LEASE_S + 3.0 + 5.0, "those who ask again pause for up to 5 s"
    assert recovery_bound(6.0, away_s=3.0) == usual_s - LEASE_S + 3.0 + 6.0, "a lease that is longer than that"


def test_an_outage_explains_what_those_had_that_it_cost_their_leases_and_nothing_of_others() -> None:
    log = "worker process 10 is replaced\nworker process 11 ended with 1 and is started again"
    faults = outage_faults("outage", log, [(2.0, 3.0), (7.0, 8.0)])
    assert [(one.pid, one.at, one.until) for one in faults] == [(10, 2.0, 3.0 + HEARD_S), (10, 7.0, 8.0 + HEARD_S)]
    assert again(*faults) == []
    assert len(again(*faults[1:])) == 1, "the store was there when it ended"
    assert len(again(*outage_faults("outage", "", [(0.5, 8.0)]))) == 1, "nobody has lost a lease"


@pytest.mark.parametrize(
    ("crash", "known", "is_explained"),
    [
        ((1.4, 2.0), ("t2",), True),
        ((0.5, 1.0), ("t2",), True),
        ((1.4, 2.0), ("t1", "t2"), False),
        ((1.61, 2.0), ("t2",), False),
        ((0.5, 0.99), ("t2",), False),
        ((3.01, 3.5), ("t2",), False),
    ],
    ids=["just after it", "begun amid it", "not lost", "on the disk by then", "over by then", "after the other"],
)
def test_a_crash_explains_a_second_run_only_where_it_has_lost_a_claim_of_just_before(
    crash: tuple[float, float], known: tuple[str, ...], is_explained: bool
) -> None:
    runs = [("t1", 1.0), ("t2", 3.0 if crash[0] > 3.0 else 2.5)]
    starts = [Effect("a", 1, token, "start", "work", 10, 1, at) for token, at in runs]
    effects = [*starts, *(replace(one, what="end", at=one.at + 0.1) for one in starts)]
    changes = [Transition("a", "queued", "running", token) for token in known]
    found = checker.bounded_duplicates(Evidence(effects=effects, transitions=changes, crashes=[crash]))
    assert len(found) == (not is_explained)


def test_a_finding_tells_the_bound_of_its_recoveries() -> None:
    assert checker.told_bound(good()) == ", 1 jobs cut off, running again after at most 1.50 s (bound 2.0 s)"
    assert checker.told_bound(replace(good(), faults=[])) == ", no job cut off amid its run (bound 2.0 s)"
    assert checker.told_bound(replace(good(), recovery_s=None)) == ""


def test_where_nobody_was_there_to_run_them_no_recovery_is_late() -> None:
    assert check(replace(good(), recovery_s=None)) == []


def test_a_job_that_was_blamed_for_its_worker_waits_like_any_retry() -> None:
    changes = [
        Transition("c", "queued", "running", "t1"),
        Transition("c", "running", "retrying", "t9"),
        Transition("c", "retrying", "running", "t2"),
        Transition("c", "running", "completed", "t2"),
    ]

    assert list(checker.recoveries(replace(good(), transitions=changes))) == []
    assert check(replace(good(), transitions=changes, recovery_s=0.0)) == []


def test_a_job_whose_next_worker_died_too_has_the_time_for_each_death() -> None:
    changes = [
        Transition("c", "queued", "running", "t1"),
        Transition("c", "running", "queued", "t7"),
        Transition("c", "queued", "running", "t8"),
        Transition("c", "running", "queued", "t9"),
        Transition("c", "queued", "running", "t5"),
        Transition("c", "running", "queued", "t5"),
        Transition("c", "queued", "running", "t2"),
        Transition("c", "running", "completed", "t2"),
    ]

    assert list(checker.recoveries(replace(good(), transitions=changes))) == [("c", 0.75)]


def test_one_whose_judge_died_before_it_was_queued_again_has_the_time_for_each_death_too() -> None:
    changes = [
        Transition("c", "queued", "running", "t1"),
        Transition("c", "running", "running", "t7"),
        Transition("c", "running", "running", "t8"),
        Transition("c", "running", "queued", "t8"),
        Transition("c", "queued", "running", "t2"),
        Transition("c", "running", "completed", "t2"),
    ]

    assert list(checker.recoveries(replace(good(), transitions=changes))) == [("c", 0.75)]


def test_duplicates_are_ends_beyond_the_first() -> None:
    twice = with_effects(Effect("a", 2, "t2", "end", "work", 11, 1, 9.0))(good())

    assert (checker.duplicates(good()), checker.duplicates(twice)) == (0, 1)


def test_quantiles() -> None:
    assert (checker.quantile([], 0.5), checker.quantile([3.0, 1.0, 2.0], 0.5)) == (0.0, 2.0)
    assert checker.quantile([1.0, 2.0], 0.99) == 2.0


def test_ledgers_read_back_what_was_written(tmp_path: Path) -> None:
    effects = EffectLedger(tmp_path / "effects")
    effects.write("a", 1, "t1", "start", "work")
    with (tmp_path / "effects").open("a") as file:
        file.write("\nb 1 t1 sta")  # torn by a kill
    effects.write("a", 1, "t1", "end", "work")

    assert [(one.job, one.what) for one in effects.read()] == [("a", "start"), ("a", "end")]

    client = ClientLedger(tmp_path / "client")
    client.attempt(["a", "b"])
    client.ack(["a"])
    again = ClientLedger(tmp_path / "client")

    assert (again.attempted, again.acked) == (["a", "b"], ["a"])
