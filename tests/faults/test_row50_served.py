"""Row 50 on the running server: strings that are code to somebody, in every place that takes one."""

from __future__ import annotations

from pathlib import Path

import httpx

from holdfast.ops.api.tokens import make_token
from tests.faults.api_server import ApiProcess
from tests.faults.arena import Arena
from tests.faults.conftest import busy, every_store, full_only
from tests.faults.report import Figures, Report
from tests.faults.test_row50_injection import (
    FILTERS,
    HOSTILE,
    IN_BODIES,
    IN_PATHS,
    Attack,
    changed,
    filled,
)

pytestmark = busy

TOKENS = {f"caller {number}": make_token(name=f"caller {number}", role="admin") for number in range(len(HOSTILE))}


@full_only
@every_store
async def test_what_is_code_to_somebody_is_text_to_the_running_server(
    arena: Arena, tmp_path: Path, report: Report
) -> None:
    kept = await filled(arena)
    asked = 0
    broken: list[tuple[str, str, int]] = []
    with ApiProcess(tmp_path, arena.engine.url, tokens=TOKENS, options=["--allow-simulation"]) as server:
        for number, text in enumerate(HOSTILE):
            headers = server.bearer(f"caller {number}")  # so nobody comes to the end of a rate
            async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30) as client:
                attack = Attack(client)
                if number == 0:  # later ones fill the page of jobs
                    await attack.look(kept)
                for path, names in FILTERS.items():
                    for name in names:
                        assert await attack.filter(path, name, text, kept) == [], (path, name, text)
                for route in IN_PATHS:
                    await attack.act(route, text)
                for field in IN_BODIES:
                    await attack.submit(field, text)
                broken += attack.broken
                asked += attack.asked
        assert broken == []
        assert "Traceback" not in server.log, server.log[-2000:]
    lost = await changed(arena, kept)
    assert lost == []
    report(
        f"{len(HOSTILE)} strings of SQL, Lua, patterns, paths and keys, in every place of the running server",
        injected=asked,
        figures=Figures(acked=len(kept), lost=len(lost)),
        note=f"5xx {len(broken)}",
    )
