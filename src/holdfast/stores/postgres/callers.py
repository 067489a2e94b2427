"""Connections that callers bring: new jobs are written inside of their transactions, which we never end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final

import psycopg
import psycopg.rows

from holdfast.errors import ConfigError, StoreAway, StoreError
from holdfast.ports import Enqueued
from holdfast.stores.postgres.arrays import register
from holdfast.stores.postgres.enqueue import Setting, Statement, add_jobs_with_keys, told
from holdfast.stores.postgres.faults import translated
from holdfast.stores.postgres.queries import load, qualified
from holdfast.types import NewJob

_IDLE: Final = psycopg.pq.TransactionStatus.IDLE
_WHAT: Final = "psycopg.Connection, or SQLAlchemy's Connection or Session with the postgresql+psycopg driver"
_WHAT_ASYNC: Final = "psycopg.AsyncConnection, or SQLAlchemy's AsyncConnection or AsyncSession with postgresql+psycopg"
_NO_PIPELINE: Final = psycopg.pq.PipelineStatus.OFF
_SQL: Final = load("enqueue.sql")
_WAIT: Final = "2s"
"""For a lock, such as the one of an idempotency key that another transaction holds; callers may wait less long."""
_CLOSED: Final = "connection: it is closed; give one that is open"
_LOCK_LANES: Final = "LOCK TABLE holdfast_lanes IN ACCESS SHARE MODE"

CallersSteps = Generator[Statement | Callable[[], Any], Any, list[Enqueued]]
LanesOf = Callable[[Sequence[NewJob]], Mapping[Any, int]]
Execute = Callable[[str, Mapping[str, Any]], list[Any]]
AsyncExecute = Callable[[str, Mapping[str, Any]], Awaitable[list[Any]]]


class Place:
    """The store that the jobs must come to, by whatever connection."""

    def __init__(self, location: str, schema: str, store: str, setting: Setting, lanes_of: LanesOf) -> None:
        self.location = location
        self._schema = schema
        self._store = store
        self._setting = setting
        self._lanes_of = lanes_of

    def steps(self, jobs: Sequence[NewJob], offset_s: float) -> CallersSteps:
        """Statements for a caller's connection, and what is to be called between them; an error undoes only these."""
        yield "SAVEPOINT holdfast", {}
        try:
            answers = yield from self._inside(jobs, offset_s)
        except Exception:
            yield "ROLLBACK TO SAVEPOINT holdfast", {}
            yield "RELEASE SAVEPOINT holdfast", {}
            raise
        yield "RELEASE SAVEPOINT holdfast", {}
        return answers

    def _inside(self, jobs: Sequence[NewJob], offset_s: float) -> CallersSteps:
        """The lanes are looked up by a connection of ours, and kept from being dropped by this one."""
        ((store, wait, _),) = yield self._statement(_SQL["whose"], {"wait": _WAIT}, offset_s)
        if store != self._store:
            raise ConfigError(f"connection: leads to another store than {self.location}; give one to that database")
        answers = (yield from self._add(jobs, offset_s)) if jobs else []
        yield self._statement(_SQL["wait_as_before"], {"wait": wait}, offset_s)
        return answers

    def _add(self, jobs: Sequence[NewJob], offset_s: float) -> CallersSteps:
        yield self._statement(_LOCK_LANES, {}, offset_s)
        lanes = yield lambda: self._lanes_of(jobs)
        steps = add_jobs_with_keys(jobs, lanes, self._setting)
        try:
            sql, values = next(steps)
            while True:
                sql, values = steps.send((yield self._statement(sql, values, offset_s)))
        except StopIteration as stop:
            answers: list[Enqueued] = stop.value
        return answers

    def _statement(self, sql: str, values: Mapping[str, Any], offset_s: float) -> Statement:
        return qualified(sql, self._schema), {**values, "offset_s": offset_s}


def enqueue_by(connection: object, place: Place, jobs: Sequence[NewJob], offset_s: float) -> list[Enqueued]:
    """Write the jobs by a sync connection of the caller's."""
    execute = _execute_of(connection)
    if isinstance(connection, psycopg.Connection) and connection.autocommit and _is_idle(connection):
        with connection.transaction():
            return enqueue_by(connection, place, jobs, offset_s)
    steps = place.steps(jobs, offset_s)
    try:
        step = next(steps)
        while True:
            try:
                answer = step() if callable(step) else execute(*step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        answers: list[Enqueued] = stop.value
        return answers
    except psycopg.Error as error:
        raise _told(error, place, jobs) from error


async def aenqueue_by(connection: object, place: Place, jobs: Sequence[NewJob], offset_s: float) -> list[Enqueued]:
    """The same by an async one."""
    execute = await _async_execute_of(connection)
    if isinstance(connection, psycopg.AsyncConnection) and connection.autocommit and _is_idle(connection):
        async with connection.transaction():
            return await aenqueue_by(connection, place, jobs, offset_s)
    steps = place.steps(jobs, offset_s)
    try:
        step = next(steps)
        while True:
            try:
                answer = await asyncio.to_thread(step) if callable(step) else await execute(*step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        answers: list[Enqueued] = stop.value
        return answers
    except psycopg.Error as error:
        raise _told(error, place, jobs) from error


def _is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status == _IDLE


def _told(error: psycopg.Error, place: Place, jobs: Sequence[NewJob]) -> StoreError | ConfigError:
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return told(error, jobs, place.location)
    if error.sqlstate in {"42P01", "3F000"}:
        return ConfigError(f"connection: its database has no tables of {place.location}; give one to that database")
    return translated(error, place.location)


# ---------------------------------------------------------------- how each kind runs a statement


def _execute_of(connection: object) -> Execute:
    if isinstance(connection, psycopg.Connection):
        _check_usable(connection)
        register(connection.adapters)

        def execute(sql: str, values: Mapping[str, Any]) -> list[Any]:
            cursor = psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row)
            cursor.execute(sql.encode(), values, prepare=False, binary=True)
            return cursor.fetchall() if cursor.description else []

        return execute
    alchemy = _alchemy_of(connection)
    if alchemy is None or _is_async(alchemy):
        raise ConfigError(f"connection: {_name_of(connection)} is of no use to a sync call: give a {_WHAT}")
    _check_driver(alchemy)
    driver = alchemy.connection.driver_connection
    _check_usable(driver)
    register(driver.adapters)

    def execute_by_alchemy(sql: str, values: Mapping[str, Any]) -> list[Any]:
        result = alchemy.exec_driver_sql(sql, dict(values))
        return list(result.fetchall()) if result.returns_rows else []

    return _untangled(execute_by_alchemy)


async def _async_execute_of(connection: object) -> AsyncExecute:
    if isinstance(connection, psycopg.AsyncConnection):
        _check_usable(connection)
        register(connection.adapters)

        async def execute(sql: str, values: Mapping[str, Any]) -> list[Any]:
            cursor = psycopg.AsyncCursor(connection, row_factory=psycopg.rows.tuple_row)
            await cursor.execute(sql.encode(), values, prepare=False, binary=True)
            return await cursor.fetchall() if cursor.description else []

        return execute
    alchemy = _alchemy_of(connection)
    if inspect.iscoroutine(alchemy):  # an AsyncSession is asked for its connection
        alchemy = await alchemy
    if alchemy is None or not _is_async(alchemy):
        raise ConfigError(f"connection: {_name_of(connection)} is of no use to an async call: give a {_WHAT_ASYNC}")
    _check_driver(alchemy.sync_connection)
    driver = (await alchemy.get_raw_connection()).driver_connection
    _check_usable(driver)
    register(driver.adapters)

    async def execute_by_alchemy(sql: str, values: Mapping[str, Any]) -> list[Any]:
        try:
            result = await alchemy.exec_driver_sql(sql, dict(values))
        except Exception as error:
            raise _cause_of(error) from error
        return list(result.fetchall()) if result.returns_rows else []

    return execute_by_alchemy


def _alchemy_of(connection: object) -> Any:
    """SQLAlchemy's connection, of a session too; None where it is not of SQLAlchemy. It need not be installed."""
    if not any(base.__module__.partition(".")[0] in {"sqlalchemy", "sqlmodel"} for base in type(connection).__mro__):
        return None
    if hasattr(connection, "exec_driver_sql"):
        return connection
    ask = getattr(connection, "connection", None)
    return ask() if callable(ask) else None


def _is_async(alchemy: Any) -> bool:
    if inspect.iscoroutine(alchemy):
        alchemy.close()  # nobody will await it
        return True
    return hasattr(alchemy, "sync_connection")


def _check_usable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if connection.broken:
        raise StoreAway("connection: it has broken, and its transaction is gone; begin again with a new one")
    if connection.closed:
        raise ConfigError(_CLOSED)
    if connection.pgconn.pipeline_status != _NO_PIPELINE:
        raise ConfigError("connection: it is in pipeline mode; enqueue before its pipeline() block, or after it")


def _check_driver(alchemy: Any) -> None:
    if alchemy is None or alchemy.closed:
        raise ConfigError(_CLOSED)
    dialect = alchemy.dialect
    if dialect.name != "postgresql" or dialect.driver not in {"psycopg", "psycopg_async"}:
        driver = f"{dialect.name}+{dialect.driver}"
        raise ConfigError(f"connection: SQLAlchemy's driver is {driver}; open the engine with postgresql+psycopg://")


def _untangled(execute: Execute) -> Execute:
    """SQLAlchemy wraps errors of the driver; ours are looked up by what is inside."""

    def run(sql: str, values: Mapping[str, Any]) -> list[Any]:
        try:
            return execute(sql, values)
        except Exception as error:
            raise _cause_of(error) from error

    return run


def _cause_of(error: BaseException) -> BaseException:
    origin = getattr(error, "orig", None)
    return origin if isinstance(origin, psycopg.Error) else error


def _name_of(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
