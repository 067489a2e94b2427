"""Row 47 on the running server: every route, asked over the network with no, old, unknown and other credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.faults.api_server import ApiProcess
from tests.faults.conftest import busy, full_only
from tests.faults.report import Report
from tests.faults.test_row47_credentials import BUILT, CREDENTIALS, RULES, expected
from tests.faults.web import bearer

pytestmark = busy

NAMES: Final = ("id", "name", "key", "type", "file")
WRONG: Final = frozenset({"garbage", "expired"})
SIGN_IN: Final = "POST /session"


@full_only
def test_every_route_of_the_running_server_asks_for_its_credential(tmp_path: Path, report: Report) -> None:
    asked = beyond = 0
    with ApiProcess(tmp_path, f"sqlite:///{tmp_path}/shop.db", options=["--allow-simulation"]) as server:
        for caller in CREDENTIALS:
            with server.client() as client:
                for route, rule in RULES.items():
                    method, _, path = route.partition(" ")
                    for name in NAMES:
                        path = path.replace(f"{{{name}}}", "nope")
                    target = f"{path}?{rule.query}" if rule.query else path
                    with client.stream(method, target, headers=bearer(caller), json=rule.body) as answer:
                        status = answer.status_code
                    wanted = {expected(rule, caller)} if rule.answer != BUILT else {200, 404}
                    # After 30 wrong tokens a minute from one address it is 429, which lets nobody in either.
                    if wanted == {401} and (caller in WRONG or route == SIGN_IN):
                        wanted = {401, 429}
                    # A store that no worker has seen yet is not healthy.
                    if route == "GET /health" and wanted == {200}:
                        wanted = {200, 503}
                    assert status in wanted, (caller, route, status)
                    asked += 1
                    beyond += status not in {401, 403, 429} and not wanted - {401, 403, 429}
        assert "Traceback" not in server.log
    report(
        "every route of the running server asked with no, unknown, old and other credentials",
        injected=asked,
        note=f"{len(RULES)} routes × {len(CREDENTIALS)} credentials, open beyond the table {beyond}",
    )
