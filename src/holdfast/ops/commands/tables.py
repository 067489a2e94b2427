"""Tables that fit the terminal: ids get shorter, what matters least is left out, and no line is wrapped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from holdfast.ops.text import plain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

Cell: TypeAlias = str | tuple[str, str]
"""Text, or text and its style."""

_WIDE_GAP: Final = 3
_NARROW_GAP: Final = 2
_CUT: Final = "…"


class Column(Struct, frozen=True):
    """A column, and what becomes of it where there is no room for everything."""

    name: str
    is_number: bool = False
    prefix: int | None = None
    """For ids: the beginning is shown, so long that none is shown twice, and at least so many characters."""
    least: int | None = None
    """For texts: the end is cut, down to so many characters."""
    goes: int | None = None
    """Left out where even that is too much: the column with the lowest number first."""


class FittedTable:
    """Draws itself for the width that it is given."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
        self._columns = columns
        self._rows = [[_text_of(cell) for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What rich calls to draw it."""
        yield self._drawn(options.max_width)

    def _drawn(self, width: int) -> Table:
        from rich import box  # noqa: PLC0415 - rich costs 50 ms, and --json does not need it
        from rich.table import Table  # noqa: PLC0415

        rows = [list(row) for row in self._rows]
        shown = list(range(len(self._columns)))
        naturals = self._widths(rows)
        is_narrow = _total(naturals, _WIDE_GAP) > width
        if is_narrow:
            self._shorten_ids(rows)
            naturals = self._widths(rows)
            shown = self._kept(naturals, rows, width)
        gap = _NARROW_GAP if is_narrow else _WIDE_GAP
        widths = self._shared_out({i: naturals[i] for i in shown}, width - gap * (len(shown) - 1))
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=is_narrow)
        for i in shown:
            column = self._columns[i]
            made.add_column(
                column.name,
                justify="right" if column.is_number else "left",
                no_wrap=True,
                overflow="ellipsis",
                width=widths[i],
            )
        for row in rows:
            made.add_row(*(self._cut(row[i], i, widths[i]) for i in shown))
        return made

    def _widths(self, rows: Sequence[Sequence[Text]]) -> list[int]:
        return [max([len(column.name), *(row[i].cell_len for row in rows)]) for i, column in enumerate(self._columns)]

    def _shorten_ids(self, rows: Sequence[list[Text]]) -> None:
        for i, column in enumerate(self._columns):
            if column.prefix is not None:
                most = enough([row[i].plain for row in rows], column.prefix)
                for row in rows:
                    row[i] = row[i][:most]

    def _kept(self, naturals: Sequence[int], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
        """The columns that there is room for; those with nothing in them go first."""
        kept = list(range(len(self._columns)))
        order = [i for i in kept if self._columns[i].goes is not None]
        order.sort(key=lambda i: (any(row[i].plain for row in rows), self._columns[i].goes))
        for i in order:
            if _total([self._least(one, naturals[one]) for one in kept], _NARROW_GAP) <= width:
                break
            kept.remove(i)
        return kept

    def _least(self, i: int, natural: int) -> int:
        least = self._columns[i].least
        return natural if least is None else min(natural, max(least, len(self._columns[i].name)))

    def _shared_out(self, naturals: dict[int, int], room: int) -> dict[int, int]:
        """The width of each column: texts have what is left; where nothing is, the widest ones give way."""
        widths = {i: self._least(i, natural) for i, natural in naturals.items()}
        left = room - sum(widths.values())
        for i, natural in naturals.items():
            more = max(0, min(natural - widths[i], left))
            widths[i] += more
            left -= more
        while left < 0 and max(widths.values()) > 1:
            widest = max(widths, key=lambda i: widths[i])
            widths[widest] -= 1
            left += 1
        return widths

    def _cut(self, text: Text, i: int, width: int) -> Text:
        """A text loses its end; a name its beginning, as its end says most."""
        if text.cell_len <= width or self._columns[i].least is not None or self._columns[i].prefix is not None:
            return text
        from rich.cells import set_cell_size  # noqa: PLC0415
        from rich.text import Text as RichText  # noqa: PLC0415

        tail = text.plain[::-1]
        return RichText(_CUT + set_cell_size(tail, width - 1)[::-1], style=text.style)


def enough(ids: Sequence[str], least: int) -> int:
    """How many leading characters tell these ids from each other: at least so many, and no hyphen at the end."""
    different = sorted(set(ids))
    most = least
    for before, after in pairwise(different):
        alike = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        most = max(most, alike + 1)
    while any(one[most - 1 : most] == "-" for one in different):
        most += 1
    return most


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _text_of(cell: Cell) -> Any:
    from rich.text import Text  # noqa: PLC0415

    return Text(plain(cell)) if isinstance(cell, str) else Text(plain(cell[0]), style=cell[1])
