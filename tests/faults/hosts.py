"""Several hosts on one machine: network namespaces with a cable each to the one where the store's server is.

Addresses exist inside of these namespaces alone, so nothing can leave the machine. The tests themselves stay outside
and reach the server through its Unix socket, by a relay on the port that it would have on loopback.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from tests.faults.conftest import AUDITED
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.workers import Fleet
from tests.servers import PostgresServer, RedisServer, missing, program

_LOOPBACK: Final = "127.0.0.1"
_NAME: Final = "holdfast-"
_CHUNK: Final = 65_536
_numbers: Final = itertools.count(1)


class Host:
    """A host with one network card, and what can be done to its cable."""

    def __init__(self, name: str, hub: str, number: int) -> None:
        self.name = name
        self._hub = hub
        self._address, self._server = f"10.0.{number}.2", f"10.0.{number}.1"
        port = f"port{number}"
        _ip("netns", "add", name)
        _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        for place, card, address in ((hub, port, self._server), (name, "eth0", self._address)):
            _ip("-n", place, "address", "add", f"{address}/30", "dev", card)
            _ip("-n", place, "link", "set", card, "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def run(self, fleet: Fleet, url: str, module: str, *arguments: str, env: Mapping[str, str] = {}) -> int:
        """Start a module as a program on this host, with its own way to a store; its id."""
        assert _LOOPBACK in url
        way = {"HOLDFAST_URL": url.replace(_LOOPBACK, self._server)}
        return fleet.run(module, *arguments, prefix=_inside(self.name), env={**env, **way})

    def cut(self) -> None:
        """Pull the cable."""
        _ip("-n", self.name, "link", "set", "eth0", "down")

    def mend(self) -> None:
        """Plug it in again."""
        _ip("-n", self.name, "link", "set", "eth0", "up")

    def deafen(self) -> None:
        """From now on what it sends arrives, and no answer does."""
        _ip("-n", self._hub, "route", "add", "blackhole", f"{self._address}/32")

    def undeafen(self) -> None:
        """Let answers through again."""
        _ip("-n", self._hub, "route", "delete", "blackhole", f"{self._address}/32")


class Network:
    """The hosts, and the namespace of the server."""

    def __init__(self, hub: str) -> None:
        self.hub = hub
        self.hosts: list[Host] = []

    def remove(self) -> None:
        """Take everything down. What still runs there loses its network."""
        for name in (*(host.name for host in self.hosts), self.hub):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=20)


@contextmanager
def hosts(count: int) -> Iterator[Network]:
    """So many hosts and a place for a server, until the block is left."""
    if os.geteuid() != 0:
        missing("NETWORK NAMESPACES CAN ONLY BE MADE BY ROOT")
    program("ip", "iproute2")
    _remove_forgotten()
    network = Network(f"{_NAME}{os.getpid()}-{next(_numbers)}")
    try:
        try:
            _ip("netns", "add", network.hub)
        except AssertionError as error:
            missing(f"NETWORK NAMESPACES CANNOT BE MADE HERE: {error}")
        _ip("-n", network.hub, "link", "set", "lo", "up")
        for number in range(1, count + 1):
            network.hosts.append(Host(f"{network.hub}-{number}", network.hub, number))
        yield network
    finally:
        network.remove()


@contextmanager
def housed(name: str, network: Network) -> Iterator[PostgresEngine | RedisEngine]:
    """An empty store on a server of its own, which listens to every host."""
    if name == "postgres":
        with HubPostgres(network) as server, closing(PostgresEngine(server)) as engine:
            yield engine
    else:
        with HubRedis(network, AUDITED) as cache, closing(RedisEngine(cache)) as other:
            yield other


# ---------------------------------------------------------------- servers


class HubRedis(RedisServer):
    """A Redis server that only the hosts reach by network."""

    def __init__(self, network: Network, options: Mapping[str, str] = {}) -> None:
        super().__init__(options)
        self._prefix = _inside(network.hub)
        path = self.folder / "socket"
        self.options |= {"bind": "0.0.0.0", "unixsocket": str(path)}
        self._relay = _Relay(self.port, path)

    def command(self) -> list[str]:
        """The program and its arguments, inside."""
        return [*self._prefix, *super().command()]

    def __enter__(self) -> Self:
        self._relay.start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._relay.close()


class HubPostgres(PostgresServer):
    """A PostgreSQL server that only the hosts reach by network."""

    def __init__(self, network: Network, options: Mapping[str, str] = {}) -> None:
        super().__init__(options)
        self._owner = self._user
        self._prefix = _inside(network.hub)
        rules = self.folder / "rules"
        rules.write_text("local all all scram-sha-256\nhost all all 10.0.0.0/8 scram-sha-256\n")
        self.options |= {"listen_addresses": "*", "hba_file": str(rules)}
        self._relay = _Relay(self.port, self.folder / f".s.PGSQL.{self.port}")

    def command(self) -> list[str]:
        """The program and its arguments, inside; only root may go there, so the user is changed on the way."""
        who = ["--reuid", str(self._owner), "--regid", str(self._owner), "--init-groups", "--pdeathsig", "KILL", "--"]
        return [*self._prefix, program("setpriv", "util-linux"), *who, *super().command()]

    def start(self) -> None:
        """Start it, on a new cluster if there is none."""
        if not self._data.exists():
            self._user = self._owner
            self._make_cluster()
        self._user = None
        super().start()

    def __enter__(self) -> Self:
        self._relay.start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._relay.close()


class _Relay(threading.Thread):
    """From a port on loopback to a Unix socket: paths are the same in every network namespace."""

    def __init__(self, port: int, path: Path) -> None:
        super().__init__(name="relay", daemon=True)
        self._listener = socket.create_server((_LOOPBACK, port))
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    def close(self) -> None:
        """End it, and all that passes."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self.join()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener)
        await self._ended.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            there, to_server = await asyncio.open_unix_connection(self._path)
            writers.append(to_server)
            await asyncio.gather(_pump(reader, to_server), _pump(there, writer))
        except OSError:
            return  # the server is away, or either side has gone: the other sees its connection end
        finally:
            for one in writers:
                one.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()


# ---------------------------------------------------------------- namespaces


def _inside(name: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}"


def _remove_forgotten() -> None:
    """Remove the namespaces of runs that were killed."""
    for place in Path("/run/netns").glob(f"{_NAME}*-*"):
        owner = place.name.removeprefix(_NAME).partition("-")[0]
        if not Path("/proc", owner).exists():
            with suppress(AssertionError):  # another run was quicker
                _ip("netns", "delete", place.name)
