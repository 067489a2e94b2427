"""Jobs over HTTP: lists, one by one, changes, and whose they are."""

from __future__ import annotations

from tests.unit.ops.api.shopfront import Shopfront, new_app, two_tenants


async def test_a_list_is_newest_first_and_its_cursor_leads_to_the_next_page(front: Shopfront) -> None:
    ids = await front.letters(1, 2, 3)
    first = await front.get("/jobs", limit=2)
    second = await front.get("/jobs", limit=2, cursor=first["cursor"])
    assert [job["id"] for job in first["items"] + second["items"]] == ids[::-1]
    assert second["cursor"] == ""


async def test_a_cursor_goes_with_the_filters_it_came_from(front: Shopfront) -> None:
    await front.letters(500, 600, 700)
    jobs = (await front.get("/jobs", limit=1))["cursor"]
    letters = (await front.get("/dead-letters", limit=1))["cursor"]
    for path, wrong in (
        ("/jobs", {"cursor": jobs, "task": "shop.charge"}),
        ("/jobs", {"cursor": jobs, "state": "dead_letter"}),
        ("/jobs", {"cursor": jobs, "text": "declined"}),
        ("/jobs", {"cursor": letters}),
        ("/jobs", {"cursor": jobs.partition(".")[0] + "."}),
        ("/jobs", {"cursor": jobs.partition(".")[2]}),
        ("/dead-letters", {"cursor": jobs}),
        ("/dead-letters", {"cursor": letters, "failure_type": "permanent"}),
    ):
        problem = await front.get(path, 422, **wrong)
        assert [error["where"] for error in problem["errors"]] == ["query.cursor"], wrong
    assert len((await front.get("/jobs", cursor=jobs, limit=100, since=1.0))["items"]) == 2
    assert len((await front.get("/retry/dead-letters", cursor=letters))["items"]) == 2


async def test_a_cursor_of_one_tenant_is_not_anothers() -> None:
    app = new_app()
    front, clients = two_tenants(app)
    await front.letters(500, 600, tenant="a")
    cursor = (await clients["a"].get("/jobs", params={"limit": 1})).json()["cursor"]
    assert (await clients["b"].get("/jobs", params={"cursor": cursor})).status_code == 422
    assert (await clients["admin"].get("/jobs", params={"cursor": cursor})).status_code == 422
    assert len((await clients["a"].get("/jobs", params={"cursor": cursor})).json()["items"]) == 1
    await app.aclose()


async def test_filters_narrow_a_list(front: Shopfront) -> None:
    good, dead = await front.letters(1, 500, tenant="t")
    assert [one["id"] for one in (await front.get("/jobs", state="dead_letter"))["items"]] == [dead]
    both = await front.get("/jobs", state=["dead_letter", "completed"], tenant="t", task="shop.charge")
    assert [one["id"] for one in both["items"]] == [dead, good]
    assert (await front.get("/jobs", tenant="other"))["items"] == []
    assert (await front.get("/jobs", until=1.0))["items"] == []
    assert [one["id"] for one in (await front.get("/jobs", text=good[-12:]))["items"]] == [good]


async def test_a_filter_that_is_not_there_or_cannot_be_is_refused(front: Shopfront) -> None:
    for wrong in ({"stage": "queued"}, {"state": "lost"}, {"limit": 201}, {"since": "nan"}, {"cursor": "x" * 501}):
        problem = await front.get("/jobs", 422, **wrong)
        assert problem["errors"][0]["where"].startswith("query.")


async def test_a_cursor_of_nobody_is_refused_or_ends_the_list(front: Shopfront) -> None:
    await front.letters(1)
    answer = await front.client.get("/jobs", params={"cursor": "nonsense"})
    assert answer.status_code in (200, 422), answer.text


async def test_a_job_is_shown_whole_but_without_secrets(front: Shopfront) -> None:
    (dead,) = await front.letters(500, password="hunter2", note="see postgres://a:s3cret@b/c")
    job = await front.get(f"/jobs/{dead}")
    assert job["arguments"]["password"] == "[redacted]"
    assert "s3cret" not in str(job)
    assert job["redacted"] == ["/password", "/note"]
    (attempt,) = job["attempts"]
    assert attempt["outcome"] == "bury"
    assert attempt["failure_type"] == "permanent"
    assert "".join(frame["text"] for frame in attempt["frames"]) == attempt["traceback"]
    assert [frame["is_user_code"] for frame in attempt["frames"]].count(True) == 1
    assert job["arguments_schema"]["required"] == ["order_id"]


async def test_a_result_is_shown(front: Shopfront) -> None:
    (done,) = await front.letters(50)
    assert (await front.get(f"/jobs/{done}"))["result"] == "charged 50"


async def test_a_job_that_is_not_there_is_not_found(front: Shopfront) -> None:
    assert "no-such" in (await front.get("/jobs/no-such", 404))["detail"]
    await front.post("/jobs/no-such/cancel", status=404)
    await front.post("/jobs/no-such/retry", status=404)


async def test_a_job_is_cancelled_once(front: Shopfront) -> None:
    job = await front.app.tasks["shop.charge"].aenqueue(1)
    assert await front.post(f"/jobs/{job.id}/cancel") == {"id": job.id, "is_done": True, "state": "cancelled"}
    assert await front.post(f"/jobs/{job.id}/cancel") == {"id": job.id, "is_done": False, "state": "cancelled"}
    assert (await front.get(f"/jobs/{job.id}"))["reason"] == "cancelled by local"


async def test_only_a_dead_letter_is_retried(front: Shopfront) -> None:
    good, dead = await front.letters(5, 500)
    assert (await front.post(f"/jobs/{dead}/retry"))["state"] == "queued"
    assert "completed" in (await front.post(f"/jobs/{good}/retry", status=409))["detail"]


async def test_many_are_changed_at_once_and_each_says_what_became_of_it(front: Shopfront) -> None:
    good, dead = await front.letters(5, 500)
    asked = {"ids": [dead, "no-such", good, dead]}
    assert (await front.post("/jobs/retry", asked))["items"] == [
        {"id": dead, "is_done": True, "state": "queued"},
        {"id": "no-such", "is_done": False, "state": None},
        {"id": good, "is_done": False, "state": "completed"},
    ]
    assert [one["is_done"] for one in (await front.post("/jobs/cancel", asked))["items"]] == [True, False, False]
    await front.post("/jobs/cancel", {"ids": []}, status=422)
    await front.post("/jobs/cancel", {"ids": ["x"] * 1001}, status=422)


async def test_what_is_done_is_written_down(front: Shopfront) -> None:
    (dead,) = await front.letters(500)
    await front.post("/jobs/retry", {"ids": [dead, "no-such"]})
    (entry,) = (await front.get("/audit"))["items"]
    assert (entry["who"], entry["action"], entry["target"], entry["outcome"]) == (
        "local",
        "job.retry",
        "2 jobs",
        "1 changed",
    )


async def test_a_tenant_sees_and_changes_its_own_jobs_alone() -> None:
    app = new_app()
    front, clients = two_tenants(app)
    (own,) = await front.letters(500, tenant="a")
    (other,) = await front.letters(500, tenant="b")
    listed = (await clients["a"].get("/jobs", params={"tenant": "b"})).json()
    assert [one["id"] for one in listed["items"]] == [own]
    assert (await clients["a"].get(f"/jobs/{other}")).status_code == 404
    assert (await clients["a"].post(f"/jobs/{other}/retry")).status_code == 404
    changed = (await clients["a"].post("/jobs/retry", json={"ids": [other, own]})).json()["items"]
    assert [(one["is_done"], one["state"]) for one in changed] == [(False, None), (True, "queued")]
    assert (await app.jobs.aget(other)).record.state == "dead_letter"
    await app.aclose()


async def test_two_apps_of_a_process_have_their_routes_in_common_and_no_jobs() -> None:
    fronts = [Shopfront(new_app()) for _ in range(2)]
    for front in fronts:
        (job,) = await front.letters(1)
        assert [one["id"] for one in (await front.get("/jobs"))["items"]] == [job]
        for other in fronts:
            await other.get(f"/jobs/{job}", 200 if other is front else 404)
    for front in fronts:
        await front.app.aclose()
