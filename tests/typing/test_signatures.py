"""A guarded function keeps its type. mypy is what runs this file: an ignore that is not needed is an error."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

import pytest

from holdfast import Policy, RetryPolicy, retry

POLICY = Policy(retry=RetryPolicy(max_retries=0))


@POLICY
def charge(order: int, *, cents: int) -> str:
    return f"{order}: {cents}"


@POLICY
async def acharge(order: int, *, cents: int) -> str:
    return f"{order}: {cents}"


@retry
def bare(order: int) -> str:
    return str(order)


@retry(on=KeyError, max_retries=2)
def chosen(order: int) -> str:
    return str(order)


class Shop:
    @POLICY
    def sell(self, item: str) -> int:
        return len(item)


def test_arguments_and_results_are_checked() -> None:
    assert_type(charge(1, cents=2), str)
    assert_type(bare(1), str)
    assert_type(chosen(1), str)
    assert_type(Shop().sell("tea"), int)
    assert_type(POLICY.call(charge, 1, cents=2), str)


async def test_async_functions_stay_async() -> None:
    coroutine: Coroutine[Any, Any, str] = acharge(1, cents=2)
    assert_type(await coroutine, str)
    assert_type(await POLICY.acall(acharge, 1, cents=2), str)


def test_wrong_calls_are_seen_by_the_type_checker() -> None:
    with pytest.raises(TypeError):
        _wrong_calls()


def _wrong_calls() -> None:
    charge("1", cents=2)  # type: ignore[arg-type]
    Shop().sell(3)  # type: ignore[arg-type]
    charge(1)  # type: ignore[call-arg]
    bare()  # type: ignore[call-arg]
    chosen(1, 2)  # type: ignore[call-arg]
    POLICY.call(charge, 1)  # type: ignore[call-arg]
    retry(max_retry=3)  # type: ignore[call-overload]
    retry(max_retries="3")  # type: ignore[call-overload]
