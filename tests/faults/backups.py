"""Backups of each store, taken while it is in use, and restored by the means that its documentation names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from tests.faults.engines import Engine, PostgresEngine, RedisEngine, SqliteEngine
from tests.servers import program


class Backup(Protocol):
    """A copy of a store."""

    def take(self) -> None:
        """Copy it, while it is in use."""

    def restore(self) -> None:
        """Put the copy in its place; processes that were not stopped still have the former one open."""


def backup_of(engine: Engine, folder: Path) -> Backup:
    """The documented way for this store; the copy is in the folder."""
    if isinstance(engine, SqliteEngine):
        return _SqliteBackup(engine, folder)
    if isinstance(engine, PostgresEngine):
        return _PostgresBackup(engine, folder)
    assert isinstance(engine, RedisEngine)
    return _RedisBackup(engine, folder)


class _SqliteBackup:
    def __init__(self, engine: SqliteEngine, folder: Path) -> None:
        self._engine = engine
        self._copy = folder / "copy.db"

    def take(self) -> None:
        self._engine.sql("VACUUM INTO ?", (str(self._copy),))

    def restore(self) -> None:
        database = self._engine.database
        for suffix in ("", "-wal", "-shm"):
            path = database.with_name(database.name + suffix)
            if path.exists():
                path.rename(path.with_name(f"away-{path.name}"))
        shutil.move(self._copy, database)


class _PostgresBackup:
    def __init__(self, engine: PostgresEngine, folder: Path) -> None:
        self._dsn = engine.server.dsn()
        self._schema = parse_qs(urlsplit(engine.url).query)["schema"][0]
        self._copy = folder / "copy.dump"

    def take(self) -> None:
        self._run("pg_dump", "--format=custom", f"--schema={self._schema}", f"--file={self._copy}", self._dsn)

    def restore(self) -> None:
        self._run("pg_restore", "--clean", "--if-exists", "--single-transaction", f"--dbname={self._dsn}", self._copy)

    def _run(self, name: str, *arguments: str | Path) -> None:
        done = subprocess.run([program(name, "postgresql"), *arguments], check=False, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()


class _RedisBackup:
    def __init__(self, engine: RedisEngine, folder: Path) -> None:
        self._server = engine.server
        self._copy = folder / "copy"

    def take(self) -> None:
        with self._server.client() as client:
            assert client.info("persistence")["aof_rewrite_in_progress"] == 0  # the files are only appended to
        shutil.copytree(self._server.folder / "appendonlydir", self._copy)

    def restore(self) -> None:
        self._server.kill()
        shutil.rmtree(self._server.folder / "appendonlydir")
        shutil.move(self._copy, self._server.folder / "appendonlydir")
        self._server.start()
