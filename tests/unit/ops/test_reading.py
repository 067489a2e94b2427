"""What people type is read as it was meant, or refused in words."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import pytest

from holdfast.ops.commands.lazy import Failed
from holdfast.ops.commands.reading import full_group, gathered, length_of, near, object_of, only_one, when_of
from holdfast.ports import Page
from holdfast.types import FailureType, Group, JobRecord, JobState, Severity


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("30s", 30.0),
        ("1.5h", 5400.0),
        (" 5 M ", 300.0),
        ("7d", 604_800.0),
        ("250ms", 0.25),
        ("2w", 1_209_600.0),
    ],
)
def test_a_length_of_time_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert length_of(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-5s", "5 years", "1e3", "5m3s"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no length of time"):
        length_of(text)


def test_a_point_in_time_is_so_long_ago_or_a_date() -> None:
    assert when_of("2h") == timedelta(hours=2)
    assert when_of("2025-11-16T10:00+00:00") == datetime.fromisoformat("2025-11-16T10:00+00:00")
    local = when_of("2025-11-16")
    assert isinstance(local, datetime)
    assert local.tzinfo is not None
    with pytest.raises(click.BadParameter, match="no point in time"):
        when_of("yesterday")


@pytest.mark.parametrize("text", ["", "[1]", "42", "{'a': 1}", '{"a": }', "null"])
def test_only_a_json_object_is_one(text: str) -> None:
    assert object_of('{"a": [1, null]}') == {"a": [1, None]}
    with pytest.raises(click.BadParameter, match="must be a JSON object"):
        object_of(text)


def group(fingerprint: str) -> Group:
    return Group(
        fingerprint=fingerprint,
        count=1,
        tasks=("charge",),
        failure_type=FailureType.NETWORK,
        severity=Severity.LOW,
        error_name="E",
        message="m",
        first_at=0.0,
        last_at=0.0,
        sample_id="",
    )


def test_a_group_is_found_by_the_beginning_of_its_fingerprint() -> None:
    groups = [group("1:6f02aa"), group("1:6f11bb"), group("1:6f")]
    assert full_group(groups, "1:6f02") == "1:6f02aa"
    assert full_group(groups, "6f1") == "1:6f11bb"
    assert full_group(groups, "1:6f") == "1:6f"  # itself, though others begin so
    with pytest.raises(Failed, match="is the beginning of several: 1:6f02aa, 1:6f11bb"):
        full_group(groups, "1:")
    with pytest.raises(Failed, match=r"there is no group 1:9; there are: 1:6f02aa, 1:6f11bb, 1:6f$"):
        full_group(groups, "1:9")
    with pytest.raises(Failed, match=r"there are: 1:a0, 1:a1, 1:a2, 1:a3, 1:a4 …$"):
        full_group([group(f"1:a{i}") for i in range(9)], "1:9")


def test_only_a_few_of_many_are_named() -> None:
    with pytest.raises(Failed, match="several: a0, a1, a2, a3, a4 …"):
        only_one("a", [f"a{i}" for i in range(9)], "job")


def test_near_names_are_told() -> None:
    names = ["shop.charge", "shop.refund", "mail.send"]
    assert near("chrge", names) == "did you mean shop.charge?"
    assert near("shop.refnd", names) == "did you mean shop.refund?"
    assert near("xyz", names) == "there are: mail.send, shop.charge, shop.refund"
    assert near("xyz", []) == "there are none"


def test_short_pages_are_put_together_to_a_full_one() -> None:
    pages = {"": ("a", "1"), "1": ("", "2"), "2": ("bc", "3"), "3": ("d", "")}
    asked: list[int] = []

    def read(most: int, cursor: str) -> Page:
        asked.append(most)
        ids, after = pages[cursor]
        return Page([JobRecord(id=one, task="t", payload=b"{}", state=JobState.QUEUED) for one in ids[:most]], after)

    page = gathered(read, 3)
    assert [record.id for record in page.items] == ["a", "b", "c"]
    assert page.cursor == "3"
    assert asked == [3, 2, 2]
    assert gathered(read, 9).cursor == ""
