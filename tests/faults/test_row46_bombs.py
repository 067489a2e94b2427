"""Row 46: cron lines, patterns, rates and filters that would take for ever. Each is answered within 50 ms of work."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from holdfast.crawl.patterns import Pattern
from holdfast.crawl.robots import Robots
from holdfast.errors import ConfigError
from holdfast.policy.limiter import Rate
from holdfast.policy.retry_after import retry_after
from holdfast.policy.schedule import Cron, Every, due
from holdfast.redact import redacted_text
from tests.faults.api_server import ApiProcess
from tests.faults.conftest import full_only
from tests.faults.report import Report

STORE: Final = "any"
LIMIT_MS: Final = 50.0
END_OF_TIME: Final = 253_402_200_000.0
"""In the last days of the year 9999."""

REFUSED: Final[dict[str, Callable[[], object]]] = {
    f"cron {line[:24]!r}": lambda line=line: Cron(line)
    for line in (
        "*/0 * * * *",
        "0 0 31 2 *",
        "0 0 1 1 * 9999",
        "0-99999999999 * * * *",
        "9" * 100 + " * * * *",
        ",".join(["0-59"] * 500) + " * * * *",
        "*" * 1_000_000,
        "* " * 1_000_000,
        "0 0 29 2 MON#6",
        "\u0661 * * * *",
        "@yearly",
    )
} | {
    "interval below a second": lambda: Every(1e-9),
    "interval without an end": lambda: Every(float("inf")),
    "interval beyond floats": lambda: Every(10**400),
    "rate of a million digits": lambda: Rate.parse("9" * 1_000_000 + "/minute"),
    "rate beyond floats": lambda: Rate.parse("1e999/second"),
    "pattern without an end": lambda: Pattern("*" * 100_000),
    "pattern of a million": lambda: Pattern("/" + "*a" * 500_000),
}
ANSWERED: Final[dict[str, Callable[[], object]]] = {
    "next tick of a rare line": lambda: Cron("0 0 29 2 MON#5", "Europe/Berlin").next_after(0.0),
    "next tick at the end of time": lambda: Cron("0 0 29 2 MON#5").next_after(END_OF_TIME),
    "ticks missed for 8,000 years": lambda: due(Cron("* * * * *"), 0.0, END_OF_TIME),
    "rare ticks missed for 8,000 years": lambda: due(Cron("0 0 29 2 *"), 0.0, END_OF_TIME),
    "seconds missed for 8,000 years": lambda: due(Every(1), 0.0, END_OF_TIME),
    "stars over a long path": lambda: Pattern("/" + "*a" * 900).matches("http://h/" + "a" * 3_000 + "b"),
    "folders over a long path": lambda: Pattern("/" + "**/a/" * 300 + "b").matches("http://h/" + "a/" * 2_000),
    "labels over a long host": lambda: Pattern("https://" + "*." * 60 + "x/").matches("https://" + "a." * 120 + "y/"),
    "robots.txt of stars": lambda: Robots.parse(
        "User-agent: *\nDisallow: /" + "*a" * 200 + "b$\n", "Holdfast/1"
    ).allows("http://h/" + "a" * 2_000),
    "Retry-After of digits": lambda: retry_after({"Retry-After": "1" * 65_536}, 429, now=0.0),
    "RateLimit of fields": lambda: retry_after({"RateLimit": "r=0;" * 16_000}, 429, now=0.0),
    "secrets in brackets": lambda: redacted_text("token=" + "([" * 40_000),
    "logins in logins": lambda: redacted_text("a://" * 25_000),
    "quotes in quotes": lambda: redacted_text('password="' + "\\" * 50_000),
}
FILTERS: Final = (
    "(a+)+$",
    "(a|a)*b",
    "(.*)*" * 20,
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "%" * 200,
    "_" * 200,
    "[" * 200,
    "{{7*7}}",
    "${7*7}",
    "{0.__class__.__mro__}",
    "%(asctime)999999999d",
    "\\" * 200,
)


def took_ms(call: Callable[[], object], work_s: Callable[[], float] = time.thread_time) -> float:
    """The least work of three times: what else runs on the machine, or in a server meanwhile, is not counted."""

    def once() -> float:
        began_s = work_s()
        call()
        return (work_s() - began_s) * 1000

    return min(once() for _ in range(3))


def refused(call: Callable[[], object]) -> None:
    try:
        call()
    except ConfigError:
        return
    raise AssertionError("it was accepted")


def test_what_would_take_for_ever_is_refused_or_answered_at_once(report: Report) -> None:
    took = {name: took_ms(lambda call=call: refused(call)) for name, call in REFUSED.items()}  # type: ignore[misc]
    took |= {name: took_ms(call) for name, call in ANSWERED.items()}
    slowest = max(took, key=lambda name: took[name])
    assert took[slowest] <= LIMIT_MS, f"{slowest}: {took[slowest]:.1f} ms"
    report(
        "cron lines, intervals, rates, patterns, robots.txt and headers made to take for ever",
        injected=len(took),
        note=f"{len(REFUSED)} refused, {len(ANSWERED)} answered, at most {took[slowest]:.1f} ms each ({slowest})",
    )


def _work_s(pid: int) -> float:
    """What all threads of another process have worked so far: Linux numbers its processor clock by its id."""
    return time.clock_gettime(~pid << 3 | 2)  # noqa: TID251 - work, not time


@full_only
def test_a_filter_is_no_pattern_and_no_template_to_the_server(tmp_path: Path, report: Report) -> None:
    with ApiProcess(tmp_path, f"sqlite:///{tmp_path}/shop.db") as server, server.client("admin") as client:
        for _ in range(10):
            value: Any = {"task": "echo", "arguments": {"value": "a" * 5_000 + "!"}}
            client.post("/jobs", json=value).raise_for_status()
        assert len(client.get("/jobs", params={"text": "a!"}).json()["items"]) == 10, "no filter finds anything"
        took: dict[str, float] = {}
        statuses: Counter[int] = Counter()
        for text in FILTERS:
            for params in ({"text": text}, {"task": text}, {"user": text}, {"cursor": text}):
                answer = client.get("/jobs", params=params)
                statuses[answer.status_code] += 1
                assert answer.status_code in {200, 422}, (params, answer.status_code)
                assert answer.status_code == 422 or answer.json()["items"] == [], f"{params} was taken for a pattern"
                assert "49" not in answer.text.replace(text, ""), "a template was filled in"
                ((field, _),) = params.items()
                took[f"{field}={text[:24]}"] = took_ms(
                    lambda params=params: client.get("/jobs", params=params),  # type: ignore[misc]
                    lambda: _work_s(server.pid),
                )
    slowest = max(took, key=lambda name: took[name])
    assert 0.0 < took[slowest] <= LIMIT_MS, f"{slowest}: {took[slowest]:.1f} ms"
    report(
        "patterns that backtrack, and templates, as filters of the running server",
        injected=len(took),
        note=f"all taken as text, answers {dict(sorted(statuses.items()))}, at most {took[slowest]:.1f} ms of the "
        f"server's work each ({slowest})",
    )
