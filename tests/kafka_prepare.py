"""Makes tests/kafka/ready, which every start of a broker uses: `python -m tests.kafka_prepare`, by `make servers`.

Its jars by Maven, an empty log folder to be copied, and the classes of a broker at work as Java maps them into memory.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka_server import CLASSES, FORMATTED, JARS, QUICK_START, READY, KafkaServer, java

_CLUSTER = "holdfastholdfastholdfa"


def main() -> None:
    """Make all of it anew; what is half made is never used."""
    shutil.rmtree(READY, ignore_errors=True)
    _fetch_jars()
    with tempfile.TemporaryDirectory() as folder:
        _format(Path(folder))
    _record_classes()


def _fetch_jars() -> None:
    pom = READY.parent / "pom.xml"
    _run("mvn", "--batch-mode", "--quiet", "--no-transfer-progress", "-f", str(pom), "dependency:copy-dependencies")
    assert any(JARS.glob("kafka_*.jar")), f"Maven has put no Kafka into {JARS}"


def _format(folder: Path) -> None:
    properties = folder / "server.properties"
    properties.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={folder / 'log'}\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:1\n"
        "listeners=CLIENT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\ninter.broker.listener.name=CLIENT\n"
        "listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    )
    _run(*java(*QUICK_START), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties))
    half = FORMATTED.with_suffix(".new")
    shutil.copytree(folder / "log", half)
    half.rename(FORMATTED)


def _record_classes() -> None:
    """Let a broker do once what tests let it do; what it has loaded then is written when it ends."""
    half = CLASSES.with_suffix(".new")
    with KafkaServer(jvm=(*QUICK_START, f"-XX:ArchiveClassesAtExit={half}")) as server:
        server.create_topic("one")
        server.produce("one", ["1", "2"])
        client = {"bootstrap.servers": server.bootstrap, "log_level": 0}
        consumer = Consumer(client | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["one"])
        consumer.poll(30)
        consumer.commit(offsets=[TopicPartition("one", 0, 1)], asynchronous=False)
        consumer.close()
        producer = Producer(client | {"transactional.id": "t"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("one", "3")
        producer.commit_transaction(30)
        server.stop()
    if half.exists():  # a Java without it only starts more slowly
        half.rename(CLASSES)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{Path(command[0]).name} failed:\n{done.stdout}")


if __name__ == "__main__":
    main()
