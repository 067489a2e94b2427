"""What looks like a secret is left out of text, and the rest stays as it is."""

from __future__ import annotations

import pytest

from holdfast.policy.redact import redacted_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://shop:hunter2@db/x refused", "postgresql://shop:[redacted]@db/x refused"),
        ("redis://:p@ss/w@host", "redis://:[redacted]@host"),
        ("password=hunter2, user=ada", "password=[redacted], user=ada"),
        ("api_key := hunter2", "api_key := [redacted]"),
        ('{"api_key": "hun\\"ter2", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
        ("{'password': 'hun ter2', 'a': 1}", "{'password': '[redacted]', 'a': 1}"),
        (r"{\"password\": \"hunter2\"}", r"{\"password\": \"[redacted]\"}"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: [redacted]"),
        ("got Bearer hunter2hunter2 from you", "got Bearer [redacted] from you"),
        ("https://a.example/c?token=hunter2&x=1", "https://a.example/c?token=[redacted]&x=1"),
        ("x eyJhbGciOi.eyJzdWIi.sig y", "x [redacted] y"),
        ("hf_ops_0123456789abcdefXYZ", "[redacted]"),
        ("key AKIAABCDEFGHIJKLMNOP.", "key [redacted]."),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIhunter2\n-----END RSA PRIVATE KEY-----", "[redacted]"),
    ],
)
def test_a_secret_is_left_out(text: str, shown: str) -> None:
    assert redacted_text(text) == shown
    assert redacted_text(shown) == shown, "nothing is left to be done a second time"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KeyError: 'password'",
        "token=None password='' secret=null",
        "connect to 10.0.0.1:80 failed",
        "https://a.example/c?page=1",
        "basic functionality is missing",
        "order_id=7, author: Ada",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.timeout(10)
@pytest.mark.parametrize("piece", ["a", "a://:", "password=", 'a="', "password='", "eyJaaaaa.", "hf_a_", "bearer "])
def test_hostile_text_does_not_make_it_slow(piece: str) -> None:
    redacted_text(piece * (100_000 // len(piece)))
