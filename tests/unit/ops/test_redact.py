"""Secrets are told by their names, and what is none is left alone."""

from __future__ import annotations

import pytest

from holdfast.ops.redact import HIDDEN, is_secret, redacted, shown


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "PASSWORD",
        "db_passwd",
        "newPassword",
        "secret",
        "client-secret",
        "token",
        "accessToken",
        "X-Auth-Token",
        "api_key",
        "apiKey",
        "APIKEY",
        "x.api.key",
        "Authorization",
        "Set-Cookie",
        "private_key",
        "aws_access_key_id",
        "credentials",
        "session id",
        "card_number",
        "cvv",
        "pin",
    ],
)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["order_id", "author", "tokens", "max_tokens", "tokenizer", "key", "pinned", "spinner", "passenger", "dsname"],
)
def test_other_names_are_no_secrets(name: str) -> None:
    assert not is_secret(name)


def test_secrets_are_left_out_however_deep_they_are() -> None:
    value = {"user": {"password": "x", "name": "Ada"}, "rows": [{"token": {"a": 1}}, 2], "api_key": None, "secret": ""}
    assert redacted(value) == {
        "user": {"password": HIDDEN, "name": "Ada"},
        "rows": [{"token": HIDDEN}, 2],
        "api_key": None,
        "secret": "",
    }


def test_what_is_no_json_is_shown_as_text() -> None:
    assert shown(None) is None
    assert shown(b'{"password":"x","n":1}') == {"password": HIDDEN, "n": 1}
    assert shown(b"\xff{") == "\\xff{"
