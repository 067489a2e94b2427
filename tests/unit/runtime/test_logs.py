"""Log lines: one JSON object each, or text that nobody can forge; with the job they are about, and without secrets."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import pytest

from holdfast.app import App
from holdfast.errors import ConfigError, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.runtime.current import RUNNING
from holdfast.runtime.inline import inline_delivery
from holdfast.runtime.logs import JsonFormatter, TextFormatter, set_up_logs

TRACE = f"00-{'ab' * 16}-{'cd' * 8}-01"


def line_of(message: str, *args: object, name: str = "shop", **fields: Any) -> dict[str, Any]:
    text = JsonFormatter().format(record_of(message, *args, name=name, **fields))
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def record_of(message: str, *args: object, name: str = "shop", exc_info: Any = None, **extra: Any) -> logging.LogRecord:
    record = logging.LogRecord(name, logging.WARNING, "f.py", 1, message, args, exc_info)
    record.created = 1_700_000_000.25
    vars(record).update(extra)
    return record


def caught(error: Exception) -> Any:
    try:
        raise error
    except Exception as raised:
        return type(raised), raised, raised.__traceback__


@pytest.fixture
def in_a_job() -> Iterator[None]:
    delivery = inline_delivery("mail")
    delivery.id, delivery.attempt, delivery.tenant, delivery.trace = "j1", 2, "acme", TRACE
    token = RUNNING.set((delivery, "w1"))
    yield
    RUNNING.reset(token)


# ---------------------------------------------------------------- JSON


def test_a_line_says_when_who_and_what() -> None:
    assert line_of("sent %d mails", 3) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "shop",
        "message": "sent 3 mails",
    }


def test_inside_of_a_job_every_line_names_it(in_a_job: None) -> None:
    line = line_of("hello", order=7)
    assert {key: line[key] for key in ("task", "job", "attempt", "worker", "tenant", "trace_id", "order")} == {
        "task": "mail",
        "job": "j1",
        "attempt": 2,
        "worker": "w1",
        "tenant": "acme",
        "trace_id": "ab" * 16,
        "order": 7,
    }


def test_a_field_of_ones_own_does_not_take_the_place_of_ours(in_a_job: None) -> None:
    line = line_of("hello", job="forged", level="x", attempt=2)
    assert (line["job"], line["extra.job"], line["level"], line["extra.level"]) == ("j1", "forged", "WARNING", "x")
    assert "extra.attempt" not in line


def test_outside_of_a_job_a_field_named_task_is_the_callers_own() -> None:
    assert line_of("hello", task="laundry") == line_of("hello") | {"extra.task": "laundry"}


def test_a_line_of_the_workers_names_the_job_it_is_about() -> None:
    fields = {"task": "mail", "job": "j1", "attempt": 1, "worker": "w", "tenant": "", "trace_id": ""}
    line = line_of("failed", name="holdfast.worker", **fields)
    assert {name: line.get(name) for name in fields} == fields | {"tenant": None, "trace_id": None}
    assert not [name for name in line if name.startswith("extra.")]


def test_a_line_of_the_workers_about_another_job_names_that_one(in_a_job: None) -> None:
    line = line_of("failed", name="holdfast.worker", task="post", job="j2", attempt=5, worker="w1", tenant="")
    assert [line.get(name) for name in ("task", "job", "attempt", "tenant")] == ["post", "j2", 5, None]


def test_an_exception_is_text_on_the_same_line() -> None:
    line = line_of("oh", exc_info=caught(ValueError("bad\nnews")))
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: bad\nnews")


class Level(IntEnum):
    LOW = 1


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_any_value_becomes_json() -> None:
    circle: list[Any] = []
    circle.append(circle)
    line = line_of(
        "x",
        nan=math.nan,
        big=2**80,
        level_=Level.LOW,
        half="\ud800",
        odd=Unprintable(),
        nested={1: {"a": (1, None)}, "many": list(range(1000))},
        kind=ValueError("v"),
        circle=circle,
    )
    assert (line["nan"], line["big"], line["level_"], line["half"]) == (None, str(2**80), 1, "\\ud800")
    assert line["odd"] == "<Unprintable: RuntimeError>"
    assert line["nested"]["1"] == {"a": [1, None]}
    assert len(line["nested"]["many"]) == 100
    assert (line["kind"], "circle" in line) == ("v", True)


def test_secrets_are_left_out_wherever_they_are() -> None:
    line = line_of(
        "login with password=hunter2 at postgres://me:hunter2@db/x",
        exc_info=caught(ValueError("Authorization: Bearer hunter2hunter2")),
        api_key="hunter2",
        form={"user": "me", "password": "hunter2", "note": "token=hunter2"},
        headers=[("authorization", "Basic hunter2")],
        env={"name": "DB_PASSWORD", "value": "hunter2"},
        urls={"redis://:hunter2@h": 1},
        max_tokens=100,
    )
    assert "hunter2" not in json.dumps(line)
    assert line["max_tokens"] == 100
    assert (line["api_key"], line["form"]["user"]) == ("[redacted]", "me")


def test_control_characters_are_escaped() -> None:
    text = JsonFormatter().format(record_of("\x1b[31m\x00\r\x9b1m\u2028\x7f\u202e"))
    assert text.isprintable()
    assert json.loads(text)["message"] == "\x1b[31m\x00\r\x9b1m\u2028\x7f\u202e"


# ---------------------------------------------------------------- text


def test_text_is_a_line_for_people_and_names_the_job(in_a_job: None) -> None:
    text = TextFormatter().format(record_of("sent"))
    assert text.endswith(" WARNING shop: sent [mail job j1 attempt 2]")
    assert TextFormatter().format(record_of("sent", name="holdfast.worker")).endswith(": sent")


def test_no_text_can_look_like_a_line_of_its_own() -> None:
    forged = "x\n2026-01-01 00:00:00,000 INFO root: all is well\r\x1b[2K\x85\u2028y"
    lines = TextFormatter().format(record_of(forged, exc_info=caught(ValueError(forged)))).splitlines()
    assert len(lines) > 3
    assert all(line.startswith("    ") for line in lines[1:])
    assert all(line.isprintable() for line in lines)
    assert "\\r\\x1b[2K\\x85\\u2028y" in lines[1]


def test_text_leaves_secrets_out_but_not_because_of_a_loggers_name() -> None:
    text = TextFormatter().format(record_of("password=hunter2 is wrong", name="shop.auth"))
    assert text.endswith("shop.auth: password=[redacted] is wrong")


# ---------------------------------------------------------------- setting up


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger without pytest's own handlers, and put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_the_environment_says_how_to_log_and_an_option_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_FORMAT", "json")
    monkeypatch.setenv("HOLDFAST_LOG", "error")
    with bare_root() as root:
        set_up_logs()
        assert (type(root.handlers[0].formatter), root.level) == (JsonFormatter, logging.ERROR)
    with bare_root() as root:
        set_up_logs("text", "debug")
        assert (type(root.handlers[0].formatter), root.level) == (TextFormatter, logging.DEBUG)


@pytest.mark.parametrize(("name", "value"), [("HOLDFAST_LOG_FORMAT", "xml"), ("HOLDFAST_LOG", "LOUD")])
def test_nonsense_in_the_environment_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with bare_root() as root:
        with pytest.raises(ConfigError, match=f"{name}={value}: must be one of"):
            set_up_logs()
        assert root.handlers == []


# ---------------------------------------------------------------- in a worker


async def test_lines_of_jobs_on_the_loop_and_on_threads_name_their_job() -> None:
    out = io.StringIO()
    app = App("memory://")
    log = logging.getLogger("shop")

    @app.task(name="async", breaker=None)
    async def on_loop() -> None:
        log.info("begun")
        await asyncio.to_thread(log.info, "handed on")

    @app.task(name="sync", breaker=None, retry=RetryPolicy(max_retries=0))
    def on_thread() -> None:
        log.info("begun")
        raise Transient("busy")

    jobs = {"async": await on_loop.options(tenant="acme").aenqueue(), "sync": await on_thread.aenqueue()}
    with bare_root():
        set_up_logs("json", "info", out)
        await app.arun_until_idle()
        log.info("outside")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    told = [(line["logger"], line["task"], line["job"], line["attempt"]) for line in lines if "job" in line]
    assert sorted(told) == sorted(
        [
            ("shop", "async", jobs["async"].id, 1),
            ("shop", "async", jobs["async"].id, 1),
            ("shop", "sync", jobs["sync"].id, 1),
            ("holdfast.worker", "sync", jobs["sync"].id, 1),
        ]
    )
    assert {line.get("tenant") for line in lines if line.get("task") == "async"} == {"acme"}
    assert len({line["worker"] for line in lines if "job" in line}) == 1
    assert "task" not in lines[-1]
