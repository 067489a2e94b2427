"""A real Apache Kafka for tests: one process on loopback, which a test may also kill, stop, configure and start again.

`kafka` is shared by all tests of a run, whichever of pytest's processes they are in; `kafka_topic` names a topic and a
group there that no other test has. A test that breaks its broker takes `own_kafka`, or makes one with options:
`with KafkaServer({"auto.create.topics.enable": "false"}) as server`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import KafkaException

from tests.kafka_broker import KafkaBroker
from tests.kafka_shared import join
from tests.servers import NOT_INSTALLED, Server, free_port, missing, program

READY: Final = Path(__file__).parent / "kafka" / "ready"
"""Made by `make servers` (tests/kafka_prepare.py), and used by every start."""
JARS: Final = READY / "jars"
FORMATTED: Final = READY / "formatted"
"""An empty log folder with its cluster id, to be copied."""
CLASSES: Final = READY / "classes.jsa"
"""The broker's classes as Java maps them into memory: a start takes half the time."""
QUICK_START: Final = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_STOPS_WITHIN_S: Final = 30.0


def java(*options: str) -> list[str]:
    """The beginning of a command that runs one of Kafka's classes."""
    # In one order always, or the shared classes are of no use.
    jars = os.pathsep.join(str(jar) for jar in sorted(JARS.glob("*.jar")))
    return [program("java", "default-jre-headless"), *options, "-cp", jars]


def require() -> None:
    """Without what a broker needs the test is skipped, and fails when CI=true."""
    program("java", "default-jre-headless")
    if not FORMATTED.exists():
        missing(f"Apache Kafka {NOT_INSTALLED}: make servers")


class KafkaServer(Server, KafkaBroker):
    """A broker that is its own controller; options are those of server.properties, `jvm` those of java.

    `advertised_port` is what it tells clients to connect to, for a proxy in between; it may be set until the start.
    """

    def __init__(
        self,
        options: Mapping[str, str] = {},
        *,
        advertised_port: int | None = None,
        jvm: Sequence[str] = (*QUICK_START, f"-XX:SharedArchiveFile={CLASSES}"),
    ) -> None:
        require()
        self._java = java("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *jvm)
        Server.__init__(self, options)
        KafkaBroker.__init__(self, self.port, free_port())
        self.advertised_port = advertised_port
        self._controller_port = free_port()
        self._data = self.folder / "data"

    @property
    def bootstrap(self) -> str:
        """The address for clients under test: the proxy's where there is one."""
        return f"127.0.0.1:{self.advertised_port or self.port}"

    def command(self) -> list[str]:
        """The program and its arguments."""
        return [*self._java, "kafka.Kafka", str(self.folder / "server.properties")]

    def start(self) -> None:
        """Start it, on an empty log if there is none, and wait until every partition has a leader."""
        if not self._data.exists():
            shutil.copytree(FORMATTED, self._data)
        properties = "".join(f"{name}={value}\n" for name, value in self._properties().items())
        (self.folder / "server.properties").write_text(properties)
        super().start()

    def is_ready(self) -> bool:
        """Whether it takes connections, and leads every partition that it has."""
        try:  # first without a client of Kafka's, which would wait longer before it tries again
            socket.create_connection(("127.0.0.1", self.admin_port)).close()
            found = self.admin().list_topics(timeout=5)
        except (OSError, KafkaException):
            return False
        partitions = (partition for topic in found.topics.values() for partition in topic.partitions.values())
        return bool(found.brokers) and all(partition.leader >= 0 for partition in partitions)

    def stop(self) -> None:
        """SIGTERM, and wait until it has shut down in good order."""
        assert self._process is not None, "the server is not running"
        os.kill(self.pid, signal.SIGTERM)
        self._process.wait(_STOPS_WITHIN_S)
        self._process = None

    def restart(self) -> None:
        """Stop it in good order, and start it on the same ports and data; after `kill()` there is `start()`."""
        self.stop()
        self.start()

    def suspend(self) -> None:
        """SIGSTOP: sockets stay open, and nobody answers until `resume()`. (To pause is what consumers do.)"""
        self.pause()

    def _properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": ",".join(
                f"{name}://127.0.0.1:{port}"
                for name, port in (
                    ("CLIENT", self.port),
                    ("ADMIN", self.admin_port),
                    ("CONTROLLER", self._controller_port),
                )
            ),
            "advertised.listeners": f"CLIENT://{self.bootstrap},ADMIN://127.0.0.1:{self.admin_port}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "ADMIN",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self._data),
            # One broker, and few partitions of its own to make, load and elect leaders for.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            # Nobody waits for members that may still come.
            "group.initial.rebalance.delay.ms": "0",
            # A broker that was killed is let in again once its last life has timed out, by default after 9 s.
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "300",
            # Tests shorten sessions to see members die.
            "group.min.session.timeout.ms": "100",
            # Half of what it would take of memory is this buffer, for logs that are never this large here.
            "log.cleaner.dedupe.buffer.size": "4194304",
            "num.network.threads": "2",
            "num.io.threads": "2",
            **self.options,
        }


# ---------------------------------------------------------------- fixtures


class KafkaTopic(NamedTuple):
    """A name for a topic, which is not made yet, and one for a group that reads it."""

    name: str
    group: str
    url: str


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[KafkaBroker]:
    """The broker of the whole run, for all of pytest's processes; leave it as it was."""
    require()
    folder = tmp_path_factory.getbasetemp()
    with join(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder, pytestconfig.add_cleanup) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_numbers() -> Iterator[int]:
    """Tells apart the topics of one of pytest's processes."""
    return itertools.count(1)


@pytest.fixture
def kafka_topic(kafka: KafkaBroker, kafka_numbers: Iterator[int]) -> KafkaTopic:
    """A topic and a group that no other test has."""
    number = f"{os.environ.get('PYTEST_XDIST_WORKER', 'gw')}-{next(kafka_numbers)}"
    name = f"orders-{number}"
    return KafkaTopic(name, f"billing-{number}", kafka.url(name))


@pytest.fixture
def own_kafka() -> Iterator[KafkaServer]:
    """A broker of the test's own."""
    with KafkaServer() as server:
        yield server
