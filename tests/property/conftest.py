"""Property tests are the same in every run, but for two sizes that look elsewhere each time: HOLDFAST_PROPERTY=full is
that of `make faults`, which prints its seed, and HOLDFAST_SEED repeats it; HOLDFAST_PROPERTY=long looks much further.
Where there is a file of findings, how many cases were tried is one of them, and whatever failed or was skipped.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.statistics import collector

from tests.faults.load import Dice
from tests.faults.plan import PROPERTIES
from tests.faults.report import FINDINGS, Finding, keep

SIZE: Final = os.environ.get("HOLDFAST_PROPERTY", "ci")
_ROW: Final = "45"
_WHY: Final = 400
_TRIED: Final = pytest.StashKey[int]()
"""Cases of a test that came to their end."""
_collector: Final[Any] = collector
_ELSEWHERE: Final = settings(
    derandomize=False, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

# `make mutate` finds what there is to be found with fewer; the rest is for `make faults`.
settings.register_profile("ci", derandomize=True, database=None, deadline=None, max_examples=60)
settings.register_profile("full", _ELSEWHERE, max_examples=200)
settings.register_profile("long", _ELSEWHERE, max_examples=5_000)
# For mutation testing, where any failure will do and nobody reads it.
settings.register_profile("mutation", settings.get_profile("ci"), max_examples=50, phases=[Phase.generate])
settings.load_profile(SIZE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hand hypothesis the seed before it asks for one; processes of xdist have that of the first by the environment."""
    if SIZE == "full" and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ["HOLDFAST_SEED"] = Dice().seed


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Count the cases, by what hypothesis notes of them; trylast is within its own hook, which is told as before."""
    before = _collector.value

    def note(statistics: dict[str, Any]) -> None:
        phases = [phase for name, phase in statistics.items() if name.endswith("-phase")]
        tried = sum(case["status"] == "valid" for phase in phases for case in phase["test-cases"])
        item.stash[_TRIED] = item.stash.get(_TRIED, 0) + tried
        if before is not None:
            before(statistics)

    with _collector.with_value(note):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a finding: the report makes one line of all that held."""
    result = yield
    if FINDINGS not in os.environ:
        return result
    is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)  # others have findings of their own
    if not result.passed:
        keep(_broken(item, call, is_run=not result.skipped))
    elif result.when == "call" and is_property and (tried := item.stash.get(_TRIED, 0)):
        seed = item.config.option.hypothesis_seed
        note = "failures 0" + (f", seed {seed}" if seed else "")
        keep(Finding(row=_ROW, store="none", fault=PROPERTIES, injected=tried, note=note))
    return result


def _broken(item: pytest.Item, call: pytest.CallInfo[None], *, is_run: bool) -> Finding:
    """Of a test that failed, or was not run."""
    words = " ".join(str(call.excinfo.value).split()) if call.excinfo else ""
    place = item.callspec.params.get("place") if hasattr(item, "callspec") else None
    return Finding(
        row=_ROW,
        store=getattr(place, "__name__", "none"),
        fault=item.name.removeprefix("test_").replace("_", " "),
        injected=0,
        note=words[:_WHY] or ("it failed" if is_run else "it was skipped"),
        is_kept=False,
        is_run=is_run,
    )
