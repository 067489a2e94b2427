"""One broker for all of pytest's processes, kept by a process of its own for as long as one of them is there.

Whoever uses it holds a shared lock on `kafka-users`. The keeper waits for the exclusive one, which the kernel gives it
once all users have let go of theirs, however they ended; then it stops the broker.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka_broker import KafkaBroker


@contextmanager
def join(folder: Path, at_exit: Callable[[Callable[[], None]], None]) -> Iterator[KafkaBroker]:
    """Use the broker that is kept in a folder; the first to come starts its keeper, and waits for its end at exit."""
    ports = folder / "kafka-ports"
    with (folder / "kafka-users").open("a") as users, (folder / "kafka-start").open("a") as start:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(start, fcntl.LOCK_EX)
        if not ports.exists():
            at_exit(_start_keeper(folder))
        fcntl.flock(start, fcntl.LOCK_UN)
        yield KafkaBroker(*map(int, ports.read_text().split()))


def _start_keeper(folder: Path) -> Callable[[], None]:
    """Start it, and give what waits for its end."""
    # In a session of its own: an interrupt from the keyboard is for the tests, which may need the broker to end well.
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.kafka_shared", str(folder)],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdout is not None
    with keeper.stdout as said:
        if said.readline() != "ready\n":
            raise AssertionError(f"the shared Kafka did not start; its keeper ended with {keeper.wait()}")

    def wait() -> None:
        keeper.wait()

    return wait


def _keep(folder: Path) -> None:
    from tests.kafka_server import KafkaServer  # which imports this module

    ports = folder / "kafka-ports"
    with KafkaServer() as server, (folder / "kafka-users").open("a") as users:
        try:
            ports.write_text(f"{server.port} {server.admin_port}")
            print("ready", flush=True)  # fails if the one that waits for it has died
            fcntl.flock(users, fcntl.LOCK_EX)
        finally:
            ports.unlink(missing_ok=True)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
