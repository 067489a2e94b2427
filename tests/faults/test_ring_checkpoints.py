"""A ring whose process is killed, told to stop or started twice: its checkpoints say where to go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import App
from holdfast.ring.checkpoints import Checkpoint, list_stored, read_file
from tests.faults.conftest import waits
from tests.faults.load import Dice
from tests.faults.report import Figures, Report
from tests.faults.ring_checker import batches_of, distinct, problems, read_ledger, repeated
from tests.faults.ring_pipeline import NAMES, Line, Settings, Summary
from tests.faults.workers import CLOCK, Fleet, poll

pytestmark = waits
STORE = "ring"
MODULE = "tests.faults.ring_pipeline"
QUIET_AT = 100


class Pipeline:
    """The runs of one ring, one after the other."""

    def __init__(self, fleet: Fleet, settings: Settings) -> None:
        self.fleet = fleet
        self.settings = settings

    def start(self, until: int | None = None, quiet_at: int | None = None) -> int:
        """Another run; its process."""
        settings = replace(self.settings, until=until, quiet_at=quiet_at)
        return self.fleet.run(MODULE, msgspec.json.encode(settings).decode())

    def start_busy(self) -> int:
        """Another run that goes on for ever; each consumer of it has finished a few batches."""
        pid = self.start()
        poll(lambda: self.is_busy(pid), 20, f"both consumers of process {pid} are at work")
        return pid

    def is_busy(self, pid: int) -> bool:
        return all(sum(line.pid == pid for line in self.ledger(name)) >= 3 for name in NAMES)

    def finish(self, more: int = 200) -> int:
        """A run that comes to its end, somewhat beyond all that was done before; where that is."""
        until = more + max((line.last + 1 for name in NAMES for line in self.ledger(name)), default=0)
        pid = self.start(until)
        assert self.fleet.wait(pid) == 0, self.fleet.log(pid)
        return until

    def ledger(self, consumer: str) -> list[Line]:
        return read_ledger(self.settings.ledger(consumer))

    def summary(self, pid: int) -> Summary:
        """What a run said at its end."""
        lines = [line for line in self.fleet.log(pid).splitlines() if line.startswith('{"start_offset"')]
        return msgspec.json.decode(lines[-1], type=Summary)

    def checkpoints(self) -> dict[str, Checkpoint]:
        """By consumer."""
        if self.settings.url:
            with closing(App(self.settings.url)) as app:
                return {one.consumer: one.checkpoint for one in list_stored(app) if one.checkpoint is not None}
        files = {name: read_file(self.settings.checkpoint(name)) for name in NAMES}
        return {name: one.checkpoint for name, one in files.items() if one is not None and one.checkpoint is not None}

    def offsets(self) -> dict[str, int]:
        """What each consumer has to do next."""
        return {name: one.offset for name, one in self.checkpoints().items()}


@pytest.fixture(params=["file", "store"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    """A ring with its checkpoints in files, and in a SQLite store."""
    url = f"sqlite:///{tmp_path / 'ring.db'}" if request.param == "store" else ""
    with Fleet(url, tmp_path / "effects", tmp_path) as fleet:
        yield Pipeline(fleet, Settings(folder=str(tmp_path), url=url))


def only(place: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pipeline", [place], indirect=True)


def test_killed_at_any_instant_it_goes_on_without_a_loss(pipeline: Pipeline, is_full: bool, report: Report) -> None:
    kills, dice = 60 if is_full else 5 if not pipeline.settings.url else 3, Dice()
    for _ in range(kills):
        pid = pipeline.start_busy()
        CLOCK.sleep(dice.draw() * 0.05)
        pipeline.fleet.kill(pid)
    until = pipeline.finish()

    for name in NAMES:
        assert problems(pipeline.ledger(name), until) == [], name
    assert pipeline.offsets() == dict.fromkeys(NAMES, until)
    assert {name: one.processed for name, one in pipeline.checkpoints().items()} == dict.fromkeys(NAMES, until), (
        "what was done twice counts once"
    )
    starts = [int(line.split()[-1]) for line in pipeline.fleet.log().splitlines() if line.startswith("begins at")]
    assert len(starts) == kills + 1
    assert starts == sorted(starts)
    assert len(set(starts)) == kills + 1, "every run had got further"
    twice = {name: repeated(pipeline.ledger(name)) for name in NAMES}
    where = "store" if pipeline.settings.url else "files"
    done = min(distinct(pipeline.ledger(name)) for name in NAMES)
    report(
        f"a ring's process killed (SIGKILL), checkpoints in {where}",
        injected=kills,
        figures=Figures(acked=until, completed=done, lost=until - done, twice=max(twice.values())),
        note="twice, by consumer: " + ", ".join(f"{name} {n}" for name, n in twice.items()),
        seed=dice.seed,
    )


@pytest.mark.parametrize(
    ("pipeline", "number", "code"),
    [("file", signal.SIGTERM, 143), ("file", signal.SIGINT, -signal.SIGINT), ("store", signal.SIGTERM, 143)],
    indirect=["pipeline"],
)
@pytest.mark.usefixtures("in_background")
def test_told_to_stop_it_does_what_it_took_and_saves_that(
    pipeline: Pipeline, number: signal.Signals, code: int, report: Report
) -> None:
    pid = pipeline.start_busy()
    pipeline.fleet.send(pid, number)
    assert pipeline.fleet.wait(pid) == code, pipeline.fleet.log(pid)
    produced = pipeline.summary(pid).produced
    for name in NAMES:
        lines = pipeline.ledger(name)
        assert problems(lines, produced) == [], name
        assert lines[-1] == Line(pid=pid, is_close=True)
    found = pipeline.checkpoints()
    assert {name: (one.offset, one.processed) for name, one in found.items()} == dict.fromkeys(NAMES, (produced,) * 2)

    until = pipeline.finish()
    for name in NAMES:
        assert problems(pipeline.ledger(name), until) == [], name
        assert repeated(pipeline.ledger(name)) == 0
    where = "store" if pipeline.settings.url else "files"
    twice = {name: repeated(pipeline.ledger(name)) for name in NAMES}
    report(
        f"a ring's process told to stop ({number.name}), checkpoints in {where}",
        injected=1,
        figures=Figures(acked=until, completed=min(pipeline.offsets().values()), twice=max(twice.values())),
        note=f"{produced:,} elements taken and done, exit code {code}",
    )


@only("file")
def test_a_torn_checkpoint_stops_the_start(pipeline: Pipeline) -> None:
    until = pipeline.finish()
    path = pipeline.settings.checkpoint("slow")
    path.write_bytes(path.read_bytes()[:40])
    before = {name: pipeline.ledger(name) for name in NAMES}
    pid = pipeline.start(until + 10)
    assert pipeline.fleet.wait(pid) == 1
    assert f"CheckpointError: checkpoint {path} is torn" in pipeline.fleet.log(pid)
    assert f"holdfast rings reset --file {path}" in pipeline.fleet.log(pid)
    for name in NAMES:
        assert batches_of(pipeline.ledger(name)) == batches_of(before[name]), "nothing was done"


@only("file")
def test_a_second_process_is_refused_and_the_first_goes_on(pipeline: Pipeline) -> None:
    first = pipeline.start_busy()
    second = pipeline.start()
    assert pipeline.fleet.wait(second) == 1
    assert f"is in use by process {first}" in pipeline.fleet.log(second)
    assert first in pipeline.fleet.running
    pipeline.fleet.send(first, signal.SIGTERM)
    assert pipeline.fleet.wait(first) == 143
    for name in NAMES:
        assert {line.pid for line in batches_of(pipeline.ledger(name))} == {first}
        assert problems(pipeline.ledger(name), pipeline.summary(first).produced) == []


@only("store")
def test_a_process_that_another_took_over_from_is_stopped_at_its_next_batch(pipeline: Pipeline, report: Report) -> None:
    zombie = pipeline.start(quiet_at=QUIET_AT)
    at_rest = dict.fromkeys(NAMES, QUIET_AT)
    poll(lambda: pipeline.offsets() == at_rest, 20, "all that its source had is done")
    heir = pipeline.start_busy()
    Path(pipeline.settings.folder, "go").touch()
    assert pipeline.fleet.wait(zombie) == 1, pipeline.fleet.log(zombie)
    assert "is another process's by now; this one must stop" in pipeline.fleet.log(zombie)
    pipeline.fleet.send(heir, signal.SIGTERM)
    assert pipeline.fleet.wait(heir) == 143, pipeline.fleet.log(heir)

    until = QUIET_AT + pipeline.summary(heir).produced
    assert pipeline.offsets() == dict.fromkeys(NAMES, until)
    for name in NAMES:
        assert (
            problems([line for line in pipeline.ledger(name) if line.pid == heir or line.last < QUIET_AT], until) == []
        )
    late = [_batches_after(heir, zombie, pipeline.ledger(name)) for name in NAMES]
    assert max(late) == 1, "each consumer of it is told when it saves, and not later"
    report(
        "a second process takes a ring over from the first",
        injected=1,
        note=f"the first is fenced, after {late} batches of its own",
    )


def _batches_after(heir: int, zombie: int, lines: list[Line]) -> int:
    """What the zombie did after its heir had begun."""
    begun = next(place for place, line in enumerate(lines) if line.pid == heir)
    return sum(line.pid == zombie for line in batches_of(lines[begun:]))
