"""Connections to the server: every wait on them ends, and every setting that matters is set."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.stores.postgres.arrays import register
from holdfast.stores.postgres.faults import NoAnswer, in_a_line

_MACHINE: Final = SystemClock()
_OWN: Final = frozenset({"schema", "synchronous_commit"})
_COMMITS: Final = ("on", "off", "local", "remote_write", "remote_apply")
_HOT: Final = {
    # Every statement of the hot path is written for its index; what the statistics say must not change its plan.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
}


class Address(Struct, frozen=True):
    """Where the server is, and how its connections are set."""

    parameters: Mapping[str, Any]
    """What libpq is told."""
    location: str
    """For people: without a password."""
    schema: str
    """Empty: the first one of the user's search path."""
    synchronous_commit: str
    answer_s: float
    """How long to wait for any answer of the server."""


def address_of(url: str, schema: str, answer_s: float) -> Address:
    """Take a URL apart, or say what is wrong with it."""
    if not psycopg.Pipeline.is_supported():
        raise ConfigError("PostgreSQL's client library libpq is too old, 14 is needed: pip install 'psycopg[binary]'")
    place, _, query = url.partition("?")
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    own = {name: value for name, value in pairs if name in _OWN}
    rest = urlencode([(name, value) for name, value in pairs if name not in _OWN], safe="/", quote_via=quote)
    try:
        given = conninfo_to_dict(f"{place}?{rest}" if rest else place)
    except psycopg.Error as error:
        raise ConfigError(f"url: cannot be read: {in_a_line(error)}; write postgresql://user@host/database") from None
    commit = own.get("synchronous_commit", "on")
    if commit not in _COMMITS:
        raise ConfigError(f"url: synchronous_commit={commit!r} is none of {', '.join(_COMMITS)}")
    schema = schema or own.get("schema", "")
    seconds = max(1, round(answer_s))
    defaults = {
        "connect_timeout": max(2, seconds),
        "keepalives": 1,
        "keepalives_idle": seconds,
        "keepalives_interval": max(1, seconds // 3),
        "keepalives_count": 3,
        "tcp_user_timeout": seconds * 1000,
        "fallback_application_name": "holdfast",
        "client_encoding": "UTF8",
    }
    return Address(
        parameters=defaults | {name: value for name, value in given.items() if value is not None},
        location=_location(given, schema),
        schema=schema,
        synchronous_commit=commit,
        answer_s=answer_s,
    )


def _location(given: Mapping[str, Any], schema: str) -> str:
    hosts = str(given.get("host") or given.get("hostaddr") or "localhost").split(",")
    ports = str(given.get("port") or "").split(",")
    if len(ports) == 1:  # of all hosts
        ports *= len(hosts)
    places = ",".join(_place(*pair) for pair in zip(hosts, ports, strict=False))
    user = f"{given['user']}@" if given.get("user") else ""
    where = f"?schema={schema}" if schema else ""
    return f"postgresql://{user}{places}/{given.get('dbname') or ''}{where}"


def _place(host: str, port: str) -> str:
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


class _Commands(deque[Any]):
    """What is to be sent, taken all at once: psycopg sends whatever it takes by itself."""

    def popleft(self) -> Any:
        commands = tuple(self)
        self.clear()

        def send() -> None:
            for command in commands:
                command()

        return send


class _Whole(psycopg.Pipeline):
    """A pipeline that is sent when it is left, with its end: by one call of the system as far as libpq gathers it.

    Psycopg's sends each statement as it comes: a process that is frozen between two of them (SIGSTOP, a machine that
    is held still) leaves the server with half of a transaction and its locks, and others wait for them.
    """

    _is_over = False

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self.command_queue = _Commands()

    def _communicate_gen(self) -> Any:
        if self._is_over:
            yield from super()._communicate_gen()

    def _fetch_gen(self, *, flush: bool) -> Any:
        if not self._is_over:
            raise psycopg.ProgrammingError("nothing is sent before the block ends, so there is nothing to fetch yet")
        yield from super()._fetch_gen(flush=flush)

    def _exit_gen(self) -> Any:
        self._is_over = True
        yield from super()._exit_gen()


class Line(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose every wait ends: libpq waits for ever for an answer that the network has swallowed."""

    answer_s: float = 10.0

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Drive the generator, as psycopg does, for at most so long."""
        return super().wait(self._within(gen), *args, **options)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """As psycopg's, but sent as a whole at its end, and nothing of a block that has failed.

        Psycopg logs a warning when the block has failed and its end fails too, as in every outage.
        """
        if self._pipeline is not None:
            raise psycopg.ProgrammingError("a pipeline inside of another would be sent before it")
        failure: BaseException | None = None
        self._pipeline = whole = _Whole(self)
        try:
            with super().pipeline() as pipeline:
                try:
                    yield pipeline
                except BaseException as error:
                    failure = error
                    if whole.command_queue:  # psycopg takes these for sent, and what they prepare for prepared
                        self.pgconn.finish()
        except psycopg.Error:
            if failure is None:
                raise
        finally:
            self._pipeline = None  # also if it was not begun, as the connection is closed
        if failure is not None:
            raise failure

    def _within(self, gen: Any) -> Any:
        end_s = _MACHINE.monotonic() + self.answer_s
        try:
            wish = next(gen)
            while True:
                ready = yield wish
                if ready:
                    end_s = _MACHINE.monotonic() + self.answer_s
                elif _MACHINE.monotonic() > end_s:
                    gen.close()
                    self.pgconn.finish()
                    raise NoAnswer(f"the server has not answered for {self.answer_s:g} s; check it and the network")
                wish = gen.send(ready)
        except StopIteration as stop:
            return stop.value


def connect(address: Address, *, is_hot: bool = False, answer_s: float | None = None) -> Line:
    """A connection in autocommit mode, set for its purpose; raises psycopg's errors."""
    limit_s = address.answer_s if answer_s is None else answer_s
    # In the time of `connect_timeout`, whatever the limit: it takes several answers, one after the other. But with
    # several hosts each has that time, and the next is to be reached before a lease is over.
    hosts = f"{address.parameters.get('host', '')}{address.parameters.get('hostaddr', '')}"
    quick = {"connect_timeout": max(2, round(limit_s))} if "," in hosts and limit_s < address.answer_s else {}
    line = Line.connect(**{**address.parameters, **quick, "autocommit": True})
    try:
        line.answer_s = limit_s
        line.prepare_threshold = 0 if is_hot else None
        register(line.adapters, is_own=True)
        _set_up(line, address, limit_s, is_hot=is_hot)
    except BaseException:
        with suppress(psycopg.Error):
            line.close()
        raise
    return line


def _set_up(line: Line, address: Address, limit_s: float, *, is_hot: bool) -> None:
    milliseconds = str(max(1, round(limit_s * 900)))  # the server gives up first, and says why
    settings = {
        "statement_timeout": milliseconds,
        "lock_timeout": str(max(1, round(limit_s * 500))),
        "idle_in_transaction_session_timeout": milliseconds,
        # The server looks after us as we look after it: a machine that is gone keeps its locks no longer than this.
        "tcp_keepalives_idle": str(max(1, round(limit_s))),
        "tcp_keepalives_interval": str(max(1, round(limit_s / 3))),
        "tcp_keepalives_count": "3",
        "synchronous_commit": address.synchronous_commit,
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        "jit": "off",
        "timezone": "UTC",
        **(_HOT if is_hot else {}),
    }
    parts = [f"set_config('{name}', %s, false)" for name in settings]
    values = list(settings.values())
    if address.schema:
        parts.append("set_config('search_path', quote_ident(%s) || ', ' || current_setting('search_path'), false)")
        values.append(address.schema)
    line.execute(f"SELECT {', '.join(parts)}".encode(), values, prepare=False)
