"""Worker, dev, replays and top, as a user runs them: real processes on a store in a file."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.clock import SystemClock
from holdfast.stores.sqlite import SqliteStore

T = TypeVar("T")
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PATIENCE_S = 60.0
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

SHOP = """
from pathlib import Path
from holdfast import App, Permanent

app = App("sqlite:///shop.db")
WORD = "charged"


@app.task
def charge(order_id: int, cents: int = 5) -> str:
    if cents > 100:
        raise Permanent(f"order {order_id}: declined")
    return f"{WORD} {cents}"


@app.task
def hang(until: str) -> None:
    Path(until).with_suffix(".begun").touch()
    while not Path(until).exists():
        Path(until).parent.stat()
"""


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"HOLDFAST_URL": "sqlite:///shop.db", "COLUMNS": "200"}
        self.environment.pop("HOLDFAST_APP", None)

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [HOLDFAST, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            **{"stderr": subprocess.PIPE} | more,
        )

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        with self.start(*words) as process:
            out, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, out + errors
        return out, errors

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code)[0].splitlines()[-1])

    def enqueue(self, task: str, arguments: dict[str, Any]) -> str:
        found: str = self.json("enqueue", "shop:app", task, json.dumps(arguments))["id"]
        return found

    def look(self, ask: Callable[[SqliteStore], Coroutine[Any, Any, T]]) -> T:
        """What the store says, without another process."""

        async def asked() -> T:
            store = SqliteStore(self.folder / "shop.db")
            try:
                return await ask(store)
            finally:
                await store.close()

        return asyncio.run(asked())

    def states(self, *jobs: str) -> list[str]:
        return [record.state.value for record in self.look(lambda store: store.get(jobs)) if record is not None]

    def workers(self) -> set[str]:
        if not (self.folder / "shop.db").exists():
            return set()
        return {one.id for one in self.look(lambda store: store.stats()).workers}

    @contextmanager
    def worker(self, *words: str, command: str = "worker") -> Iterator[subprocess.Popen[str]]:
        """A worker that is stopped in the end, and said where its store is."""
        with self.start(command, "shop:app", *words) as process:
            try:
                assert process.stdout is not None
                first = process.stdout.readline()
                assert first.split() == ["store", str(self.folder / "shop.db")], first + str(process.communicate())
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                process.communicate(timeout=PATIENCE_S)


def until(is_so: Callable[[], bool]) -> None:
    clock = SystemClock()
    end_s = clock.monotonic() + PATIENCE_S
    while not is_so():
        assert clock.monotonic() < end_s, "it has not come to pass"
        clock.sleep(0.05)


def open_shop(folder: Path) -> Shop:
    (folder / "shop.py").write_text(SHOP)
    return Shop(folder)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return open_shop(tmp_path)


def test_a_worker_runs_jobs_and_drains_at_the_first_signal(shop: Shop) -> None:
    job = shop.enqueue("charge", {"order_id": 1})
    with shop.worker("--processes", "2") as worker:
        until(lambda: shop.states(job) == ["completed"])
        worker.send_signal(signal.SIGINT)
        assert worker.stdout is not None
        out = worker.stdout.read()
        worker.wait(20.0)  # it closes its output before it has ended, and leaving the block is a second signal
    assert worker.returncode == 0
    assert "2 processes; Ctrl-C finishes what is running" in out
    assert "stopped: everything that had begun was finished" in out


def test_a_worker_takes_only_the_queues_that_it_was_told(shop: Shop) -> None:
    other = shop.enqueue("charge", {"order_id": 1})
    mine = shop.json("enqueue", "shop:app", "charge", '{"order_id": 2}', "--queue", "mine")["id"]
    with shop.worker("--queues", "mine, more"):
        until(lambda: shop.states(mine) == ["completed"])
        assert shop.states(other) == ["queued"]


def test_a_second_signal_ends_a_worker_at_once(shop: Shop) -> None:
    job = shop.enqueue("hang", {"until": str(shop.folder / "go.txt")})
    with shop.worker() as worker:
        until((shop.folder / "go.begun").exists)
        assert shop.states(job) == ["running"]
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 128 + signal.SIGTERM


def test_start_and_end_of_a_worker_are_json(shop: Shop) -> None:
    with shop.start("worker", "shop.py", "--json") as worker:
        assert worker.stdout is not None
        start = json.loads(worker.stdout.readline())
        until(lambda: bool(shop.workers()))
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=PATIENCE_S)
    assert (start["kind"], start["store"]) == ("start", str(shop.folder / "shop.db"))
    assert start["tasks"] == ["shop.charge", "shop.hang"]
    assert json.loads(out) == {"kind": "end", "code": 0, "restarts": 0}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["worker"], "Error: which app? Give TARGET as module:app or file.py:app, or set HOLDFAST_APP"),
        (["worker", "nowhere:app"], "Error: cannot load nowhere:app: ModuleNotFoundError: No module named 'nowhere'"),
        (["worker", "broken:app"], "Error: cannot load broken:app: ZeroDivisionError: division by zero ("),
        (["worker", "shop:WORD"], "Error: cannot load shop:WORD: it is a str, not a holdfast.App"),
        (["worker", "empty:app"], "Error: empty:app has no tasks"),
        (["worker", "unopened:app"], "Error: {folder}/no/shop.db: the folder {folder}/no does not exist"),
        (["worker", "badly:app"], "Error: cannot load badly:app: url='mysql://x': must be one such as"),
        (["worker", "shop:app", "--lease", "0s"], "Error: lease_s=0.0: must be a number, above 0"),
        (["worker", "shop:app", "--queues", ","], "Error: --queues names none"),
        (
            ["worker", "streamed:app"],
            "Error: url='kafka://host/orders': needs a package that is missing (confluent_kafka)",
        ),
        (
            ["dev", "streamed:app"],
            "Error: url='kafka://host/orders': needs a package that is missing (confluent_kafka)",
        ),
        (["worker", "mistaken:app"], "Error: url: has no option 'shard'; there are db, shards"),
        (["worker", "streamed:app", "--streams", "other"], "Error: --streams: streamed:app has no stream 'other'"),
        (["dev", "nowhere:app"], "Error: cannot load nowhere:app: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_worker_that_cannot_start_says_why_in_one_line(shop: Shop, words: list[str], line: str) -> None:
    (shop.folder / "broken.py").write_text("1 / 0\n")
    (shop.folder / "empty.py").write_text("from holdfast import App\napp = App()\n")
    (shop.folder / "unopened.py").write_text(SHOP.replace("sqlite:///shop.db", "sqlite:///no/shop.db"))
    (shop.folder / "badly.py").write_text(SHOP.replace("sqlite:///shop.db", "mysql://x"))
    stream = "\n\n@app.stream('{}', group='billing')\ndef bill(order: dict[str, int]) -> None: ...\n"
    hidden = "import sys\nsys.modules['confluent_kafka'] = None\n"
    (shop.folder / "streamed.py").write_text(hidden + SHOP + stream.format("kafka://host/orders"))
    (shop.folder / "mistaken.py").write_text(SHOP + stream.format("redis://host/orders?shard=2"))
    out, errors = shop.run(*words, code=2)
    assert out == ""
    assert errors.startswith(line.format(folder=shop.folder))
    assert errors.count("\n") == 1


def test_dev_says_what_it_watches_and_starts_again_when_a_file_changes(shop: Shop) -> None:
    with shop.worker(command="dev") as worker:
        assert worker.stdout is not None
        lines = [worker.stdout.readline() for _ in range(3)]
        assert lines[2].split()[:2] == ["watching", f"{shop.folder}:"]
        first = shop.enqueue("charge", {"order_id": 1})
        until(lambda: shop.states(first) == ["completed"])
        before = shop.workers()
        assert {one["id"] for one in shop.json("top")["workers"]} == before
        (shop.folder / "shop.py").write_text(SHOP.replace('"charged"', '"paid"'))
        until(lambda: bool(shop.workers() - before))
        second = shop.enqueue("charge", {"order_id": 2})
        until(lambda: shop.states(second) == ["completed"])
        assert shop.json("jobs", "show", second)["result"] == "paid 5"


BROKEN_SAVES = {
    "import nothing_of_the_kind\n": "ModuleNotFoundError: No module named 'nothing_of_the_kind' ({shop}, line 1)",
    "x = 1\nnothing\n": "NameError: name 'nothing' is not defined ({shop}, line 2)",
    "x = (\n": "SyntaxError: '(' was never closed (shop.py, line 1)",
}


def test_dev_waits_after_each_broken_save_and_says_when_it_runs_again(shop: Shop) -> None:
    path = shop.folder / "shop.py"
    log = shop.folder / "log"
    waiting = "could not start: waiting for the next change"
    with log.open("w") as errors, shop.start("dev", "shop:app", stderr=errors) as dev:
        until(lambda: log.read_text().count("is running shop:app") == 1)
        for number, (broken, line) in enumerate(BROKEN_SAVES.items(), start=1):
            path.write_text(broken)
            until(lambda: log.read_text().count(waiting) == number)  # noqa: B023 - asked before the next one
            assert f"holdfast worker: {line.format(shop=path)}\n" in log.read_text()
        path.write_text(SHOP + "\n")
        until(lambda: log.read_text().count("is running shop:app") == 2)
        dev.send_signal(signal.SIGTERM)
        dev.communicate(timeout=PATIENCE_S)
    assert dev.returncode == 0
    assert "started again" not in log.read_text()
    assert log.read_text().count("could not start") == len(BROKEN_SAVES)


def test_a_replay_is_waited_for_until_it_is_done_or_has_stopped(shop: Shop) -> None:
    letters = [shop.enqueue("charge", {"order_id": i, "cents": 500}) for i in range(3)]
    with shop.worker():
        until(lambda: shop.states(*letters) == ["dead_letter"] * 3)
        out, errors = shop.run("dlq", "replay", "--all", "--canary", "1", "--wait", code=1)
        assert "stopped: 1 of 3 sent" in out
        assert "it has stopped: canary" in errors
        assert "failed again with the same cause" in errors
        out, errors = shop.run("dlq", "replay", "--all", "--canary", "1", "--edit", '{"cents": 5}', "--wait")
        assert "done: 3 of 3 sent" in out
        assert errors == ""
        until(lambda: shop.states(*letters) == ["completed"] * 3)


def on_a_terminal(shop: Shop, *words: str) -> tuple[int, str]:
    """Run it with a terminal as its output."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [HOLDFAST, *words], cwd=shop.folder, env=shop.environment, stdin=follower, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        seen = b""
        while True:
            try:
                more = os.read(leader, 65536)
            except OSError:
                break  # the other end is closed
            if not more:
                break
            seen += more
        process.wait(PATIENCE_S)
    os.close(leader)
    return process.returncode, seen.decode()


def test_top_is_live_on_a_terminal(shop: Shop) -> None:
    shop.enqueue("charge", {"order_id": 1})
    code, seen = on_a_terminal(shop, "top", "--count", "3", "--every", "0.05s")
    assert code == 0
    assert seen.count("no worker is running") >= 2
    assert "\x1b[" in seen


@pytest.fixture(scope="module")
def failing_shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop with letters and a replay, to be looked at."""
    shop = open_shop(tmp_path_factory.mktemp("failing"))
    calls = "[charge.bind(n, cents=500) for n in range(9)]"
    code = f"from shop import app, charge; charge.enqueue_many({calls}); app.run_until_idle()"
    subprocess.run([sys.executable, "-c", code], cwd=shop.folder, env=shop.environment, check=True, capture_output=True)
    shop.run("dlq", "replay", "--all")
    return shop


@pytest.mark.parametrize("columns", [80, 100])
def test_tables_fit_the_terminal(failing_shop: Shop, columns: int) -> None:
    shop = failing_shop
    shop.environment |= {"COLUMNS": str(columns)}
    seen = {
        words: _COLOUR.sub("", on_a_terminal(shop, *words.split())[1]).splitlines()
        for words in ("jobs list", "dlq list", "dlq", "dlq replays", "top --count 1", "queues", "breakers")
    }
    for words, lines in seen.items():
        assert max(map(len, lines)) <= columns, words
    for words in ("jobs list", "dlq list"):
        assert len(seen[words]) == 2 + 9
        assert all(line.split()[1] == "shop.charge" for line in seen[words][2:])
        assert all(line.rstrip().endswith("…") for line in seen[words][2:])
    assert all(len(seen[words]) == 2 + 1 for words in ("dlq", "dlq replays", "queues"))
    assert "shop.charge" in seen["dlq"][2]
    first = seen["jobs list"][2].split()[0]
    assert shop.json("jobs", "show", first)["id"].startswith(first)


def test_colours_are_for_terminals_only(shop: Shop) -> None:
    shop.enqueue("charge", {"order_id": 1})
    assert "\x1b[" in on_a_terminal(shop, "jobs", "list")[1]
    assert "\x1b[" not in shop.run("jobs", "list")[0]


def test_a_letter_that_the_terminal_does_not_have_ends_no_command(shop: Shop) -> None:
    shop.environment |= {"PYTHONIOENCODING": "latin-1"}
    job = shop.enqueue("hang", {"until": "✓"})
    assert "\\u2713" in shop.run("jobs", "show", job)[0]
    assert "\\u2717 workers" in shop.run("doctor", code=1)[0]
    assert job in shop.run("jobs", "list")[0]


def test_a_reader_that_goes_away_is_no_traceback(shop: Shop) -> None:
    shop.enqueue("charge", {"order_id": 1})
    with shop.start("jobs", "list", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
