"""The health score: what takes off how much, and the words for it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.policy.health import Signs, reasons_of, score_of, status_of


@pytest.mark.parametrize(
    ("signs", "score"),
    [
        ({}, 1.0),
        ({"success_rate": 1.0}, 1.0),
        ({"success_rate": 0.9}, 0.94),
        ({"success_rate": 0.9999}, 1.0),
        ({"success_rate": 0.5}, 0.7),
        ({"success_rate": 0.0}, 0.4),
        ({"breakers": 4, "open_breakers": 1}, 0.925),
        ({"breakers": 1, "open_breakers": 1}, 0.7),
        ({"breakers": 0, "open_breakers": 2}, 0.7),
        ({"breakers": 5}, 1.0),
        ({"failed_checks": 1}, 0.75),
        ({"failed_checks": 2}, 0.5),
        ({"failed_checks": 3}, 0.4),
        ({"failed_checks": 50}, 0.4),
        ({"is_due": True, "workers": 0}, 0.4),
        ({"is_due": True, "workers": 0, "lag_s": 9e9}, 0.4),
        ({"is_due": True, "workers": 1}, 1.0),
        ({"is_due": False, "workers": 0}, 1.0),
        ({"workers": 1, "lag_s": 60.0}, 1.0),
        ({"workers": 1, "lag_s": 87.0}, 0.985),
        ({"workers": 1, "lag_s": 330.0}, 0.85),
        ({"workers": 1, "lag_s": 600.0}, 0.7),
        ({"workers": 1, "lag_s": 9e9}, 0.7),
        ({"new_letters": 50}, 0.9),
        ({"new_letters": 100}, 0.8),
        ({"new_letters": 10**9}, 0.8),
        ({"is_critical": True}, 0.0),
        ({"is_critical": True, "success_rate": 1.0, "workers": 3}, 0.0),
        ({"success_rate": 0.0, "failed_checks": 3, "new_letters": 100}, 0.0),
        ({"success_rate": 0.5, "failed_checks": 1}, 0.45),
    ],
    ids=str,
)
def test_every_trouble_takes_off_what_the_table_says(signs: dict[str, Any], score: float) -> None:
    assert score_of(Signs(**signs)) == score


@pytest.mark.parametrize(
    ("score", "status"),
    [
        (1.0, "healthy"),
        (0.8, "healthy"),
        (0.799, "degraded"),
        (0.5, "degraded"),
        (0.499, "unhealthy"),
        (0.0, "unhealthy"),
    ],
)
def test_a_score_has_its_word(score: float, status: str) -> None:
    assert status_of(score) == status


@pytest.mark.parametrize(
    ("signs", "reasons"),
    [
        ({}, ()),
        ({"success_rate": 1.0, "workers": 1, "is_due": True, "lag_s": 60.0}, ()),
        ({"success_rate": 0.19}, ("81 % of attempts failed in 5 minutes",)),
        ({"success_rate": 0.9999}, ("less than 1 % of attempts failed in 5 minutes",)),
        ({"success_rate": 0.99}, ("1 % of attempts failed in 5 minutes",)),
        ({"success_rate": 0.001}, ("99 % of attempts failed in 5 minutes",)),
        ({"success_rate": 0.0}, ("100 % of attempts failed in 5 minutes",)),
        ({"is_due": True, "lag_s": 330.0}, ("jobs are due and no worker is alive",)),
        ({"is_due": True, "lag_s": 330.0, "workers": 1}, ("the oldest due job has waited for 330 s",)),
        ({"new_letters": 1}, ("1 job became dead letters in 5 minutes",)),
        ({"new_letters": 2}, ("2 jobs became dead letters in 5 minutes",)),
    ],
    ids=str,
)
def test_every_trouble_that_takes_something_off_is_said(signs: dict[str, Any], reasons: tuple[str, ...]) -> None:
    assert reasons_of(Signs(**signs)) == reasons


def test_open_breakers_and_failed_checks_are_said_by_name() -> None:
    signs = Signs(success_rate=0.5, breakers=3, open_breakers=2, failed_checks=1, new_letters=3)
    assert reasons_of(signs, open_breakers=("mail", "payments"), failed_checks=("vendor",)) == (
        "check vendor failed",
        "50 % of attempts failed in 5 minutes",
        "breaker mail is open",
        "breaker payments is open",
        "3 jobs became dead letters in 5 minutes",
    )
