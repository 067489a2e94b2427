"""Strings that must be shown as text and nothing else, a different one for every field that somebody can fill."""

from __future__ import annotations

from typing import Final

# Names must be printable text of at most 200 characters; what cannot be a name is fired through the free texts below.
TASK: Final = "<img src=x onerror=alert('task')>"
QUEUE: Final = "\"><svg onload=alert('queue')>"
TENANT: Final = "<img src=x onerror=alert('tenant')>"
USER: Final = "javascript:alert('user')"
PROJECT: Final = "</script><script>alert('project')</script>"
KEY: Final = "'\"><iframe srcdoc=\"<script>alert('key')</script>\">"
BREAKER: Final = "<svg/onload=alert('breaker')>/../reset"
SCHEDULE: Final = "<img src=x onerror=alert('schedule')>?a=b#c"
ALERT: Final = "<img src=x onerror=alert('alert')>"
LONG_NAME: Final = "w" * 180

ERROR_CLASS: Final = "<img src=x onerror=alert('class')>"
FILE: Final = "<img src=x onerror=alert('file')>.py"
LINE: Final = "raise problem  # </script><script>alert('line')</script>"
REASON: Final = "<img src=x onerror=alert('reason')>"
ARGUMENT_KEY: Final = "</textarea><img src=x onerror=alert('argument key')>"
ARGUMENT: Final = "</textarea><script>alert('argument')</script>"
RESULT: Final = "</pre><img src=x onerror=alert('result')>"
SEARCH: Final = "\"><img src=x onerror=alert('search')>"

ANSI: Final = "\x1b[31mred\x1b[0m\x07"
RIGHT_TO_LEFT: Final = "\u202egpj.exe\u2066"
LONG_WORD: Final = "M" * 1_500
MESSAGE: Final = f"<img src=x onerror=alert('message')> {ANSI} {RIGHT_TO_LEFT} javascript:alert('link') {LONG_WORD}"
MESSAGE_BEGINS: Final = "<img src=x onerror=alert('message')>"
