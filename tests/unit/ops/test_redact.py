"""What is stored is shown without its secrets, and what is none is left alone."""

from __future__ import annotations

from holdfast.ops.redact import HIDDEN, redacted, shown, without_secrets
from holdfast.types import JobRecord, JobState


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
    assert shown(b"\xff password=hunter2") == "\\xff password=[redacted]"


def test_texts_keys_pairs_and_settings_are_looked_through() -> None:
    value = {
        "url": "postgres://u:hunter2@h/db",
        "redis://:hunter2@h": 1,
        "headers": [["X-Api-Key", "hunter2"], ["Host", "a"]],
        "env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "REGION", "value": "eu"}],
        "argv": ["mysql", "--password", "hunter2"],
        "max_tokens": 100,
        "tokens": ["hunter2"],
    }
    assert redacted(value) == {
        "url": "postgres://u:[redacted]@h/db",
        "redis://:[redacted]@h": 1,
        "headers": [["X-Api-Key", HIDDEN], ["Host", "a"]],
        "env": [{"name": "DB_PASSWORD", "value": HIDDEN}, {"name": "REGION", "value": "eu"}],
        "argv": ["mysql", "--password", HIDDEN],
        "max_tokens": 100,
        "tokens": HIDDEN,
    }


def test_a_job_is_shown_without_secrets_in_what_its_sender_named() -> None:
    job = JobRecord(
        id="i",
        task="t",
        payload=b"",
        state=JobState.QUEUED,
        user="token=hunter2",
        project="redis://:hunter2@h",
        idempotency_key="pw=hunter2",
    )
    safe = without_secrets(job)
    assert (safe.user, safe.project, safe.idempotency_key) == (
        "token=[redacted]",
        "redis://:[redacted]@h",
        "pw=[redacted]",
    )
    assert without_secrets(JobRecord(id="i", task="t", payload=b"", state=JobState.QUEUED)).idempotency_key is None
