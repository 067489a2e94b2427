"""The stores under test as their operators see them: where they are, and what they themselves note about every job.

The audit trail is kept by the engine, not by Holdfast: a trigger in SQLite and PostgreSQL, Redis's append-only file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import apsw
import psycopg

from holdfast.clock import chance
from holdfast.ports import Store
from holdfast.testing import FaultProxy
from holdfast.types import Rng
from tests.faults.checker import Transition
from tests.servers import PostgresServer, RedisServer


class Hold(Protocol):
    """Keeps what a worker has to say away from the store."""

    url: str
    """Where that worker must look for the store."""

    def begin(self) -> None:
        """Nothing that it sends arrives from now on."""

    def let_others_go(self) -> None:
        """The worker stands still by itself now; others must be able to go on."""

    def end(self) -> None:
        """Whatever was held arrives."""


class Engine(Protocol):
    """One store, seen from outside."""

    @property
    def url(self) -> str:
        """What an App is given."""

    def begin_audit(self) -> None:
        """From here on every change of a job's state is noted, whoever makes it."""

    def transitions(self) -> list[Transition]:
        """The audit trail."""

    def hold(self) -> Hold:
        """A way to keep settlements back."""

    def set_version(self, number: int) -> None:
        """Let the store look as if another version of Holdfast had made it."""

    def close(self) -> None:
        """Give back what was taken."""


# ---------------------------------------------------------------- SQLite

_SQLITE_AUDIT: Final = """
CREATE TABLE audit (number INTEGER PRIMARY KEY, job TEXT, before TEXT, after TEXT, token TEXT);
CREATE TRIGGER audit_states AFTER UPDATE OF state, token ON holdfast_jobs BEGIN
    INSERT INTO audit (job, before, after, token)
    VALUES (new.id, old.state, new.state, lower(hex(new.token)));
END;
"""


class SqliteEngine:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "shop.db"
        self.url = f"sqlite:///{self.database}"

    def begin_audit(self) -> None:
        """By a trigger."""
        self.sql(_SQLITE_AUDIT)

    def transitions(self) -> list[Transition]:
        """The audit trail."""
        return [Transition(*row) for row in self.sql("SELECT job, before, after, token FROM audit ORDER BY number")]

    def set_version(self, number: int) -> None:
        """As a newer Holdfast would."""
        self.sql("UPDATE holdfast_meta SET value = ? WHERE key = 'schema_version'", (number,))

    def sql(self, statements: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Straight into the file, as an operator might."""
        with self.connection() as db:
            return db.execute(statements, parameters).fetchall()

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        """The file, opened beside the product."""
        db = apsw.Connection(str(self.database))
        db.set_busy_timeout(5_000)
        try:
            yield db
        finally:
            db.close()

    def hold(self) -> Hold:
        """By the write lock, which keeps back everybody, and so for as long as the worker runs only."""
        return _WriteLock(self)

    def close(self) -> None:
        """Nothing is held open."""


class _WriteLock:
    """Nobody can write to the file meanwhile."""

    def __init__(self, engine: SqliteEngine) -> None:
        self.url = engine.url
        self._connection = engine.connection()

    def begin(self) -> None:
        """Take it."""
        self._connection.__enter__().execute("BEGIN IMMEDIATE")

    def let_others_go(self) -> None:
        """Give it back."""
        self._connection.__exit__(None, None, None)

    def end(self) -> None:
        """It was given back already: what the worker has to say waits within the worker."""


class _HeldRequests:
    """A proxy in front of the server that keeps back what one worker sends."""

    def __init__(self, proxy: FaultProxy, url: str) -> None:
        self._proxy = proxy
        self.url = url

    def begin(self) -> None:
        """Swallow it without a word."""
        self._proxy.blackhole("requests")

    def let_others_go(self) -> None:
        """They have a way of their own."""

    def end(self) -> None:
        """Deliver it, late as it is."""
        self._proxy.heal()


def is_free(engine: Engine) -> bool:
    """Whether nobody holds SQLite's write lock; other stores have none."""
    if not isinstance(engine, SqliteEngine):
        return True
    with engine.connection() as db:
        db.set_busy_timeout(300)
        try:
            db.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        db.execute("ROLLBACK")
    return True


# ---------------------------------------------------------------- servers


class _ServerEngine:
    """A store on a server, straight and by a proxy."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._proxies: list[FaultProxy] = []

    def proxy(self, rng: Rng = chance) -> FaultProxy:
        """A bad network in front of the server."""
        self._proxies.append(FaultProxy("127.0.0.1", self._port, rng=rng))
        return self._proxies[-1]

    def close(self) -> None:
        """End the proxies."""
        for proxy in self._proxies:
            proxy.close()


_POSTGRES_AUDIT: Final = """
CREATE TABLE audit (number bigserial PRIMARY KEY, job text, before text, after text, token text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO {schema}.audit (job, before, after, token)
    VALUES (new.id, old.state, new.state, encode(coalesce(new.token, old.token), 'hex'));
    RETURN NULL;
END $$;
CREATE TRIGGER audit_states AFTER UPDATE OF state, token ON holdfast_jobs FOR EACH ROW EXECUTE FUNCTION audit();
"""


class PostgresEngine(_ServerEngine):
    """A schema on a PostgreSQL server."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__(server.port)
        self.server = server
        self._schema = server.fresh_schema()
        self.url = server.url(self._schema)

    def url_by(self, proxy: FaultProxy) -> str:
        """The same store through a proxy."""
        return self.server.url(self._schema, port=proxy.port)

    def impatient(self, proxy: FaultProxy, limit_s: float) -> Store:
        """The same store through a proxy, by one who waits no longer than this for an answer."""
        from holdfast.stores.postgres import PostgresStore

        return PostgresStore(self.server.dsn(port=proxy.port), schema=self._schema, answer_s=limit_s)

    def begin_audit(self) -> None:
        """By a trigger."""
        self.sql(_POSTGRES_AUDIT.replace("{schema}", self._schema))

    def transitions(self) -> list[Transition]:
        """The audit trail. Changes of one job wait for each other, so its numbers are in order."""
        rows = self.sql("SELECT job, before, after, coalesce(token, '') FROM audit ORDER BY number")
        return [Transition(*row) for row in rows]

    def set_version(self, number: int) -> None:
        """As a newer Holdfast would."""
        self.sql(f"UPDATE holdfast_meta SET value = '{number}' WHERE key = 'schema_version'")

    def sql(self, statements: str) -> list[Any]:
        """Straight into the database, as an operator might."""
        with self.connection() as db:
            cursor = db.execute(statements.encode())
            return cursor.fetchall() if cursor.description else []

    def connection(self) -> psycopg.Connection:
        """A session beside the product, in the store's schema."""
        return psycopg.connect(self.server.dsn(), autocommit=True, options=f"-c search_path={self._schema}")

    def answers(self) -> bool:
        """Whether the server takes a session."""
        try:
            self.connection().close()
        except psycopg.OperationalError:
            return False
        return True

    def hold(self) -> Hold:
        """By a proxy."""
        proxy = self.proxy()
        return _HeldRequests(proxy, self.url_by(proxy))


# How lua/jobs.lua writes a state: its number first, and the token with its size behind this many bytes.
_REDIS_STATES: Final = ("queued", "running", "retrying", "waiting", "completed", "failed", "dead_letter", "cancelled")
_REDIS_FIXED: Final = 88
_ENDS: Final = frozenset({"completed", "failed", "dead_letter", "cancelled"})


class RedisEngine(_ServerEngine):
    """A prefix on a Redis server with an append-only file."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server.port)
        self.server = server
        self._prefix = server.fresh_prefix()
        self.url = server.url(self._prefix)

    def url_by(self, proxy: FaultProxy) -> str:
        """The same store through a proxy."""
        return self.server.url(self._prefix, port=proxy.port)

    def impatient(self, proxy: FaultProxy, limit_s: float) -> Store:
        """The same store through a proxy, by one who waits no longer than this for an answer."""
        from holdfast.stores.redis import RedisStore

        return RedisStore(self.server.dsn(port=proxy.port), prefix=self._prefix, answer_within_s=limit_s)

    def begin_audit(self) -> None:
        """The append-only file has it all anyway."""
        with self.server.client() as client:
            assert client.config_get("appendonly") == {"appendonly": "yes"}

    def transitions(self) -> list[Transition]:
        """What was written about each job, in the order in which it was."""
        states: dict[str, tuple[str, str]] = {}
        texts: dict[str, bytes] = {}
        found = []
        for name, key, *words in _written(self.server.folder):
            if key != f"{{{self._prefix}}}:state".encode():
                continue
            if name.upper() == b"HDEL":
                for one in words:
                    states.pop(one.decode(), None)
                continue
            assert name.upper() == b"HSET", f"{name!r} writes states"
            for job, text in zip(map(bytes.decode, words[::2]), words[1::2], strict=True):
                before, latest = states.get(job, ("", ""))
                after, token = _state_of(text)
                token = token or latest  # one that was given back is still the latest
                # Notes do not change a state; whatever is written once it has ended does.
                is_change = (before, latest) != (after, token) or (after in _ENDS and text != texts[job])
                if before and is_change:
                    found.append(Transition(job, before, after, token))
                states[job], texts[job] = (after, token), text
        return found

    def set_version(self, number: int) -> None:
        """As a newer Holdfast would."""
        with self.server.client() as client:
            client.hset(f"{{{self._prefix}}}:meta", "schema", str(number))

    def hold(self) -> Hold:
        """By a proxy."""
        proxy = self.proxy()
        return _HeldRequests(proxy, self.url_by(proxy))


def _state_of(text: bytes) -> tuple[str, str]:
    """The state and the token in what is written down about a job."""
    start = _REDIS_FIXED + 1
    return _REDIS_STATES[text[0]], text[start : start + text[start - 1]].decode()


def _written(folder: Path) -> Iterator[list[bytes]]:
    """Every write in the append-only files; what was torn by a kill is left out, as Redis does."""
    paths = sorted(folder.glob("appendonlydir/*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))
    together: list[list[bytes]] = []
    is_open = False
    for path in paths or [folder / "appendonly.aof"]:
        for words in _commands(path.read_bytes()):
            name = words[0].upper()
            if name == b"MULTI":
                together, is_open = [], True
            elif name == b"EXEC":
                yield from together
                is_open = False
            elif is_open:
                together.append(words)
            else:
                yield words


def _commands(data: bytes) -> Iterator[list[bytes]]:
    at = 0

    def line() -> bytes:
        nonlocal at
        end = data.index(b"\r\n", at)
        at, found = end + 2, data[at:end]
        return found

    while at < len(data):
        try:
            head = line()
            if head[:1] == b"#":  # a time stamp
                continue
            words = []
            for _ in range(int(head[1:])):
                size = int(line()[1:])
                words.append(data[at : at + size])
                at += size + 2
        except ValueError:
            return
        if at <= len(data):
            yield words
