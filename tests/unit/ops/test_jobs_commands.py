"""`enqueue` and `jobs`, on a store in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.ops.conftest import Shop


def test_a_job_is_enqueued_and_shown(shop: Shop) -> None:
    told = shop.cli("enqueue", "shop:app", "charge", '{"order_id": 42, "password": "hunter2"}')
    (job,) = shop.json("jobs", "list")["items"]
    assert told.stdout == f"enqueued shop.charge as {job['id']}\n"
    assert job["payload"] == {"order_id": 42, "password": "[redacted]"}
    shown = shop.cli("jobs", "show", job["id"]).stdout
    assert "queued" in shown
    assert '"order_id": 42' in shown
    assert "hunter2" not in shown


def test_options_of_a_job_are_kept(shop: Shop) -> None:
    options = ["--queue", "q", "--priority", "7", "--delay", "1h", "--tenant", "t", "--user", "u", "--project", "p"]
    shop.cli("enqueue", "shop:app", "charge", '{"order_id": 1}', *options, "--idempotency-key", "k")
    (job,) = shop.json("jobs", "list", "--tenant", "t", "--user", "u", "--project", "p", "--queue", "q")["items"]
    assert (job["priority"], job["idempotency_key"]) == (7, "k")
    assert job["due_at"] - job["created_at"] == pytest.approx(3600, abs=1)


def test_the_same_idempotency_key_is_the_same_job(shop: Shop) -> None:
    words = ["enqueue", "shop:app", "charge", '{"order_id": 1}', "--idempotency-key", "k"]
    first, second = shop.json(*words), shop.json(*words)
    assert (first["is_new"], second["is_new"], second["id"]) == (True, False, first["id"])
    assert "there already by its idempotency key" in shop.cli(*words).stdout
    words[3] = '{"order_id": 2}'
    assert "is taken by job" in shop.cli(*words, code=1).stderr


def test_arguments_come_from_standard_input(shop: Shop) -> None:
    shop.cli("enqueue", "shop.py", "charge", "-", text='{"order_id": 7}')
    assert shop.json("jobs", "list")["items"][0]["payload"] == {"order_id": 7}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["shop:app", "chrge"], "no task is named 'chrge': did you mean shop.charge?"),
        (["shop:app", "charge", '{"order_id": "x"}'], "charge(): argument 'order_id': expected int, got str 'x'"),
        (["shop:app", "charge", '{"order": 1}'], "charge() has no argument 'order'"),
        (["shop:app", "charge", "[1]"], "must be a JSON object"),
        (["shop:app", "charge", '{"order_id": 1}', "--priority", "9999999"], "priority=9999999: must be"),
        (["shop:nothing", "charge"], "cannot load shop:nothing: shop has no 'nothing': there are: app"),
        (["shop:ap", "charge"], "cannot load shop:ap: shop has no 'ap': did you mean app?"),
        (["json:app", "charge"], "cannot load json:app: json has no 'app': it has no App at all"),
        (["nofile.py:app", "charge"], "cannot load nofile.py:app: there is no file nofile.py in "),
        (["shop:not_an_app", "charge"], "cannot load shop:not_an_app: it is a int, not a holdfast.App"),
        (["nowhere:app", "charge"], "cannot load nowhere:app: ModuleNotFoundError: No module named 'nowhere'"),
        ([":app", "charge"], "cannot load ':app': write module:app"),
    ],
)
def test_what_cannot_be_enqueued_is_refused_in_words_and_makes_no_store(
    shop: Shop, words: list[str], line: str
) -> None:
    done = shop.cli("enqueue", *words, code=2)
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert not (shop.folder / "shop.db").exists()


def test_code_that_fails_while_it_is_loaded_is_told_with_its_place(shop: Shop) -> None:
    (shop.folder / "broken.py").write_text("x = 1\ny = x.nothing\n")
    line = shop.cli("enqueue", "broken:app", "charge", code=2).stderr
    assert "AttributeError: 'int' object has no attribute 'nothing'" in line
    assert "broken.py, line 2" in line
    assert line.count("\n") == 1


def test_looking_makes_no_store(shop: Shop) -> None:
    for words in (["jobs"], ["jobs", "list"], ["dlq"], ["queues"], ["breakers"], ["top"], ["queues", "pause", "x"]):
        done = shop.cli(*words, code=1)
        assert done.stderr.startswith(f"Error: there is no store at {shop.folder / 'shop.db'}")
        assert done.stderr.count("\n") == 1
    assert not (shop.folder / "shop.db").exists()


def test_a_store_is_named_by_url_then_app_then_environment_then_the_folder(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.enqueue('{"order_id": 1}')
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///env.db")
    assert "env.db" in shop.cli("jobs", "list", code=1).stderr
    assert len(shop.json("jobs", "list", "--app", "shop:app")["items"]) == 1
    assert len(shop.json("jobs", "list", "--url", "sqlite:///shop.db")["items"]) == 1
    assert len(shop.json("jobs", "--url", "sqlite:///shop.db", "list")["items"]) == 1
    assert "other.db" in shop.cli("jobs", "--url", "sqlite:///other.db", "--app", "shop:app", code=1).stderr
    monkeypatch.delenv("HOLDFAST_URL")
    assert "holdfast.db" in shop.cli("jobs", "list", code=1).stderr
    monkeypatch.setenv("HOLDFAST_APP", "shop:app")
    assert len(shop.json("jobs", "list")["items"]) == 1


def test_a_store_that_cannot_be_opened_or_seen_is_one_line_and_exit_code_2(shop: Shop) -> None:
    (shop.folder / "bad.db").write_text("this is no database, but it is long enough to be taken for one" * 100)
    for url in ("sqlite:///bad.db", "memory://", "bad://x", "sqlite://shop.db"):
        done = shop.cli("jobs", "list", "--url", url, code=2)
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1


def test_jobs_are_listed_by_state_and_in_pages(shop: Shop) -> None:
    ids = [shop.enqueue(f'{{"order_id": {i}}}') for i in range(3)]
    first = shop.json("jobs", "list", "--limit", "2")
    rest = shop.json("jobs", "list", "--limit", "2", "--cursor", first["cursor"])
    assert [one["id"] for one in first["items"] + rest["items"]] == ids[::-1]
    assert rest["cursor"] == ""
    told = shop.cli("jobs", "list", "--limit", "2")
    assert f"there are more: --cursor {first['cursor']}" in told.stderr
    assert shop.json("jobs", "list", "--state", "completed")["items"] == []
    assert shop.cli("jobs", "list", "--state", "completed").stderr == "no jobs\n"
    shop.work()
    assert len(shop.json("jobs", "list", "--state", "completed", "--state", "failed")["items"]) == 3
    assert shop.json("jobs", "list", "--since", "1h", "--state", "queued")["items"] == []


def test_options_of_the_list_need_no_command(shop: Shop) -> None:
    ids = [shop.enqueue(f'{{"order_id": {i}}}') for i in range(3)]
    assert [one["id"] for one in shop.json("jobs", "--limit", "1")["items"]] == ids[2:]
    url = ["--url", "sqlite:///shop.db"]
    assert shop.json("jobs", *url, "--state=completed")["items"] == []
    assert len(shop.json("jobs", "--task", "charge", *url)["items"]) == 3
    assert len(shop.json("jobs", *url)["items"]) == 3
    assert "No such option" in shop.cli("jobs", "--limt", "3", code=2).stderr


def test_the_last_part_of_a_tasks_name_will_do_and_a_slip_is_told(shop: Shop) -> None:
    assert shop.cli("jobs", "list", "--url", "sqlite:///none.db", "--task", "x", code=1).stdout == ""
    job = shop.enqueue('{"order_id": 1}')
    for name in ("shop.charge", "charge"):
        assert [one["id"] for one in shop.json("jobs", "list", "--task", name)["items"]] == [job]
    slip = shop.cli("jobs", "list", "--task", "chrge", code=1)
    assert slip.stderr == "Error: no task 'chrge'; did you mean shop.charge?\n"
    assert "no task 'send'; there are: shop.charge" in shop.cli("jobs", "list", "--task", "send", code=1).stderr
    assert shop.json("jobs", "list", "--task", "send", "--app", "shop:app")["items"] == []


def test_a_name_that_several_tasks_end_with_is_refused(shop: Shop) -> None:
    (shop.folder / "shop.py").write_text(
        (shop.folder / "shop.py").read_text() + "@app.task(name='mail.charge')\ndef other(order_id: int): ...\n"
    )
    for name in ("shop.charge", "mail.charge"):
        shop.enqueue('{"order_id": 1}', name)
    assert (
        "'charge' could be several tasks: mail.charge or shop.charge"
        in shop.cli("jobs", "list", "--task", "charge", code=1).stderr
    )


def test_what_would_help_where_there_is_no_store_depends_on_how_it_was_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*words: str) -> str:
        return shop.cli("jobs", *words, code=1).stderr.partition("shop.db: ")[2]

    assert told("--url", "sqlite:///shop.db") == "check --url, or enqueue a job first\n"
    assert told("--app", "shop:app") == "enqueue a job first, or start a worker\n"
    assert told() == "check HOLDFAST_URL, or give --url or --app\n"
    monkeypatch.delenv("HOLDFAST_URL")
    line = shop.cli("jobs", code=1).stderr
    assert line.endswith("holdfast.db: give --url or --app, or enqueue a job first\n")


def test_the_last_failure_of_a_job_that_has_completed_is_told_as_such(shop: Shop) -> None:
    (letter,) = shop.dead_letters(500)
    assert "declined" in shop.cli("jobs", "list").stdout
    shop.cli("dlq", "retry", letter, "--payload", '{"order_id": 1, "cents": 5}')
    shop.work()
    assert "declined" not in shop.cli("jobs", "list").stdout
    head = shop.cli("jobs", "show", letter).stdout.partition("payload")[0]
    assert "\n  last failure " in head
    assert "\n  error " not in head


def test_a_job_that_has_ended_is_shown_with_its_result_and_attempts(shop: Shop) -> None:
    job = shop.enqueue('{"order_id": 1}')
    shop.work()
    assert "\nresult\n  charged 5\n" in shop.cli("jobs", "show", job).stdout
    assert shop.json("jobs", "show", job)["result"] == "charged 5"
    assert [one["outcome"] for one in shop.json("jobs", "show", job)["attempts"]] == ["complete"]


def test_the_beginning_of_an_id_will_do_where_it_is_the_only_one(shop: Shop) -> None:
    first, second = shop.enqueue('{"order_id": 1}'), shop.enqueue('{"order_id": 2}')
    unlike = next(i for i in range(36) if first[i] != second[i]) + 1
    assert shop.json("jobs", "show", first[: max(4, unlike)])["id"] == first
    assert "is the beginning of several" in shop.cli("jobs", "show", first[:4], code=1).stderr
    assert "there is no job ffff" in shop.cli("jobs", "show", "ffff", code=1).stderr
    assert "is no id" in shop.cli("jobs", "show", "no-id!", code=2).stderr
    gone = "01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10"
    assert f"there is no job {gone}" in shop.cli("jobs", "show", gone, code=1).stderr


def test_jobs_are_cancelled_and_those_that_ended_are_not(shop: Shop) -> None:
    first, second = shop.enqueue('{"order_id": 1}'), shop.enqueue('{"order_id": 2}')
    assert shop.cli("jobs", "cancel", first).stdout == f"{first} cancelled\n"
    done = shop.cli("jobs", "cancel", first, second, code=1)
    assert done.stdout == f"{second} cancelled\n"
    assert done.stderr == f"{first} is cancelled: what has ended cannot be cancelled\n"
    assert [one["is_done"] for one in shop.json("jobs", "cancel", first, code=1)["items"]] == [False]


def test_pruning_asks_first_and_says_how_many_records_went(shop: Shop) -> None:
    job = shop.enqueue('{"order_id": 1}')
    shop.cli("jobs", "cancel", job)
    assert shop.cli("jobs", "prune", code=1).stderr.endswith("nothing was deleted\n")
    assert shop.cli("jobs", "prune", "--yes").stdout == "0 records deleted\n"  # it is to be kept for a day
    assert shop.json("jobs", "prune", "--yes") == {"deleted": 0}


def test_dead_letters_are_retried_by_their_ids(shop: Shop) -> None:
    (letter,) = shop.dead_letters(500)
    assert shop.cli("jobs", "retry", letter).stdout == f"{letter} queued again\n"
    again = shop.cli("jobs", "retry", letter, code=1)
    assert again.stderr == f"{letter} is queued: only dead letters can be queued again\n"
