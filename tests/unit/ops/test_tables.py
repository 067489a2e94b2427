"""Tables fit the width that they are given, and no line of them is wrapped."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.console import Console

from holdfast.clock import new_id
from holdfast.ops.commands.record import ROW, row
from holdfast.ops.commands.tables import Cell, Column, FittedTable, enough
from holdfast.types import FailureType, JobRecord, JobState

TASK = "shop.orders.charge_card"
WHY = "ConnectionRefusedError: payments.example does not answer, " * 3


def lines_of(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[str]:
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(FittedTable(columns, rows))
    return [line.rstrip() for line in capture.get().splitlines()]


def job(number: int, **fields: object) -> list[Cell]:
    told = {"failure_type": FailureType.NETWORK, "error_name": "E", "message": WHY} | fields
    record = JobRecord(id=new_id(), task=TASK, payload=b"{}", state=JobState.DEAD_LETTER, attempt=number)
    return row(JobRecord(**{name: getattr(record, name) for name in record.__struct_fields__} | told), 100.0)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("count", [1, 50])
def test_every_job_is_one_line_with_its_whole_task_and_an_id_of_its_own(width: int, count: int) -> None:
    rows = [job(i) for i in range(count)]
    head, _rule, *lines = lines_of(ROW, rows, width)
    assert len(lines) == count
    assert max(map(len, lines)) <= width
    assert head.split()[:3] == ["id", "task", "state"]
    assert all(line.split()[1:3] == [TASK, "dead_letter"] for line in lines)
    assert len({line.split()[0] for line in lines}) == count
    assert all(str(cells[0]).startswith(line.split()[0]) for cells, line in zip(rows, lines, strict=True))
    assert all(len(line.split()[0]) >= 13 for line in lines)
    assert width == 80 or all(line.endswith("…") for line in lines)


def test_what_fits_is_shown_whole() -> None:
    cells = job(1, message="m")
    head, _rule, line = lines_of(ROW, [cells], 300)
    assert head.split() == ["id", "task", "state", "queue", "attempts", "enqueued", "why"]
    assert str(cells[0]) in line
    assert line.endswith("E: m")


def test_what_matters_least_goes_first() -> None:
    rows = [job(1)]
    heads = [lines_of(ROW, rows, width)[0].split() for width in (120, 85, 76, 67, 55)]
    assert heads == [
        ["id", "task", "state", "queue", "attempts", "enqueued", "why"],
        ["id", "task", "state", "attempts", "enqueued", "why"],
        ["id", "task", "state", "enqueued", "why"],
        ["id", "task", "state", "why"],
        ["id", "task", "state"],
    ]


def test_a_column_with_nothing_in_it_goes_before_the_others() -> None:
    columns = [Column("name"), Column("paused", goes=9), Column("cause", goes=1)]
    assert lines_of(columns, [["x" * 20, "", "y" * 20]], 45)[0].split() == ["name", "cause"]


def test_a_name_too_long_for_any_terminal_keeps_its_end() -> None:
    columns = [Column("name"), Column("state")]
    (line,) = lines_of(columns, [["a.very.long." * 10 + "task", "open"]], 30)[2:]
    assert len(line) <= 30
    assert line.startswith("…")
    assert line.split() == [line.split()[0], "open"]
    assert line.split()[0].endswith("long.task")


@pytest.mark.parametrize("width", range(4, 60))
def test_no_width_is_too_small(width: int) -> None:
    lines = lines_of(ROW, [job(1), job(2)], width)
    assert len(lines) == 4
    assert max(map(len, lines)) <= max(width, 8)


def test_numbers_are_on_the_right_and_wide_letters_count_twice() -> None:
    columns = [Column("n", is_number=True), Column("text", least=4)]
    lines = lines_of(columns, [["7", "漢字漢字漢字"], ["1234", "x"]], 16)
    assert lines[2] == "   7  漢字漢字 …"
    assert lines[3] == "1234  x"


def test_markup_and_control_characters_are_text() -> None:
    assert lines_of([Column("a")], [["[red]\x1b[31m"]], 40)[2] == "[red]\\x1b[31m"


@pytest.mark.parametrize(
    ("ids", "least", "length"),
    [
        ([], 4, 4),
        (["abcdefgh"], 4, 4),
        (["abcdefgh", "abcdefxh"], 4, 7),
        (["abcdefgh", "abcdefgh"], 4, 4),
        (["abc-efgh"], 4, 5),
        (["abcd", "abcdefgh"], 2, 5),
    ],
)
def test_as_much_of_an_id_is_shown_as_tells_it_from_the_others(ids: list[str], least: int, length: int) -> None:
    assert enough(ids, least) == length
