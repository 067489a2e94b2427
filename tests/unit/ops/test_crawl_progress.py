"""What `holdfast crawl` shows while it runs, and says at its end."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import App
from holdfast.crawl import Crawler, CrawlSummary, Progress
from holdfast.ops.commands.crawl_built_in import name_of
from holdfast.ops.commands.crawl_progress import LineScreen, LiveScreen, QuietScreen, progress_lines, screen_for
from holdfast.ops.commands.crawl_running import is_reader_gone, run_on
from holdfast.ops.commands.crawl_summary import Ended, summary_lines
from holdfast.ops.commands.lazy import Unusable
from holdfast.runtime.crawls import CrawlView
from holdfast.testing import ManualClock
from holdfast.types import FailureType, Group, Severity

AT = Progress(
    name="shop",
    done=1204,
    pending=388,
    waiting=7,
    in_flight=32,
    dead=3,
    skipped=12,
    failed_here=9,
    rate_per_s=41.23,
    eta_s=9.4,
    held={"a.org": 3.0, "b.org": 28.0, "c.org": 1.0, "d.org": 0.4},
)
SUMMARY = CrawlSummary(name="shop", is_finished=True, done=1204, done_here=1204, items_here=900, took_s=29.0)


def ended(summary: CrawlSummary = SUMMARY, **fields: Any) -> Ended:
    given: dict[str, Any] = {"before": None, "groups": (), "out": "/data/pages.jsonl", "where": ""}
    return Ended(summary=summary, **given | fields)


def group(kind: FailureType, count: int, message: str = "https://example.org/a: nothing matches .price") -> Group:
    return Group(
        fingerprint=f"1:{kind.value}",
        count=count,
        tasks=("crawl:shop",),
        failure_type=kind,
        severity=Severity.MEDIUM,
        error_name="holdfast.errors.PageChanged",
        message=message,
        first_at=0.0,
        last_at=0.0,
        sample_id="x",
    )


# ---------------------------------------------------------------- while it runs


def test_progress_says_all_in_lines_that_fit_a_terminal() -> None:
    lines = list(progress_lines(AT, 29.0))
    assert lines == [
        "shop: 1,204 done, 388 pending, 41.2 pages/s, ETA 9s, 29s gone",
        "  32 in flight, 3 given up, 12 skipped, 9 failed attempts, 7 waiting",
        "  left alone: b.org for 28s, a.org for 3s, c.org for 1s and 1 more",
    ]
    assert len(list(progress_lines(replace(AT, held={}), 29.0))) == 2


def test_without_a_terminal_there_is_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    screen = LineScreen(clock)
    for _ in range(50):
        clock.advance(0.5)
        screen.show(AT)
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("ETA ")[2].partition(";")[0] for line in told] == ["9s, 10s gone", "9s, 20s gone"]


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called in the test itself: pytest sets standard error anew after the fixtures."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    return terminal


def test_on_a_terminal_the_lines_change_in_place_and_are_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, terminal = ManualClock(), on_terminal(monkeypatch)
    screen = screen_for(clock, is_quiet=True)
    assert isinstance(screen, LiveScreen)
    screen.show(AT)
    shown = terminal.getvalue()
    assert "1,204 done" in shown
    screen.show(replace(AT, done=1205))  # too soon to be drawn
    assert terminal.getvalue() == shown
    clock.advance(1.0)
    screen.show(replace(AT, done=1206))
    assert "1,206 done" in terminal.getvalue()
    screen.say("finishing 3 active requests \x1b[31m")
    assert "finishing 3 active requests \\x1b[31m" in terminal.getvalue()
    screen.close()
    assert terminal.getvalue().count("\x1b[?25h") == 1  # the cursor is back
    screen.close()


@pytest.mark.parametrize(("is_quiet", "kind"), [(True, QuietScreen), (False, LineScreen)])
def test_elsewhere_json_is_quiet(monkeypatch: pytest.MonkeyPatch, is_quiet: bool, kind: type) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(screen_for(ManualClock(), is_quiet=is_quiet)) is kind


def test_a_pipe_without_a_reader_is_told_from_one_with_a_reader() -> None:
    reading, writing = os.pipe()
    with open(writing, "wb") as stream:
        assert not is_reader_gone(stream)
        os.close(reading)
        assert is_reader_gone(stream)
    assert not is_reader_gone(io.BytesIO())


def test_a_reader_that_is_gone_ends_the_run_also_when_no_item_is_left_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Idle(Crawler):
        async def arun(self, *urls: str, **options: Any) -> CrawlSummary:
            options["on_progress"](AT)
            return replace(SUMMARY, is_finished=False)

    reading, writing = os.pipe()
    os.close(reading)
    with closing(App("memory://")) as app, open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(BrokenPipeError):
            run_on(Idle(app, name="shop"), ["https://example.org"], "-", url=None, target=None, as_json=True)


# ---------------------------------------------------------------- in the end


def test_a_finished_crawl_is_told_in_two_lines() -> None:
    assert list(summary_lines(ended())) == [
        "finished: 1,204 pages done, in 29s",
        "items         900 new in /data/pages.jsonl",
    ]


def test_a_stopped_one_says_how_to_go_on_and_one_without_output_how_to_get_items() -> None:
    stopped = replace(SUMMARY, is_finished=False, pending=300, dead=2, done_here=4)
    first, second = summary_lines(ended(stopped, out="", where=" --url sqlite:///x.db"))
    told, _, again = first.partition("; ")
    assert told == "stopped: 1,204 pages done (4 in this run), 300 pending, 2 given up, in 29s"
    assert again == "run the same command again to go on"
    assert second == (
        "items         are in the store: holdfast crawl export shop --url sqlite:///x.db --out FILE.jsonl"
    )


def test_causes_are_told_largest_first_with_the_commands_to_look_at_them() -> None:
    secret = "https://ann:canary-53@example.org/a: no \x1b[31m"
    groups = [group(FailureType.PERMANENT, 12 - n, secret) for n in range(6)] + [group(FailureType.STRUCTURAL, 1)]
    dead = replace(SUMMARY, dead=1300, not_followed={"other domain": 5, "too deep": 2000})
    text = "\n".join(summary_lines(ended(dead, groups=groups, target="shop:crawler", where=" --app shop:crawler")))
    assert "not followed  2,000 too deep, 5 other domain" in text
    assert text.count("12 × PageChanged: https://ann:[redacted]@example.org/a: no \\x1b[31m   1:permanent") == 1
    assert "and 2 more causes" in text
    assert "holdfast dlq --task crawl:shop --app shop:crawler" in text
    assert "holdfast crawl replay 1:structural --app shop:crawler --try" in text
    assert "canary" not in text


@pytest.mark.parametrize(
    ("change", "was_over"),
    [
        (lambda view: view, True),
        (lambda view: replace(view, pending=1), False),
        (lambda view: replace(view, done=1203), False),
        (lambda view: replace(view, done=1204, dead=1), False),
        (lambda view: None, False),
    ],
)
def test_a_crawl_was_over_before_where_nothing_has_changed(
    change: Callable[[CrawlView], CrawlView | None], was_over: bool
) -> None:
    before = change(CrawlView(name="shop", state="finished", done=1204))
    one = ended(before=before)
    assert one.was_over is was_over
    assert any("It was finished before" in line for line in summary_lines(one)) is was_over


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://Example.org/a?b", "example.org"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://[::1]:8080/", "1:8080"),
        ("http://" + "a" * 60 + "." + "b" * 60 + ".org:81/", "a" * 60 + "." + "b" * 33 + ":81"),
    ],
)
def test_a_crawl_without_a_name_is_called_by_its_domain(url: str, name: str) -> None:
    assert name_of(url) == name


def test_what_is_no_url_is_refused_with_what_was_perhaps_meant() -> None:
    with pytest.raises(Unusable, match=r"'example.org' is no URL of a page; did you mean https://example.org/\?"):
        name_of("example.org")
    with pytest.raises(Unusable, match=r"'ftp://example.org' is no URL of a page$"):
        name_of("ftp://example.org")
