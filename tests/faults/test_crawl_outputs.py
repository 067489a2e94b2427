"""A process that writes a crawl's output is killed, again and again: each item is there once in the end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.faults.conftest import waits
from tests.faults.crawl_writer import Settings, Summary, page
from tests.faults.load import Dice
from tests.faults.report import Figures, Report
from tests.faults.workers import ROOT

pytestmark = waits
STORE = "crawl"


def _items(path: Path) -> Counter[str]:
    if path.suffix == ".jsonl":
        return Counter(path.read_text().splitlines())
    with closing(apsw.Connection(str(path))) as db:
        return Counter(item for (item,) in db.execute("SELECT item FROM items"))


@pytest.mark.parametrize("name", ["pages.jsonl", "pages.db"])
def test_killed_at_any_instant_each_item_is_written_once(
    tmp_path: Path, name: str, is_full: bool, report: Report
) -> None:
    kills = 100 if is_full else 20 if name == "pages.jsonl" else 8
    settings = Settings(path=str(tmp_path / name), pages=75 * kills, kills=kills, seed=Dice().seed)
    command = [sys.executable, "-m", "tests.faults.crawl_writer", msgspec.json.encode(settings).decode()]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    summary = msgspec.json.decode(done.stdout.splitlines()[-1], type=Summary)
    assert summary.killed == settings.kills

    wanted = Counter(json.dumps(item, separators=(",", ":")) for n in range(settings.pages) for item in page(n).items)
    written = _items(tmp_path / name)
    assert written == wanted
    if name == "pages.jsonl":
        assert summary.torn >= kills // 4, "those that died between the lines and the ledger"
        assert summary.refused == settings.kills, "two processes wrote one file"
    report(
        f"the writer of an output ({name.partition('.')[2]}) killed at any instant",
        injected=summary.killed,
        figures=Figures(completed=written.total(), lost=(wanted - written).total(), twice=(written - wanted).total()),
        note=f"died between the lines and their ledger {summary.torn}, second writers refused {summary.refused}",
        seed=settings.seed,
    )
