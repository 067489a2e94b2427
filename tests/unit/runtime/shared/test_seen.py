"""Who reads the values of a store, and when it must read all of them anew."""

from __future__ import annotations

from holdfast.ports import Exchanged, Value
from holdfast.runtime.shared.seen import Seen


def reply(*versions: int, newest: int, era: int = 1) -> Exchanged:
    return Exchanged(now=0.0, values=[Value("a", one, b"") for one in versions], newest=newest, era=era)


def reader() -> Seen:
    seen = Seen()
    assert seen.hear(0, reply(104, 105, newest=105))
    assert seen.version == 105
    return seen


def test_the_newest_one_heard_of_is_known() -> None:
    seen = reader()
    assert not seen.hear(105, reply(107, newest=107))
    assert seen.version == 107


def test_a_store_that_is_older_is_read_anew() -> None:
    seen = reader()
    assert not seen.hear(105, reply(newest=104))
    assert seen.version == 0
    assert seen.hear(0, reply(104, newest=104))
    assert seen.version == 104


def test_a_store_that_may_be_another_is_read_anew_however_new_it_is() -> None:
    seen = reader()
    assert not seen.hear(105, reply(106, newest=106, era=2))
    assert seen.version == 0
    assert seen.hear(0, reply(106, newest=106, era=2))
    assert seen.version == 106


def test_another_server_that_was_asked_for_everything_need_not_be_asked_again() -> None:
    seen = reader()
    seen.doubt()
    assert seen.hear(0, reply(106, newest=106, era=2))
    assert seen.version == 106


def test_a_store_without_values_is_asked_for_all_each_time() -> None:
    seen = reader()
    seen.doubt()
    assert seen.hear(0, reply(newest=0))
    assert seen.version == 0


def test_a_doubt_that_comes_while_a_reply_is_on_its_way_stays() -> None:
    seen = reader()
    seen.doubt()
    assert not seen.hear(105, reply(106, newest=106)), "it was asked before, so it is not all there is"
    assert seen.version == 0
