"""`dlq`: found by cause, shown, mended, sent back, removed, carried elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from holdfast.testing import ManualClock

if TYPE_CHECKING:
    from tests.unit.ops.conftest import Shop


@pytest.fixture
def letters(shop: Shop) -> list[str]:
    """Two orders that were declined, and a mail that could not be sent."""
    ids = [
        shop.enqueue('{"order_id": 1, "cents": 500, "password": "hunter2"}'),
        shop.enqueue('{"order_id": 2, "cents": 700}'),
    ]
    ids.append(shop.enqueue('{"to": "ada"}', "mail.send"))
    shop.work()
    return ids


def group_of(shop: Shop, task: str) -> str:
    found: str = next(one["fingerprint"] for one in shop.json("dlq")["items"] if task in one["tasks"])
    return found


def test_alone_it_shows_the_groups_with_the_largest_first(shop: Shop, letters: list[str]) -> None:
    groups = shop.json("dlq")["items"]
    assert [(one["count"], one["tasks"]) for one in groups] == [(2, ["shop.charge"]), (1, ["mail.send"])]
    assert shop.json("dlq", "groups")["items"] == groups
    told = shop.cli("dlq").stdout
    assert groups[0]["fingerprint"] in told
    assert "holdfast.errors.Permanent: order 2: declined \\x1b[31m[bold]" in told
    assert "\x1b" not in told


def test_no_dead_letters_are_no_error(shop: Shop) -> None:
    shop.enqueue('{"order_id": 1}')
    assert shop.cli("dlq").stderr == "no dead letters\n"
    assert shop.cli("dlq", "list").stderr == "no dead letters\n"
    assert shop.cli("dlq", "replays").stderr == "no replays\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--task", "shop.charge"], [1, 0]),
        (["--type", "permanent"], [1, 0]),
        (["--text", "order 1"], [0]),
        (["--since", "1h"], [2, 1, 0]),
        (["--since", "2001-01-01", "--limit", "2"], [2, 1]),
        (["--tenant", "nobody"], []),
    ],
)
def test_letters_are_listed_by_filters(shop: Shop, letters: list[str], words: list[str], found: list[int]) -> None:
    items = shop.json("dlq", "list", *words)["items"]
    assert [one["id"] for one in items] == [letters[i] for i in found]


def test_a_group_goes_by_the_beginning_of_its_fingerprint(shop: Shop, letters: list[str]) -> None:
    fingerprint = group_of(shop, "mail.send")
    assert [one["id"] for one in shop.json("dlq", "list", "--group", fingerprint[:7])["items"]] == letters[2:]
    groups = ", ".join(one["fingerprint"] for one in shop.json("dlq")["items"])
    assert shop.cli("dlq", "list", "--group", "1:zz", code=1).stderr == (
        f"Error: there is no group 1:zz; there are: {groups}\n"
    )


def test_without_dead_letters_there_is_no_group(shop: Shop) -> None:
    shop.enqueue('{"order_id": 1}')
    assert "there is no group 1:zz; there are no dead letters" in shop.cli("dlq", "--group", "1:zz", code=1).stderr


def test_options_need_no_command(shop: Shop, letters: list[str]) -> None:
    fingerprint = group_of(shop, "mail.send")
    assert [one["fingerprint"] for one in shop.json("dlq", "--group", fingerprint)["items"]] == [fingerprint]
    assert [one["id"] for one in shop.json("dlq", "--task", "charge", "--limit", "1")["items"]] == [letters[1]]
    assert "No such option" in shop.cli("dlq", "--older-than", "0", "--yes", code=2).stderr
    assert len(shop.json("dlq", "list")["items"]) == 3


@pytest.mark.parametrize("words", [["groups"], ["list"], ["replay"], ["purge", "--older-than", "0"], ["export"]])
def test_the_last_part_of_a_tasks_name_will_do_and_a_slip_is_told(
    shop: Shop, letters: list[str], words: list[str]
) -> None:
    slip = shop.cli("dlq", *words, "--task", "chrge", code=1)
    assert (slip.stdout, slip.stderr) == ("", "Error: no task 'chrge'; did you mean shop.charge?\n")
    yes = ["--yes"] if words[0] in ("purge", "export") else []
    done = shop.cli("dlq", *words, "--task", "charge", *yes)
    assert done.stdout
    assert "mail.send" not in done.stdout
    left = {"replay": 3, "purge": 1}.get(words[0], 3)
    assert len(shop.json("dlq", "list")["items"]) == left


def test_pages_of_letters_are_led_to_by_a_cursor(shop: Shop, letters: list[str]) -> None:
    told = shop.cli("dlq", "list", "--limit", "1")
    assert letters[2] in told.stdout
    cursor = told.stderr.removeprefix("there are more: --cursor ").strip()
    assert [one["id"] for one in shop.json("dlq", "list", "--cursor", cursor)["items"]] == [letters[1], letters[0]]


def test_a_letter_is_shown_with_its_traceback_and_without_its_secrets(shop: Shop, letters: list[str]) -> None:
    told = shop.cli("dlq", "show", letters[0]).stdout
    assert "Traceback (most recent call last):" in told
    assert "in charge\n" in told
    assert "declined \\x1b[31m[bold]" in told
    assert "\x1b" not in told
    assert "hunter2" not in told
    shown = shop.json("dlq", "show", letters[0])
    assert shown["payload"]["password"] == "[redacted]"
    assert "Traceback" in shown["attempts"][0]["traceback"]


def test_a_job_that_is_no_dead_letter_is_not_shown_as_one(shop: Shop) -> None:
    job = shop.enqueue('{"order_id": 1}')
    assert "is queued, and no dead letter" in shop.cli("dlq", "show", job, code=1).stderr
    assert "there is no dead letter" in shop.cli("dlq", "show", job[:13], code=1).stderr


def test_a_letter_is_retried_with_other_arguments(shop: Shop, letters: list[str]) -> None:
    shop.cli("dlq", "retry", letters[0], "--payload", '{"order_id": 1, "cents": 3}')
    shop.work()
    shown = shop.json("jobs", "show", letters[0])
    assert (shown["state"], shown["result"], shown["original_payload"]["cents"]) == ("completed", "charged 3", 500)


def test_arguments_that_the_task_cannot_take_are_refused_where_the_app_is_known(shop: Shop, letters: list[str]) -> None:
    done = shop.cli("dlq", "retry", letters[0], "--payload", '{"order_id": "x"}', "--app", "shop:app", code=2)
    assert "expected int" in done.stderr
    assert shop.json("jobs", "show", letters[0])["state"] == "dead_letter"
    several = shop.cli("dlq", "retry", *letters[:2], "--payload", "{}", code=2)
    assert "--payload is for one ID" in several.stderr


def test_letters_are_removed_after_a_question_only(shop: Shop, letters: list[str]) -> None:
    for text in ("", "n\n", "\n"):
        asked = shop.cli("dlq", "remove", letters[0], code=1, text=text)
        assert "Delete 1 dead letter for good?" in asked.stderr
        assert "nothing was deleted" in asked.stderr
    assert len(shop.json("dlq", "list")["items"]) == 3
    assert shop.cli("dlq", "remove", letters[0], text="y\n").stdout == f"{letters[0]} deleted\n"
    assert shop.json("dlq", "remove", letters[1], "--yes")["items"][0]["is_done"] is True
    assert [one["id"] for one in shop.json("dlq", "list")["items"]] == letters[2:]
    assert f"{letters[0]} is not there" in shop.cli("dlq", "remove", letters[0], "--yes", code=1).stderr


def test_old_letters_are_purged_after_a_question_only(shop: Shop, letters: list[str]) -> None:
    assert shop.json("dlq", "purge", "--older-than", "24h") == {"deleted": 0}  # none: nothing to ask
    asked = shop.cli("dlq", "purge", "--older-than", "0", "--task", "shop.charge", code=1)
    assert "Delete 2 dead letters older than 0s for good?" in asked.stderr
    assert "--yes does it without the question" in asked.stderr
    assert len(shop.json("dlq", "list")["items"]) == 3
    assert (
        shop.cli("dlq", "purge", "--older-than", "0", "--task", "shop.charge", "-y").stdout
        == "2 dead letters deleted\n"
    )
    assert [one["id"] for one in shop.json("dlq", "list")["items"]] == letters[2:]


def test_letters_are_carried_to_another_store(shop: Shop, letters: list[str]) -> None:
    told = shop.cli("dlq", "export", "out.jsonl", "--task", "shop.charge")
    out = shop.folder / "out.jsonl"
    assert told.stdout == f"2 dead letters written to {out}\n"
    assert out.stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == [letters[1], letters[0]]
    assert lines[1]["payload"]["password"] == "hunter2"  # it must be whole to be imported
    words = ["dlq", "import", "out.jsonl", "--url", "sqlite:///other.db"]
    assert shop.json(*words) == {"new": 2, "known": 0, "conflicts": []}
    assert shop.cli(*words).stdout == "0 jobs enqueued, 2 known already\n"
    assert len(shop.json("jobs", "list", "--url", "sqlite:///other.db", "--state", "queued")["items"]) == 2


def test_an_export_goes_to_standard_output_or_over_a_file_after_a_question_only(shop: Shop, letters: list[str]) -> None:
    assert len(shop.cli("dlq", "export").stdout.splitlines()) == 3
    (shop.folder / "out.jsonl").write_text("precious")
    assert "Write over out.jsonl?" in shop.cli("dlq", "export", "out.jsonl", code=1).stderr
    assert (shop.folder / "out.jsonl").read_text() == "precious"
    assert shop.json("dlq", "export", "out.jsonl", "--yes")["exported"] == 3
    assert sorted(path.name for path in shop.folder.iterdir() if "out" in path.name) == ["out.jsonl"]


def test_a_bad_line_is_named_and_nothing_is_imported(shop: Shop, letters: list[str]) -> None:
    good = shop.cli("dlq", "export").stdout.splitlines()[0]
    (shop.folder / "bad.jsonl").write_text(f"{good}\n{{}}\n")
    done = shop.cli("dlq", "import", "bad.jsonl", "--url", "sqlite:///other.db", code=2)
    assert "line 2: is no exported letter" in done.stderr
    assert shop.json("jobs", "list", "--url", "sqlite:///other.db")["items"] == []
    assert shop.cli("dlq", "import", "nowhere.jsonl", code=2).exit_code == 2


# ---------------------------------------------------------------- replays


def test_a_replay_needs_a_filter_or_all(shop: Shop, letters: list[str]) -> None:
    assert "Give --group or another filter, or --all" in shop.cli("dlq", "replay", code=2).stderr
    assert "no dead letters match" in shop.cli("dlq", "replay", "--tenant", "nobody", code=1).stderr
    assert shop.json("dlq", "replay", "--all")["total"] == 3


def test_a_dry_run_counts_and_shows_the_edit_and_changes_nothing(shop: Shop, letters: list[str]) -> None:
    words = ["dlq", "replay", "--task", "shop.charge", "--edit", '{"cents": 5}', "--dry-run"]
    seen = shop.json(*words)
    assert (seen["total"], [one["payload"]["cents"] for one in seen["sample"]]) == (2, [5, 5])
    told = shop.cli(*words).stdout
    assert told.startswith("2 dead letters would go back to the queue")
    assert "hunter2" not in told
    assert shop.json("dlq", "replays")["items"] == []


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_an_edit_that_the_task_cannot_take_is_refused_where_the_app_is_known(
    shop: Shop, letters: list[str], dry: list[str]
) -> None:
    words = ["dlq", "replay", "--task", "charge", "--edit", '{"cents": "five"}', *dry, "--app", "shop:app"]
    line = f"Error: dead letter {letters[1]}: charge(): argument 'cents': expected int, got str 'five'\n"
    assert shop.cli(*words, code=2).stderr == line
    assert shop.json("dlq", "replays")["items"] == []
    words[5] = '{"cents": 5}'
    assert shop.json(*words)["total"] == 2


def test_a_replay_is_durable_and_the_workers_do_it(shop: Shop, letters: list[str]) -> None:
    fingerprint = group_of(shop, "shop.charge")
    words = ["--canary", "1", "--rate", "1000/second", "--edit", '{"cents": 5}']
    begun = shop.cli("dlq", "replay", "--group", fingerprint[:8], *words)
    assert "no worker is running" in begun.stderr
    (replay,) = shop.json("dlq", "replays")["items"]
    assert begun.stdout == f"replay {replay['id']} of 2 dead letters has begun\n"
    assert (replay["state"], replay["filters"]) == ("running", {"group": fingerprint})
    for _ in range(5):
        shop.work()
    (replay,) = shop.json("dlq", "replays")["items"]
    assert (replay["state"], replay["sent"], replay["verdict"]) == ("done", 2, "passed")
    assert [one["state"] for one in shop.json("jobs", "list", "--task", "shop.charge")["items"]] == ["completed"] * 2
    assert replay["id"] in shop.cli("dlq", "replays").stdout


def test_a_replay_is_paused_resumed_and_stopped_by_the_beginning_of_its_id(shop: Shop, letters: list[str]) -> None:
    replay = shop.json("dlq", "replay", "--all", "--rate", "2")["id"]
    assert shop.cli("dlq", "pause", replay[:30]).stdout == f"replay {replay} is paused\n"
    assert shop.json("dlq", "resume", replay)["state"] == "running"
    assert shop.cli("dlq", "stop", replay).stdout == f"replay {replay} is stopped\n"
    assert "has ended already: it is stopped" in shop.cli("dlq", "resume", replay, code=1).stderr
    assert "there is no replay ffff" in shop.cli("dlq", "stop", "ffff", code=1).stderr


def test_a_wait_ends_with_exit_code_1_when_the_replay_has_stopped(
    shop: Shop, letters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def stopped_meanwhile(seconds: float) -> None:
        looks.append(seconds)
        (replay,) = shop.app.dead_letters.replays()
        shop.app.dead_letters.stop_replay(replay.id)

    clock = ManualClock()
    monkeypatch.setattr(clock, "sleep", stopped_meanwhile)
    monkeypatch.setattr(shop.app, "clock", clock)
    done = shop.cli("dlq", "replay", "--all", "--wait", "--app", "shop:app", code=1)
    assert "stopped: 0 of 3 sent" in done.stdout
    assert "it has stopped: stopped by hand" in done.stderr
    assert len(looks) == 1


def test_a_wrong_rate_is_refused(shop: Shop, letters: list[str]) -> None:
    assert (
        "rate='often': must be like '100/minute'"
        in shop.cli("dlq", "replay", "--all", "--rate", "often", code=2).stderr
    )
