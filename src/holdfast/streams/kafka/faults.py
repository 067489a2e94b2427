"""Errors of Kafka's client, put into ours: those after which the same call may work later, and those for people."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from holdfast.errors import SourceAway, SourceError
from holdfast.redact import redacted_text

_NEVER: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.SECURITY_DISABLED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REQUEST,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
"""What only a person can mend. All else is taken for passing: at worst it is tried in vain, and said each time."""

MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
"""There is no such topic or partition."""
FORBIDDEN: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
    }
)
"""We may not do this."""
UNSENDABLE: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._INVALID_ARG,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""It is the message that is wrong, and no setting or right of ours."""
TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""The message is larger than this client, or the server, takes."""
GROUP_MOVED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._ASSIGNMENT_LOST,
    }
)
"""The group has been shared out anew since; what is ours still is, or we are told soon that it is not."""


def kafka_error(error: KafkaException | KafkaError) -> KafkaError:
    """The error inside an exception."""
    if isinstance(error, KafkaError):
        return error
    inner = error.args[0] if error.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def words(error: KafkaException | KafkaError) -> str:
    """What it says, in a line, with its name."""
    inner = kafka_error(error)
    return redacted_text(" ".join(f"{inner.str()} ({inner.name()})".split()))


def fault(what: str, error: KafkaException | KafkaError, hint: str = "") -> SourceError:
    """What to raise: SourceAway where the same call may work later. `what` could not be done; `hint` is what helps."""
    inner = kafka_error(error)
    is_passing = inner.code() not in _NEVER and not inner.fatal()
    return (SourceAway if is_passing else SourceError)(f"{what}: {words(inner)}{'; ' if hint else ''}{hint}")
