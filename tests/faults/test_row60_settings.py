"""Row 60: wrong settings. Each is refused at the start with one clear line, and nothing has begun by then."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import apsw
import pytest

from tests.faults.conftest import full_only
from tests.faults.fuse_mount import fuse_folder
from tests.faults.report import Report
from tests.faults.small_disk import small_disk
from tests.servers import PostgresServer, RedisServer, free_port

SHOP: Final = """
import os
from holdfast import App, RetryPolicy
from holdfast.runtime.worker import WorkerSettings

app = App(os.environ.get("STORE", "sqlite:///shop.db"))

@app.task(name="work")
def work() -> None: ...

exec(os.environ.get("LINE", ""))
"""
SECRET: Final = "geheim"
WORKER: Final = ("worker", "shop.py:app")
SERVE: Final = ("serve", "shop.py:app", "--port", "0")


class Wrong(NamedTuple):
    """What is set wrongly, and what must stand in the line about it."""

    says: str
    words: Sequence[str] = WORKER
    line: str = ""
    """Of the program."""
    store: str = ""
    code: int = 2


SETTINGS: Final[dict[str, Wrong]] = {
    "lease below heartbeat": Wrong(
        r"lease_s=2: must be more than twice heartbeat_s=3", line="WorkerSettings(lease_s=2, heartbeat_s=3)"
    ),
    "no lease": Wrong(r"lease_s=0\.0: must be a number, above 0", (*WORKER, "--lease", "0s")),
    "a lease of two days": Wrong(r"lease_s=172800\.0: .*at most 86400", (*WORKER, "--lease", "2d")),
    "a negative lease": Wrong("--lease.*'-5s' is no length of time", (*WORKER, "--lease", "-5s")),
    "max_retries -1": Wrong(
        r"max_retries=-1: must be a whole number of at least 0", line="RetryPolicy(max_retries=-1)"
    ),
    "negative delay": Wrong(r"delay=-5: must be a number, at least 0", line="work.options(delay=-5)"),
    "negative delay of a command": Wrong("--delay.*'-5s'", ("enqueue", "shop.py:app", "work", "{}", "--delay", "-5s")),
    "no process": Wrong("--processes.*0 is not in the range", (*WORKER, "--processes", "0")),
    "no queue": Wrong("--queues names none", (*WORKER, "--queues", ",")),
    "a schedule that never fires": Wrong(
        "'0 0 30 2 .*': Bad day-of-month", line="app.schedule(work.bind(), cron='0 0 30 2 *', name='x')"
    ),
    "no such app": Wrong("has no 'nope'", ("worker", "shop.py:nope")),
    "no such file": Wrong("there is no file", ("worker", "nope.py:app")),
    "no app at all": Wrong("which app", ("worker",)),
    "a program that fails": Wrong(r"ZeroDivisionError.*shop\.py, line", line="1 / 0"),
    "an address for all without tokens": Wrong("needs --tokens FILE", (*SERVE, "--host", "0.0.0.0")),
    "no tokens file": Wrong("tokens: there is no file", (*SERVE, "--tokens", "none.toml")),
    "a port beyond ports": Wrong("--port.*99999", ("serve", "shop.py:app", "--port", "99999")),
}
URLS: Final[dict[str, Wrong]] = {
    "unknown scheme": Wrong("must be one such as", store=f"mysql://u:{SECRET}@host/db"),
    "no URL": Wrong("must be one such as", store="shop"),
    "two slashes": Wrong("three slashes and a path", store="sqlite://shop.db"),
    "no such folder": Wrong("the folder .* does not exist", store="sqlite:////no/such/folder/shop.db"),
    "a folder": Wrong("this is a folder", store="sqlite:////tmp"),
    "unknown option of SQLite": Wrong("the only option is", store="sqlite:///shop.db?cache=shared"),
    "unknown option of PostgreSQL": Wrong("has no option 'nope'", store=f"postgresql://u:{SECRET}@host/db?nope=1"),
    "unknown option of Redis": Wrong("has no option 'nope'", store="redis://host/0?nope=1"),
    "a driver in the scheme": Wrong(r"leave out \+asyncpg", store=f"postgresql+asyncpg://u:{SECRET}@host/db"),
    "a database of Redis that is no number": Wrong("number of a database", store="redis://host/shop"),
    "a stray @ in a password": Wrong("more than one @", store=f"postgresql://u:{SECRET}@x@host/db"),
}
QUICK: Final = ("lease below heartbeat", "unknown scheme", "no tokens file")


class Desk:
    """A folder with the program, where commands are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SHOP)
        self.messages: dict[str, str] = {}

    def run(self, words: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST")} | dict(env),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def fill(self, store: str) -> None:
        """Make a store there, with a job."""
        ran = self.run(("enqueue", "shop.py:app", "work", "{}"), {"STORE": store})
        assert ran.returncode == 0, ran.stderr

    def refuses(self, name: str, wrong: Wrong) -> None:
        """It ends with one line that says what is wrong, and with no password in it."""
        ran = self.run(wrong.words, {"LINE": wrong.line} | ({"STORE": wrong.store} if wrong.store else {}))
        code, said = ran.returncode, ran.stderr
        assert ran.stdout == "", f"{name}: it says that it has begun"
        lines = [line for line in said.splitlines() if line]
        errors = [line for line in lines if not line.startswith(("Usage: ", "Try '"))]  # these come before it
        assert (code, len(errors)) == (wrong.code, 1), f"{name}: {code}, {said}"
        assert re.search(wrong.says, errors[0]), f"{name}: {errors[0]}"
        assert errors[0].startswith("Error: ")
        assert SECRET not in said
        self.messages[name] = errors[0].removeprefix("Error: ").replace(f"{self.folder}/", "")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _shown(messages: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: “{said if len(said) < 90 else said[:88] + '…'}”" for name, said in messages.items())


def test_a_wrong_setting_is_refused_in_one_line(desk: Desk, is_full: bool, report: Report) -> None:
    cases = {**SETTINGS, **URLS}
    for name in cases if is_full else QUICK:
        desk.refuses(name, cases[name])
    report(
        "wrong settings, programs and URLs, given to real commands",
        injected=len(desk.messages),
        note=f"each ends with code 2 and one line, no traceback, no password: {_shown(desk.messages)}",
        store="any",
    )


def test_a_port_that_is_taken_is_refused_in_one_line(desk: Desk, report: Report) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        desk.refuses("server", Wrong("cannot listen at 127.0.0.1, port", ("serve", "shop.py:app", "--port", port)))
        desk.refuses("metrics", Wrong(f"--metrics-port {port}: cannot listen", (*WORKER, "--metrics-port", port)))
    report("a port that another has", injected=2, note=_shown(desk.messages), store="any")


# ---------------------------------------------------------------- each store


@full_only
def test_a_file_that_cannot_be_the_store_is_refused_in_one_line(desk: Desk, report: Report) -> None:
    folder = desk.folder
    (folder / "text.db").write_text("this is no database\n" * 100)
    _sql(folder / "other.db", "PRAGMA application_id = 77; CREATE TABLE theirs (x)")
    desk.fill("sqlite:///newer.db")
    _sql(folder / "newer.db", "UPDATE holdfast_meta SET value = 999 WHERE key = 'schema_version'")
    desk.refuses("no database", Wrong("text.db", store="sqlite:///text.db"))
    desk.refuses("another program's", Wrong("belongs to another program", store="sqlite:///other.db"))
    desk.refuses("a newer Holdfast's", Wrong("made by a newer Holdfast", store="sqlite:///newer.db"))
    (folder / "disk").mkdir()
    with small_disk(folder / "disk", 8) as disk:
        desk.fill(f"sqlite:///{disk}/shop.db")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        desk.refuses("on a read-only disk", Wrong("shop.db", store=f"sqlite:///{disk}/shop.db"))
    with fuse_folder(folder / "net", "fuse.sshfs") as net:
        desk.refuses(
            "on a network disk", Wrong(r"network file system \(fuse\.sshfs\)", store=f"sqlite:///{net}/shop.db")
        )
    report("files that cannot be the store", injected=len(desk.messages), note=_shown(desk.messages), store="sqlite")


@full_only
def test_a_postgres_that_cannot_be_the_store_is_refused_in_one_line(
    desk: Desk, postgres_server: PostgresServer, report: Report
) -> None:
    good = postgres_server.url(postgres_server.fresh_schema())
    desk.fill(good)
    wrong_password = good.replace(f":{postgres_server.password}@", f":{SECRET}@")
    assert wrong_password != good
    desk.refuses("wrong password", Wrong("does not accept the password", store=wrong_password))
    no_database = re.sub(r"(:\d+)/[^?]*", r"\1/nowhere", good)
    desk.refuses("no such database", Wrong("there is no such database", store=no_database))
    away = good.replace(f":{postgres_server.port}/", f":{free_port()}/")
    desk.refuses("nobody there", Wrong("cannot be reached", ("jobs", "list", "--url", away)))
    report("PostgreSQL servers that cannot be the store", injected=3, note=_shown(desk.messages), store="postgres")


@full_only
def test_a_redis_that_cannot_be_the_store_is_refused_in_one_line(
    desk: Desk, redis_server: RedisServer, report: Report
) -> None:
    ours, theirs, newer = (redis_server.fresh_prefix() for _ in range(3))
    desk.fill(redis_server.url(ours))
    desk.fill(redis_server.url(newer))
    with redis_server.client() as client:
        client.set(f"{{{theirs}}}:meta", "another program's")
        client.hset(f"{{{newer}}}:meta", "schema", "999")
    wrong_password = redis_server.url(ours).replace(f":{redis_server.password}@", f":{SECRET}@")
    no_database = redis_server.url(ours).replace("/0?", "/999?")
    away = redis_server.url(ours).replace(f":{redis_server.port}/", f":{free_port()}/")
    desk.refuses("wrong password", Wrong("password is wrong", store=wrong_password))
    desk.refuses("no such database", Wrong("no database of this number", store=no_database))
    desk.refuses("nobody there", Wrong("cannot be reached", ("jobs", "list", "--url", away)))
    desk.refuses("a prefix of another program", Wrong("another program", store=redis_server.url(theirs)))
    desk.refuses("a newer Holdfast's", Wrong("schema 999", store=redis_server.url(newer)))
    with redis_server.client() as client:
        assert client.get(f"{{{theirs}}}:meta") == b"another program's", "what is another's was touched"
    report("Redis servers that cannot be the store", injected=5, note=_shown(desk.messages), store="redis")


def _sql(path: Path, statements: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(statements)
    db.close()
