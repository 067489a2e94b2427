"""What a worker's processes log: lines of text, or a JSON object a line, each with the job it is about."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from holdfast.errors import ConfigError
from holdfast.redact import HIDDEN, hidden_items, hidden_keys, hides, redacted_text
from holdfast.runtime.current import RUNNING
from holdfast.runtime.tracing import current_trace_id, trace_id_of

FORMATS: Final = ("text", "json")
LOG_FORMAT: Final = "HOLDFAST_LOG_FORMAT"
"""The environment variable that says which format, also to the processes that a worker starts."""
LOG_LEVEL: Final = "HOLDFAST_LOG"

_CONTEXT: Final = ("task", "job", "attempt", "worker", "tenant", "trace_id")
_OWN: Final = frozenset({"time", "level", "logger", "message", "exception", *_CONTEXT})
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
"""What every record has; whatever else is on one was given with `extra=`."""
_OURS: Final = "holdfast."
_DEEPEST: Final = 6
_MOST: Final = 100
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def set_up_logs(format: str | None = None, level: str | None = None, stream: TextIO | None = None) -> None:  # noqa: A002
    """Log to standard error, unless the program has set up its own logging already.

    format: "text" or "json" [$HOLDFAST_LOG_FORMAT, or text]. level: such as "INFO" [$HOLDFAST_LOG, or INFO].
    """
    kind = format or os.environ.get(LOG_FORMAT) or "text"
    if kind not in FORMATS:
        raise ConfigError(f"{LOG_FORMAT}={kind}: must be one of {', '.join(FORMATS)}")
    name = (level or os.environ.get(LOG_LEVEL) or "INFO").upper()
    if name not in logging.getLevelNamesMapping():
        raise ConfigError(f"{LOG_LEVEL}={name}: must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if kind == "json" else TextFormatter())
    logging.basicConfig(level=name, handlers=[handler])


class TextFormatter(logging.Formatter):
    """A line for people. Nobody's text can look like a line of its own: what goes on below one is indented, and what a
    terminal would obey is written out.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the job that it is written in, and below it the traceback if there is one."""
        text = redacted_text(record.getMessage())
        running = RUNNING.get()
        if running is not None and not record.name.startswith(_OURS):  # whose lines name the job themselves
            text += f" [{running[0].task} job {running[0].id} attempt {running[0].attempt}]"
        if exception := _exception_of(self, record):
            text += f"\n{redacted_text(exception)}"
        text = f"{self.formatTime(record)} {record.levelname} {record.name}: {text}"
        return _CONTROL.sub(_written_out, text).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        """The line: who says what when, in which job, and what was given with `extra=`."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted_text(record.getMessage()),
        }
        extra = {name: value for name, value in vars(record).items() if name not in _PLAIN}
        context = context_of(extra, is_workers=record.name.startswith(_OURS))
        line |= context
        for name, value in extra.items():
            if name in _OWN:
                if context.get(name) == value or value in (None, ""):
                    continue
                name = f"extra.{name}"  # noqa: PLW2901 - ours keeps its name
            line[name] = HIDDEN if hides(name, value) else _as_json(value)
        if exception := _exception_of(self, record):
            line["exception"] = redacted_text(exception)
        return _CONTROL.sub(_as_escape, msgspec.json.encode(_encodable(line)).decode())


def _exception_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[1] is not None:
        parts.append(formatter.formatException(record.exc_info))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)


def context_of(extra: Mapping[str, Any], *, is_workers: bool) -> dict[str, Any]:
    """The job that a line is about: the one that the worker writes of, or the one it is written in."""
    running = RUNNING.get()
    if is_workers and "job" in extra:
        return {name: extra[name] for name in _CONTEXT if extra.get(name)}
    if running is None:
        return {}
    delivery, worker = running
    context = {"task": delivery.task, "job": delivery.id, "attempt": delivery.attempt, "worker": worker}
    if delivery.tenant:
        context["tenant"] = delivery.tenant
    if trace_id := trace_id_of(delivery.trace) or current_trace_id():
        context["trace_id"] = trace_id
    return context


def _as_json(value: Any, depth: int = 0) -> Any:
    """A value as JSON can have it, without secrets; what it cannot have is put into words."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):  # a subclass of these may not know how it is written
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, str):
        return redacted_text(value)
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            some = dict(list(value.items())[:_MOST])
            keys = hidden_keys(some)
            return {
                redacted_text(str(name)): HIDDEN if name in keys else _as_json(one, depth + 1)
                for name, one in some.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            items = list(value)[:_MOST]
            places = hidden_items(items)
            return [HIDDEN if i in places else _as_json(one, depth + 1) for i, one in enumerate(items)]
    try:
        return redacted_text(str(value))
    except Exception as error:  # a value's own code
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _encodable(value: Any) -> Any:
    """The same where every text is one, and every number is one that JSON has."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(name): _encodable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return str(value)
    return value


def _written_out(found: re.Match[str]) -> str:
    return ascii(found.group())[1:-1]


def _as_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"
