"""Row 53 on the running server: every answer, its stream of events and its log, searched for secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.api_server import ApiProcess
from tests.faults.conftest import busy, full_only
from tests.faults.engines import SqliteEngine
from tests.faults.report import Report
from tests.faults.test_row53_secrets import (
    ARGUMENTS,
    CANARY,
    DSN,
    HEADER,
    NAMED,
    NESTED,
    PASSWORD,
    PATHS,
    logged,
    make_app,
)

pytestmark = busy


@full_only
def test_nothing_that_the_running_server_says_holds_a_secret(tmp_path: Path, report: Report) -> None:
    engine = SqliteEngine(tmp_path)
    app = make_app(engine.url)
    with logged():
        app.tasks["spill"].options(
            idempotency_key=f"token={NAMED}", user=f"pw={NAMED}", project=f"redis://:{NAMED}@h"
        ).enqueue(**ARGUMENTS)
        app.tasks["login"].enqueue(order=1)
        app.tasks["keep"].enqueue(order=2)
        app.run_until_idle()
    app.close()
    found: dict[str, bytes] = {}
    headers = {"X-Api-Key": HEADER, "Cookie": f"other={HEADER}"}
    target, options = "tests.faults.spill_shop:app", ["--log-format", "json"]
    with (
        ApiProcess(tmp_path, engine.url, target=target, options=options) as server,
        server.client("admin") as client,
    ):
        client.headers.update(headers)
        for path in PATHS:
            answer = client.get(path)
            assert answer.status_code in {200, 503}, path
            found[path] = answer.content + repr(answer.headers.multi_items()).encode()
        for item in client.get("/jobs").json()["items"]:
            found[f"/jobs/{item['task']}"] = client.get(f"/jobs/{item['id']}").content
            found[f"/dead-letters/{item['task']}"] = client.get(f"/dead-letters/{item['id']}").content
        bad = {"order": "no number", "password": PASSWORD, "card": {"apiKey": NESTED}}
        asked: dict[str, Any] = {
            "/tasks/spill/validate": {"arguments": bad},
            "/jobs": {"task": "spill", "arguments": bad},
            "/replays/preview": {"edit": {"password": PASSWORD}},
            "/session": {"token": f"hf_{PASSWORD}"},
            f"/breakers/postgresql:%2F%2Fu:{DSN}@db%2Fx/reset": None,
        }
        for path, body in asked.items():
            found[f"POST {path[:20]}"] = client.post(path, json=body).content
        found["/audit after that"] = client.get("/audit").content
        with client.stream("GET", "/events") as events:
            found["/events"] = next(events.iter_bytes())
        found["log"] = server.log.encode()
    assert b"[redacted]" in found["/jobs/spill"]
    assert b"audit" in found["log"], "the log is empty: this run shows nothing"
    holding = {name: CANARY.findall(text) for name, text in found.items() if CANARY.search(text)}
    assert holding == {}
    report(
        "secrets in arguments, results, exceptions, tracebacks and headers of the running server",
        injected=9,
        note=f"{len(found)} answers and logs searched, holding one {len(holding)}",
    )
