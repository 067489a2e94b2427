"""librdkafka's own mock cluster, for errors and outages that a real broker cannot be asked for.

It is in the library that confluent-kafka brings along, and runs on threads of its own there. It knows topics, groups
and offsets; its transactions are not real (what was aborted can be read), and it keeps only the last few MB of a
partition.
"""

from __future__ import annotations

import ctypes
import enum
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import confluent_kafka
import pytest

from tests.servers import NOT_INSTALLED, missing

_PRODUCER: Final = 0
_POINTER: Final = ctypes.c_void_p
_TEXT: Final = ctypes.c_char_p
_INT: Final = ctypes.c_int
_INT16: Final = ctypes.c_int16
_INT32: Final = ctypes.c_int32
_SIZE: Final = ctypes.c_size_t
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "conf_new": (_POINTER,),
    "conf_set": (_INT, _POINTER, _TEXT, _TEXT, _TEXT, _SIZE),
    "new": (_POINTER, _INT, _POINTER, _TEXT, _SIZE),
    "destroy": (None, _POINTER),
    "mock_cluster_new": (_POINTER, _POINTER, _INT),
    "mock_cluster_destroy": (None, _POINTER),
    "mock_cluster_bootstraps": (_TEXT, _POINTER),
    "mock_topic_create": (_INT, _POINTER, _TEXT, _INT, _INT),
    "mock_push_request_errors_array": (None, _POINTER, _INT16, _SIZE, ctypes.POINTER(_INT)),
    "mock_clear_request_errors": (None, _POINTER, _INT16),
    "mock_broker_set_down": (_INT, _POINTER, _INT32),
    "mock_broker_set_up": (_INT, _POINTER, _INT32),
    "mock_broker_set_rtt": (_INT, _POINTER, _INT32, _INT),
    "mock_coordinator_set": (_INT, _POINTER, _TEXT, _TEXT, _INT32),
    "mock_partition_set_leader": (_INT, _POINTER, _TEXT, _INT32, _INT32),
    "mock_group_initial_rebalance_delay_ms": (None, _POINTER, _INT32),
    "mock_start_request_tracking": (None, _POINTER),
    "mock_get_requests": (ctypes.POINTER(_POINTER), _POINTER, ctypes.POINTER(_SIZE)),
    "mock_request_api_key": (_INT16, _POINTER),
    "mock_request_destroy_array": (None, ctypes.POINTER(_POINTER), _SIZE),
}
"""What each function of the library gives and takes, by its name without `rd_kafka_`."""


class ApiKey(enum.IntEnum):
    """The requests of Kafka's protocol that errors can be injected into."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class MockCluster:
    """Brokers 1 to `brokers` on loopback ports; groups rebalance without the three seconds of delay they have there."""

    def __init__(self, brokers: int = 1) -> None:
        self._lib = _library()
        error = ctypes.create_string_buffer(512)
        conf = self._lib.rd_kafka_conf_new()
        self._lib.rd_kafka_conf_set(conf, b"log_level", b"0", error, len(error))
        self._client = self._lib.rd_kafka_new(_PRODUCER, conf, error, len(error))
        assert self._client, error.value.decode()
        self._cluster = self._lib.rd_kafka_mock_cluster_new(self._client, brokers)
        assert self._cluster, "librdkafka made no mock cluster"
        self._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self._lib.rd_kafka_mock_start_request_tracking(self._cluster)
        self._brokers = range(1, brokers + 1)

    @property
    def bootstrap(self) -> str:
        """The addresses of all its brokers."""
        found: bytes = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return found.decode()

    def url(self, topic: str) -> str:
        """The URL of a stream."""
        return f"kafka://{self.bootstrap}/{topic}"

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Make a topic; one that is written to or asked for without has four partitions."""
        _check(self._lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1))

    # ---- faults

    def push_errors(self, api_key: ApiKey, *error_codes: int) -> None:
        """Answer the next requests of this kind, by whomever, with these errors; `_TRANSPORT` cuts the connection."""
        array = (_INT * len(error_codes))(*error_codes)
        self._lib.rd_kafka_mock_push_request_errors_array(self._cluster, api_key, len(error_codes), array)

    def clear_errors(self, api_key: ApiKey) -> None:
        """Forget errors that were not given out yet."""
        self._lib.rd_kafka_mock_clear_request_errors(self._cluster, api_key)

    def set_down(self, broker: int = 1) -> None:
        """Cut a broker's connections, and refuse new ones."""
        _check(self._lib.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def set_up(self, broker: int = 1) -> None:
        """Let it come back."""
        _check(self._lib.rd_kafka_mock_broker_set_up(self._cluster, broker))

    def set_rtt(self, seconds: float) -> None:
        """Delay every answer of every broker by so much, from now on."""
        for broker in self._brokers:
            _check(self._lib.rd_kafka_mock_broker_set_rtt(self._cluster, broker, round(seconds * 1000)))

    def set_coordinator(self, group: str, broker: int) -> None:
        """Move a group to another broker."""
        _check(self._lib.rd_kafka_mock_coordinator_set(self._cluster, b"group", group.encode(), broker))

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """Move a partition to another broker; with -1 it has none."""
        _check(self._lib.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker))

    # ---- what came

    def count(self, api_key: ApiKey) -> int:
        """How many requests of this kind have come since the start."""
        size = _SIZE()
        requests = self._lib.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(size))
        try:
            return sum(self._lib.rd_kafka_mock_request_api_key(requests[at]) == api_key for at in range(size.value))
        finally:
            self._lib.rd_kafka_mock_request_destroy_array(requests, size)

    def close(self) -> None:
        """End it, with all its connections."""
        if self._cluster:
            self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
            self._lib.rd_kafka_destroy(self._client)
            self._cluster = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@functools.cache
def _library() -> ctypes.CDLL:
    """The one that confluent-kafka itself uses."""
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        missing(f"librdkafka {NOT_INSTALLED} in {folder}: pip install --only-binary=:all: confluent-kafka")
    library = ctypes.CDLL(str(found[0]))
    for name, (result, *arguments) in _SIGNATURES.items():
        function = library[f"rd_kafka_{name}"]
        function.restype, function.argtypes = result, arguments
        setattr(library, f"rd_kafka_{name}", function)
    return library


def _check(error_code: int) -> None:
    assert error_code == 0, str(confluent_kafka.KafkaError(error_code))


@pytest.fixture
def mock_kafka() -> Iterator[MockCluster]:
    """A mock cluster of one broker."""
    with MockCluster() as cluster:
        yield cluster
