"""The docs say what the code does: every name and setting is there, every link leads somewhere, every snippet runs."""

from __future__ import annotations

import errno
import inspect
import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

import click
import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once

import holdfast
import holdfast.alerts
import holdfast.crawl
import holdfast.health
import holdfast.testing
from holdfast import (
    App,
    Backoff,
    BreakerConfig,
    Bulkhead,
    CircuitBreaker,
    CircuitBreakers,
    HoldfastError,
    Job,
    JobContext,
    JobState,
    Policy,
    RateLimiter,
    RetryBudget,
    RetryPolicy,
    Task,
    errors,
    retry,
)
from holdfast.alerts import (
    BreakerOpen,
    DeadLetterGrowth,
    DeadLetters,
    ErrorRate,
    HealthScore,
    Lag,
    LagGrowth,
    Notice,
    StreamLag,
    StreamStuck,
    Webhook,
)
from holdfast.app import RunResult
from holdfast.app.alerts import AlertDesk
from holdfast.app.crawls import CrawlDesk
from holdfast.app.operators import BreakerDesk, DeadLetterDesk, JobDesk, QueueDesk, QueueView, ScheduleDesk
from holdfast.app.rings import RingDesk
from holdfast.app.stats import AppStats
from holdfast.app.streams import StreamDesk
from holdfast.clock import SystemClock
from holdfast.crawl import (
    Crawler,
    CrawlSummary,
    Item,
    Link,
    Progress,
    adapting,
    feed,
    fetch,
    frontier,
    kept,
    pace,
    robots,
    scope,
    tangles,
    urls,
)
from holdfast.crawl.letters import CrawlLetters, CrawlLetterStats
from holdfast.crawl.replaying import StillFailing, Tried
from holdfast.health import CheckResult, Health
from holdfast.ops.api.settings import ApiSettings
from holdfast.ops.cli import main
from holdfast.policy import health as score
from holdfast.policy.known_codes import (
    AWS,
    ERRNOS,
    GOOGLE_LIMITS,
    GRPC,
    REDIS_REPLIES,
    SQLITE,
    SQLSTATES,
    Finding,
    meaning_of_status,
)
from holdfast.policy.known_errors import BY_CLASS, BY_NAME, LAST_RESORT
from holdfast.policy.lifecycle import LIFECYCLE
from holdfast.policy.retry_after import LONGEST_S
from holdfast.ports import Capabilities, ConsumerReport, DomainReport, Page, RingReport, Store, WorkerRecord
from holdfast.ring import Consumer, Disruptor, Reprocessed
from holdfast.ring.checkpoints import Checkpoint
from holdfast.ring.json_lines import FileLetter, LetterError
from holdfast.ring.letters import KEEP_S
from holdfast.ring.slots import SMALL
from holdfast.ring.work import OUTAGE
from holdfast.runtime.alerts import AlertView
from holdfast.runtime.crawls import CrawlProcess, CrawlView
from holdfast.runtime.export import Imported
from holdfast.runtime.guards.retry import RetrySettings
from holdfast.runtime.inbox import Filters, LetterStats
from holdfast.runtime.page_gates import SHARES
from holdfast.runtime.process import CANNOT_START
from holdfast.runtime.replays import Preview
from holdfast.runtime.rings import ConsumerView, RingView
from holdfast.runtime.runner import Room
from holdfast.runtime.schedules import ScheduleStatus
from holdfast.runtime.shared.by_hand import BreakerView
from holdfast.runtime.streams.dlq_replay import TopicReplay
from holdfast.runtime.streams.passage import Passage, marker, to_dlq, to_retry
from holdfast.runtime.streams.views import PartitionView, StreamView
from holdfast.runtime.worker import Exit, WorkerSettings
from holdfast.streams import Message, Outputs, Producer, Sent
from holdfast.testing import ManualClock
from holdfast.types import Attempt, GiveUp, Group, JobRecord

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
POLICIES = DOCS / "reference" / "policies.md"
CLASSIFICATION = DOCS / "reference" / "classification.md"
CLI = DOCS / "reference" / "cli.md"
JOBS = DOCS / "reference" / "jobs.md"
WORKER = DOCS / "reference" / "worker.md"
STORES = DOCS / "reference" / "stores.md"
STREAMS = DOCS / "reference" / "streams.md"
PRODUCE = DOCS / "how-to" / "produce.md"
RINGS = DOCS / "reference" / "rings.md"
CRAWLS = DOCS / "reference" / "crawls.md"
SECURITY = DOCS / "reference" / "security.md"
HEALTH = DOCS / "reference" / "health.md"
ALERTS = DOCS / "reference" / "alerts.md"
JUDGED = DOCS / "explanation" / "how-jobs-are-judged.md"
PAGES = [*sorted(DOCS.rglob("*.md")), README]

# For those who work on Holdfast; CONTRIBUTING.md leads there.
INTERNAL = {DOCS / "explanation" / "mutation.md"}
# They crawl a site in another process, whose time passes as ever: leases would run out between two answers.
IN_REAL_TIME = {DOCS / "tutorial" / "first-crawl.md", DOCS / "how-to" / "crawls.md"}
# One number, two names; errno.errorcode has one of them.
ALIASES = {"EWOULDBLOCK": "EAGAIN", "EDEADLOCK": "EDEADLK", "EOPNOTSUPP": "ENOTSUP"}

# Where the settings of each are explained: in its own section, and in those whose settings it takes over.
SETTINGS: dict[Callable[..., Any], tuple[Path, tuple[str, ...]]] = {
    Backoff: (POLICIES, ("Backoff",)),
    RetryPolicy: (POLICIES, ("RetryPolicy", "Backoff")),
    retry: (POLICIES, ("retry", "RetryPolicy", "Backoff")),
    Policy: (POLICIES, ("Policy",)),
    BreakerConfig: (POLICIES, ("BreakerConfig",)),
    CircuitBreaker: (POLICIES, ("CircuitBreaker", "BreakerConfig")),
    CircuitBreakers: (POLICIES, ("CircuitBreakers",)),
    RateLimiter: (POLICIES, ("RateLimiter",)),
    Bulkhead: (POLICIES, ("Bulkhead",)),
    RetryBudget: (POLICIES, ("RetryBudget",)),
    App: (JOBS, ("App",)),
    App.task: (JOBS, ("App.task",)),
    App.schedule: (JOBS, ("App.schedule",)),
    App.stream: (STREAMS, ("App.stream",)),
    Producer: (PRODUCE, ("Producer",)),
    Disruptor: (RINGS, ("Disruptor",)),
    Disruptor.register_consumer: (RINGS, ("Disruptor.register_consumer",)),
    Disruptor.produce: (RINGS, ("Disruptor.produce",)),
    Crawler: (CRAWLS, ("Crawler",)),
    Crawler.page: (CRAWLS, ("Crawler.page",)),
    Crawler.run: (CRAWLS, ("Crawler.run",)),
    Task.options: (JOBS, ("Task.options",)),
    WorkerSettings: (WORKER, ("WorkerSettings",)),
    Room: (WORKER, ("Room",)),
    ApiSettings: (SECURITY, ("ApiSettings",)),
    App.health_check: (HEALTH, ("App.health_check",)),
    App.alert: (ALERTS, ("App.alert",)),
    Webhook: (ALERTS, ("Webhook",)),
    **{
        rule: (ALERTS, (rule.__name__,))
        for rule in (
            ErrorRate,
            HealthScore,
            DeadLetters,
            DeadLetterGrowth,
            Lag,
            BreakerOpen,
            StreamLag,
            LagGrowth,
            StreamStuck,
        )
    },
}
OWN_NAME = inspect.signature(App.task).parameters["breaker"].default  # stands for the owner's name, and is no value

# What users meet of jobs, and where its members are named; those of the set are for the runtime alone.
MEMBERS: dict[type, tuple[Path, set[str]]] = {
    App: (
        JOBS,
        {"bridge", "gates_of", "hooks", "keep_s", "local_breaker", "local_limiter", "run_inline", "scheduled", "specs"},
    ),
    Task: (JOBS, {"gates_of", "job_of", "new_job", "send", "asend", "spec", "value_of"}),
    Job: (JOBS, set()),
    RunResult: (JOBS, set()),
    JobContext: (JOBS, set()),
    DeadLetterDesk: (JOBS, set()),
    JobDesk: (JOBS, set()),
    BreakerDesk: (JOBS, set()),
    QueueDesk: (JOBS, set()),
    ScheduleDesk: (JOBS, set()),
    StreamDesk: (JOBS, {"acheck", "alags_unseen", "check_sources", "source_of"}),
    Message: (STREAMS, set()),
    Outputs: (STREAMS, set()),
    Producer: (STREAMS, set()),
    Sent: (STREAMS, set()),
    StreamView: (JOBS, set()),
    PartitionView: (JOBS, set()),
    Disruptor: (RINGS, set()),
    Consumer: (RINGS, set()),
    Reprocessed: (RINGS, set()),
    FileLetter: (RINGS, set()),
    LetterError: (RINGS, set()),
    Checkpoint: (RINGS, set()),
    RingReport: (RINGS, set()),
    ConsumerReport: (RINGS, set()),
    Crawler: (CRAWLS, {"rules", "settings", "spec_of"}),
    holdfast.crawl.Page: (CRAWLS, {"fetched", "payload"}),
    Link: (CRAWLS, set()),
    Item: (CRAWLS, set()),
    Progress: (CRAWLS, set()),
    CrawlSummary: (CRAWLS, set()),
    CrawlLetters: (CRAWLS, set()),
    CrawlLetterStats: (CRAWLS, set()),
    Tried: (CRAWLS, set()),
    StillFailing: (CRAWLS, set()),
    RingDesk: (JOBS, set()),
    RingView: (JOBS, set()),
    ConsumerView: (JOBS, set()),
    CrawlDesk: (JOBS, set()),
    CrawlView: (JOBS, set()),
    CrawlProcess: (JOBS, set()),
    DomainReport: (JOBS, set()),
    TopicReplay: (JOBS, set()),
    JobState: (JOBS, set(dir(str))),
    JobRecord: (JOBS, set()),
    Attempt: (JOBS, set()),
    Group: (JOBS, set()),
    Page: (JOBS, set()),
    LetterStats: (JOBS, set()),
    Preview: (JOBS, set()),
    Imported: (JOBS, set()),
    BreakerView: (JOBS, set()),
    QueueView: (JOBS, set()),
    ScheduleStatus: (JOBS, set()),
    AppStats: (JOBS, set()),
    WorkerRecord: (JOBS, set()),
    Store: (STORES, set()),
    Capabilities: (STORES, set()),
    Health: (HEALTH, set()),
    CheckResult: (HEALTH, set()),
    AlertDesk: (ALERTS, {"look", "score"}),
    AlertView: (ALERTS, set()),
    Notice: (ALERTS, set()),
}


@cache
def _public(owner: type) -> set[str]:
    """The names that an object of this class has for its users."""
    made = set(re.findall(r"^        self\.([a-z]\w*)[:\s=]", inspect.getsource(owner), re.MULTILINE))
    return {name for name in {*dir(owner), *made} if not name.startswith("_")}


# Between `holdfast demo` and the processes it starts.
PRIVATE_VARIABLES = {"HOLDFAST_DEMO"}

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """One Python block of a page, and what the page says that it prints, if it says so."""

    line: int
    code: str
    output: str | None


# ---------------------------------------------------------------- names and settings


def test_there_are_at_most_40_public_names() -> None:
    assert len(holdfast.__all__) <= 40


@pytest.mark.parametrize("name", [*holdfast.__all__, *holdfast.testing.__all__])
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert any(f"`{name}`" in page.read_text() for page in (POLICIES, JOBS))


@pytest.mark.parametrize(
    ("module", "page"), [(holdfast.alerts, ALERTS), (holdfast.crawl, CRAWLS), (holdfast.health, HEALTH)]
)
def test_every_name_of_a_module_is_on_its_page(module: ModuleType, page: Path) -> None:
    assert [name for name in module.__all__ if not re.search(rf"`{name}\b", page.read_text())] == []


def test_the_table_of_the_score_is_the_codes_own() -> None:
    rows = [_cells(line) for line in _section(HEALTH, "The score").splitlines() if line.startswith("| ")][1:]
    assert [row[1] for row in rows] == [
        f"{score.FAILED_ATTEMPTS} × their share",
        f"{score.OPEN_BREAKERS} × their share of all",
        f"{score.FAILED_CHECK} each, at most {score.FAILED_CHECKS}",
        f"{score.NO_WORKER}",
        f"up to {score.LAG}, at {score.LAG_LONG_S:g} s",
        f"up to {score.NEW_LETTERS}, at {score.MANY_LETTERS}",
    ]
    assert f"longer than {score.LAG_SHORT_S:g} s" in rows[4][0]


@pytest.mark.parametrize(
    ("owner", "parameter"),
    [
        (owner, parameter)
        for owner in SETTINGS
        for parameter in inspect.signature(owner).parameters.values()
        if parameter.name != "self"
    ],
    ids=lambda it: getattr(it, "__qualname__", None) or it.name,
)
def test_every_setting_is_in_the_reference_with_its_default(
    owner: Callable[..., Any], parameter: inspect.Parameter
) -> None:
    if parameter.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_KEYWORD}:
        return  # the decorated function, and the settings of RetryPolicy, which are asked for under its own name
    page, sections = SETTINGS[owner]
    rows = {name: cell for section in sections for name, cell in _settings_in(page, section).items()}
    assert parameter.name in rows, f"{parameter.name} is not in the tables of {' and '.join(sections)}"
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        assert rows[parameter.name] == "none"
    elif parameter.default is inspect.Parameter.empty:
        assert rows[parameter.name] == "required"
    elif parameter.default is OWN_NAME:
        assert rows[parameter.name] == f"the {owner.__name__}'s name"
    elif isinstance(parameter.default, str | int | float | None):
        assert rows[parameter.name] == f"`{_literal(parameter.default)}`"


@pytest.mark.parametrize("owner", SETTINGS, ids=lambda it: it.__qualname__)
def test_no_setting_is_in_the_reference_that_does_not_exist(owner: Callable[..., Any]) -> None:
    page, sections = SETTINGS[owner]
    assert set(_settings_in(page, sections[0])) <= set(inspect.signature(owner).parameters)


def test_retry_takes_exactly_the_settings_of_a_retry_policy() -> None:
    assert set(RetrySettings.__annotations__) == set(inspect.signature(RetryPolicy).parameters)


def _settings_in(page: Path, section: str) -> dict[str, str]:
    """The settings in the first table under a heading, each with the cell of its default."""
    found = re.search(rf"^### `{re.escape(section)}`$(.*?)(?=^##|\Z)", page.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page.name} has no heading for {section}"
    table = re.search(r"^\| setting \|.*?\n\n", found[1], re.DOTALL | re.MULTILINE)
    assert table is not None, f"{section} has no table of settings"
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]
    return {row[0].strip("`"): row[1] for row in rows if len(row) > 1}


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


# ---------------------------------------------------------------- jobs


@pytest.mark.parametrize(
    ("owner", "member"),
    [
        (owner, member)
        for owner, (_, inside) in MEMBERS.items()
        for member in sorted(_public(owner))
        if member not in inside and not (member[0] == "a" and member[1:] in _public(owner))
    ],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_every_member_of_what_users_meet_is_in_the_reference(owner: type, member: str) -> None:
    words = set(re.findall(r"\w+", "".join(re.findall(r"`[^`\n]+`", MEMBERS[owner][0].read_text()))))
    assert member in words or f"a{member}" in words


def test_the_table_of_the_lifecycle_is_the_codes_own() -> None:
    section = _section(JOBS, "The table of changes")
    rows = [_cells(line) for line in section.splitlines() if line.startswith("| `")]
    assert rows == [
        [
            f"`{change.value}`",
            ", ".join(sorted(state.value for state in move.before))
            + ("; of a message also " + ", ".join(sorted(state.value for state in move.again)) if move.again else ""),
            "–" if move.after is None else move.after.value,
            move.words,
        ]
        for change, move in LIFECYCLE.items()
    ]


def test_every_state_of_a_job_is_in_the_reference() -> None:
    rows = [_cells(line) for line in _section(JOBS, "`JobState`").splitlines() if line.startswith("| `")]
    assert [row[:3] for row in rows] == [
        [f"`{state.name}`", f'`"{state.value}"`', "yes" if state.is_terminal else "no"] for state in JobState
    ]


def test_every_filter_of_the_inbox_is_in_the_reference() -> None:
    rows = [_cells(line)[0] for line in _section(JOBS, "`app.dead_letters`").splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert named >= set(Filters.__annotations__)


def test_every_header_that_messages_are_given_is_in_the_reference() -> None:
    message = Message("orders", 0, 0)
    attempt = Attempt(number=1, started_at=0.0, ended_at=0.0)
    written = (
        to_dlq(message, topic="orders.dlq", group="billing", attempt=attempt, retry_count=0, letter_id="1"),
        to_retry(Passage(message), "orders.billing.retry.0"),
        marker("orders.dlq", "1", at=0.0, key=None),
    )
    names = {name for one in written for name, _ in one.headers}
    assert {name for name in names if f"`{name}`" not in STREAMS.read_text()} == set()


def test_the_fixed_numbers_of_rings_are_the_codes_own() -> None:
    table = _section(RINGS, "Fixed numbers")
    assert f"given up untried | {OUTAGE} |" in table
    assert f"gathered with others | {SMALL} elements |" in table
    assert f"are kept for | {KEEP_S / 86_400:g} days |" in table


def test_the_fixed_numbers_of_crawls_are_the_codes_own() -> None:
    rows = [_cells(line) for line in _section(CRAWLS, "Fixed numbers").splitlines() if line.startswith("| ")][1:]
    assert [row[1] for row in rows] == [
        f"{urls.LONGEST} characters",
        f"{scope.LONGEST_PATH} characters",
        f"{scope.MOST_SEGMENTS}; {scope.MOST_PARAMETERS}",
        f"{scope.MOST_REPEATS} times",
        f"{adapting.FIRST_LIMIT}",
        f"{', '.join(f'{rest_s:g}' for rest_s in pace.RESTS_S)} s",
        f"{pace.HOPELESS_BURSTS}",
        f"{LONGEST_S:.0f} s",
        f"{robots.LONGEST_DELAY_S:.0f} s",
        f"{robots.FRESH_S:.0f} s",
        f"{robots.LONGEST} bytes",
        f"{SHARES}",
        f"{frontier.SEEN}",
        f"{fetch.LONGEST_HEADER} bytes",
        f"{tangles.MOST_TAGS}",
        f"{kept.MOST_BYTES} bytes",
        f"{feed.MOST_WAITING}",
        f"{Crawler(App('memory://')).settings.lease_s:g} s",
    ]


@pytest.mark.parametrize("reason", [one for one in get_args(scope.Reason) if one])
def test_every_reason_for_not_following_a_link_is_explained(reason: str) -> None:
    assert f"| `{reason}` |" in _section(CRAWLS, "Scope")


def test_the_tree_of_errors_is_the_codes_own() -> None:
    tree = (errors.__doc__ or "").partition("\n\n")[2].strip()
    assert f"```text\n{tree}\n```" in POLICIES.read_text()


@pytest.mark.parametrize(
    "name", [name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, HoldfastError)]
)
def test_every_error_is_in_the_reference(name: str) -> None:
    assert any(re.search(rf"\b{name}\b", page.read_text()) for page in (POLICIES, JOBS))


@pytest.mark.parametrize("reason", [one for one in GiveUp if one is not GiveUp.BUDGET_EMPTY])
def test_every_reason_for_giving_a_job_up_is_explained(reason: GiveUp) -> None:
    assert f"| `{reason.value}` |" in JUDGED.read_text()


def test_every_exit_code_is_in_the_reference() -> None:
    rows = [_cells(line)[:2] for line in _section(WORKER, "Exit codes").splitlines() if re.match(r"\| \d+ \|", line)]
    codes = {one.value: one.name for one in Exit} | {CANNOT_START: "CANNOT_START"}
    assert rows == [[str(code), f"`{codes[code]}`"] for code in sorted(codes)]


def test_every_environment_variable_is_in_the_reference() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = {
        name for line in _section(WORKER, "Environment variables").splitlines() for name in re.findall(r"`(\w+)`", line)
    }
    assert set(re.findall(r"\bHOLDFAST_[A-Z_]+\b", sources)) - PRIVATE_VARIABLES == {
        name for name in named if name.startswith("HOLDFAST_")
    }


def _section(page: Path, heading: str) -> str:
    found = re.search(rf"^(#+) {re.escape(heading)}$(.*?)(?=^#|\Z)", page.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page.name} has no heading {heading}"
    return found[2]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


# ---------------------------------------------------------------- command line


@pytest.mark.parametrize("words", [("--version",), ("--help",), *((name,) for name in main.commands)], ids=" ".join)
def test_every_command_is_in_the_reference(words: tuple[str, ...]) -> None:
    name = words[0]
    wanted = f"## `holdfast {name}`" if name in main.commands else f"`{name}`"
    assert wanted in CLI.read_text()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (name, option)
        for name, command in main.commands.items()
        for parameter in command.get_params(click.Context(command))
        for option in parameter.opts
    ],
)
def test_every_option_is_in_the_section_of_its_command(command: str, option: str) -> None:
    section = re.search(rf"^## `holdfast {command}`$(.*?)(?=^## |\Z)", CLI.read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None
    assert re.search(rf"^\| [^|]*`{option}`", section[1], re.MULTILINE)


@pytest.mark.parametrize(
    ("group", "command"),
    [(name, one) for name, group in main.commands.items() if isinstance(group, click.Group) for one in group.commands],
)
def test_every_command_of_a_group_is_in_the_reference_with_its_options(group: str, command: str) -> None:
    section = re.search(rf"^## `holdfast {group}`$(.*?)(?=^## |\Z)", CLI.read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None
    assert f"### `holdfast {group} {command}`" in section[1]
    owner = main.commands[group]
    assert isinstance(owner, click.Group)
    one = owner.commands[command]
    options = [option for parameter in one.params for option in parameter.opts if isinstance(parameter, click.Option)]
    assert [option for option in options if f"`{option}" not in section[1]] == []


# ---------------------------------------------------------------- classification


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("Python's exceptions", {one.__name__: meaning for one, meaning in BY_CLASS.items()}),
        ("Python's exceptions", {errno.errorcode[code]: meaning for code, meaning in ERRNOS.items()}),
        ("Classes of clients and libraries", BY_NAME),
        ("Wrappers", LAST_RESORT),
        ("gRPC", GRPC),
        ("SQLSTATE", SQLSTATES),
        ("SQLite", {str(code): meaning for code, meaning in SQLITE.items()}),
        ("AWS", AWS),
        ("Redis", REDIS_REPLIES),
    ],
    ids="classes errno clients wrappers grpc sqlstate sqlite aws redis".split(),
)
def test_the_tables_of_classification_are_the_codes_own(heading: str, table: dict[str, Finding]) -> None:
    written = _meanings_under(heading)
    assert {name: _in_words(meaning) for name, meaning in table.items()} == {
        name: written.get(ALIASES.get(name, name)) for name in table
    }


def test_the_meaning_of_every_http_status_is_written_down() -> None:
    written = dict.fromkeys(range(400, 500), "PERMANENT") | dict.fromkeys(range(500, 600), "TRANSIENT")
    written |= {int(status): meaning for status, meaning in _meanings_under("HTTP statuses").items()}
    assert written == {status: _in_words(meaning_of_status(status)) for status in range(400, 600)}


def test_every_reason_of_google_is_written_down() -> None:
    assert {f"`{reason}`" for reason in GOOGLE_LIMITS} <= set(re.findall(r"`\w+`", CLASSIFICATION.read_text()))


def _meanings_under(heading: str) -> dict[str, str]:
    """The tables under a heading: what is in the last cell of each row, with the failure type in the cell before."""
    text = CLASSIFICATION.read_text()
    section = re.search(rf"^#+ {heading}$(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert section is not None, f"classification.md has no heading {heading}"
    meanings: dict[str, str] = {}
    for line in section[1].splitlines():
        *before, meaning, names = [cell.strip() for cell in line.strip("|").split(" | ")] if " | " in line else ["", ""]
        module = f"{before[0].strip('`')}." if before else ""
        meanings |= {f"{module}{name}": meaning for name in re.findall(r"`([^`]+)`", names)}
    return meanings


def _in_words(meaning: Finding) -> str:
    is_own = meaning.severity in {None, meaning.type.severity}
    return meaning.type.name if is_own else f"{meaning.type.name} ({meaning.severity})"


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text())
    broken = [link for link in [*_LINK.findall(text), *_IMAGE.findall(text)] if not _leads_somewhere(page, link)]
    assert broken == []


def _leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True  # somebody else's page
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or anchor in map(_slug, _HEADING.findall(_FENCE.sub("", target.read_text())))


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(DOCS)], ids=lambda page: page.name)
def test_every_page_can_be_reached_from_the_index(page: Path) -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in _LINK.findall(index.read_text())}
    assert page in {index, *linked, *INTERNAL}


# ---------------------------------------------------------------- snippets


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The machine's clock, moved by the sleeps alone. Not `no_wait`, under which rate limits are not kept."""
    clock = ManualClock()
    for name in ("now", "monotonic", "sleep", "asleep"):
        monkeypatch.setattr(SystemClock, name, staticmethod(getattr(clock, name)))
    return clock


@pytest.fixture
def own_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that sets up tracing sets it up for the process: FastAPI would trace every later test."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())


@pytest.mark.usefixtures("own_tracing")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_runs_as_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if page not in IN_REAL_TIME:
        request.getfixturevalue("virtual_time")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    blocks = list(_blocks(page))
    if any("import pytest" in block.code for block in blocks):
        _run_as_tests(blocks, tmp_path)
        return
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in blocks:
        # Blank lines before the code, so that a traceback has the page's line numbers.
        code = compile("\n" * block.line + block.code, str(page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, namespace)
        if block.output is not None:
            assert printed.getvalue() == block.output


def _run_as_tests(blocks: list[Block], folder: Path) -> None:
    """Run the snippets of a page about tests as what they are."""
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nanyio_mode = auto\n")
    (folder / "test_page.py").write_text("\n\n".join(block.code for block in blocks))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _blocks(page: Path) -> Iterator[Block]:
    """The Python blocks; a text block that follows at once is what the code before it prints."""
    text = page.read_text()
    for found in _PYTHON.finditer(text):
        yield Block(text.count("\n", 0, found.start()) + 1, found[1], found[2])
