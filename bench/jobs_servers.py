"""Private servers for bench-jobs, on free ports and a real disk; they end with it, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import redis
from jobs_subject import Place

UP_WITHIN_S = 60.0
PASSWORD = "bench"
USER = "holdfast"


def program(name: str) -> str:
    """Where a server's program is, by PATH or by Debian's habit."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    found = shutil.which(name) or (str(debian[-1]) if debian else None)
    if found is None:
        raise SystemExit(f"{name} is not installed: make servers")
    return found


@contextmanager
def _running(command: Sequence[str], folder: Path, user: str | None, stop: signal.Signals) -> Iterator[None]:
    guard = [found, "--pdeathsig", "KILL", "--"] if (found := shutil.which("setpriv")) else []
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen([*guard, *command], cwd=folder, user=user, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.send_signal(stop)
            process.wait(UP_WITHIN_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class RedisServer:
    """A redis-server, one database of which is emptied for each subject."""

    def __init__(self, folder: Path, port: int, version: str) -> None:
        self._folder, self._port = folder, port
        self.version = version

    @contextmanager
    def place(self) -> Iterator[Place]:
        own = self._folder / "own"
        own.mkdir()
        with redis.Redis(port=self._port) as client:
            try:
                yield Place(f"redis://127.0.0.1:{self._port}/0", own)
            finally:
                client.flushall()
                shutil.rmtree(own)


@contextmanager
def redis_server(folder: Path, *, appendfsync: str | None) -> Iterator[RedisServer]:
    """Without persistence, or with an append-only file that is synced so often."""
    folder.mkdir()
    port = _free_port()
    kept = ["--appendonly", "no"] if appendfsync is None else ["--appendonly", "yes", "--appendfsync", appendfsync]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *kept]
    with _running([program("redis-server"), *options], folder, None, signal.SIGTERM):
        with redis.Redis(port=port) as client:
            _wait(client.ping, redis.RedisError)
            version = client.info("server")["redis_version"]
        yield RedisServer(folder, port, version)
    shutil.rmtree(folder)


class PostgresServer:
    """A PostgreSQL server, with a database for each subject."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self._numbers = count(1)
        with psycopg.connect(self.url("postgres")) as connection:
            self.version: str = connection.info.parameter_status("server_version") or ""

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self._port}/{database}"

    @contextmanager
    def place(self) -> Iterator[Place]:
        own = self._folder / "own"
        own.mkdir()
        name = f"bench{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            try:
                yield Place(self.url(name), own)
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
                connection.execute("CHECKPOINT")  # what this one left to be written is not the next one's burden
                shutil.rmtree(own)


@contextmanager
def postgres_server(folder: Path) -> Iterator[PostgresServer]:
    """As initdb leaves it: fsync and synchronous_commit are on."""
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    folder.mkdir()
    if user is not None:
        shutil.chown(folder, user)
    password = folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    data = folder / "data"
    made = ["-D", str(data), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--no-locale"]
    subprocess.run([program("initdb"), *made], check=True, cwd=folder, user=user, stdout=subprocess.DEVNULL)
    port = _free_port()
    options = [f"--port={port}", "--listen_addresses=127.0.0.1", f"--unix_socket_directories={folder}"]
    with _running([program("postgres"), "-D", str(data), *options], folder, user, signal.SIGINT):
        url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres"
        _wait(lambda: psycopg.connect(url).close(), psycopg.OperationalError)
        yield PostgresServer(folder, port)
    shutil.rmtree(folder)


def _wait(ask: Callable[[], object], error: type[Exception]) -> None:
    began = time.monotonic()
    while True:
        try:
            ask()
        except error:
            if time.monotonic() - began > UP_WITHIN_S:
                raise
            time.sleep(0.02)
        else:
            return
