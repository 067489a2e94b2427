"""What reached the memory store in a simulation is made again on a real store, call by call: the answers are the same.

Lost replies, calls that come late or twice, and deaths between any two of them are in the order in which they were.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from msgspec import json

from tests.faults.conftest import busy, full_only, small_on
from tests.faults.engines import Engine, SqliteEngine
from tests.faults.plan import HISTORIES
from tests.faults.report import Report
from tests.faults.test_mutations import FENCE, LATE_ACKNOWLEDGEMENT, SWEEP_GUARD, Edit, broken, store
from tests.faults.workers import ROOT
from tests.simulation.schedule import Summary

pytestmark = busy

__all__ = ["store"]
ROW: Final = "45"
"""Where stores are compared with a model of them."""
SEEDS: Final = {"sqlite": 200, "postgres": 40, "redis": 100}
"""At full size: a server answers later than a file."""
SMALL: Final = 3
ENOUGH: Final = 20
"""At full size, in the time that there is."""
WITHIN_S: Final = 45.0
"""A machine with much else to do makes fewer of them."""
MUTATIONS: Final[dict[str, dict[str, Edit]]] = {
    "fence": FENCE,
    "guard of the sweep": SWEEP_GUARD,
    "running state": LATE_ACKNOWLEDGEMENT,
}


def replayed(engine: Engine, folder: Path, seeds: str, *words: str, source: Path | None = None) -> Summary:
    """The schedules of these seeds, each on a store of its own; `source` has another copy of the package."""
    url = f"sqlite:///{folder}/{{}}.db?synchronous=normal" if isinstance(engine, SqliteEngine) else f"{engine.url}_{{}}"
    out = folder / "found.json"
    command = [sys.executable, "-m", "tests.simulation.schedule", "--seeds", seeds, "--url", url, "--out", str(out)]
    path = os.pathsep.join(str(one) for one in (source, ROOT) if one)
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [*command, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode in {0, 1}, done.stderr[-3000:]
    return json.decode(out.read_bytes(), type=Summary)


@small_on("sqlite")
def test_a_store_answers_as_the_memory_store_did(
    engine: Engine, store: str, tmp_path: Path, is_full: bool, report: Report
) -> None:
    most = SEEDS[store] if is_full else SMALL
    found = replayed(engine, tmp_path, f"0-{most - 1}", "--within", str(WITHIN_S))
    assert found.differences == []
    assert (ENOUGH if is_full else SMALL) <= found.seeds <= most
    assert {"enqueue", "exchange", "heartbeat"} <= found.verbs.keys(), "this run shows nothing"
    if is_full:
        assert {"reclaim", "note", "change"} <= found.verbs.keys(), found.verbs
        assert {"lost", "late", "twice", "kill"} <= found.faults.keys(), found.faults
        assert {"completed", "dead_letter", "cancelled"} <= found.states.keys(), found.states
    report(
        HISTORIES,
        injected=sum(found.faults.values()),
        note=f"{found.seeds:,} seeds, {found.calls:,} calls, answers and records that differ {len(found.differences)}",
        seed=f"0-{found.seeds - 1}",
        row=ROW,
    )


@pytest.mark.parametrize("missing", ["fence", *(pytest.param(one, marks=full_only) for one in list(MUTATIONS)[1:])])
@small_on("sqlite")
def test_a_broken_store_answers_otherwise(engine: Engine, store: str, missing: str, tmp_path: Path) -> None:
    edit = MUTATIONS[missing][store]
    found = replayed(engine, tmp_path, "0-99", "--most", "1", source=broken(tmp_path, edit))
    assert len(found.differences) == 1, f"none of {found.seeds} seeds"
