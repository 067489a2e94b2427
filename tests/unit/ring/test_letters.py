"""Dead letters of a ring in the inbox: each is there once, whole, readable, and can be edited where it may be."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app import App
from holdfast.clock import ManualClock
from holdfast.errors import Invalid, StoreAway, Unwritable
from holdfast.json_values import MAX_BYTES
from holdfast.ports import Enqueued, Store
from holdfast.redact import HIDDEN, redacted
from holdfast.ring import given_up as keeping
from holdfast.ring.letters import Letters, inbox_letters
from holdfast.runtime.ring_letters import read_ring_letter
from holdfast.runtime.ring_origins import RingOrigin, ring_origin
from holdfast.types import JobRecord, JobState, NewJob
from tests.unit.ring.given_ups import AT, given_up

TASK = "prices/enrich"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AT)


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[App]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/ring.db"
    app = App(url, clock=clock)
    yield app
    app.close()


def letters_of(app: App, encode: Callable[[Any], Any] | None = None) -> Letters:
    return inbox_letters(app, ring="prices", consumer="enrich", encode=encode)


def inbox(app: App) -> list[JobRecord]:
    """Every letter with its history, oldest first."""
    return [app.dead_letters.get(one.id) for one in reversed(app.dead_letters.list(limit=1000).items)]


def payload(record: JobRecord) -> Any:
    return msgspec.json.decode(record.payload)


# ---------------------------------------------------------------- what is there


def test_a_letter_has_its_elements_its_origin_and_every_attempt(app: App) -> None:
    letters_of(app).write([given_up({"id": 1}, [2, "x"], offset=40, attempts=3)])
    (letter,) = inbox(app)
    assert (letter.task, letter.queue, letter.state) == (TASK, "ring:prices", JobState.DEAD_LETTER)
    assert payload(letter) == {
        "origin": {"kind": "ring", "ring": "prices", "consumer": "enrich", "batch": 7, "offset": 40, "count": 2},
        "elements": [{"id": 1}, [2, "x"]],
    }
    assert ring_origin(letter) == RingOrigin("ring", "prices", "enrich", 7, 40, 2)
    assert [one.number for one in letter.attempts] == [1, 2, 3]
    assert letter.reason == "retries used up"
    assert letter.error_name == "KeyError"
    assert "no such price" in letter.attempts[-1].traceback
    (group,) = app.dead_letters.groups()
    assert (group.tasks, group.fingerprint) == ((TASK,), letter.fingerprint)


def test_a_letter_without_attempts_has_one_made_of_its_failure(app: App) -> None:
    letters_of(app).write([given_up(1, attempts=0)])
    (letter,) = inbox(app)
    assert [(one.number, one.error_name, one.duration_s) for one in letter.attempts] == [(1, "KeyError", 0.0)]


def test_its_times_are_on_the_clock_of_the_store(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)
    app.store.clock_offset_s = 3600.0  # type: ignore[attr-defined]
    letters_of(app).write([given_up(1)])
    (letter,) = inbox(app)
    assert letter.attempts[0].ended_at == AT + 3600.0


def test_it_is_kept_for_seven_days(app: App) -> None:
    letters_of(app).write([given_up(1)])
    app.store.clock_offset_s = 7 * 86_400.0 - 60.0  # type: ignore[attr-defined]
    assert app.prune() == 0
    app.store.clock_offset_s = 7 * 86_400.0 + 60.0  # type: ignore[attr-defined]
    assert app.prune() == 1


# ---------------------------------------------------------------- ids


def test_ids_are_uuids_of_version_7(app: App) -> None:
    letters_of(app).write([given_up(1), given_up(1, offset=3)])
    for letter in inbox(app):
        parsed = uuid.UUID(letter.id)
        assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, letter.id)


def test_without_offsets_equal_elements_of_one_batch_are_two_letters_and_so_are_those_of_two_runs(app: App) -> None:
    letters = letters_of(app)
    letters.write([given_up(None), given_up(None)])
    letters.write([given_up(None)])
    letters_of(app).write([given_up(None)])
    assert len(inbox(app)) == 4


def test_elements_given_up_again_at_the_same_offset_are_the_same_letter_with_a_longer_history(
    app: App, clock: ManualClock
) -> None:
    letters_of(app).write([given_up("a", "b", offset=10)])
    clock.advance(60.0)
    letters_of(app).write([given_up("a", "b", offset=10, at=AT + 60.0, batch=9)])
    (letter,) = inbox(app)
    assert [one.number for one in letter.attempts] == [1, 1]


def test_other_elements_at_the_same_offset_are_another_letter(app: App) -> None:
    letters_of(app).write([given_up("a", offset=0)])
    letters_of(app).write([given_up("b", offset=0)])
    assert [payload(one)["elements"] for one in inbox(app)] == [["a"], ["b"]]


def test_what_was_handled_after_a_replay_and_is_given_up_again_is_a_dead_letter_again(
    app: App, clock: ManualClock
) -> None:
    letters_of(app).write([given_up("a", offset=10)])
    (letter,) = inbox(app)
    app.dead_letters.retry(letter.id)
    app.jobs.cancel(letter.id)
    assert inbox(app) == []
    clock.advance(60.0)
    letters_of(app).write([given_up("a", offset=10, at=AT + 60.0)])
    assert [one.id for one in inbox(app)] == [letter.id]


class Lossy:
    """A store that does what it is told, and whose first answers are lost."""

    def __init__(self, store: Store, lost: int) -> None:
        self._store = store
        self._lost = lost
        self.sent: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        self.sent.append([job.id for job in jobs])
        answer = self._store.enqueue_now(jobs, connection)
        if len(self.sent) <= self._lost:
            raise StoreAway("the answer is lost")
        return answer


@pytest.mark.parametrize("offset", [None, 5])
def test_a_lost_reply_makes_no_second_letter(app: App, offset: int | None) -> None:
    app._store = Lossy(app.store, lost=2)
    count = iter(range(100))
    letters = letters_of(app, lambda element: [element, next(count)])  # never the same twice
    given = [given_up("a", offset=offset), given_up("a", offset=offset if offset is None else 6)]
    for _ in range(2):
        with pytest.raises(StoreAway):
            letters.write(given)
    letters.write(given)
    assert len(inbox(app)) == 2


# ---------------------------------------------------------------- elements that are no JSON


class Price:
    """Something that is no JSON."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __repr__(self) -> str:
        return f"Price({self.cents})"


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("nothing to say")


def fail(element: Any) -> Any:
    raise ZeroDivisionError("in encode")


def test_encode_makes_json_of_what_is_none(app: App) -> None:
    letters_of(app, lambda price: price.cents).write([given_up(Price(5), Price(6))])
    (letter,) = inbox(app)
    assert payload(letter)["elements"] == [5, 6]
    assert read_ring_letter(letter.payload).elements == (5, 6)


@pytest.mark.parametrize(
    ("element", "encode", "text", "why"),
    [
        (Price(5), None, "Price(5)", "Price cannot be stored as JSON"),
        (b"raw", None, "b'raw'", "bytes would come back as str; give the consumer encode="),
        (datetime(2026, 1, 1, tzinfo=UTC), None, "datetime.datetime(2026", "datetime would come back as str"),
        (float("nan"), None, "nan", "nan cannot be stored as JSON"),
        ("\ud800", None, "'\\ud800'", "a lone surrogate"),
        (Mute(), None, "<Mute without a text: RuntimeError: nothing to say>", "Mute cannot be stored"),
        (3, fail, "3", "encode failed: ZeroDivisionError: in encode"),
        (3, lambda _: float("inf"), "3", "encode failed: ValueError: inf cannot be stored as JSON"),
        ("y" * 20_000 + "\ud800", None, "'" + "y" * 9_999 + "…", "a lone surrogate"),
    ],
)
def test_an_element_that_cannot_be_kept_is_there_as_text_with_the_reason(
    app: App, element: Any, encode: Callable[[Any], Any] | None, text: str, why: str
) -> None:
    letters_of(app, encode).write([given_up(element)])
    (letter,) = inbox(app)
    found = payload(letter)
    (stub,) = found["elements"]
    assert stub["unreadable"].startswith(text)
    assert len(stub["unreadable"]) < 10_100
    assert why in stub["why"]
    assert found["unreadable"] == [0]
    with pytest.raises(Invalid, match="element 0 was not kept as JSON"):
        read_ring_letter(letter.payload)


def test_an_element_that_only_looks_like_such_a_text_is_replayed_as_it_is(app: App) -> None:
    element = {"unreadable": "x", "why": "y"}
    letters_of(app).write([given_up(element)])
    (letter,) = inbox(app)
    assert read_ring_letter(letter.payload).elements == (element,)


def test_elements_deeper_than_any_payload_are_kept_as_text(app: App) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    letters_of(app).write([given_up(deep)])
    (letter,) = inbox(app)
    assert "nested deeper" in payload(letter)["elements"][0]["why"]


# ---------------------------------------------------------------- sizes


def test_elements_that_are_too_many_for_one_payload_are_several_letters_in_order(app: App) -> None:
    elements = [f"{n}{'x' * 300_000}" for n in range(7)]
    letters_of(app).write([given_up(*elements, offset=100)])
    found = inbox(app)
    assert all(len(one.payload) <= MAX_BYTES for one in found)
    origins = [ring_origin(one) for one in found]
    assert [(one.offset, one.count) for one in origins if one] == [(100, 3), (103, 3), (106, 1)]
    assert [one for letter in found for one in payload(letter)["elements"]] == elements


def test_one_element_above_the_limit_is_kept_whole(app: App) -> None:
    large = "x" * (MAX_BYTES + 10)
    letters_of(app).write([given_up(1, large, 2)])
    found = [read_ring_letter(one.payload).elements for one in inbox(app)]
    assert found == [(1,), (large,), (2,)]


def test_one_that_no_store_would_take_is_kept_by_its_beginning(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LARGEST_BYTES", 1_000)
    letters_of(app).write([given_up("x" * 20_000)])
    (letter,) = inbox(app)
    (stub,) = payload(letter)["elements"]
    assert stub["why"] == "it has 20,002 bytes as JSON, and this is their beginning"
    assert stub["unreadable"] == '"' + "x" * 9_999


class Picky:
    """A store that refuses letters with so many attempts, or with such a payload."""

    def __init__(self, store: Store, most_attempts: int, word: bytes = b"never") -> None:
        self._store = store
        self._most = most_attempts
        self._word = word

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        for job in jobs:
            if job.end is not None and (len(job.end.attempts) > self._most or self._word in job.payload):
                raise Unwritable(job.id, "too much")
        return self._store.enqueue_now(jobs, connection)


def test_a_letter_that_is_refused_goes_without_its_history_and_keeps_no_other(app: App) -> None:
    app._store = Picky(app.store, most_attempts=2)
    letters_of(app).write([given_up("a", attempts=2), given_up("b", attempts=3), given_up("c")])
    assert {payload(one)["elements"][0]: len(one.attempts) for one in inbox(app)} == {"a": 2, "b": 1, "c": 1}


def test_one_whose_elements_are_refused_is_there_all_the_same_and_the_log_has_them(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app._store = Picky(app.store, most_attempts=9, word=b"poison")
    letters_of(app).write([given_up("poison", offset=4)])
    (letter,) = inbox(app)
    assert ring_origin(letter) == RingOrigin("ring", "prices", "enrich", 7, 4, 1)
    assert "refuses its elements" in payload(letter)["elements"][0]["why"]
    assert "poison" in caplog.text


# ---------------------------------------------------------------- what people may do with them


def test_an_edit_may_change_elements_and_nothing_else(app: App) -> None:
    letters_of(app).write([given_up(1, 2, offset=4)])
    (letter,) = inbox(app)
    origin = payload(letter)["origin"]
    for changed in ({"consumer": "other"}, {"offset": 5}, {"ring": "x"}):
        with pytest.raises(Invalid, match="the origin of a ring's letter cannot be edited"):
            app.dead_letters.retry(letter.id, {"origin": origin | changed, "elements": [1]})
    with pytest.raises(Invalid, match=r"the letter cannot be read: .*elements"):
        app.dead_letters.retry(letter.id, {"origin": origin})
    with pytest.raises(Invalid, match=r"the letter cannot be read: .*unknown field"):
        app.dead_letters.retry(letter.id, {"origin": origin, "elements": [], "more": 1})
    with pytest.raises(Invalid, match="the letter has no elements, so there is nothing to replay"):
        app.dead_letters.retry(letter.id, {"origin": origin, "elements": []})
    assert app.dead_letters.retry(letter.id, {"origin": origin, "elements": [3]}).is_done


def test_an_edit_that_puts_something_in_the_place_of_an_unreadable_element_makes_it_replayable(app: App) -> None:
    letters_of(app).write([given_up(1, Price(5))])
    (letter,) = inbox(app)
    found = payload(letter)
    for elements in (found["elements"], found["elements"][1:]):  # an edit may have moved it
        with pytest.raises(Invalid, match="was not kept as JSON"):
            app.dead_letters.retry(letter.id, found | {"elements": elements})
    assert app.dead_letters.retry(letter.id, found | {"elements": [1, 5]}).is_done


def test_a_replay_with_an_edit_of_the_origin_is_refused(app: App) -> None:
    letters_of(app).write([given_up(1)])
    with pytest.raises(Invalid, match="edit: the origin of a ring's letter"):
        app.dead_letters.replay(edit={"origin": {"ring": "x"}})


def test_secrets_in_elements_are_hidden_where_letters_are_shown(app: App) -> None:
    letters_of(app).write([given_up({"user": "ann", "password": "hunter22"}, Price(1))])
    (letter,) = inbox(app)
    found = redacted(payload(letter))
    assert found["elements"][0] == {"user": "ann", "password": HIDDEN}
    assert found["origin"]["ring"] == "prices"


def test_a_worker_of_the_app_never_takes_a_ring_s_letter_not_even_an_imported_one(app: App) -> None:
    letters_of(app).write([given_up(1)])
    (letter,) = inbox(app)
    lines = app.dead_letters.export()
    app.dead_letters.retry(letter.id)
    app.run_until_idle()
    assert app.jobs.get(letter.id).state is JobState.QUEUED
    app.jobs.cancel(letter.id)
    other = App("memory://")
    other.dead_letters.import_(lines)
    other.run_until_idle()
    assert other.jobs.get(letter.id).state is JobState.QUEUED
