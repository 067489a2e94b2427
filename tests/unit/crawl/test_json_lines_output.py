"""A file of JSON lines and its ledger: whatever dies or is changed between the two, no line comes twice or is lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.crawl.json_lines_output import JsonLinesFile
from holdfast.crawl.ledger import Ledger, Mark
from holdfast.crawl.output_buffer import BufferedOutput
from holdfast.crawl.outputs import Output, open_output
from holdfast.errors import ConfigError, StoreError
from tests.unit.crawl.completed import CRAWL, lines, page, pages

ONE_TO_THREE = [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages.jsonl"


@pytest.fixture
def written(path: Path) -> Path:
    """A file with two pages."""
    write(path, 1, 2)
    return path


def write(path: Path, *numbers: int, crawl: str = CRAWL) -> int:
    """A start of the crawl that adds these; how many pages there are then."""
    with closing(open_output(path, crawl)) as output:
        output.add(pages(*numbers))
        output.sync()
        return output.count


# ---------------------------------------------------------------- killed


class Killed(BaseException):
    """The process dies here."""


def dies(*_: object) -> None:
    raise Killed


def dies_after_half(file: int, data: memoryview) -> int:
    REAL_WRITE(file, data[: len(data) // 2])
    raise Killed


def dies_when_done(ledger: Ledger, keys: list[bytes], mark: Mark) -> None:
    REAL_ADD(ledger, keys, mark)
    raise Killed


REAL_WRITE = os.write
REAL_ADD = Ledger.add


@pytest.fixture
def output(path: Path) -> Iterator[BufferedOutput]:
    """One that does not sync when the test ends: so its process may have died."""
    sink = JsonLinesFile(str(path))
    output = BufferedOutput(sink)
    output.open(CRAWL)
    yield output
    sink.close()


@pytest.mark.parametrize(
    ("target", "name", "step", "left"),
    [
        (os, "write", dies, 1),
        (os, "write", dies_after_half, None),
        (os, "fsync", dies, 3),
        (Ledger, "add", dies, 3),
        (Ledger, "add", dies_when_done, 3),
    ],
)
def test_killed_at_any_step_of_a_sync_each_line_is_there_once_after_a_restart(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: object,
    name: str,
    step: Callable[..., object],
    left: int | None,
) -> None:
    sink = JsonLinesFile(str(path))
    dying = BufferedOutput(sink)
    dying.open(CRAWL)
    dying.add(pages(1))
    dying.sync()
    dying.add(pages(2, 3))
    with monkeypatch.context() as patch:
        patch.setattr(target, name, step)
        with pytest.raises(Killed):
            dying.sync()
    sink.close()  # as the kernel does
    if left is not None:
        assert len(lines(path)) == left
    with closing(open_output(path, CRAWL)) as output:
        is_written = step is dies_when_done
        assert output.count == (3 if is_written else 1)
        assert lines(path) == (ONE_TO_THREE if is_written else ONE_TO_THREE[:1])
        output.add(pages(3, 2, 1))
    assert sorted(lines(path), key=str) == ONE_TO_THREE


def test_lines_beyond_the_ledger_are_cut_off(written: Path) -> None:
    with written.open("ab") as file:
        file.write(b'{"n":3}\n{"n":')
    with closing(open_output(written, CRAWL)):
        assert lines(written) == ONE_TO_THREE[:2]
    assert write(written, 3) == 3
    assert lines(written) == ONE_TO_THREE


def test_killed_before_its_first_sync_it_begins_with_an_empty_file(path: Path) -> None:
    open_output(path, CRAWL).close()
    path.write_bytes(b'{"n":1}\n')
    assert write(path, 1) == 1
    assert lines(path) == ONE_TO_THREE[:1]


# ---------------------------------------------------------------- errors, and tries after them


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def half_then_no_space(file: int, data: memoryview) -> int:
    REAL_WRITE(file, data[: len(data) // 2])
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("name", "fault"), [("write", half_then_no_space), ("fsync", no_space)])
def test_what_a_failed_write_has_left_is_written_over_by_the_next(
    path: Path, output: BufferedOutput, monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[..., object]
) -> None:
    output.add(pages(1))
    output.sync()
    output.add(pages(2))
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fault)
            with pytest.raises(StoreError, match=r"pages\.jsonl: disk is full"):
                output.sync()
    output.add(pages(3))
    output.sync()
    assert (output.count, lines(path)) == (3, ONE_TO_THREE)


def test_a_commit_whose_answer_was_lost_is_not_made_again(
    path: Path, output: BufferedOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(ledger: Ledger, keys: list[bytes], mark: Mark) -> None:
        REAL_ADD(ledger, keys, mark)
        raise StoreError("the answer is lost")

    output.add(pages(1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "add", lost)
        with pytest.raises(StoreError, match="lost"):
            output.sync()
    output.add(pages(3))
    output.sync()
    assert (output.count, lines(path)) == (3, ONE_TO_THREE)


def test_a_file_that_cannot_be_written_is_told_in_one_line(
    output: BufferedOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    output.add(pages(1))
    monkeypatch.setattr(os, "write", read_only)
    with pytest.raises(StoreError, match=r"pages\.jsonl: cannot be written: Read-only file system; check"):
        output.sync()


# ---------------------------------------------------------------- what people do to the file


def test_a_file_without_its_ledger_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b'{"mine":1}\n')
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"exists, without the ledger .*pages\.jsonl\.ledger\); give another path"
        ):
            open_output(path, CRAWL)
    assert lines(path) == [{"mine": 1}]
    assert os.listdir(path.parent) == [path.name]
    Path(f"{path}.ledger").touch()  # killed before it had written anything into it
    with pytest.raises(ConfigError, match="exists, without the ledger"):
        open_output(path, CRAWL)
    assert lines(path) == [{"mine": 1}]


def test_an_empty_file_without_a_ledger_is_taken(path: Path) -> None:
    path.touch()
    assert write(path, 1) == 1
    assert lines(path) == ONE_TO_THREE[:1]


def test_a_file_that_was_shortened_is_refused(written: Path) -> None:
    written.write_bytes(written.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="somebody has shortened it, to 15 of 16 bytes; put it back, or remove it"):
        open_output(written, CRAWL)
    assert written.stat().st_size == 15


@pytest.mark.parametrize("change", [b'{"n":1}\n{"n":7}\n', b'{"n":0}\n{"n":1}\n{"n":2}\n'])
def test_a_file_that_was_changed_is_refused_and_nothing_of_it_is_cut_off(written: Path, change: bytes) -> None:
    written.write_bytes(change)
    with pytest.raises(ConfigError, match="somebody has changed it; put it back, or remove it"):
        open_output(written, CRAWL)
    assert written.read_bytes() == change


def test_a_file_that_was_copied_elsewhere_with_its_ledger_goes_on_there(written: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for name in (written.name, f"{written.name}.ledger"):
        (there / name).write_bytes((tmp_path / name).read_bytes())
    assert write(there / written.name, 2, 3) == 3
    assert lines(there / written.name) == ONE_TO_THREE


@pytest.mark.parametrize("crawl", [CRAWL, "another"])
def test_a_file_that_was_removed_is_written_anew(written: Path, crawl: str) -> None:
    written.unlink()
    assert write(written, 1, 2, 3, crawl=crawl) == 3
    assert lines(written) == ONE_TO_THREE


def test_a_file_that_is_moved_away_meanwhile_is_begun_anew(path: Path, output: BufferedOutput) -> None:
    output.add(pages(1))
    output.sync()
    path.rename(path.with_name("aside"))
    output.add(pages(2))
    output.sync()
    assert (output.count, lines(path)) == (1, [{"n": 2}])
    assert output.has([page(1).id]) == set()
    assert lines(path.with_name("aside")) == [{"n": 1}]


def test_a_file_that_is_removed_with_its_ledger_meanwhile_is_begun_anew_with_a_new_one(
    path: Path, output: BufferedOutput
) -> None:
    output.add(pages(1))
    output.sync()
    path.unlink()
    Path(f"{path}.ledger").unlink()
    assert output.has([page(1).id]) == set(), "what is gone is not known"
    output.add(pages(2))
    output.sync()
    output.close()
    assert write(path, 1, 2) == 2
    assert lines(path) == [{"n": 2}, {"n": 1}]


def test_a_folder_that_is_removed_meanwhile_and_comes_back_is_written_into(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "pages.jsonl"
    path.parent.mkdir()
    with closing(open_output(path, CRAWL)) as output:
        output.add(pages(1))
        output.sync()
        shutil.rmtree(path.parent)
        for _ in range(2):
            with pytest.raises(StoreError, match=r"pages\.jsonl\.ledger: cannot be opened"):
                output.add(pages(2))
        path.parent.mkdir()
        output.add(pages(2))
        output.sync()
        assert output.count == 1
    assert write(path, 1, 2) == 2
    assert lines(path) == [{"n": 2}, {"n": 1}]


def test_without_its_ledger_nothing_more_is_added_until_the_file_is_moved_away(
    path: Path, output: BufferedOutput
) -> None:
    output.add(pages(1))
    output.sync()
    Path(f"{path}.ledger").unlink()
    with pytest.raises(ConfigError, match="exists, without the ledger"):
        output.add(pages(2))
    assert lines(path) == [{"n": 1}]
    path.rename(path.with_name("aside"))
    output.add(pages(2))
    output.sync()
    assert (lines(path), lines(path.with_name("aside"))) == ([{"n": 2}], [{"n": 1}])


def test_a_ledger_that_is_none_is_refused(written: Path) -> None:
    ledger = Path(f"{written}.ledger")
    ledger.write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match=r"pages\.jsonl\.ledger is no ledger; move it away"):
        open_output(written, CRAWL)
    ledger.unlink()
    subprocess.run(
        [sys.executable, "-c", f"import apsw; apsw.Connection({str(ledger)!r}).execute('CREATE TABLE pages (id)')"],
        check=True,
    )
    with pytest.raises(ConfigError, match="is no ledger of this version; move it away"):
        open_output(written, CRAWL)
    assert lines(written) == ONE_TO_THREE[:2]


def test_a_second_one_is_refused_until_the_first_is_closed(path: Path) -> None:
    first: Output = open_output(path, CRAWL)
    first.add(pages(1))
    with pytest.raises(ConfigError, match="another process writes it; stop that one, or give another path"):
        open_output(path, CRAWL)
    first.close()
    assert write(path, 2) == 2


def test_a_second_one_is_refused_by_another_name_of_the_same_file_too(path: Path) -> None:
    link = path.with_name("link.jsonl")
    link.symlink_to(path.name)
    with closing(open_output(link, CRAWL)) as first:
        with pytest.raises(ConfigError, match="another process writes it"):
            open_output(path, CRAWL)
        first.add(pages(1))
    assert sorted(one.name for one in path.parent.iterdir()) == ["link.jsonl", "pages.jsonl", "pages.jsonl.ledger"]
    assert write(path, 1, 2) == 2
