"""From the URL of a stream to the configuration of librdkafka's clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.streams.kafka.logs import ClientLog
from holdfast.streams.url import StreamURL, parse

Start = Literal["earliest", "latest"]

_OURS: Final = {
    "bootstrap.servers": "name the hosts before the topic",
    "metadata.broker.list": "name the hosts before the topic",
    "group.id": "it is the group of the stream",
    "group.protocol": "the protocol is classic",
    "partition.assignment.strategy": "it is cooperative-sticky",
    "enable.auto.commit": "offsets are committed once their messages are finished",
    "auto.commit.enable": "offsets are committed once their messages are finished",
    "auto.commit.interval.ms": "offsets are committed once their messages are finished",
    "enable.auto.offset.store": "offsets are committed once their messages are finished",
    "auto.offset.reset": "say start= instead",
    "enable.partition.eof": "nobody would hear of it",
    "enable.idempotence": "it is always on",
    "acks": "all must have a message before it counts as sent",
    "request.required.acks": "all must have a message before it counts as sent",
    "delivery.report.only.error": "it is always on",
    "transactional.id": "say transactional_id= instead",
    "log.queue": "what the client says goes to the logger holdfast.kafka",
    "plugin.library.paths": "a URL loads no code",
}
"""What would break a promise if it were set otherwise, or is said elsewhere; and why."""

_CLIENT: Final = {
    # A broker that is back is found again within a second or so, rather than ten.
    "reconnect.backoff.max.ms": "1000",
    # A server that has frozen is known to be away before whoever waits has lost all patience.
    "socket.timeout.ms": "10000",
    # New partitions are found within half a minute.
    "topic.metadata.refresh.interval.ms": "30000",
}
_CONSUMER: Final = {
    # librdkafka's own second is longer than a full queue lasts, so that consumers stand still most of the time.
    "fetch.queue.backoff.ms": "10",
    # What is fetched ahead of a pause is fetched again afterwards.
    "queued.min.messages": "10000",
}
_PRODUCER: Final = {
    "partitioner": "murmur2_random"  # as Java's clients do: a key is in the same partition, whoever wrote it
}
_ALWAYS: Final[Mapping[str, str | bool]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # so that we hear of it, and say how many messages were deleted unread
}
_MAX_POLL_S: Final = 300.0


class KafkaSettings:
    """What the clients of one stream are configured with; its text is the URL without its secrets."""

    def __init__(self, url: str, session_timeout_s: float | None = None) -> None:
        place = parse(url)
        if place.scheme != "kafka":
            raise place.refusal("must be one such as kafka://host:9092/orders")
        for name in place.options:
            if name in _OURS:
                raise place.refusal(f"{name} cannot be set: {_OURS[name]}")
            if "_" in name:
                raise place.refusal(f"{name} is no option of Kafka's client")
        self.place: StreamURL = place
        self._options = place.options | _login(place) | _session(place, session_timeout_s)

    def __repr__(self) -> str:
        return self.place.location

    @property
    def max_poll_s(self) -> float:
        """How long the group waits for a member that does not answer."""
        given = self._options.get("max.poll.interval.ms", "")
        return int(given) / 1000 if given.isdecimal() else _MAX_POLL_S

    @property
    def reads_uncommitted(self) -> bool:
        """Whether messages of transactions that are not committed are read, too."""
        return self._options.get("isolation.level") == "read_uncommitted"

    def client(self, **ours: Any) -> dict[str, Any]:
        """For an admin client."""
        return self._merged({}, ours)

    def consumer(self, group: str, **ours: Any) -> dict[str, Any]:
        """For a consumer that commits nothing by itself."""
        return self._merged(_CONSUMER, {**_ALWAYS, "group.id": group, **ours})

    def producer(self, **ours: Any) -> dict[str, Any]:
        """For a producer that writes each message once and in order."""
        always = {"enable.idempotence": True, "acks": "all", "delivery.report.only.error": True}
        return self._merged(_PRODUCER, always | ours)

    def refusal(self, error: BaseException) -> ConfigError:
        """What to raise when librdkafka does not take the configuration."""
        return self.place.refusal(" ".join(str(error).split()))

    def _merged(self, defaults: Mapping[str, str], ours: Mapping[str, Any]) -> dict[str, Any]:
        servers = {"bootstrap.servers": ",".join(self.place.servers), "client.id": "holdfast", "logger": ClientLog()}
        return {**_CLIENT, **defaults, **servers, **self._options, **ours}


def _login(place: StreamURL) -> dict[str, str]:
    """A user in the URL logs in by SASL, encrypted and with PLAIN unless the options say otherwise."""
    if place.username is None:
        return {}
    if place.password is None:
        raise place.refusal("a user needs a password: kafka://user:password@host:9092/orders")
    login = {"sasl.username": place.username, "sasl.password": place.password}
    if twice := login.keys() & place.options.keys():
        raise place.refusal(f"{min(twice)} is given twice")
    if not {"sasl.mechanism", "sasl.mechanisms"} & place.options.keys():
        login["sasl.mechanism"] = "PLAIN"
    return {"security.protocol": "SASL_SSL"} | login | place.options


def _session(place: StreamURL, session_timeout_s: float | None) -> dict[str, str]:
    if session_timeout_s is None:
        return {}
    length_ms = round(bounds.length("session_timeout_s", session_timeout_s, low=0.1) * 1000)
    if "session.timeout.ms" in place.options:
        raise place.refusal("session.timeout.ms and session_timeout_s= are one: say it once")
    # Several heartbeats must fit in, or one that is late costs the membership.
    heartbeat_ms = place.options.get("heartbeat.interval.ms", str(min(3000, length_ms // 5)))
    return {"session.timeout.ms": str(length_ms), "heartbeat.interval.ms": heartbeat_ms}
