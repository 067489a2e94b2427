"""Histories of whole fleets hold what is promised, can be had again, and show every bug that is planted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import json

from tests.simulation.planted import PLANTED
from tests.simulation.seeds import Found, Summary

ROOT = Path(__file__).parents[2]


def _simulate(*words: str, out: Path | None = None) -> str:
    command = [sys.executable, "-m", "tests.simulation", *words, *(("--out", str(out)) if out else ())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode in {0, 1}, done.stderr[-3000:]
    return done.stdout


_PLANT = """
import sys
from msgspec import json
from holdfast.stores.memory.store import MemoryStore
from tests.simulation.planted import PLANTED, Planted, _in_place_of
from tests.simulation.seeds import _quiet, find

def crash(*_):
    raise ZeroDivisionError("a mistake of the plant")

_quiet()
where, shows, most = sys.argv[1:]
plants = {one.name: one.plant for one in PLANTED} | {"": crash}
plant = plants.get(where, lambda: _in_place_of(MemoryStore, where, crash))
print(json.encode(find(Planted("", "", plant, (shows,)), int(most))).decode())
"""


_BOTH_WAYS = """
from tests.simulation.seeds import _quiet, run_seed

_quiet()
there = [run_seed(seed).digest for seed in range(6)]
back = [run_seed(seed).digest for seed in reversed(range(6))]
print([seed for seed in range(6) if there[seed] != back[5 - seed]])
"""


def _run(script: str, *words: str) -> str:
    command, env = [sys.executable, "-c", script, *words], {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _find(where: str, shows: str, most: int) -> Found:
    return json.decode(_run(_PLANT, where, shows, str(most)), type=Found)


def _summary(path: Path) -> Summary:
    return json.decode(path.read_bytes(), type=Summary)


def test_a_fixed_set_of_histories_keeps_every_promise(tmp_path: Path) -> None:
    told = _simulate("--seeds", "0-199", "--processes", "2", out=tmp_path / "found.json")
    found = _summary(tmp_path / "found.json")
    assert found.violations == [], told
    assert found.seeds == 200
    kinds = {"kill", "hold", "cut", "stop", "outage", "away", "lost", "late", "twice", "slow", "dies_after"}
    assert all(found.faults[kind] > 20 for kind in kinds), found.faults


@pytest.mark.parametrize("part", range(2))
def test_every_planted_bug_is_found(tmp_path: Path, part: int) -> None:
    numbers = [str(n) for n in range(len(PLANTED)) if n % 2 == part]
    told = _simulate("--seeds", "0-0", "--planted", ",".join(numbers), "--processes", "1", out=tmp_path / "found.json")
    found = _summary(tmp_path / "found.json").planted
    assert len(found) == len(numbers)
    assert [one.name for one in found if not one.seeds] == [], told


def test_a_replay_on_its_way_from_a_machine_that_is_held_for_long_finds_somebody_to_run_it(tmp_path: Path) -> None:
    told = _simulate("--seeds", "605138565012-605138565012", "--processes", "1", out=tmp_path / "found.json")
    assert _summary(tmp_path / "found.json").violations == [], told


def test_a_tick_that_was_given_back_in_the_last_moment_is_not_stuck(tmp_path: Path) -> None:
    told = _simulate("--seeds", "358459413016-358459413016", "--processes", "1", out=tmp_path / "found.json")
    assert _summary(tmp_path / "found.json").violations == [], told


def test_a_tick_waits_for_the_worker_in_the_place_of_the_last_one(tmp_path: Path) -> None:
    told = _simulate("--seeds", "309536189848-309536189848", "--processes", "1", out=tmp_path / "found.json")
    assert _summary(tmp_path / "found.json").violations == [], told


def test_a_claim_and_a_settlement_that_come_late_together_charge_no_attempt(tmp_path: Path) -> None:
    told = _simulate("--seeds", "131865067397-131865067397", "--processes", "1", out=tmp_path / "found.json")
    assert _summary(tmp_path / "found.json").violations == [], told


def test_a_seed_is_the_same_history_in_every_process(tmp_path: Path) -> None:
    first = _simulate("--seeds", "30-49", "--processes", "1", out=tmp_path / "one.json")
    second = _simulate("--seeds", "30-49", "--processes", "2", out=tmp_path / "two.json")
    assert _summary(tmp_path / "one.json").digest == _summary(tmp_path / "two.json").digest, first + second


def test_a_seed_is_the_same_history_whichever_were_run_before_it() -> None:
    assert _run(_BOTH_WAYS) == "[]\n"


def test_a_failing_seed_is_told_and_fails_again_in_the_same_way() -> None:
    bug = next(n for n, one in enumerate(PLANTED) if one.name == "acknowledged before it is run")
    first, second = (_simulate("--seed", "100000", "--bug", str(bug)) for _ in range(2))
    assert first == second
    assert "I2 stale result" in first


@pytest.mark.parametrize("where", ["", "reclaim", "enqueue"])
def test_a_plant_that_crashes_is_broken_and_not_found(where: str) -> None:
    found = _find(where, "", 10)
    assert "a mistake of the plant" in found.broken
    assert (found.seeds, found.shows) == (0, "")


@pytest.mark.parametrize(("shows", "is_found"), [("I2 stale result", True), ("I1 lost", False)])
def test_a_bug_is_found_by_what_it_must_show_alone(shows: str, is_found: bool) -> None:
    found = _find("acknowledged before it is run", shows, 3)
    assert (found.seeds > 0, found.shows.startswith(shows)) == (is_found, is_found)
    assert found.broken == ""


def test_fresh_seeds_are_others_each_time(tmp_path: Path) -> None:
    told = [_simulate("--fresh", "--within", "0", "--processes", "1", out=tmp_path / str(n)) for n in range(2)]
    first, second = (_summary(tmp_path / str(n)).first_seed for n in range(2))
    assert first != second
    assert [one.splitlines()[0] for one in told] == [f"seeds from {first} on", f"seeds from {second} on"]


def test_it_ends_when_its_time_is_over(tmp_path: Path) -> None:
    _simulate("--seeds", "0-9999999", "--within", "0.1", "--processes", "2", out=tmp_path / "found.json")
    assert 0 < _summary(tmp_path / "found.json").seeds <= 200
