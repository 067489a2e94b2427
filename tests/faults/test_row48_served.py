"""Row 48 on the running server: what other sites make a browser send, over the network."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.faults.api_server import ApiProcess
from tests.faults.conftest import busy, full_only
from tests.faults.report import Report
from tests.faults.test_row48_forgery import COOKIE, FORGERIES

pytestmark = busy


@full_only
def test_the_running_server_does_nothing_that_another_site_has_sent(tmp_path: Path, report: Report) -> None:
    statuses: Counter[int] = Counter()
    with ApiProcess(tmp_path, f"sqlite:///{tmp_path}/shop.db") as server, server.client("admin") as honest:
        before = (honest.get("/queues").json(), honest.get("/jobs").json())
        with server.client() as client:
            for name, forgery in FORGERIES.items():
                method, _, path = forgery.route.partition(" ")
                # What is ours is told by the port, which is another each time.
                headers = {
                    one: text.replace("http://localhost:8080", server.url) for one, text in forgery.headers.items()
                }
                kind = {"Content-Type": forgery.kind} if forgery.kind else {}
                with client.stream(
                    method, path, headers={**headers, **kind, "Cookie": COOKIE}, content=forgery.body
                ) as answer:
                    assert answer.status_code == forgery.status, name
                    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
                    assert not {"Access-Control-Allow-Origin", "Set-Cookie"} & {*answer.headers}
                statuses[answer.status_code] += 1
        after = (honest.get("/queues").json(), honest.get("/jobs").json())
        ours = {"Origin": server.url, "Sec-Fetch-Site": "same-origin", "Cookie": COOKIE}
        with server.client() as client:
            assert client.post("/queues/mail/pause", headers=ours).status_code == 200, "everything is refused"
    assert after == before
    accepted = sum(n for status, n in statuses.items() if status < 300)
    assert accepted == 0
    report(
        "what a page of another site makes a browser send to the running server",
        injected=statuses.total(),
        note=f"answers {dict(sorted(statuses.items()))}, accepted {accepted}",
    )
