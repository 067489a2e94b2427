"""Private servers for integration tests: started on free ports, once a session, and stopped at its end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class RedisServer:
    port: int
    password: str


@dataclass(frozen=True)
class PostgresServer:
    port: int
    user: str
    password: str

    def dsn(self, *, password: str | None = None, database: str = "postgres") -> str:
        return f"postgresql://{self.user}:{password or self.password}@127.0.0.1:{self.port}/{database}"


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def program(name: str) -> str:
    """Where a server's binary is; without it the test is skipped, and fails under CI."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = shutil.which(name) or (str(debian[0]) if debian else None)
    if found is None:
        missing = f"{name} IS NOT INSTALLED: apt-get install redis-server postgresql"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer(free_port(), "right")
    options = ["--port", str(server.port), "--bind", "127.0.0.1", "--requirepass", server.password, "--save", ""]
    with subprocess.Popen([program("redis-server"), *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if not any("Ready to accept connections" in line for line in process.stdout):
            pytest.fail("redis-server ended before it was ready")
        yield server
        process.terminate()
        process.stdout.read()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer(free_port(), "holdfast", "right")
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))  # not tmp_path: the server's user must reach it
    user = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    if user is not None:
        shutil.chown(folder, user)

    def run(*command: str) -> None:
        subprocess.run(command, check=True, cwd=folder, user=user, stdout=subprocess.DEVNULL)

    password_file = folder / "password"
    password_file.write_text(server.password)
    password_file.chmod(0o644)
    data = str(folder / "data")
    options = f"-p {server.port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        run(initdb, "-D", data, "-U", server.user, "-A", "scram-sha-256", "--no-sync", f"--pwfile={password_file}")
        run(pg_ctl, "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        yield server
        run(pg_ctl, "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
