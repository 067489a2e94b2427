"""Errors of Kafka's client, put into ours."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast.errors import SourceAway, SourceError
from holdfast.streams.kafka.faults import fault
from holdfast.streams.kafka.logs import ClientLog


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
    ],
)
def test_what_passes_may_be_tried_again(code: int) -> None:
    assert type(fault("cannot send", KafkaException(KafkaError(code)))) is SourceAway


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_what_only_people_can_mend_is_not(code: int) -> None:
    assert type(fault("cannot send", KafkaError(code))) is SourceError


def test_a_fatal_error_does_not_pass() -> None:
    assert type(fault("cannot send", KafkaError(KafkaError._TRANSPORT, fatal=True))) is SourceError


def test_it_is_one_line_with_the_name_and_what_helps_and_without_secrets() -> None:
    error = fault("kafka://a: cannot", KafkaError(KafkaError._SSL, "bad\nkey password=hunter2"), "mend it")
    assert str(error) == "kafka://a: cannot: bad key password=[redacted] (_SSL); mend it"


def test_an_exception_without_an_error_inside_is_told_too() -> None:
    assert "odd" in str(fault("cannot", KafkaException("odd")))


def test_what_the_client_says_with_every_attempt_is_for_those_who_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast.kafka")
    log = ClientLog()
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "client", "refused")
    log.log(logging.ERROR, "%s [%s] %s", "SESSTMOUT", "client", "gone")
    log.log(logging.INFO, "%s [%s] %s", "INIT", "client", "hello")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "FAIL [client] refused"),
        ("WARNING", "SESSTMOUT [client] gone"),
        ("DEBUG", "INIT [client] hello"),
    ]
