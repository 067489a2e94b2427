"""Text that cannot steer a terminal, and times as people read them."""

from __future__ import annotations

import pytest

from holdfast.ops.text import ago, block, instant, length, many, plain, short, size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 日本", "plain ä 日本"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202edef", "abc\\u202edef"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
        ("[bold]not markup[/]", "[bold]not markup[/]"),
    ],
)
def test_what_could_steer_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_block_keeps_its_lines_and_nothing_else() -> None:
    assert block("a\r\n\tb\x1b[2J\rc") == "a\n\tb\\x1b[2J\\rc"


def test_a_short_text_is_one_line() -> None:
    assert short("a\n  b\tc") == "a b c"
    assert short("x" * 100, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0021, "2ms"), (1, "1s"), (59.4, "59s"), (60, "1m"), (3600, "1h"), (7200, "2h"), (86_400 * 3, "3d")],
)
def test_a_length_is_in_its_largest_unit(seconds: float, text: str) -> None:
    assert length(seconds) == text


def test_an_instant_is_told_from_now() -> None:
    assert [ago(at, 1000.0) for at in (None, 999.5, 700.0, 8200.0)] == ["-", "now", "5m ago", "in 2h"]


def test_an_instant_that_no_calendar_has_is_a_number() -> None:
    assert instant(0.0) == "1970-01-01 00:00:00Z"
    assert instant(None) == "-"
    assert instant(1e18) == "1e+18"


def test_sizes_and_counts_are_in_words() -> None:
    assert [size(n) for n in (0, 999, 1500, 3_400_000, 5e12)] == ["0 B", "999 B", "1.5 kB", "3.4 MB", "5.0 TB"]
    assert [many(1, "job"), many(2, "job"), many(0, "process", "processes")] == ["1 job", "2 jobs", "0 processes"]
