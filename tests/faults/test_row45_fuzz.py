"""Row 45: requests made at random from the running server's own document. No 5xx, and no answer of another shape.

tests/integration/test_schemathesis.py does so within one process, and at a size for every day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast import App
from holdfast.ops.api import ApiSettings, build_api
from holdfast.ops.api.tokens import make_token
from tests.faults.api_server import ApiProcess
from tests.faults.arena import Arena
from tests.faults.conftest import busy, every_store, full_only
from tests.faults.load import Dice
from tests.faults.report import Report

pytestmark = busy

TOKENS: Final = {f"fuzzer {n}": make_token(name=f"fuzzer {n}", role="admin") for n in range(40)}
"""Each may change 600 things a minute."""
EXAMPLES: Final = 40
"""Of each operation."""


@full_only
@every_store
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_request_at_random_breaks_the_running_server(arena: Arena, tmp_path: Path, report: Report) -> None:
    ids = arena.enqueue([arena.call("work", number) for number in range(20)])
    dice = Dice()
    tried: Counter[str] = Counter()
    failed: list[str] = []
    with ApiProcess(tmp_path, arena.engine.url, tokens=TOKENS, options=["--allow-simulation"]) as server:
        # `/events` does not end.
        document = schemathesis.openapi.from_url(f"{server.url}/openapi.json", timeout=60).exclude(path="/events")
        found = [one.ok() for one in document.get_all_operations() if isinstance(one, Ok)]
        assert len(found) > 50, "the document has lost its operations: this run shows nothing"
        for operation in found:
            _try_out(operation, server, dice, ids, tried, failed)
        with server.client("fuzzer 0") as client:
            assert client.get("/health/live").status_code == 200
        assert "Traceback" not in server.log, server.log[-2000:]
    assert failed == []
    assert sum(n for status, n in tried.items() if status.startswith("5") and status != "503") == 0
    assert {"200", "422"} <= tried.keys(), "everything was refused, or nothing: this run shows nothing"
    asked = sum(tried.values())
    statuses = ", ".join(f"{n:,}× {status}" for status, n in sorted(tried.items()))
    report(
        f"requests made at random for the {len(found)} operations of the server's document",
        injected=asked,
        note=f"failures {len(failed)}; answers {statuses}",
        seed=dice.seed,
    )


def _try_out(
    operation: Any, server: ApiProcess, dice: Dice, ids: Sequence[str], tried: Counter[str], failed: list[str]
) -> None:
    # Arguments have types of their own, which the document does not know; and `/health` is 503 when it is unhealthy.
    excluded = [positive_data_acceptance, *([not_a_server_error] if operation.path == "/health" else [])]

    @seed(f"{dice.seed} {operation.method} {operation.path}")
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        # Clients take these out of a path before they send it: what is asked for then is another operation.
        assume(not {".", ".."} & set(map(str, case.path_parameters.values())))
        number = sum(tried.values())
        if number % 2:
            _aim(case, ids[number % len(ids)])
        caller = f"fuzzer {number % len(TOKENS)}"
        response = case.call(headers=server.bearer(caller), timeout=60)
        tried[str(response.status_code)] += 1
        try:
            case.validate_response(response, excluded_checks=excluded)
        except FailureGroup as group:
            failed.extend(f"{response.request.url}: {error}"[:500] for error in group.exceptions)

    run()


def _aim(case: Any, id_: str) -> None:
    """At something that is there: what is asked of a task or a job that is not never gets to the store."""
    there = {"id": id_, "name": "echo", "task": "echo"}
    case.path_parameters.update((name, there[name]) for name in case.path_parameters if name in there)
    if isinstance(case.body, dict) and {"task", "arguments"} & case.body.keys():
        case.body.update(task="echo", arguments={"value": case.body.get("arguments")})


def test_a_path_with_a_name_in_it_says_that_it_may_lead_nowhere() -> None:
    paths = build_api(App("memory://"), ApiSettings()).openapi()["paths"]
    named = {path: ways for path, ways in paths.items() if "{" in path}
    silent = [
        f"{way} {path}" for path, ways in named.items() for way, one in ways.items() if "404" not in one["responses"]
    ]
    assert len(named) > 10
    assert silent == []
