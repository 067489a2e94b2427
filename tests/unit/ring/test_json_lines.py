"""Dead letters in a file of JSON lines: whole lines whatever happens, and the way back to the consumers."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import ConfigError, NotFound, RingClosed
from holdfast.redact import HIDDEN
from holdfast.ring.given_up import Hand, Unhandled
from holdfast.ring.json_lines import file_letters, read_letters, try_lock
from holdfast.ring.letters import Letters
from holdfast.ring.reprocess import Reprocessed, reprocess_file
from tests.unit.ring.given_ups import AT, failure_of, given_up


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "letters.jsonl"


def letters_at(path: Path, encode: Callable[[Any], Any] | None = None, *, consumer: str = "enrich") -> Letters:
    return file_letters(path, ring="prices", consumer=consumer, encode=encode)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---------------------------------------------------------------- writing


def test_a_line_has_time_error_and_data(path: Path) -> None:
    letters_at(path).write([given_up({"id": 1}, 2, offset=40, attempts=3)])
    (line,) = lines_of(path)
    assert list(line) == ["id", "at", "ring", "consumer", "batch", "offset", "error", "attempts", "elements"]
    assert (line["at"], line["ring"], line["consumer"]) == ("2023-11-14T22:13:20.000Z", "prices", "enrich")
    assert (line["batch"], line["offset"], line["attempts"], line["elements"]) == (7, 40, 3, [{"id": 1}, 2])
    error = line["error"]
    assert (error["type"], error["message"], error["failure_type"]) == ("KeyError", "'no such price'", "validation")
    assert "no such price" in error["traceback"]
    assert error["fingerprint"]


def test_the_file_is_its_owner_s_alone_and_secrets_of_messages_are_not_in_it(path: Path) -> None:
    letters_at(path).write([given_up(1, failure=failure_of("password=hunter22 at home"))])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "hunter22" not in path.read_text()
    assert HIDDEN in lines_of(path)[0]["error"]["message"]


def test_an_element_that_is_no_json_is_kept_as_text_and_named(path: Path) -> None:
    letters_at(path).write([given_up(1, b"raw")])
    (letter,) = read_letters(path)
    assert letter.unreadable == (1,)
    assert letter.elements[1]["unreadable"] == "b'raw'"


@pytest.mark.parametrize("wrong", ["", "missing/letters.jsonl"])
def test_a_path_that_cannot_work_is_refused_at_once(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"dead_letters=.*give the path of a file in a folder that exists"):
        letters_at(tmp_path / wrong)


def test_a_torn_last_line_is_told_apart_and_spoils_no_other(path: Path) -> None:
    letters = letters_at(path)
    letters.write([given_up("a")])
    with path.open("ab") as file:
        file.write(b'{"id": "torn')
    letters.write([given_up("b")])
    assert [letter.elements for letter in read_letters(path)] == [("a",), ("b",)]
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("broken", ["write", "fsync"])
def test_what_a_full_disk_takes_in_part_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    letters = letters_at(path)
    letters.write([given_up("a")])
    before = path.read_bytes()
    real = os.write

    def half(file: int, data: Any) -> int:
        real(file, bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no space left")

    def never(file: int) -> None:
        raise OSError(errno.EIO, "no")

    again = given_up("b")
    with monkeypatch.context() as patch:
        patch.setattr(os, broken, half if broken == "write" else never)
        with pytest.raises(OSError, match="no"):
            letters.write([again])
    assert path.read_bytes() == before
    letters.write([again])
    assert [letter.elements for letter in read_letters(path)] == [("a",), ("b",)]


def test_a_file_system_that_cannot_flush_folders_takes_letters_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def files_alone(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        flush(file)

    monkeypatch.setattr("os.fsync", files_alone)
    letters_at(path).write([given_up("a")])
    assert reprocess(path, Seen()) == Reprocessed(done=1)


def test_a_line_that_came_twice_all_the_same_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    letters, one = letters_at(path), given_up("a")

    def never(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", never)
        patch.setattr(os, "ftruncate", never)
        with pytest.raises(OSError, match="no"):
            letters.write([one])
    letters.write([one])
    assert len(lines_of(path)) == 2
    assert [letter.elements for letter in read_letters(path)] == [("a",)]


def test_many_who_write_to_one_file_at_once_lose_no_line(path: Path) -> None:
    def write(name: str) -> None:
        letters = letters_at(path, consumer=name)
        for n in range(25):
            letters.write([given_up(n, "x" * 5_000)])

    threads = [threading.Thread(target=write, args=(f"c{n}",)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    found = [(letter.consumer, letter.elements[0]) for letter in read_letters(path)]
    assert sorted(found) == [(f"c{n}", i) for n in range(4) for i in range(25)]


def test_who_writes_waits_for_the_lock_but_not_for_one_who_has_moved_the_file_aside(path: Path) -> None:
    letters_at(path).write([given_up("a")])
    before = path.read_bytes()
    with path.open("rb+") as file:
        assert try_lock(file.fileno())
        writing = threading.Thread(target=letters_at(path).write, args=([given_up("b")],))
        writing.start()
        writing.join(0.05)
        assert writing.is_alive()
        assert path.read_bytes() == before
        path.rename(path.with_name("aside"))
        writing.join(20)
        assert [letter.elements for letter in read_letters(path)] == [("b",)]
    assert path.with_name("aside").read_bytes() == before


def test_a_file_that_is_moved_aside_just_before_it_is_locked_gets_no_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = letters_at(path)
    letters.write([given_up("a")])
    aside = path.with_name("aside")

    def too_late(file: int) -> bool:
        if not aside.exists():
            path.rename(aside)
        return try_lock(file)

    monkeypatch.setattr("holdfast.ring.json_lines.try_lock", too_late)
    letters.write([given_up("b")])
    found = [letter.elements for one in (aside, path) for letter in read_letters(one)]
    assert found == [("a",), ("b",)]
    assert len(list(read_letters(aside))) == 1


# ---------------------------------------------------------------- reprocessing


class Seen:
    """A consumer that remembers what it was handed, and fails for some of it."""

    def __init__(self, bad: Sequence[object] = ()) -> None:
        self.elements: list[tuple[Any, ...]] = []
        self.bad: dict[object, BaseException | type[BaseException]] = dict.fromkeys(bad, ValueError("still bad"))

    def __call__(self, elements: tuple[Any, ...]) -> None:
        if (error := self.bad.get(elements[0])) is not None:
            raise error
        self.elements.append(elements)


def reprocess(path: Path, seen: Seen, decode: Callable[[Any], Any] | None = None) -> Reprocessed:
    clock = ManualClock(AT + 60.0)
    return reprocess_file(path, ring="prices", consumers={"enrich": Hand(seen, decode)}, clock=clock)


def left_in(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_letters_that_went_through_are_gone_and_the_others_are_in_the_file_anew(path: Path) -> None:
    letters_at(path).write([given_up("a", 1), given_up("bad"), given_up("c")])
    first = {letter.elements: letter.id for letter in read_letters(path)}
    seen = Seen(["bad"])
    assert reprocess(path, seen) == Reprocessed(done=2, failed=1)
    assert seen.elements == [("a", 1), ("c",)]
    (letter,) = read_letters(path)
    assert (letter.id, letter.elements, letter.attempts) == (first["bad",], ("bad",), 2)
    assert (letter.error.type, letter.error.message, letter.at) == (
        "ValueError",
        "still bad",
        "2023-11-14T22:14:20.000Z",
    )
    assert reprocess(path, Seen()) == Reprocessed(done=1)
    assert left_in(path.parent) == []
    with pytest.raises(NotFound, match="no file of dead letters"):
        reprocess(path, Seen())


def test_elements_are_decoded_and_one_that_cannot_be_fails(path: Path) -> None:
    letters_at(path, str).write([given_up(1, 2), given_up("x")])
    seen = Seen()
    assert reprocess(path, seen, int) == Reprocessed(done=1, failed=1)
    assert seen.elements == [(1, 2)]
    (letter,) = read_letters(path)
    assert letter.error.message.startswith("element 0 cannot be decoded: ValueError: invalid literal")


def test_letters_of_others_torn_lines_and_texts_stay_as_they_were(path: Path) -> None:
    letters_at(path, consumer="other").write([given_up(1)])
    file_letters(path, ring="trades", consumer="enrich", encode=None).write([given_up(2)])
    letters_at(path).write([given_up(b"no JSON")])
    with path.open("ab") as file:
        file.write(b"\xff torn\n" + b"[" * 100_000 + b"\n\n" + b'{"id": "torn')
    before = path.read_bytes()
    seen = Seen()
    assert reprocess(path, seen) == Reprocessed(failed=1, kept=2, unreadable=3)
    assert seen.elements == []
    assert path.read_bytes() == before.replace(b"\n\n", b"\n") + b"\n"


def test_what_dies_meanwhile_goes_to_the_file_and_is_not_taken_up_by_the_same_reprocessing(path: Path) -> None:
    letters = letters_at(path)
    letters.write([given_up("a")])

    def consume(elements: tuple[Any, ...]) -> None:
        letters.write([given_up("new", *elements)])  # it does not wait for who has the moved file

    hands = {"enrich": Hand(consume)}
    assert reprocess_file(path, ring="prices", consumers=hands, clock=ManualClock()) == Reprocessed(done=1)
    assert [letter.elements for letter in read_letters(path)] == [("new", "a")]


def test_what_a_crash_has_left_is_taken_up_first_and_a_letter_in_two_files_is_handled_once(path: Path) -> None:
    letters = letters_at(path)
    letters.write([given_up("a"), given_up("b")])
    twice = path.read_bytes().splitlines(keepends=True)[1]
    path.rename(path.with_name("letters.jsonl.3.reprocessing"))
    letters.write([given_up("c")])
    with path.open("ab") as file:
        file.write(twice)  # it had failed again before the crash
    seen = Seen()
    assert reprocess(path, seen) == Reprocessed(done=3)
    assert seen.elements == [("a",), ("b",), ("c",)]
    assert left_in(path.parent) == []


def test_what_another_is_at_is_left_to_it(path: Path) -> None:
    letters_at(path).write([given_up("a")])
    moved = path.with_name("letters.jsonl.1.reprocessing")
    path.rename(moved)
    letters_at(path).write([given_up("b")])
    with moved.open("rb+") as file:
        assert try_lock(file.fileno())
        seen = Seen()
        assert reprocess(path, seen) == Reprocessed(done=1)
        assert seen.elements == [("b",)]
    assert left_in(path.parent) == [moved.name]


@pytest.mark.parametrize("stop", [Unhandled("it is closing"), KeyboardInterrupt()])
def test_what_is_not_done_when_it_is_stopped_is_put_back(path: Path, stop: BaseException) -> None:
    letters_at(path).write([given_up(one) for one in "abc"])
    seen = Seen()
    seen.bad["b"] = stop
    with pytest.raises(type(stop)):
        reprocess(path, seen)
    assert seen.elements == [("a",)]
    assert [letter.elements for letter in read_letters(path)] == [("b",), ("c",)]
    assert left_in(path.parent) == [path.name]


def test_a_letter_whose_consumer_finds_another_ring_closed_has_failed_and_the_others_go_on(path: Path) -> None:
    letters_at(path).write([given_up(one) for one in "abc"])
    seen = Seen()
    seen.bad["b"] = RingClosed("ring 'next' is closed")
    assert reprocess(path, seen) == Reprocessed(done=2, failed=1)
    (left,) = read_letters(path)
    assert (left.elements, left.error.message) == (("b",), "ring 'next' is closed")


def test_a_line_from_which_every_element_was_taken_out_is_handed_to_nobody(path: Path) -> None:
    letters_at(path).write([given_up("a")])
    path.write_bytes(path.read_bytes().replace(b'"elements":["a"]', b'"elements":[]'))
    seen = Seen()
    assert reprocess(path, seen) == Reprocessed(failed=1)
    assert seen.elements == []


def test_a_disk_that_takes_nothing_back_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    letters_at(path).write([given_up("a"), given_up("bad")])

    def never(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.ring.reprocess.append_lines", never)
        with pytest.raises(OSError, match="full"):
            reprocess(path, Seen(["bad"]))
    assert left_in(path.parent) == ["letters.jsonl.1.reprocessing"]
    seen = Seen()
    assert reprocess(path, seen) == Reprocessed(done=1)
    assert seen.elements == [("bad",)]


def test_letters_that_went_through_before_a_crash_are_not_handled_again(path: Path) -> None:
    letters_at(path).write([given_up(one) for one in "abcd"])
    left = path.with_name(f"{path.name}.1.reprocessing")
    crashed = path.with_name("as a crash leaves it")

    class Dying(Seen):
        def __call__(self, elements: tuple[Any, ...]) -> None:
            if elements == ("d",):
                crashed.write_bytes(left.read_bytes())
            super().__call__(elements)

    assert reprocess(path, Dying(["b"])) == Reprocessed(done=3, failed=1)
    path.unlink()
    crashed.rename(left)
    seen = Seen()
    assert reprocess(path, seen) == Reprocessed(done=2)
    assert seen.elements == [("b",), ("d",)]
    assert left_in(path.parent) == []
