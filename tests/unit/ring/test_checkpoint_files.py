"""Checkpoints in files: what is loaded, what is refused, and how one begins anew."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import CheckpointError, ConfigError
from holdfast.ring.checkpoint_file import FileCheckpoints
from holdfast.ring.checkpoint_record import MOST_OFFSET
from holdfast.ring.checkpoints import Checkpoint, file_checkpoints, read_file, reset_file
from holdfast.testing import ManualClock

HUNDRED = Checkpoint(offset=100, batch=3, processed=90)
RESET = "to begin anew: holdfast rings reset --file "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prices.checkpoint"


def opened(path: Path, *, ring: str = "prices", consumer: str = "parquet") -> FileCheckpoints:
    return file_checkpoints(path, ring=ring, consumer=consumer, clock=ManualClock(start=500.0))


def saved(path: Path, checkpoint: Checkpoint = HUNDRED, **names: str) -> None:
    checkpoints = opened(path, **names)
    checkpoints.save(checkpoint)
    checkpoints.close()


def refusal(path: Path) -> str:
    """Why it is refused; the lock is free again then."""
    with pytest.raises(CheckpointError) as caught:
        opened(path).load()
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    assert not Path(f"{path}.lock").exists()
    assert not caught.value.is_fenced
    return line


def edited(path: Path, **changes: Any) -> None:
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | changes))


def test_where_nothing_was_saved_there_is_no_checkpoint(path: Path) -> None:
    assert opened(path).load() is None
    assert not path.exists()


def test_what_was_saved_is_loaded_with_the_time_of_saving(path: Path) -> None:
    saved(path)
    assert opened(path).load() == Checkpoint(offset=100, batch=3, processed=90, saved_at=500.0)


def test_the_last_one_saved_counts(path: Path) -> None:
    checkpoints = opened(path)
    checkpoints.save(HUNDRED)
    checkpoints.save(Checkpoint(offset=MOST_OFFSET, batch=4, processed=91))
    found = checkpoints.load()
    assert found is not None
    assert found.offset == MOST_OFFSET


def test_nothing_but_the_checkpoint_stays_behind(path: Path) -> None:
    saved(path)
    assert list(path.parent.iterdir()) == [path]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "state" / "of" / "it"
    saved(path)
    assert read_file(path) is not None


def test_a_relative_path_stays_what_it_was_when_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = opened(Path("here"))
    monkeypatch.chdir("/")
    checkpoints.save(HUNDRED)
    assert (tmp_path / "here").exists()


@pytest.mark.parametrize("path", ["", "a\0b", 7, b"bytes", None])
def test_what_is_no_path_is_refused_when_it_is_given(path: Any) -> None:
    with pytest.raises(ConfigError, match="must be the path of a file"):
        file_checkpoints(path, ring="prices", consumer="parquet", clock=ManualClock())


@pytest.mark.parametrize("name", ["a/b", "", "x" * 201, "two\nlines", 7])
@pytest.mark.parametrize("field", ["ring", "consumer"])
def test_names_that_cannot_be_kept_apart_are_refused(path: Path, field: str, name: Any) -> None:
    names = {"ring": "prices", "consumer": "parquet", field: name}
    with pytest.raises(ConfigError, match=f"^{field}="):
        opened(path, **names)


@pytest.mark.parametrize("offset", [-1, MOST_OFFSET + 1])
def test_an_offset_that_could_not_be_loaded_again_is_refused(offset: int) -> None:
    with pytest.raises(ConfigError, match=f"^offset={offset}: must be a whole number"):
        Checkpoint(offset=offset, batch=0, processed=0)


# ---- what is not to be trusted


def test_an_empty_file_is_torn_and_not_a_new_beginning(path: Path) -> None:
    path.touch()
    assert "is torn: the file is empty" in refusal(path)
    assert path.exists()


def test_a_file_cut_off_at_any_byte_is_torn(path: Path) -> None:
    saved(path)
    whole = path.read_bytes()
    for length in range(1, len(whole) - 1):  # the last byte ends the line
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="is torn, or no checkpoint at all"):
            read_file(path)


def test_a_file_with_any_bit_turned_is_refused(path: Path) -> None:
    saved(path)
    whole = path.read_bytes()
    for place in range(len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match=RESET):
            read_file(path)


def test_zeros_as_a_power_cut_leaves_them_are_torn(path: Path) -> None:
    path.write_bytes(bytes(300))
    assert "is torn" in refusal(path)


@pytest.mark.parametrize("field", ["offset", "batch", "processed", "saved_at"])
def test_an_edited_number_is_noticed(path: Path, field: str) -> None:
    saved(path)
    edited(path, **{field: 7})
    assert "was edited: its digest is another" in refusal(path)


def test_an_unknown_field_is_noticed(path: Path) -> None:
    saved(path)
    edited(path, extra=1)
    assert "was edited" in refusal(path)


@pytest.mark.parametrize("data", [b"{}", b"[1, 2]", b'"text"', b"[" * 60_000, b"\xff\xfe", b"x" * 100_000])
def test_what_is_no_checkpoint_is_told(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    assert "is torn, or no checkpoint at all" in refusal(path)


def test_json_of_another_program_is_told(path: Path) -> None:
    path.write_bytes(b'{"format": "other", "version": 1}')
    assert "is no checkpoint of a ring" in refusal(path)


def test_a_newer_format_is_told(path: Path) -> None:
    saved(path)
    edited(path, version=2, more=[])
    assert "is of format 2 and this Holdfast knows 1" in refusal(path)


def test_the_checkpoint_of_another_consumer_is_told_and_stays(path: Path) -> None:
    saved(path, consumer="other")
    before = path.read_bytes()
    assert "belongs to consumer 'other' of ring 'prices', not to 'parquet' of 'prices'" in refusal(path)
    with pytest.raises(CheckpointError, match="belongs to consumer 'other'"):
        opened(path).save(HUNDRED)
    assert path.read_bytes() == before


def test_the_checkpoint_of_another_ring_is_told(path: Path) -> None:
    saved(path, ring="orders")
    assert "belongs to consumer 'parquet' of ring 'orders'" in refusal(path)


def test_a_folder_and_a_pipe_are_no_checkpoints(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    for path in (folder, pipe):
        assert "cannot be read: not a regular file" in refusal(path)


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot be locked: Not a directory"):
        opened(tmp_path / "file" / "checkpoint").load()


def test_the_command_in_the_message_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "my file"
    path.touch()
    assert refusal(path).endswith(f"{RESET}'{path}'")


# ---- what is on the disk


def test_the_permissions_of_the_file_stay(path: Path) -> None:
    saved(path)
    path.chmod(0o640)
    saved(path, Checkpoint(offset=200, batch=4, processed=190))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    target, link = tmp_path / "disk" / "checkpoint", tmp_path / "link"
    link.symlink_to(target)
    for offset in (1, 2):
        saved(link, Checkpoint(offset=offset, batch=1, processed=1))
        assert link.is_symlink()
        found = read_file(target)
        assert found is not None
        assert found.checkpoint is not None
        assert found.checkpoint.offset == offset
    assert reset_file(link)
    assert link.is_symlink()
    assert not target.exists()


def test_what_a_killed_process_left_is_removed_and_never_loaded(path: Path) -> None:
    unfinished = Path(f"{path}.saving")
    unfinished.write_bytes(b'{"format":"holdf')
    assert opened(path).load() is None
    assert not unfinished.exists()


def test_a_link_in_the_place_of_the_temporary_file_is_not_written_through(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    checkpoints = opened(path)
    checkpoints.load()
    Path(f"{path}.saving").symlink_to(victim)
    checkpoints.save(HUNDRED)
    assert victim.read_text() == "mine"


# ---- beginning anew


def test_a_reset_one_begins_anew_and_keeps_its_lock(path: Path) -> None:
    checkpoints = opened(path)
    checkpoints.save(HUNDRED)
    checkpoints.reset()
    assert not path.exists()
    with pytest.raises(CheckpointError, match="is in use"):
        opened(path).load()
    assert checkpoints.load() is None


@pytest.mark.parametrize("consumer", ["parquet", "other"])
def test_a_reset_removes_ours_and_foreign_ones(path: Path, consumer: str) -> None:
    saved(path, consumer=consumer)
    opened(path).reset()
    assert list(path.parent.iterdir()) == []


def test_a_reset_by_its_path_says_whether_there_was_one(path: Path) -> None:
    assert not reset_file(path)
    saved(path)
    assert reset_file(path)
    assert list(path.parent.iterdir()) == []


def test_a_reset_of_a_missing_folder_makes_none(tmp_path: Path) -> None:
    assert not reset_file(tmp_path / "none" / "checkpoint")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("left", [b"", b'{"format":"holdfast-ring-checkpoint","ver'])
def test_a_reset_removes_a_torn_one(path: Path, left: bytes) -> None:
    path.write_bytes(left)
    assert reset_file(path)
    assert list(path.parent.iterdir()) == []


def test_a_file_that_was_named_by_mistake_is_kept_beside(path: Path) -> None:
    path.write_text("the thesis")
    assert reset_file(path)
    assert not path.exists()
    assert Path(f"{path}.unreadable").read_text() == "the thesis"


def test_a_folder_is_not_removed(path: Path) -> None:
    path.mkdir()
    with pytest.raises(CheckpointError, match="cannot be removed: not a regular file"):
        reset_file(path)
    assert path.is_dir()


def test_people_can_read_one_that_is_in_use(path: Path) -> None:
    checkpoints = opened(path)
    checkpoints.save(HUNDRED)
    found = read_file(path)
    assert found is not None
    assert (found.ring, found.consumer, found.problem) == ("prices", "parquet", "")
    assert found.checkpoint == Checkpoint(offset=100, batch=3, processed=90, saved_at=500.0)
    assert read_file(path.with_name("none")) is None
