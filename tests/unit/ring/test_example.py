"""The example that does the whole guide, as its users run it: killed, stopped, started again, mended."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from holdfast import App
from holdfast.ring.json_lines import FileLetter, read_letters

EXAMPLE = Path(__file__).parents[3] / "examples" / "ring_parquet.py"
N = 3_000
BAD = {300, 900, 1500, 2100, 2700}


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that a test has started, and that must not outlive it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        one.kill()
        one.communicate()


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLE), *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder: Path, *options: str) -> str:
    with start(folder, *options) as one:
        out, err = one.communicate(timeout=60)
    assert one.returncode == 0, err
    return out


def read_until(one: subprocess.Popen[str], word: str, times: int = 1) -> str:
    """The line in which it says this for the so-manieth time."""
    assert one.stdout is not None
    for line in one.stdout:
        times -= word in line
        if not times:
            return line
    pytest.fail(f"it has ended without {word!r}: {one.communicate()[1]}")


def rows(folder: Path, sink: str) -> list[dict[str, Any]]:
    """All rows of a sink, by line."""
    files = (folder / "out" / sink).rglob("part-*.parquet")
    return sorted((row for one in files for row in pq.ParquetFile(one).read().to_pylist()), key=lambda row: row["line"])


def lines(folder: Path, sink: str) -> list[int]:
    return [row["line"] for row in rows(folder, sink)]


def letters(folder: Path) -> list[FileLetter]:
    return list(read_letters(folder / "out" / "dead-letters.jsonl"))


def test_every_record_is_written_once_through_kill_stop_and_mending(
    tmp_path: Path, running: list[subprocess.Popen[str]]
) -> None:
    run(tmp_path, "--make", str(N), "--bad", str(len(BAD)))

    running.append(killed := start(tmp_path, "--pause", "0.05"))
    read_until(killed, "/orders/", 2)  # the checkpoint of the first one is saved by then
    read_until(killed, "/customers/", 2)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done_before = len(lines(tmp_path, "customers"))
    assert 0 < done_before < N

    running.append(stopped := start(tmp_path, "--pause", "0.05"))
    begun_at = int(read_until(stopped, "begins at line").split()[-1].replace(",", ""))
    assert 0 < begun_at <= done_before
    read_until(stopped, "/orders/", 2)
    read_until(stopped, "/customers/", 2)
    stopped.send_signal(signal.SIGTERM)
    out, err = stopped.communicate(timeout=60)
    assert stopped.returncode == 128 + signal.SIGTERM, err
    assert "customers: " in out  # it came to its end, and did not just die
    assert done_before < len(lines(tmp_path, "customers")) < N

    run(tmp_path)
    assert lines(tmp_path, "orders") == [line for line in range(N) if line not in BAD]
    assert lines(tmp_path, "customers") == list(range(N))
    assert {(one.consumer, one.offset) for one in letters(tmp_path)} == {("orders", line) for line in BAD}
    assert [one.elements[0]["record"]["cents"] for one in letters(tmp_path)] == ["n/a"] * len(BAD)

    file = tmp_path / "out" / "dead-letters.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"n/a"', b"77"))
    said = [line for line in run(tmp_path, "--reprocess").splitlines() if not line.startswith("wrote ")]
    assert said == [f"Reprocessed(done={len(BAD)}, failed=0, kept=0, unreadable=0)"]
    assert lines(tmp_path, "orders") == list(range(N))
    assert {row["line"] for row in rows(tmp_path, "orders") if row["cents"] == 77} >= BAD
    assert not file.exists()

    assert run(tmp_path).splitlines() == [
        f"begins at line {N:,}",
        f"orders: 0 lines, 0 of them given up; up to line {N:,}",
        f"customers: 0 lines, 0 of them given up; up to line {N:,}",
    ]
    assert lines(tmp_path, "orders") == list(range(N))


def test_a_missing_source_is_one_line_and_nothing_is_made(tmp_path: Path, running: list[subprocess.Popen[str]]) -> None:
    running.append(one := start(tmp_path))
    out, err = one.communicate(timeout=60)
    assert (one.returncode, out, err) == (1, "", "[Errno 2] No such file or directory: 'orders.jsonl'\n")
    assert list(tmp_path.iterdir()) == []


def test_letters_in_the_inbox_are_mended_while_it_runs(tmp_path: Path, running: list[subprocess.Popen[str]]) -> None:
    run(tmp_path, "--make", "200", "--bad", "1")
    with open(tmp_path / "orders.jsonl", "ab") as file:
        file.write(b'{"id": 7, "cus')  # somebody is still writing it
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    running.append(following := start(tmp_path, "--follow", "--app", url))
    read_until(following, "day=2026-01-02/part-000000000000.parquet: 66 rows")
    app = App(url)
    try:
        while not (page := app.dead_letters.list(task="parquet/orders").items):
            pass  # its letter is written before its checkpoint, and after its neighbours' rows
        letter = msgspec.json.decode(app.dead_letters.get(page[0].id).payload)
        letter["elements"][0]["record"]["cents"] = 77
        app.dead_letters.retry(page[0].id, letter)
        read_until(following, "day=2026-01-02/part-000000000000.parquet: 67 rows")
    finally:
        app.close()
    following.send_signal(signal.SIGTERM)
    assert following.wait(timeout=60) == 128 + signal.SIGTERM
    assert lines(tmp_path, "orders") == list(range(200))


def test_it_says_what_to_install_where_pyarrow_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: list[subprocess.Popen[str]]
) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    running.append(one := start(tmp_path))
    _, err = one.communicate(timeout=60)
    assert (one.returncode, err) == (1, "this example needs pyarrow: pip install pyarrow\n")
