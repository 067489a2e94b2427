"""The soak: `python -m tests.faults.soak --store all --minutes 30 --out build/faults/soak.json`.

A load of 80 % of what this machine drains, with a worker killed every few seconds, though never the one that is
spared, and at the end a list of verdicts: nothing lost, nothing twice but for kills, and what they cut off runs again
in time; memory, file handles and threads of the spared worker and of the programs beside it flat, and logs and tables
too. With `--store all` the minutes are shared by the three
stores, so 30 are 10 for each. The exit code is 1 when a promise was not kept.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import json

from tests.faults.checker import quantile
from tests.faults.report import Figures, Finding, keep, told
from tests.faults.soak_places import STORES
from tests.faults.soak_plan import Plan, Soaked
from tests.faults.soak_run import soak
from tests.faults.soak_verdicts import FEWEST

_SHORTEST_S: Final = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak one store after the other; 0 when everything that is promised held."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--store", choices=(*STORES, "all"), default="all")
    parser.add_argument("--minutes", type=float, default=30.0, help="in all: each of several stores has its share")
    parser.add_argument("--share", type=float, default=0.8, help="of the drain rate, as the load [0.8]")
    parser.add_argument("--out", type=Path, default=Path("build/faults/soak.json"))
    told_to = parser.parse_args(arguments)
    stores = STORES if told_to.store == "all" else (told_to.store,)
    seconds = 60.0 * told_to.minutes / len(stores)
    if seconds < _SHORTEST_S:
        parser.error(f"--minutes {told_to.minutes:g}: a store needs {_SHORTEST_S:g} seconds at least")
    if not 0.0 < told_to.share <= 1.0:
        parser.error(f"--share {told_to.share:g}: must be above 0 and at most 1")
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a script has it ignore Ctrl-C
        signal.signal(number, _end)  # whatever was started is ended on the way out
    plans = [Plan(store=store, seconds=seconds, share=told_to.share) for store in stores]
    if seconds < FEWEST * plans[0].sample_s:
        _say(f"{seconds:g} s on each store are too short to say what stays flat, and a whole run asks for that")
    found: list[Soaked] = []
    for plan in plans:
        found.append(_soaked(plan))
        told_to.out.parent.mkdir(parents=True, exist_ok=True)
        told_to.out.write_bytes(json.format(json.encode(found)))
    return 0 if all(one.is_kept for one in found) else 1


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def _soaked(plan: Plan) -> Soaked:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-soak-"))
    try:
        found = soak(plan, folder / "run", _say)
    except BaseException:
        _say(f"what was written is in {folder}")
        raise
    shutil.rmtree(folder)
    for verdict in found.verdicts:
        _say(f"  {'kept    ' if verdict.is_kept else 'NOT KEPT'}  {verdict.name}: {verdict.figure}")
    finding = finding_of(found)
    keep(finding)
    _say(told(finding))
    return found


def finding_of(found: Soaked) -> Finding:
    """A soak as a line of the report."""
    broken = [f"{one.name}: {one.figure}" for one in found.verdicts if not one.is_kept]
    gap_s = max((one["heartbeat_gap_s"] for one in found.samples), default=0.0)
    wait_ms = quantile([one["wait_p99_ms"] for one in found.samples] or [0.0], 0.5)
    note = (
        f"{found.minutes:.3g} minutes at {found.rate:,.0f} jobs a second, of {found.drain_rate:,.0f} that drain under "
        f"kills; one worker is spared; "
        f"{10_000 * found.twice / max(1, found.acked):.2f} in 10,000 twice; {found.hits} kills hit a running job; "
        f"from due to claimed p99 {wait_ms:.0f} ms; longest time without a heartbeat {gap_s:.1f} s; "
        f"{len(found.verdicts)} verdicts"
    )
    took_s = found.recoveries_s
    return Finding(
        row="soak",
        store=found.store,
        fault=f"a load of {found.rate / found.drain_rate:.0%} of the drain rate, a worker is killed every few seconds",
        injected=found.kills,
        figures=Figures(acked=found.acked, completed=found.done, dead=found.dead, lost=found.lost, twice=found.twice),
        recovery_s=(quantile(took_s, 0.5), quantile(took_s, 0.99)) if took_s else None,
        note=f"{note}; NOT: {'; '.join(broken)}" if broken else note,
        seed=found.seed,
        is_kept=not broken,
    )


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
