"""Private servers for tests: real ones, on free ports, which a test may also kill, stop, configure and start again.

`redis_server` and `postgres_server` are shared by a session; `redis_url` and `postgres_url` are an empty place there
for one test. A test that breaks its server makes one of its own: `with RedisServer({"appendonly": "yes"}) as server`.
Kafka's are in kafka_server.py.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, Self

import psycopg
import pytest
import redis
import redis.backoff
import redis.retry

from holdfast.clock import SystemClock

PASSWORD: Final = "right"
NOT_INSTALLED: Final = "IS NOT INSTALLED"
_CLOCK: Final = SystemClock()
_READY_WITHIN_S: Final = 60.0


def missing(what: str) -> NoReturn:
    """Skip loudly, or fail when CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def find_program(name: str) -> str | None:
    """Where a program is, if it is there."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


def program(name: str, package: str) -> str:
    """Where a program is; without it the test is skipped, and fails when CI=true."""
    found = find_program(name)
    if found is None:
        missing(f"{name} {NOT_INSTALLED}: apt-get install {package}")
    return found


def _own_ports() -> Iterator[int]:
    """The ports of this test process, over and over, below those that the system gives to clients.

    A client would have got the port of a server that is about to start, or to come back; so would another process.
    """
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5
    start = os.getpid() % 4_000
    return (10_000 + 4_000 * own + (start + n) % 4_000 for n in itertools.count())


_PORTS: Final = _own_ports()


def free_port() -> int:
    """A loopback port that nobody listens on, and that nobody else is given meanwhile."""
    while True:
        port = next(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Server:
    """A server process with a folder and a port of its own, which it keeps over restarts."""

    def __init__(self, options: Mapping[str, str], user: str | None = None) -> None:
        self.options = dict(options)
        """Its configuration; a change takes effect at the next start."""
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-"))  # not tmp_path: the server's user must reach it
        self._user = user
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        if user is not None:
            shutil.chown(self.folder, user)

    # ---- what a server must say of itself

    def command(self) -> list[str]:
        """The program and its arguments."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        raise NotImplementedError

    # ---- its life

    @property
    def pid(self) -> int:
        """The process id of the server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def log(self) -> Path:
        """What it has printed."""
        return self.folder / "log"

    def start(self) -> None:
        """Start it on its port and its data, and wait until it takes connections."""
        # It dies with the tests, however they end.
        guard = [found, "--pdeathsig", "KILL", "--"] if (found := shutil.which("setpriv")) else []
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *self.command()], cwd=self.folder, user=self._user, stdout=log, stderr=subprocess.STDOUT
            )
        began_s = _CLOCK.monotonic()
        while not self.is_ready():
            if self._process.poll() is not None or _CLOCK.monotonic() - began_s > _READY_WITHIN_S:
                self.kill()
                raise AssertionError(f"{self.command()[0]} did not start: {self.log.read_text(errors='replace')}")
            _CLOCK.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL to it and to all its children, and wait until they are gone."""
        if self._process is None:
            return
        _send(self.pid, signal.SIGSTOP)  # it forks no more
        family = [self.pid, *children(self.pid)]
        for pid in family:
            _send(pid, signal.SIGKILL)
        self._process.wait(20)
        self._process = None
        while any(map(_is_alive, family)):
            _CLOCK.sleep(0.005)

    def pause(self) -> None:
        """SIGSTOP to it and to all its children: sockets stay open, and nobody answers."""
        for pid in [self.pid, *children(self.pid)]:
            _send(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        for pid in [self.pid, *children(self.pid)]:
            _send(pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        shutil.rmtree(self.folder)


class RedisServer(Server):
    """A redis-server; options are those of redis.conf, by default with nothing on disk."""

    password: Final = PASSWORD

    def __init__(self, options: Mapping[str, str] = {}) -> None:
        self._program = program("redis-server", "redis-server")
        super().__init__(options)

    def command(self) -> list[str]:
        """The program and its arguments."""
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "requirepass": self.password,
            "masterauth": self.password,
            "save": "",
            "repl-diskless-sync-delay": "0",  # or a replica waits 5 s for others to come
            "dir": str(self.folder),
            **self.options,
        }
        return [self._program, *(word for name, value in options.items() for word in (f"--{name}", value))]

    def is_ready(self) -> bool:
        """Whether it takes connections, and has read its data."""
        try:
            with self.client() as client:
                client.ping()
        except redis.RedisError:
            return False
        return True

    def client(self, timeout_s: float = 10.0) -> redis.Redis:
        """A client of this server that repeats nothing."""
        retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        return redis.Redis(port=self.port, password=self.password, socket_timeout=timeout_s, retry=retry)

    def dsn(self, *, port: int | None = None) -> str:
        """A redis-py URL."""
        return f"redis://:{self.password}@127.0.0.1:{port or self.port}/0"

    def url(self, prefix: str = "holdfast", *, port: int | None = None) -> str:
        """The store's URL, perhaps by another port."""
        return f"{self.dsn(port=port)}?prefix={prefix}"

    def fresh_prefix(self) -> str:
        """A prefix that no other test has."""
        return f"test{next(self._numbers)}"


class PostgresServer(Server):
    """A PostgreSQL server; options are those of postgresql.conf, by default without a wait for the disk.

    wal: an empty folder for its write-ahead log [with its data].
    """

    password: Final = PASSWORD
    user: Final = "holdfast"

    def __init__(self, options: Mapping[str, str] = {}, *, wal: Path | None = None) -> None:
        self._program = program("postgres", "postgresql")
        self._initdb = program("initdb", "postgresql")
        super().__init__(options, user="postgres" if os.geteuid() == 0 else None)  # it refuses to run as root
        self._data = self.folder / "data"
        self._wal = wal
        if wal is not None:
            shutil.chown(wal, self.folder.owner())

    def command(self) -> list[str]:
        """The program and its arguments."""
        options = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "max_connections": "200",
            "shared_buffers": "32MB",
            **self.options,
        }
        return [self._program, "-D", str(self._data), *(f"--{name}={value}" for name, value in options.items())]

    def start(self) -> None:
        """Start it, on a new cluster if there is none."""
        if not self._data.exists():
            self._make_cluster()
        super().start()

    def _make_cluster(self) -> None:
        password_file = self.folder / "password"
        password_file.write_text(self.password)
        password_file.chmod(0o644)
        arguments = ["-U", self.user, "-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"]
        if self._wal is not None:
            arguments.append(f"--waldir={self._wal}")
        command = [self._initdb, "-D", str(self._data), f"--pwfile={password_file}", *arguments]
        subprocess.run(command, check=True, cwd=self.folder, user=self._user, stdout=subprocess.DEVNULL)

    def is_ready(self) -> bool:
        """Whether it takes connections, by its own account."""
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:  # not yet, or not any more: it puts a new one in the place of an old one
            return False
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def backends(self) -> list[int]:
        """The process ids of the clients' own server processes."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            return [
                pid
                for (pid,) in connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
            ]

    def part(self, name: str) -> int:
        """The process id of one of its own processes, such as its checkpointer."""
        for pid in children(self.pid):
            with suppress(FileNotFoundError, ProcessLookupError):  # one that has just ended
                if name in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
        raise AssertionError(f"the server has no {name}")

    def dsn(self, *, password: str | None = None, database: str = "postgres", port: int | None = None) -> str:
        """A libpq URL."""
        return f"postgresql://{self.user}:{password or self.password}@127.0.0.1:{port or self.port}/{database}"

    def url(self, schema: str = "public", *, port: int | None = None) -> str:
        """The store's URL, perhaps by another port."""
        return f"{self.dsn(port=port)}?schema={schema}"

    def fresh_schema(self) -> str:
        """The name of a schema that no other test has; it is not made yet."""
        return f"test{next(self._numbers)}"

    def drop_schema(self, schema: str) -> None:
        """Remove a schema with all that is in it."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


def children(pid: int) -> list[int]:
    """All processes below one, however deep."""
    try:
        direct = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [below for one in direct for below in (one, *children(one))]


def _is_alive(pid: int) -> bool:
    """Whether it can still hold anything: one that nobody has waited for yet cannot."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has gone by itself


# ---------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server for the whole session; leave it as it was."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole session; leave it as it was."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> Iterator[str]:
    """The URL of an empty store on the session's Redis server."""
    yield redis_server.url(redis_server.fresh_prefix())
    with redis_server.client() as client:
        client.flushall()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty store on the session's PostgreSQL server."""
    schema = postgres_server.fresh_schema()
    yield postgres_server.url(schema)
    postgres_server.drop_schema(schema)
