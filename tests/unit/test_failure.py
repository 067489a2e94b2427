from __future__ import annotations

import pytest

from holdfast.types import Failure, FailureType, Severity

RETRIABLE = {"transient", "rate_limited", "network", "system"}


@pytest.mark.parametrize("failure_type", FailureType)
def test_the_type_says_whether_trying_again_can_help(failure_type: FailureType) -> None:
    assert Failure(failure_type).is_retriable == (failure_type.value in RETRIABLE)


def test_there_are_eight_types_and_four_severities() -> None:
    others = {"permanent", "validation", "authentication", "structural"}
    assert {it.value for it in FailureType} == RETRIABLE | others
    assert [it.value for it in Severity] == ["low", "medium", "high", "critical"]


def test_the_severity_is_the_types_own_unless_it_is_given() -> None:
    assert Failure(FailureType.NETWORK).severity is Severity.MEDIUM
    assert Failure(FailureType.NETWORK, severity=Severity.LOW).severity is Severity.LOW


def test_texts_are_computed_on_first_read_and_once() -> None:
    class Counted(Exception):
        said = 0

        def __str__(self) -> str:
            Counted.said += 1
            return "no"

    failure = Failure(FailureType.SYSTEM, Counted(), retry_after=2.0)
    assert Counted.said == 0
    assert [failure.message, failure.message] == ["no", "no"]
    assert Counted.said == 1
    assert failure.error_name.endswith("Counted")
    assert failure.fingerprint == failure.fingerprint
    assert "Counted: no" in failure.traceback
    assert failure.retry_after == 2.0


def test_one_failures_texts_are_not_anothers() -> None:
    one, other = Failure(FailureType.SYSTEM, KeyError("a")), Failure(FailureType.SYSTEM, ValueError("b"))
    assert (one.message, other.message) == ("'a'", "b")


def test_a_failure_without_an_error_has_no_words() -> None:
    failure = Failure(FailureType.SYSTEM)
    assert (failure.error_name, failure.message, failure.traceback, failure.fingerprint) == ("", "", "", "")


def test_it_shows_its_type_its_class_and_its_words() -> None:
    assert repr(Failure(FailureType.VALIDATION, KeyError("a"))) == "Failure(VALIDATION, KeyError: 'a')"
