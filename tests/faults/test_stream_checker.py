"""The checker of streams can fail: each promise is broken once in made-up ledgers, and named."""

from __future__ import annotations

from msgspec.structs import replace

from tests.faults import stream_checker as checker
from tests.faults.checker import Fault
from tests.faults.stream_checker import Look, StreamEvidence
from tests.faults.stream_ledger import Fact, Handling, What, Word

PLACE = ("orders", 0)


def lines(*rows: tuple[int, What, float, int]) -> list[Handling]:
    """Of one key: its number, what happened, when, and in which process."""
    return [Handling("bill", f"orders/0/{n}", "k", n, 1, what, pid, 0, at) for n, what, at, pid in rows]


def ran(n: int, at: float, pid: int = 1, what: What = "end") -> list[tuple[int, What, float, int]]:
    return [(n, "start", at, pid), (n, what, at + 0.5, pid)]


def facts(*rows: tuple[int, float, Word, int]) -> list[Fact]:
    """Of the one partition: which worker, when, what, and up to which offset."""
    return [Fact("bill", pid, at, word, [(*PLACE, position)]) for pid, at, word, position in rows]


def evidence(count: int, handlings: list[Handling]) -> StreamEvidence:
    sent = {("k", n): (PLACE, n) for n in range(count)}
    return StreamEvidence(sent=sent, handlings=handlings, done=frozenset(sent))


def breaks(of: StreamEvidence) -> list[str]:
    """Violations of the order, without the runs that explain them."""
    return [one for one in checker.order_of_keys(of) if not one.startswith("runs of ")]


GOOD = evidence(3, lines(*ran(0, 1.0), *ran(1, 2.0), *ran(2, 3.0)))


def test_a_run_in_order_is_good() -> None:
    assert checker.check(GOOD) == []
    assert (checker.duplicates(GOOD), checker.cut_off(GOOD)) == (0, 0)


def test_a_message_that_nobody_has_handled_is_lost() -> None:
    broken = evidence(3, lines(*ran(0, 1.0), *ran(1, 2.0)))
    assert checker.no_loss(broken) == ["lost: ('k', 2) was not handled, and is not in the inbox"]
    cut = evidence(2, lines(*ran(0, 1.0), (1, "start", 2.0, 1)))
    assert checker.no_loss(cut) == ["lost: ('k', 1) was not handled, and is not in the inbox"]
    buried = replace(broken, letters={("k", 2): 1}, dead={("k", 2): 1})
    assert checker.no_loss(buried) == []


def test_a_letter_without_its_copy_or_twice_is_found() -> None:
    buried = replace(GOOD, letters={("k", 2): 2})
    assert checker.no_loss(buried) == [
        "twice: ('k', 2) is in the inbox 2 times",
        "no copy: ('k', 2) is in the inbox, and not in the DLQ",
    ]


def test_a_message_from_nowhere_is_found() -> None:
    assert checker.no_loss(evidence(1, GOOD.handlings[:4])) == ["unexpected: nobody has sent ('k', 1)"]  # type: ignore[arg-type]


def test_a_commit_before_the_end_is_found() -> None:
    early = Look(frozenset({("k", 0), ("k", 1)}), frozenset({("k", 0)}))
    assert checker.nothing_skipped(replace(GOOD, looks=[early])) == ["committed too early: ('k', 1) was not finished"]


def test_what_is_not_committed_in_the_end_is_found() -> None:
    assert checker.nothing_skipped(replace(GOOD, done=frozenset({("k", 0), ("k", 1)}))) == [
        "not committed: ('k', 2) is open in the end"
    ]


def test_a_message_that_overtakes_another_of_its_key_is_found() -> None:
    assert breaks(evidence(3, lines(*ran(0, 1.0), *ran(2, 2.0), *ran(1, 3.0)))) == ["order: after 0 of k came 2"]
    assert breaks(evidence(2, lines(*ran(1, 1.0), *ran(0, 2.0)))) == ["order: k began with 1, not 0"]
    assert breaks(evidence(2, lines(*ran(0, 1.0), *ran(1, 1.2)))) == ["order: 1 of k began while 0 ran"]
    failed = evidence(2, lines(*ran(0, 1.0, what="fail"), *ran(1, 2.0), *ran(0, 3.0)))
    assert breaks(failed) == ["order: 1 of k began before 0 had ended"]
    assert breaks(replace(failed, keeps_order=False)) == []


def test_a_retry_and_a_message_that_was_given_up_keep_the_order() -> None:
    retried = evidence(2, lines(*ran(0, 1.0, what="fail"), *ran(0, 2.0), *ran(1, 3.0)))
    assert checker.check(retried) == []
    given_up = evidence(2, lines(*ran(0, 1.0, what="fail"), *ran(1, 3.0)))
    assert checker.check(replace(given_up, letters={("k", 0): 1}, dead={("k", 0): 1})) == []


def test_a_second_run_without_a_reason_is_found() -> None:
    twice = evidence(2, lines(*ran(0, 1.0), *ran(1, 2.0), *ran(0, 3.0, pid=2), *ran(1, 4.0, pid=2)))
    assert checker.explained_duplicates(twice) == [
        "duplicate: ('k', 0) ran again in 2 without failure or fault",
        "duplicate: ('k', 1) ran again in 2 without failure or fault",
    ]
    assert checker.duplicates(twice) == 2


def test_a_kill_explains_what_was_not_committed_yet_and_nothing_older() -> None:
    handlings = lines(
        *ran(0, 1.0), *ran(1, 8.0), (2, "start", 9.0, 1), *(row for n in range(3) for row in ran(n, 20.0 + n, 2))
    )
    killed = replace(evidence(3, handlings), faults=[Fault("kill", 1, 9.2, 9.3)])
    assert checker.explained_duplicates(killed) == ["duplicate: ('k', 0) ran again in 2 without failure or fault"]
    assert checker.order_of_keys(killed) == []
    assert checker.cut_off(killed) == 1


def test_a_second_kill_explains_what_the_second_worker_had_not_committed() -> None:
    handlings = lines(*ran(0, 1.0, 1), *ran(0, 20.0, 2), *ran(0, 40.0, 3))
    killed = replace(evidence(1, handlings), faults=[Fault("kill", 1, 2.0, 2.1), Fault("kill", 2, 21.0, 21.1)])
    assert checker.check(killed) == []
    later = replace(killed, faults=[killed.faults[0], Fault("kill", 2, 25.0, 25.1)])
    assert checker.check(later) == ["duplicate: ('k', 0) ran again in 3 without failure or fault"]


def unexplained(*rows: tuple[int, float, Word, int]) -> list[str]:
    """Message 0 ends in worker 1, killed at 9.0, and runs again in worker 2: what is objected to, given these facts."""
    twice = evidence(1, lines(*ran(0, 1.0, 1), *ran(0, 20.0, 2)))
    began = facts((1, 0.5, "have", 0), (2, 19.0, "have", 0))
    kills = [Fault("kill", 1, 9.0, 9.0)]
    found = checker.explained_duplicates(replace(twice, facts=[*began, *facts(*rows)], faults=kills))
    return [one.removeprefix("duplicate: ('k', 0) ran again in 2 ") for one in found]


def test_a_worker_that_is_killed_while_it_waits_for_an_answer_could_not_tell_in_time() -> None:
    assert unexplained((1, 1.6, "tell", 1)) == []
    assert unexplained((1, 1.6, "tell", 1), (1, 4.0, "untold", 1), (1, 5.0, "tell", 1)) == []
    # It waited for the answer to what it had told before.
    assert unexplained((1, 1.0, "tell", 0), (1, 8.0, "told", 0)) == []
    assert unexplained((1, 1.0, "tell", 0), (1, 6.0, "told", 0), (1, 6.1, "tell", 1)) == []


def test_a_worker_that_does_not_tell_is_not_excused_by_its_end() -> None:
    without = ["without failure or fault"]
    assert unexplained() == without
    assert unexplained((1, 1.0, "tell", 0), (1, 2.0, "told", 0)) == without
    assert unexplained((1, 5.0, "tell", 1)) == without
    assert unexplained((1, 1.0, "tell", 0), (1, 4.0, "told", 0), (1, 8.0, "tell", 1)) == without


def test_what_the_server_has_taken_note_of_never_runs_again() -> None:
    noted = ["though the server had taken note of its end"]
    assert unexplained((1, 8.5, "tell", 1), (1, 8.6, "told", 1)) == noted
    # Of a partition that it had no longer it is told nothing.
    assert unexplained((1, 1.6, "tell", 1), (1, 2.0, "lost", 0), (1, 2.1, "told", 1)) == []


def test_a_worker_that_has_lost_its_partition_could_not_tell_and_one_that_gave_it_back_did() -> None:
    assert unexplained((1, 2.0, "lost", 0)) == []
    assert unexplained((1, 7.0, "lost", 0)) == ["without failure or fault"]
    assert unexplained((1, 2.0, "give", 0), (1, 2.1, "gave", 1)) == ["without failure or fault"]


def test_nothing_that_was_finished_runs_again_while_its_partition_is_with_the_same_worker() -> None:
    twice = evidence(1, lines(*ran(0, 1.0, 1), *ran(0, 5.0, 1)))
    had = facts((1, 0.5, "have", 0))
    assert checker.explained_duplicates(replace(twice, facts=had)) == [
        "duplicate: ('k', 0) ran again in 1 while its partition was with the same worker"
    ]
    back = [*had, *facts((1, 2.0, "lost", 0), (1, 4.0, "have", 0))]
    assert checker.explained_duplicates(replace(twice, facts=back)) == []


def test_behind_what_it_has_not_finished_itself_a_worker_can_tell_of_nothing() -> None:
    overtaking = lines(*ran(2, 1.0, 1), *ran(1, 25.0, 2), *ran(2, 26.0, 2))
    had = facts((1, 0.5, "have", 1), (1, 9.0, "lost", 0), (2, 19.0, "have", 1))
    assert checker.explained_duplicates(replace(evidence(3, overtaking), facts=had)) == []
    in_order = lines(*ran(1, 1.0, 1), *ran(2, 2.0, 1), *ran(1, 25.0, 2), *ran(2, 26.0, 2))
    assert checker.explained_duplicates(replace(evidence(3, in_order), facts=had)) == [
        "duplicate: ('k', 1) ran again in 2 without failure or fault",
        "duplicate: ('k', 2) ran again in 2 without failure or fault",
    ]
    # What comes before its position was finished by others.
    ahead = facts((1, 0.5, "have", 2), (1, 9.0, "lost", 0), (2, 19.0, "have", 1))
    assert len(checker.explained_duplicates(replace(evidence(3, overtaking), facts=ahead))) == 1


def test_a_kill_of_a_worker_hits_what_runs_in_a_process_of_its_own() -> None:
    apart = [replace(one, pid=7, parent=1) for one in lines(*ran(0, 1.0))]
    killed = replace(evidence(1, [*apart, *lines(*ran(0, 5.0, 2))]), faults=[Fault("kill", 1, 2.0, 2.1)])
    assert checker.check(killed) == []
    assert len(checker.check(replace(killed, faults=[]))) == 1


def test_behind_an_unfinished_message_nothing_can_be_committed() -> None:
    others = [replace(one, key="other") for one in lines((0, "start", 0.5, 1))]
    handlings = [
        *others,
        *lines(*ran(1, 1.0), *ran(1, 20.0, 2)),
        *(replace(one, key="other") for one in lines(*ran(0, 19.0, 2))),
    ]
    killed = StreamEvidence(
        sent={("other", 0): (PLACE, 0), ("k", 1): (PLACE, 1)},
        handlings=handlings,
        done=frozenset({("other", 0), ("k", 1)}),
        faults=[Fault("kill", 1, 9.2, 9.3)],
    )
    assert checker.explained_duplicates(killed) == []
    assert len(checker.explained_duplicates(replace(killed, has_positions=False))) == 1


def test_a_retry_that_waits_explains_that_what_lies_behind_it_is_done_again() -> None:
    handlings = [
        *(replace(one, key="other") for one in lines(*ran(0, 1.0, what="fail"), *ran(0, 9.0, 2))),
        *lines(*ran(1, 2.0), *ran(1, 5.0, 2)),
    ]
    handed_over = StreamEvidence(
        sent={("other", 0): (PLACE, 0), ("k", 1): (PLACE, 1)},
        handlings=handlings,
        done=frozenset({("other", 0), ("k", 1)}),
    )
    assert checker.check(handed_over) == []
    later = [
        replace(one, at=one.at + 10.0) if one.pid == 2 and one.key == "k" else replace(one, pid=1) for one in handlings
    ]
    assert len(checker.explained_duplicates(replace(handed_over, handlings=later))) == 1


def test_what_was_overtaken_and_never_begun_explains_nothing_where_there_was_time_to_run_it() -> None:
    handlings = [
        *lines(*ran(1, 2.0), *ran(1, 12.0, 2)),
        *(replace(one, key="other") for one in lines(*ran(0, 11.0, 2))),
    ]
    stopped = StreamEvidence(
        sent={("other", 0): (PLACE, 0), ("k", 1): (PLACE, 1)},
        handlings=handlings,
        done=frozenset({("other", 0), ("k", 1)}),
    )
    had = facts((1, 0.5, "have", 0), (2, 10.0, "have", 0))
    found = ["duplicate: ('k', 1) ran again in 2 without failure or fault"]
    assert checker.check(replace(stopped, facts=had)) == found
    assert checker.check(replace(stopped, facts=had, drained_s={1: 1.9, 2: 9.0})) == found
    assert checker.check(replace(stopped, facts=had, drained_s={1: 2.1})) == []
    given = [*had, *facts((1, 5.0, "give", 0), (1, 5.5, "gave", 0))]
    assert checker.check(replace(stopped, facts=given)) == found
    late = [*had, *facts((1, 5.0, "give", 0), (1, 7.5, "gave", 0))]
    assert checker.check(replace(stopped, facts=late)) == []
    taken = [*had, *facts((1, 5.0, "lost", 0))]
    assert checker.check(replace(stopped, facts=taken)) == []


def test_one_that_was_frozen_may_do_what_others_have_done_already() -> None:
    handlings = lines(
        (0, "start", 1.0, 1), *ran(0, 5.0, 2), *ran(1, 6.0, 2), (0, "end", 7.0, 1), *ran(1, 7.1, 1), *ran(2, 8.0, 2)
    )
    frozen = replace(evidence(3, handlings), faults=[Fault("pause", 1, 1.1, 6.9)])
    assert checker.check(frozen) == []
    assert checker.duplicates(frozen) == 2
    assert checker.check(replace(frozen, faults=[])) != []
    assert checker.check(replace(frozen, faults=[Fault("pause", 1, 1.1, 5.0)])) == [
        "duplicate: ('k', 1) ran again in 1 without failure or fault"
    ]


def test_one_that_was_frozen_may_do_it_only_until_it_has_heard() -> None:
    handlings = lines(*ran(0, 1.0, 1), *ran(1, 6.0, 2), *ran(1, 7.1, 1))
    had = facts((1, 0.5, "have", 0), (1, 1.6, "tell", 1), (1, 1.7, "told", 1), (2, 5.0, "have", 1))
    told = facts((2, 6.6, "tell", 2), (2, 6.7, "told", 2))
    frozen = replace(evidence(2, handlings), faults=[Fault("pause", 1, 2.0, 7.0)])
    heard = [*had, *told, *facts((1, 7.3, "lost", 0))]
    assert checker.explained_duplicates(replace(frozen, facts=heard)) == []
    noted = ["duplicate: ('k', 1) ran again in 1 though the server had taken note of its end"]
    assert checker.explained_duplicates(replace(frozen, facts=[*had, *told])) == noted  # it never hears
    assert checker.explained_duplicates(replace(frozen, facts=heard, faults=[])) == noted
    anew = [*had, *told, *facts((1, 2.0, "lost", 0), (1, 7.0, "have", 1))]
    assert checker.explained_duplicates(replace(frozen, facts=anew)) == noted


def test_an_outage_excuses_nothing_that_its_worker_could_tell_of() -> None:
    twice = evidence(1, lines(*ran(0, 1.0, 1), *ran(0, 20.0, 2)))
    outage = [Fault("outage", pid, 0.0, 30.0) for pid in (1, 2)]
    had = facts((1, 0.5, "have", 0), (1, 9.0, "lost", 0), (2, 19.0, "have", 0))

    def found(*rows: tuple[int, float, Word, int]) -> list[str]:
        return checker.explained_duplicates(replace(twice, faults=outage, facts=[*had, *facts(*rows)]))

    assert len(found()) == 1
    assert found((1, 1.6, "tell", 1)) == []
    assert found((1, 1.6, "tell", 1), (1, 3.0, "untold", 1)) == []
    assert len(found((1, 1.6, "tell", 1), (1, 3.0, "told", 1))) == 1


def test_copies_in_a_retry_topic_may_be_two_where_a_reply_was_lost() -> None:
    copies = [replace(one, attempt=2) for one in lines(*ran(0, 3.0), *ran(0, 4.0))]
    failed = lines(*ran(0, 1.0, what="fail"))
    told = facts((1, 0.5, "have", 0), (1, 1.6, "tell", 1), (1, 1.7, "told", 1))
    retried = replace(evidence(1, [*failed, *copies]), facts=told, is_blocking=False)
    assert len(checker.explained_duplicates(retried)) == 1
    assert checker.explained_duplicates(replace(retried, faults=[Fault("replies", 1, 0.0, 9.0)])) == []


def test_one_that_was_frozen_may_be_ahead_until_it_hears_that_it_has_lost() -> None:
    # Process 1 wakes up behind message 1 and goes on with 2, while process 2 is still at 0.
    handlings = lines(
        *ran(0, 1.0, 1), (1, "start", 2.0, 1), (0, "start", 6.0, 2), (1, "end", 6.1, 1), (2, "start", 6.2, 1),
        (2, "stop", 6.3, 1), (0, "end", 6.5, 2), *ran(1, 7.0, 2), *ran(2, 8.0, 2),
    )  # fmt: skip
    frozen = replace(evidence(3, handlings), faults=[Fault("pause", 1, 2.1, 6.0)])
    assert checker.order_of_keys(frozen) == []
    assert checker.order_of_keys(replace(frozen, faults=[])) != []


def test_one_that_was_frozen_may_get_its_partition_back_and_finish_what_its_heir_had_begun() -> None:
    # Message 1 fails in process 2; before its retry the partition is with process 1 again, which has joined anew.
    began = [*ran(0, 1.0, 1), *ran(1, 5.0, 2, "fail")]
    frozen = replace(evidence(3, lines(*began, *ran(1, 7.0, 1), *ran(2, 8.0, 1))), faults=[Fault("pause", 1, 1.9, 4.0)])
    assert checker.check(frozen) == []
    for unfinished in ([], ran(1, 7.0, 1, "fail"), ran(1, 7.8, 1), ran(1, 4.0, 1)):
        broken = replace(frozen, handlings=lines(*began, *unfinished, *ran(2, 8.0, 1)))
        assert breaks(broken) == ["order: 2 of k began before 1 had ended"], unfinished


def test_a_violation_of_the_order_tells_every_run_of_its_key() -> None:
    handlings = lines(*ran(0, 1.0, what="fail"), *ran(1, 2.0), (0, "start", 3.0, 2))
    broken = replace(evidence(2, handlings), faults=[Fault("kill", 2, 3.1, 3.2)])
    assert checker.order_of_keys(broken) == [
        "order: 1 of k began before 0 had ended",
        "runs of k: 0 in 1 from 1.000, fail at 1.500; 1 in 1 from 2.000, end at 2.500; 0 in 2 from 3.000, no end; "
        "faults: kill of 2 at 3.100-3.200",
    ]


def test_what_several_processes_did_through_an_outage_counts_once_and_keeps_the_order() -> None:
    outage = [Fault("outage", pid, 1.7, 9.0) for pid in (1, 2)]
    handled = lines(*ran(0, 1.0), *ran(1, 2.0), *ran(1, 3.0, pid=2), *ran(2, 4.0, pid=2))
    assert checker.check(replace(evidence(3, handled), faults=outage)) == []
    skipped = lines(*ran(0, 1.0), *ran(2, 2.0), *ran(2, 3.0, pid=2), *ran(1, 4.0, pid=2))
    assert breaks(replace(evidence(3, skipped), faults=outage)) == ["order: after 0 of k came 2"]
