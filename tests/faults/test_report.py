"""The report says what was found: every figure, every promise that was not kept, and every row that was not run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from msgspec import json

from holdfast.types import JobRecord, JobState
from tests.faults.checker import Evidence
from tests.faults.conftest import pytest_handlecrashitem
from tests.faults.ledger import Effect
from tests.faults.markdown import ROOT, safe
from tests.faults.plan import ELSE, PARTS, PLAN, part_of
from tests.faults.report import FINDINGS, Figures, Finding, figures_of, finding, keep, read, summed, told
from tests.faults.write_report import LEFT_OUT, Run, main, merged, page

KILLS: Final = Finding(
    row="1",
    store="sqlite",
    fault="workers killed",
    injected=1_200,
    figures=Figures(acked=10_000, completed=9_990, dead=10, lost=0, twice=7),
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
            *("1", "workers killed", "sqlite", "1,200", "10,000", "9,990", "10", "0", "7"),
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
    kept: Path, tmp_path: Path
) -> None:
    keep(KILLS)
    keep(BROKEN)
    code, text = written(tmp_path)
    assert code == 1
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


def test_rows_without_a_finding_are_left_out_with_a_reason_or_were_not_run() -> None:
    text = page(Run(findings=[KILLS], left_out={2: "no strace", 1: "never shown, for it was run"}))
    assert cells(text, "2") == [["2", PLAN[2], "left out: no strace"]]
    assert cells(text, "3") == [["3", PLAN[3], "**NOT RUN**"]]
    assert len(cells(text, "1")) == 1


def test_every_row_of_the_plan_has_a_part_and_a_reason_is_about_one_of_them() -> None:
    assert list(PLAN) == list(range(1, 63))
    assert {part_of(str(row), "sqlite") for row in PLAN} == set(PARTS)
    assert LEFT_OUT.keys() <= PLAN.keys()


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
    assert len(line) == 12
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
    figures = figures_of(evidence_of(JobState.COMPLETED, JobState.DEAD_LETTER, acked=3))
    assert (figures.acked, figures.completed, figures.dead, figures.lost) == (3, 1, 1, 1)
    one = finding(row="1", store="s", fault="f", injected=1, figures=figures, note="", seed="", test="")
    assert not one.is_kept
    assert "NOT KEPT" in told(one)


def test_what_a_labelled_store_has_lost_is_counted_apart_and_starred() -> None:
    figures = figures_of(evidence_of(JobState.COMPLETED, acked=3), forfeited=["j1", "j2"])
    assert (figures.lost, figures.forfeited) == (0, 2)
    one = finding(row="24", store="redis", fault="f", injected=1, figures=figures, note="", seed="", test="")
    assert one.is_kept
    text = page(Run(findings=[one]))
    assert cells(text, "24")[0][7] == r"2\*"
    assert "lost: 0\n" in text
    assert "not durable: 2\n" in text


def test_the_quantiles_are_those_of_the_recoveries() -> None:
    figures = Figures(recoveries=[n / 100 for n in range(100)])
    one = finding(row="1", store="s", fault="f", injected=1, figures=figures, note="", seed="", test="")
    assert one.recovery_s == (0.5, 0.99)


def test_a_kept_finding_comes_back_equal(kept: Path) -> None:
    for one in (KILLS, BROKEN):
        keep(one)
    assert read(kept) == [KILLS, BROKEN]


# ---------------------------------------------------------------- the simulation and the soak

Written = Callable[[Any, Any], tuple[int, str]]
SIMULATED: Final = {
    "seeds": 30_000,
    "seconds": 600.0,
    "seeds_per_minute": 3_000.0,
    "faults": {"lost_reply": 1_000, "crash": 2_000},
    "states": 512,
    "violations": [],
    "planted": [{"name": "no fence", "peer": "others", "seeds": 12, "seconds": 0.25, "new": 1}],
    "unknown": {"key": 1},
}
SOAKED: Final = {
    "store": "postgres",
    "minutes": 10.0,
    "rate": 800.0,
    "done": 480_000,
    "kills": 150,
    "lost": 0,
    "twice": 9,
    "samples": [{}, {}],
    "verdicts": [{"name": "memory is flat", "is_kept": True, "figure": "0.1 MB a minute", "why": "x"}],
    "drain_rate": 1_000.0,
}


@pytest.fixture
def with_files(kept: Path, tmp_path: Path) -> Written:
    """The command, given what the simulation and the soak have left."""
    keep(KILLS)
    simulation, soak = tmp_path / "simulation.json", tmp_path / "soak.json"

    def write(simulated: Any, soaked: Any) -> tuple[int, str]:
        for path, what in ((simulation, simulated), (soak, soaked)):
            if what is not None:
                path.write_bytes(json.encode(what))
        return written(tmp_path, "--simulation", str(simulation), "--soak", str(soak))

    return write


def test_the_simulation_and_the_soak_have_their_sections(with_files: Written) -> None:
    code, text = with_files(SIMULATED, [SOAKED])
    assert code == 0
    assert "- seeds: 30,000 in 600 s, 3,000 a minute\n- faults injected: 3,000 (crash 2,000, lost reply 1,000)" in text
    assert "| no fence | others | 12 | 0.25 |" in text
    assert (
        "10.0 minutes at 800 jobs a second of 1,000: 480,000 done, 150 kills, 0 lost, 9 effects twice, 2 samples"
        in text
    )
    assert "| memory is flat | 0.1 MB a minute | kept |" in text


@pytest.mark.parametrize(
    ("simulated", "soaked"),
    [
        ({**SIMULATED, "violations": ["seed 7: lost"]}, [SOAKED]),
        ({**SIMULATED, "violations": 1}, [SOAKED]),
        (SIMULATED, [{**SOAKED, "lost": 1}]),
        (SIMULATED, [{**SOAKED, "verdicts": [{"name": "flat", "is_kept": False, "figure": ""}]}]),
        (SIMULATED, [SOAKED, {**SOAKED, "verdicts": [{"name": "nobody has judged"}]}]),
    ],
)
def test_a_violation_of_either_fails_the_command(with_files: Written, simulated: Any, soaked: Any) -> None:
    assert with_files(simulated, soaked)[0] == 1


def test_what_should_have_been_run_and_left_nothing_is_said(with_files: Written) -> None:
    code, text = with_files(SIMULATED, None)
    assert code == 0
    assert "## Soak\n\n**NOT RUN**\n" in text


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


def test_a_test_that_fails_is_a_finding_and_all_of_a_stage_are_printed(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "test_row07_made_up.py").write_text(SUITE)
    keep(KILLS)  # of a stage before this one
    plugins = ["no:cacheprovider", "no:xdist", "no:schemathesis", "no:hypothesispytest", "tests.faults.conftest"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", *(f"-p{name}" for name in plugins)),
            *("-c", str(ROOT / "pyproject.toml"), f"--rootdir={tmp_path}", str(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_FAULTS": "small", FINDINGS: str(kept)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    before, good, broken, unbegun = read(kept)
    assert before == KILLS
    assert (good.row, good.store, good.fault, good.injected) == ("7", "redis", "a fault", 3)
    assert (broken.row, broken.store, broken.is_kept) == ("7", "postgres", False)
    assert (broken.fault, broken.test) == (
        "it does not hold[postgres]",
        "test_row07_made_up.py::test_it_does_not_hold[postgres]",
    )
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
