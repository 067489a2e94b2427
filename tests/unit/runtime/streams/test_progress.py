"""What keeps a stream from moving, in words."""

from __future__ import annotations

import pytest

from holdfast.ports import Stats, StreamReport
from holdfast.runtime.streams.progress import in_one_line, troubles
from holdfast.runtime.streams.views import StreamView, stream_views
from tests.unit.reported import part, stream_report, stream_spec, worker_with


def view_of(report: StreamReport | None) -> StreamView:
    workers = [] if report is None else [worker_with(report)]
    (view,) = stream_views(Stats(now=0.0, workers=workers), [stream_spec("bill")])
    return view


def test_a_stuck_partition_is_named_with_its_message_and_its_key() -> None:
    view = view_of(
        stream_report(
            "bill",
            part(0, stuck_id="orders/0/12", stuck_key="A", stuck_s=60.0, in_flight=1),
            part(1, stuck_id="orders/1/3", stuck_key="B" * 100, stuck_s=75.4, in_flight=1),
            part(2, stuck_id="orders/2/9", stuck_key="C", stuck_s=59.9, in_flight=1),
        )
    )
    assert list(troubles(view, 60.0)) == [
        f"stream bill: partition 1 of orders has waited 75 s for message orders/1/3, key '{'B' * 59}…'",
        "stream bill: partition 0 of orders has waited 60 s for message orders/0/12, key 'A'",
    ]


def test_a_partition_with_nothing_unfinished_is_not_stuck_however_long_it_has_not_moved() -> None:
    assert list(troubles(view_of(stream_report("bill", part(0, stuck_s=1e6))), 60.0)) == []


def test_a_server_that_is_away_is_a_trouble_of_its_own() -> None:
    assert list(troubles(view_of(stream_report("bill", away="no route")), 60.0)) == [
        "stream bill: its server is away: no route"
    ]


@pytest.mark.parametrize(
    ("waiting", "lines"),
    [
        (0, []),
        (1, ["stream bill: no worker reads it, and 1 message waits"]),
        (7, ["stream bill: no worker reads it, and 7 messages wait"]),
        ("kafka://x has not answered", ["stream bill: no worker reads it, and kafka://x has not answered"]),
    ],
)
def test_a_stream_that_nobody_reads_is_a_trouble_where_messages_wait(waiting: int | str, lines: list[str]) -> None:
    assert list(troubles(view_of(None), 60.0, waiting)) == lines


def test_only_the_first_few_are_said() -> None:
    assert in_one_line(["a", "b", "c"]) == "a; b; c"
    assert in_one_line(["a", "b", "c", "d", "e"]) == "a; b; c; and 2 more"
