"""The report says what was found: every figure, every promise that was not kept, and every row that was not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal

import pytest
from msgspec import json
from msgspec.structs import replace

from holdfast.types import JobRecord, JobState
from tests.faults.checker import Evidence
from tests.faults.conftest import pytest_handlecrashitem
from tests.faults.ledger import Effect
from tests.faults.left_out import LEFT_OUT, left_out
from tests.faults.markdown import ROOT, safe
from tests.faults.plan import (
    BESIDES,
    ELSE,
    INBOX,
    LOAD,
    MODEL,
    PARTS,
    PLAN,
    PROPERTIES,
    SIMULATION,
    STORES_OF,
    WORDS,
    Row,
    is_on,
    named,
    part_of,
)
from tests.faults.plan import STORES as PLACES
from tests.faults.report import FINDINGS, Figures, Finding, figures_of, finding, keep, read, summed, told
from tests.faults.soak import finding_of
from tests.faults.soak_places import STORES
from tests.faults.soak_plan import Soaked
from tests.faults.soak_verdicts import ALWAYS, FEWEST, Verdict, flat_name
from tests.faults.write_report import Run, main, merged, objections, page
from tests.simulation.planted import PLANTED
from tests.simulation.seeds import Found, Summary

KILLS: Final = Finding(
    row="1",
    store="sqlite",
    fault="workers killed",
    injected=1_200,
    figures=Figures(acked=10_000, completed=9_990, dead=10, cancelled=0, lost=0, twice=7),
    recovery_s=(0.5, 2.25),
    note="drained in 3.1 s",
    seed="abc",
)
BROKEN: Final = Finding(
    row="24", store="redis", fault="the server killed", injected=0, note="I1 lost: j1", is_kept=False
)
PROBES: Final = [
    Finding(row="48", store="memory", fault="forgeries", injected=2, note=note) for note in ("403", "421", "403")
]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of findings of its own; that of a run that goes on has nothing to do with these."""
    path = tmp_path / "findings.jsonl"
    monkeypatch.setenv(FINDINGS, str(path))
    return path


def cells(text: str, row: str) -> list[list[str]]:
    """The lines of a row of the plan, in all tables."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def written(tmp_path: Path, *options: str) -> tuple[int, str]:
    """The exit code of the command, and its page."""
    out = tmp_path / "new" / "page.md"
    return main([str(tmp_path / "findings.jsonl"), str(out), *options]), out.read_text()


# ---------------------------------------------------------------- from findings to the page


def test_every_figure_of_a_finding_is_in_its_line_under_its_part() -> None:
    text = page(Run(findings=[KILLS]))
    assert cells(text, "1") == [
        [
            *("1", "workers killed", "sqlite", "1,200", "10,000", "9,990", "10", "0", "0", "7"),
            *("0.50 / 2.25 s", "kept", "drained in 3.1 s, seed abc"),
        ]
    ]
    assert text.index("## Workers") < text.index("| 1 |")
    for total in (
        "injected, and cases tried: 1,200",
        "acked: 10,000",
        "lost: 0",
        "twice, each explained by a fault: 7",
    ):
        assert f"{total}\n" in text
    assert f"run: 1 of {len(PLAN)}\n" in text
    assert "kept: 1 of 1\n" in text


def test_a_promise_that_was_not_kept_is_said_twice_and_fails_the_command_after_the_page_is_written(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(KILLS)
    keep(BROKEN)
    code, text = written(tmp_path)
    assert code == 1
    assert "row 24 on redis, the server killed: I1 lost: j1\n" in capsys.readouterr().out
    assert "- **NOT KEPT**: row 24 on redis, the server killed: I1 lost: j1\n" in text
    assert cells(text, "24")[0][-2:] == ["**NOT KEPT**", "I1 lost: j1"]
    assert "kept: 1 of 2\n" in text


def test_the_command_succeeds_when_every_promise_was_kept(kept: Path, tmp_path: Path) -> None:
    keep(KILLS)
    code, text = written(tmp_path)
    assert code == 0
    assert "NOT KEPT" not in text
    assert "Python 3." in text
    assert os.uname().nodename not in text
    assert str(ROOT) not in text


def test_a_run_that_found_nothing_shows_nothing(tmp_path: Path) -> None:
    code, text = written(tmp_path)
    assert code == 1
    assert "THIS RUN SHOWS NOTHING" in text


def test_rows_without_a_finding_and_parts_that_are_left_out_are_told() -> None:
    text = page(Run(findings=[KILLS], left_out={1: "kills on the moon"}))
    assert cells(text, "3") == [["3", PLAN[3], "**NOT RUN**"]]
    assert cells(text, "1")[1:] == [["1", PLAN[1], "kills on the moon"]]


def test_every_row_of_the_plan_has_a_part_and_a_reason_is_about_one_of_them() -> None:
    assert list(PLAN) == list(range(1, 63))
    assert {part_of(str(row), "sqlite") for row in PLAN} == set(PARTS)
    assert left_out([]).keys() <= PLAN.keys() | WORDS.keys() | {LOAD, SIMULATION}
    assert STORES_OF.keys() == PLAN.keys() | WORDS.keys() - {"soak"}


OF_ONE_STORE: Final = range(14, 29)
OF_THE_NETWORK: Final = (*range(30, 35), 37)
"""A SQLite file has none, nor hosts with clocks of their own."""
WITHOUT_A_STORE: Final = (46, 52, 56, 57)


def test_a_row_that_is_not_run_on_every_store_says_so_among_what_is_left_out() -> None:
    every = set(PLAN) - {*OF_ONE_STORE, *OF_THE_NETWORK, *WITHOUT_A_STORE, 36}
    partly = {row for row in every if not set(STORES_OF[row]) >= set("SPR")}
    assert partly == {40, 41, 44, 47, 48, 49, 53}
    for row in partly:
        assert any(word in LEFT_OUT[row] for word in ("PostgreSQL and Redis", "servers' own")), row


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        ([10.0, 10.0, 10.0], "thirty minutes for each store: they share the time, and each had 10 (SOAK=90"),
        ([1 / 3] * 3, "thirty minutes for each store: they share the time, and each had 0.333 ("),
        ([30.0, 30.0, 30.0], "of what has to stay flat the first third"),
        ([], "all of it"),
    ],
)
def test_what_is_left_out_of_the_soak_is_what_this_run_has_not_soaked(minutes: list[float], told: str) -> None:
    assert left_out(minutes)["soak"].startswith(told)


def test_a_part_that_is_left_out_may_be_of_no_row() -> None:
    text = page(Run(findings=[KILLS], left_out={LOAD: "little", SIMULATION: "not here", "soak": "short"}))
    assert cells(text, SIMULATION) == [[SIMULATION, "the simulation", "not here"]]
    assert cells(text, LOAD) == [[LOAD, named(LOAD), "little"]]
    assert cells(text, "soak") == [["soak", "soak", "short"]]


def test_the_docs_say_on_which_stores_each_row_is_run() -> None:
    text = (ROOT / "docs/explanation/faults.md").read_text()
    table = text.partition("## What is injected")[2].partition("\n## ")[0]
    told: dict[Row, set[str]] = {}
    heads = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][1:]
    for words in ",".join(head for head in heads if head.strip()).split(","):  # without one it is more of the row above
        row, *letters = words.split()[:2]
        told.setdefault(int(row) if row.isdigit() else row, set()).update(*letters)
    assert told == {**{row: set(letters) for row, letters in STORES_OF.items()}, "soak": set("SPR")}
    assert {PLACES[letter] for letter in told["soak"]} == set(STORES)


@pytest.mark.parametrize(
    ("store", "found", "is_it"),
    [
        ("redis", "redis", True),
        ("redis", "redis streams", False),
        ("redis streams", "redis streams, 4 shards", True),
        ("sqlite", "memory", False),
    ],
)
def test_a_finding_is_on_its_store_whatever_its_shards(store: str, found: str, is_it: bool) -> None:
    assert is_on(store, found) is is_it


@pytest.mark.parametrize(
    ("row", "store", "part"),
    [
        ("30", "postgres", "Network"),
        ("30", "redis streams, 4 shards", "Streams"),
        ("36", "redis", "Streams"),
        ("ring", "ring", "Rings"),
        ("crawl", "sqlite", "Crawls"),
        ("checker", "sqlite", ELSE),
        ("99", "sqlite", ELSE),
    ],
)
def test_what_ran_on_streams_rings_and_crawls_stands_with_them(row: str, store: str, part: str) -> None:
    assert part_of(row, store) == part


def test_text_stays_in_its_cell_and_is_shown_as_it_is() -> None:
    hostile = f"a|b\r\nc <img> [x](y) *z* `q` \\| {ROOT}/secret {'x' * 3}"
    (line,) = cells(page(Run(findings=[Finding(row="1", store="s|t", fault=hostile, injected=1)])), "1")
    assert line[1] == r"a\|b c &lt;img> \[x\](y) \*z\* \`q\` \\\| (a path) xxx"
    assert line[2] == r"s\|t"
    assert len(line) == 13
    assert safe("\x1b[31mred\x00") == r"\[31mred"


def test_cases_tried_in_tests_of_their_own_are_one_line() -> None:
    (one,) = merged(PROBES)
    assert (one.injected, one.note) == (6, "403; 421")


def test_findings_with_seeds_or_quantiles_and_broken_ones_are_not_added_up() -> None:
    broken = Finding(row="48", store="memory", fault="forgeries", injected=0, is_kept=False)
    assert len(merged([KILLS, KILLS, *PROBES, broken])) == 4


def test_figures_are_added_where_they_are_known() -> None:
    assert summed([Figures(acked=2, lost=0), Figures(acked=3, recoveries=[1.0])]) == Figures(
        acked=5, lost=0, recoveries=[1.0]
    )


# ---------------------------------------------------------------- what is counted

WHATS: Final[tuple[Literal["start", "end"], ...]] = ("start", "end")


def evidence_of(*states: JobState, acked: int) -> Evidence:
    """Jobs in these states, of which so many were acked, from the first on."""
    jobs = {f"j{n}": JobRecord(id=f"j{n}", task="t", payload=b"{}", state=state) for n, state in enumerate(states)}
    effects = [
        Effect(what=what, task="t", job=job, attempt=1, token="a", pid=1, parent=0, at=1.0)
        for job in jobs
        for what in WHATS
    ]
    ids = [f"j{n}" for n in range(acked)]
    return Evidence(attempted=ids, acked=ids, effects=effects, jobs=jobs)


def test_an_acked_job_that_is_gone_is_lost_and_no_promise_was_kept() -> None:
    figures = figures_of(evidence_of(JobState.COMPLETED, JobState.DEAD_LETTER, JobState.CANCELLED, acked=4))
    assert (figures.acked, figures.completed, figures.dead, figures.cancelled, figures.lost) == (4, 1, 1, 1, 1)
    one = finding(row="1", store="s", fault="f", injected=1, figures=figures, note="", seed="")
    assert not one.is_kept
    assert "NOT KEPT" in told(one)


def test_what_is_gone_as_was_said_is_counted_apart_and_starred() -> None:
    figures = figures_of(evidence_of(JobState.COMPLETED, acked=3), forfeited=["j1", "j2"])
    assert (figures.lost, figures.forfeited) == (0, 2)
    one = finding(row="24", store="redis", fault="f", injected=1, figures=figures, note="", seed="")
    assert one.is_kept
    text = page(Run(findings=[one]))
    assert cells(text, "24")[0][8] == r"2\*"
    assert "lost: 0\n" in text
    assert "a write that was cut short: 2\n" in text


def test_the_quantiles_are_those_of_the_recoveries() -> None:
    figures = Figures(recoveries=[n / 100 for n in range(100)])
    one = finding(row="1", store="s", fault="f", injected=1, figures=figures, note="", seed="")
    assert one.recovery_s == (0.5, 0.99)


def test_a_kept_finding_comes_back_equal(kept: Path) -> None:
    for one in (KILLS, BROKEN):
        keep(one)
    assert read(kept) == [KILLS, BROKEN]


# ---------------------------------------------------------------- the simulation and the soak

FOUND: Final = Found(name="no fence", peer="others", seeds=12, seconds=0.25, shows="I2 stale result: j1")
SIMULATED: Final = Summary(
    first_seed=7_000_000,
    seeds=30_000,
    seconds=600.0,
    seeds_per_minute=3_000.0,
    simulated_hours=400.0,
    faults={"lost_reply": 1_000, "crash": 2_000},
    states=512,
    digest="cafe",
    planted=[FOUND],
)
SOAKED: Final = Soaked(
    store="postgres",
    minutes=10.0,
    rate=800.0,
    drain_rate=1_000.0,
    done=480_000,
    kills=150,
    hits=149,
    acked=480_010,
    refused=3,
    lost=0,
    twice=9,
    dead=10,
    recoveries_s=[1.0, 2.0],
    seed="5eed",
    samples=[{"heartbeat_gap_s": 1.5, "wait_p99_ms": 40.0}] * FEWEST,
    verdicts=[Verdict(flat_name(name), True, "0.1 a minute") for name in (*ALWAYS, "store.memory_mib")],
)
EVERY_BUG: Final = replace(SIMULATED, planted=[replace(FOUND, name=bug.name) for bug in PLANTED])
WHOLE: Final = Run(
    findings=[
        Finding(row=str(row), store=store, fault=named(row), injected=1)
        for row, letters in STORES_OF.items()
        for store in ([PLACES[letter] for letter in letters] or ["none"])
    ]
    + [
        Finding(row=str(row), store=store, fault=fault, injected=1)
        for row, fault, letters in BESIDES
        for store in ([PLACES[letter] for letter in letters] or ["none"])
    ],
    simulation=EVERY_BUG,
    soaks=[replace(SOAKED, store=store) for store in STORES],
    size="full",
    is_whole=True,
)


def test_the_simulation_and_the_soak_have_their_sections(kept: Path, tmp_path: Path) -> None:
    keep(KILLS)
    keep(finding_of(SOAKED))
    simulation, soak = tmp_path / "simulation.json", tmp_path / "soak.json"
    simulation.write_bytes(json.encode(SIMULATED))
    soak.write_bytes(json.encode([SOAKED]))
    code, text = written(tmp_path, "--simulation", str(simulation), "--soak", str(soak))
    assert code == 0
    assert "- seeds: 30,000 from 7000000 on, in 600 s, 3,000 a minute; 400.0 hours inside; digest of all" in text
    assert "histories `cafe`\n- faults injected: 3,000 (crash 2,000, lost reply 1,000)" in text
    assert "| no fence | others | 12 | 0.25 | I2 stale result: j1 |" in text
    assert "150 injected, 480,010 acked, 480,000 completed, 10 dead, 0 lost, 9 twice, running again after" in text
    assert f"seed 5eed; {FEWEST} samples.\n" in text
    assert "| store.memory_mib is flat | 0.1 a minute | kept |" in text
    assert "and each had 10 (" in cells(text, "soak")[0][2]


def test_a_soak_is_told_once_and_counted_once() -> None:
    text = page(Run(findings=[KILLS, finding_of(SOAKED)], soaks=[SOAKED]))
    assert text.count("of the drain rate, a worker is killed") == 1
    assert "acked: 490,010\n" in text
    assert "kept: 2 of 2\n" in text


def test_a_seed_that_broke_something_is_told_with_the_command_that_repeats_it() -> None:
    text = page(Run(findings=[KILLS], simulation=replace(SIMULATED, violations=["seed 17: I1 lost: j1"])))
    assert "**NOT KEPT**: seed 17: I1 lost: j1: `python -m tests.simulation --seed 17 --told`\n" in text


def test_a_planted_bug_that_was_not_found_is_said_and_not_kept() -> None:
    run = Run(findings=[KILLS], simulation=replace(SIMULATED, planted=[replace(FOUND, seeds=0, shows="")]))
    assert "| no fence | others | **NOT FOUND** | 0.25 |  |" in page(run)
    assert "- **NOT FOUND**: planted bug, no fence\n" in page(run)
    assert not run.is_kept
    broken = Run(findings=[KILLS], simulation=replace(SIMULATED, planted=[replace(FOUND, seeds=0, broken="KeyError")]))
    assert "| **NOT FOUND** | 0.25 | the plant itself is broken: KeyError |" in page(broken)
    assert not broken.is_kept


# ---------------------------------------------------------------- what is missing


def without(row: str, store: str = "") -> Run:
    """A whole run that lacks a row, or one of its stores."""
    return replace(WHOLE, findings=[one for one in WHOLE.findings if (one.row, store or one.store) != (row, one.store)])


def beside(fault: str, store: str = "") -> Run:
    """A whole run that lacks what a test of another folder finds, on one store or on all of them."""
    rest = [one for one in WHOLE.findings if (one.fault, store or one.store) != (fault, one.store)]
    return replace(WHOLE, findings=rest)


def test_a_whole_run_that_has_everything_is_kept() -> None:
    assert list(objections(WHOLE)) == []
    assert WHOLE.is_kept


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (without("1"), f"**NOT RUN**: row 1, {PLAN[1]}"),
        (without("46"), f"**NOT RUN**: row 46, {PLAN[46]}"),
        (without("54", "redis"), "**NOT RUN**: row 54 on redis"),
        (without("30", "redis"), "**NOT RUN**: row 30 on redis"),
        (without("crawl", "postgres"), "**NOT RUN**: crawls on postgres"),
        (without("ring"), "**NOT RUN**: rings"),
        (beside(INBOX), f"**NOT RUN**: row 42 on sqlite, {INBOX}"),
        (beside(MODEL, "redis"), f"**NOT RUN**: row 45 on redis, {MODEL}"),
        (beside(PROPERTIES), f"**NOT RUN**: row 45, {PROPERTIES}"),
        (replace(WHOLE, simulation=None), "**NOT RUN**: the simulation"),
        (replace(WHOLE, simulation=replace(EVERY_BUG, seeds=0)), "**NOT RUN**: the simulation"),
        (
            replace(WHOLE, simulation=replace(EVERY_BUG, planted=EVERY_BUG.planted[1:])),
            f"**NOT RUN**: planted bug, {PLANTED[0].name}",
        ),
        (
            replace(WHOLE, simulation=replace(EVERY_BUG, violations=["seed 7: lost"])),
            "**NOT KEPT**: 1 seeds of the simulation",
        ),
        (replace(WHOLE, soaks=()), "**NOT RUN**: the soak on sqlite"),
        (replace(WHOLE, soaks=WHOLE.soaks[:2]), "**NOT RUN**: the soak on redis"),
        (replace(WHOLE, soaks=[replace(SOAKED, lost=1), *WHOLE.soaks]), "**NOT KEPT**: the soak on postgres"),
        (
            replace(WHOLE, soaks=[replace(SOAKED, verdicts=[Verdict("flat", False, "")]), *WHOLE.soaks]),
            "**NOT KEPT**: the soak on postgres",
        ),
        (replace(WHOLE, soaks=[replace(SOAKED, verdicts=[]), *WHOLE.soaks]), "**NOT KEPT**: the soak on postgres"),
        (
            replace(WHOLE, soaks=[replace(WHOLE.soaks[0], samples=SOAKED.samples[1:]), *WHOLE.soaks[1:]]),
            f"**NOT RUN**: what has to stay flat in the soak on sqlite: {FEWEST - 1} samples, and it takes {FEWEST}",
        ),
        (
            replace(WHOLE, soaks=[*WHOLE.soaks[:2], replace(WHOLE.soaks[2], verdicts=SOAKED.verdicts[-1:])]),
            "**NOT RUN**: what has to stay flat in the soak on redis: no verdict on spared",
        ),
        (replace(WHOLE, is_failed=True), "**NOT KEPT**: a command of this run has failed; what it printed says why"),
    ],
    ids=[
        *("a row", "one without a store", "a store of a row", "a store beside a stream", "a store of crawls", "rings"),
        *("the inbox", "the model on a store", "the properties"),
        *("the simulation", "its seeds", "a plant", "a violation"),
        *("the soak", "a store", "a loss", "a verdict", "all verdicts", "samples", "verdicts on flatness", "a command"),
    ],
)
def test_a_whole_run_that_lacks_something_is_not_kept_and_says_what(run: Run, why: str) -> None:
    assert next(objections(run)).startswith(why)
    assert f"- {why}" in page(run)
    assert not run.is_kept


def test_the_command_fails_when_a_whole_run_lacks_something_or_a_command_has_failed(kept: Path, tmp_path: Path) -> None:
    keep(KILLS)
    assert written(tmp_path)[0] == 0
    code, text = written(tmp_path, "--whole", "--simulation", str(tmp_path / "none"), "--soak", str(tmp_path / "none"))
    assert code == 1
    for what in (f"row 62, {PLAN[62]}", "the simulation", "the soak on postgres"):
        assert f"- **NOT RUN**: {what}\n" in text
    assert written(tmp_path, "--failed")[0] == 1


def test_what_was_skipped_is_told_and_a_run_at_full_size_is_not_kept_by_it() -> None:
    skipped = Finding(
        row="1", store="redis", fault="kills", injected=0, note="NO REDIS HERE", is_kept=False, is_run=False
    )
    run = Run(findings=[KILLS, skipped], size="full")
    assert cells(page(run), "1")[0][-2:] == ["**NOT RUN**", "NO REDIS HERE"]
    assert "- **NOT RUN**: row 1 on redis, kills: NO REDIS HERE\n" in page(run)
    assert "kept: 1 of 1\n" in page(run), "it is no promise that was broken"
    assert not run.is_kept
    assert "NOT RUN" in told(skipped)
    assert not Run(findings=[skipped], size="small").is_kept, "nothing was run"
    assert cells(page(replace(run, findings=[skipped])), "1")[1] == ["1", PLAN[1], "**NOT RUN**"]


# ---------------------------------------------------------------- tests become findings

SUITE: Final = """
import pytest

STORE = "redis"

def test_it_holds(report):
    report("a fault", injected=3, note="all is well")

@pytest.mark.parametrize("engine", ["postgres"])
def test_it_does_not_hold(engine):
    assert 1 == 2, "the first line | of why"

@pytest.fixture
def broken():
    raise RuntimeError()

def test_it_does_not_begin(broken): ...
"""
SKIPPED: Final = """
import pytest
from tests.faults.conftest import full_only
from tests.servers import missing

@pytest.fixture
def server():
    missing("NO SERVER HERE")

@pytest.mark.parametrize("engine", ["redis"])
def test_it_needs_a_server(engine, server): ...

@full_only
def test_it_is_large(report):
    report("a large fault", injected=1)
"""


def run_suite(folder: Path, source: str, size: str) -> subprocess.CompletedProcess[str]:
    """The tests of a file of row 7, with their findings."""
    (folder / "test_row07_made_up.py").write_text(source)
    plugins = ["no:cacheprovider", "no:xdist", "no:schemathesis", "no:hypothesispytest", "tests.faults.conftest"]
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", *(f"-p{name}" for name in plugins)),
            *("-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}", str(folder)),
        ],
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_FAULTS": size, "CI": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_test_that_is_skipped_at_full_size_is_a_finding(kept: Path, tmp_path: Path) -> None:
    done = run_suite(tmp_path, SKIPPED, "full")
    assert done.returncode == 0, done.stdout + done.stderr
    skipped, large = read(kept)
    assert (skipped.row, skipped.store, skipped.note) == ("7", "redis", "NO SERVER HERE")
    assert (skipped.is_run, skipped.is_kept) == (False, False)
    assert large.fault == "a large fault"
    assert "NOT RUN  it needs a server[redis]: NO SERVER HERE" in done.stdout


def test_a_test_that_fails_is_a_finding_and_all_of_a_stage_are_printed(kept: Path, tmp_path: Path) -> None:
    keep(KILLS)  # of a stage before this one
    done = run_suite(tmp_path, SUITE + SKIPPED, "small")
    assert done.returncode == 1, done.stdout + done.stderr
    before, good, broken, unbegun = read(kept)
    assert before == KILLS
    assert (good.row, good.store, good.fault, good.injected) == ("7", "redis", "a fault", 3)
    assert (broken.row, broken.store, broken.is_kept) == ("7", "postgres", False)
    assert broken.fault == "it does not hold[postgres]"
    assert broken.note == "the first line | of why assert 1 == 2"
    assert (unbegun.store, unbegun.note, unbegun.is_kept) == ("redis", "it failed", False)
    shown = done.stdout.partition("what was injected, and what came of it")[2]
    assert "a fault: 3 injected, all is well" in shown
    assert shown.count("NOT KEPT") == 2
    assert "workers killed" not in shown, "what another stage has found is not told again"


def test_a_test_that_takes_its_process_with_it_is_a_finding(kept: Path) -> None:
    pytest_handlecrashitem("tests/faults/test_row40_sync.py::test_it_ends[redis]")
    (one,) = read(kept)
    assert (one.row, one.fault, one.is_kept) == ("40", "it ends[redis]", False)
    assert one.note == "the process of the test died"


# ---------------------------------------------------------------- tests of other folders


def test_the_model_of_the_stores_has_the_words_that_a_whole_run_asks_for() -> None:
    assert f'"{MODEL}"' in (ROOT / "tests/property/test_store_model.py").read_text()


TRIED: Final = """
import pytest
from hypothesis import assume, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

@given(st.booleans())
def test_it_has_two_cases(is_it): ...

@settings(max_examples=7)
@given(st.integers())
def test_it_has_seven_cases_and_some_that_are_none(n):
    assume(n % 2)

class Model(RuleBasedStateMachine):
    @rule(n=st.integers())
    def go(self, n): ...

TestModel = Model.TestCase
TestModel.settings = settings(max_examples=5, stateful_step_count=3)

def test_it_has_findings_of_its_own():
    given(st.integers())(lambda n: None)()
"""
UNTRIED: Final = """
import pytest
from hypothesis import given, strategies as st

@given(st.integers())
def test_it_does_not_hold(n):
    assert n < 10, "it is too much"

def test_it_needs_a_server():
    pytest.skip("NO SERVER HERE")
"""


def run_properties(folder: Path, source: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Property tests of a file, with their findings."""
    (folder / "test_made_up.py").write_text(source)
    plugins = ["no:cacheprovider", "no:xdist", "no:schemathesis", "tests.property.conftest"]
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", *(f"-p{name}" for name in plugins)),
            *("-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}", str(folder)),
        ],
        cwd=ROOT,
        env={**{name: value for name, value in os.environ.items() if name != FINDINGS}, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_case_of_the_property_tests_that_was_tried_is_counted(kept: Path, tmp_path: Path) -> None:
    done = run_properties(tmp_path, TRIED, HOLDFAST_FINDINGS=str(kept), HOLDFAST_PROPERTY="full", HOLDFAST_SEED="17")
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(kept)
    assert [one.injected for one in found] == [2, 7, 5]
    (line,) = merged(found)
    assert (line.row, line.fault, line.injected) == ("45", PROPERTIES, 14)
    assert line.note == "failures 0, seed 17"


def test_property_tests_that_fail_or_are_skipped_are_findings(kept: Path, tmp_path: Path) -> None:
    done = run_properties(tmp_path, UNTRIED, HOLDFAST_FINDINGS=str(kept))
    assert done.returncode == 1, done.stdout + done.stderr
    broken, skipped = read(kept)
    assert (broken.row, broken.fault, broken.is_kept, broken.is_run) == ("45", "it does not hold", False, True)
    assert "it is too much" in broken.note
    assert (skipped.row, skipped.note, skipped.is_run) == ("45", "NO SERVER HERE", False)


def test_property_tests_leave_nothing_where_nobody_asks_for_it(kept: Path, tmp_path: Path) -> None:
    done = run_properties(tmp_path, TRIED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not kept.exists()
