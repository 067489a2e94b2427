"""Where a soak's jobs live: each store on its own, with what its operator would watch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, Protocol

import psycopg

from tests.servers import PostgresServer, RedisServer, children

STORES: Final = ("sqlite", "postgres", "redis")
_MIB: Final = 1024.0 * 1024.0
# As durable as each is by default, and with times scaled down as everything else: what takes minutes takes seconds.
POSTGRES: Final = {
    "fsync": "on",
    "autovacuum_naptime": "5s",
    "checkpoint_timeout": "30s",
    "max_wal_size": "128MB",
    "min_wal_size": "64MB",
}
REDIS: Final = {"appendonly": "yes", "appendfsync": "everysec", "auto-aof-rewrite-min-size": "8mb"}


class Place(Protocol):
    """A store, as its operator sees it."""

    @property
    def url(self) -> str:
        """What an App is given."""

    def fresh_url(self) -> str:
        """Another store there, empty."""

    def pids(self) -> list[int]:
        """The processes of its server."""

    def sizes(self) -> Mapping[str, float]:
        """What it takes now, by name: in MiB, or a number."""


@contextmanager
def open_place(store: str, folder: Path) -> Iterator[Place]:
    """A store of this kind, empty; its server ends with the block."""
    if store == "sqlite":
        yield _SqlitePlace(folder)
    elif store == "postgres":
        with PostgresServer(POSTGRES) as postgres, closing(_PostgresPlace(postgres)) as place:
            yield place
    else:
        with RedisServer(REDIS) as redis:
            yield _RedisPlace(redis)


class _SqlitePlace:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._path = folder / "soak.db"
        self.url = f"sqlite:///{self._path}"

    def fresh_url(self) -> str:
        return f"sqlite:///{self._folder / f'{next(self._numbers)}.db'}"

    def pids(self) -> list[int]:
        return []

    def sizes(self) -> Mapping[str, float]:
        wal = self._path.with_name(f"{self._path.name}-wal")
        return {"file_mib": self._path.stat().st_size / _MIB, "wal_mib": _size(wal)}


class _PostgresPlace:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._schema = server.fresh_schema()
        self.url = server.url(self._schema)
        self._session = psycopg.connect(server.dsn(), autocommit=True)

    def fresh_url(self) -> str:
        return self._server.url(self._server.fresh_schema())

    def pids(self) -> list[int]:
        """Without the processes of sessions: those are as many as there are clients, and are killed with them."""
        sessions = {
            pid
            for (pid,) in self._session.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('client backend', 'autovacuum worker')"
            )
        }
        return [pid for pid in (self._server.pid, *children(self._server.pid)) if pid not in sessions]

    def sizes(self) -> Mapping[str, float]:
        row = self._session.execute(
            "SELECT sum(pg_table_size(relid)), sum(pg_indexes_size(relid)), sum(n_dead_tup),"
            " (SELECT sum(size) FROM pg_ls_waldir()),"
            " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
            " FROM pg_stat_user_tables WHERE schemaname = %s",
            [self._schema],
        ).fetchone()
        assert row is not None
        tables, indexes, dead, wal, sessions = (float(one or 0) for one in row)
        return {
            "tables_mib": tables / _MIB,
            "indexes_mib": indexes / _MIB,
            "dead_rows": dead,
            "wal_mib": wal / _MIB,
            "sessions": sessions,
        }

    def close(self) -> None:
        """Give the session back."""
        self._session.close()


class _RedisPlace:
    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.url = self.fresh_url()

    def fresh_url(self) -> str:
        return self._server.url(self._server.fresh_prefix())

    def pids(self) -> list[int]:
        return [self._server.pid]

    def sizes(self) -> Mapping[str, float]:
        with self._server.client() as client:
            info = client.info()
        files = sum(_size(path) for path in self._server.folder.glob("appendonlydir/*"))
        return {"memory_mib": info["used_memory"] / _MIB, "aof_mib": files, "sessions": info["connected_clients"]}


def _size(path: Path) -> float:
    try:
        return path.stat().st_size / _MIB
    except FileNotFoundError:  # a file of the server's own may be replaced at any moment
        return 0.0
