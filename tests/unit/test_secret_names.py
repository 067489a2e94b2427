"""Secrets are known by the names they go under, however these are spelt, and other names are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.secret_names import STEMS, hidden_items, hidden_keys, hides, is_secret

SECRETS = """
    password PASSWORD passWord PassWord pass_word pass-word passwort db_passwd newPassword PGPASSWORD password1
    password_hash
    passPhrase passcode pass PASS DB_PASS userPass userpass pw pwd MYSQL_PWD db.pwd
    secret client-secret SECRET_KEY token tokens access_tokens refreshTokens accessToken X-Auth-Token
    api_key apiKey APIKEY APIKey x.api.key api_keys aws_access_key_id private_key signingKey encryption_key
    ssh_key sshKey
    master_key masterKey accountKey hmac_key hmac license_key session_key
    Authorization Proxy-Authorization Set-Cookie cookie credentials sessionId card_number creditCard connectionString
    dsn DB_DSN cvv cvc pin PIN otp OTPCode otp_code auth jwt bearer sid signature sig x-amz-signature --password
""".split()
OTHERS = """
    order_id author authority pinned spinner opinion compass passenger passengers passage bypass bypass_codes passed
    pass_rate key keys keyboard monkey primary_key public_key cache_key idempotency_key keyword
    tokenizer tokenize tokenised tokenization signal signals design assign significant dsname session session_count
    secretary card scorecard side inside conn connection cvs
""".split()


@pytest.mark.parametrize("name", [*SECRETS, "session id", "card number", "p" * 200 + "_password"])
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret(name)
    assert any(stem in name.lower() for stem in STEMS), "or it would not be looked for in a text"


@pytest.mark.parametrize("name", [*OTHERS, "", "ключ", "7"])
def test_other_names_are_no_secrets(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("name", "value", "is_hidden"),
    [
        ("password", "x", True),
        ("password", 1234, True),
        ("password", None, False),
        ("password", "", False),
        ("max_tokens", 100, False),
        ("tokens", 5, False),
        ("token_count", 5.5, False),
        ("tokens", "abc", True),
        ("tokens", ["abc"], True),
        ("token", 123456, True),
        ("order", "x", False),
    ],
)
def test_a_count_or_nothing_may_be_shown_under_a_secrets_name(name: str, value: Any, is_hidden: bool) -> None:
    assert hides(name, value) is is_hidden


def test_a_value_is_hidden_by_the_name_beside_it() -> None:
    assert hidden_keys({"name": "DB_PASSWORD", "value": "x", "n": 1}) == {"value"}
    assert hidden_keys({"Key": "api_key", "Value": "x"}) == {"Value"}
    assert hidden_keys({"name": "DB_PASSWORD", "value": ""}) == frozenset()
    assert hidden_keys({"name": "REGION", "value": "x"}) == frozenset()
    assert hidden_keys({"name": 7, "value": "x", "secret": 1}) == {"secret"}


def test_items_are_hidden_by_the_one_before_in_pairs_and_command_lines() -> None:
    assert hidden_items(["X-Api-Key", "x"]) == {1}
    assert hidden_items(["region", "x"]) == frozenset()
    assert hidden_items(["password", "email", "name"]) == frozenset()
    assert hidden_items(["mysql", "--password", "x", "--user", "y", "--token=1", "z"]) == {2}
    assert hidden_items(["--password"]) == frozenset()
    assert hidden_items([]) == frozenset()
