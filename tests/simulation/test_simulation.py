"""Histories of whole fleets hold what is promised, can be had again, and show every bug that is planted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import json

from tests.simulation.planted import PLANTED
from tests.simulation.seeds import Summary

ROOT = Path(__file__).parents[2]


def _simulate(*words: str, out: Path | None = None) -> str:
    command = [sys.executable, "-m", "tests.simulation", *words, *(("--out", str(out)) if out else ())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode in {0, 1}, done.stderr[-3000:]
    return done.stdout


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


def test_a_seed_is_the_same_history_in_every_process(tmp_path: Path) -> None:
    first = _simulate("--seeds", "30-49", "--processes", "1", out=tmp_path / "one.json")
    second = _simulate("--seeds", "30-49", "--processes", "2", out=tmp_path / "two.json")
    assert _summary(tmp_path / "one.json").digest == _summary(tmp_path / "two.json").digest, first + second


def test_a_failing_seed_is_told_and_fails_again_in_the_same_way() -> None:
    bug = next(n for n, one in enumerate(PLANTED) if one.name == "acknowledged before it is run")
    first, second = (_simulate("--seed", "100000", "--bug", str(bug)) for _ in range(2))
    assert first == second
    assert "I2 stale result" in first


def test_it_ends_when_its_time_is_over(tmp_path: Path) -> None:
    _simulate("--seeds", "0-9999999", "--within", "0.1", "--processes", "2", out=tmp_path / "found.json")
    assert 0 < _summary(tmp_path / "found.json").seeds <= 200
