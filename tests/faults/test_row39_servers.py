"""Row 39 on servers: the disk of PostgreSQL, of Redis's append-only file, or below the API is full. Nothing is lost."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from tests.faults import checker, load
from tests.faults.api_server import ApiProcess, Posters
from tests.faults.arena import Arena, completed
from tests.faults.conftest import AUDITED, full_only, waits
from tests.faults.engines import PostgresEngine, RedisEngine, SqliteEngine
from tests.faults.outages import outage_faults, wait_replaced
from tests.faults.report import Report, figures_of
from tests.faults.small_disk import small_disk
from tests.faults.storm import CALM
from tests.faults.workers import CLOCK, poll
from tests.servers import PostgresServer, RedisServer, Server

pytestmark = waits
_MB = 1024 * 1024
IN_A_ROW = 5
STARTED_AGAIN = "the server ended and was started again"
MOST = 3_000
_SETTLED_S = 60.0


@pytest.mark.parametrize("policy", ["everysec", pytest.param("always", marks=full_only)])
def test_a_full_disk_under_redis_refuses_new_jobs_and_loses_none(tmp_path: Path, policy: str, report: Report) -> None:
    server = RedisServer({**AUDITED, "appendfsync": policy})
    with _on_small_disk(server, size_mb=6, ballast_mb=2), closing(RedisEngine(server)) as engine:
        note = _fill_and_free(
            Arena(tmp_path, engine, is_audited=False), server, f"appendfsync {policy}", report, "redis"
        )
    assert (STARTED_AGAIN in note) is (policy == "always")


@full_only
def test_a_full_disk_under_postgres_refuses_new_jobs_and_loses_none(tmp_path: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-") as wal:
        options = {"fsync": "on", "max_wal_size": "48MB", "min_wal_size": "32MB"}
        # Without slots a checkpoint writes no file of its own, for want of which it would crash.
        server = PostgresServer({**options, "max_replication_slots": "0"}, wal=Path(wal))
        with _on_small_disk(server, size_mb=110, ballast_mb=40), closing(PostgresEngine(server)) as engine:
            what = "its data directory, but for its log"
            note = _fill_and_free(Arena(tmp_path, engine), server, what, report, "postgres")
    assert STARTED_AGAIN not in note, "PostgreSQL needs nobody to go on once there is room"


@full_only
def test_a_full_disk_under_the_log_of_postgres_crashes_it_and_loses_nothing(tmp_path: Path, report: Report) -> None:
    server = PostgresServer({"fsync": "on", "max_wal_size": "4GB", "checkpoint_timeout": "1h"})
    with server:
        server.kill()
        log = server.folder / "data" / "pg_wal"
        kept = log.rename(server.folder / "kept")
        log.mkdir()
        with small_disk(log, 100):
            shutil.copytree(kept, log, dirs_exist_ok=True)
            subprocess.run(["chown", "-R", f"{server.folder.owner()}:", log], check=True)
            log.chmod(0o700)
            (log / "ballast").write_bytes(bytes(50 * _MB))
            (server.folder / "ballast").symlink_to(log / "ballast")
            try:
                server.start()
                with closing(PostgresEngine(server)) as engine:
                    what = "the disk of its log alone, which makes it crash"
                    note = _fill_and_free(Arena(tmp_path, engine), server, what, report, "postgres")
                told = server.log.read_text()
                assert "PANIC" in told, "its log had room: this run shows nothing"
                # It ends by its own choice if there is no room for its recovery either: that is when it comes to it.
                assert (STARTED_AGAIN in note) is ("startup process failure" in told), told
            finally:
                server.kill()


@full_only
def test_a_full_disk_under_the_running_server_refuses_new_jobs_and_loses_none(tmp_path: Path, report: Report) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    work = [{"number": number, "ballast": _noise(number)[:10_000]} for number in range(300)]
    with small_disk(disk, 24), closing(Arena(tmp_path, SqliteEngine(disk), is_audited=False)) as arena:
        (disk / "ballast").write_bytes(bytes(21 * _MB))
        server = ApiProcess(tmp_path, arena.engine.url)
        posters = Posters(server, arena.client, work)
        with arena.fleet() as fleet, server:
            supervisor = fleet.supervise(1, CALM)
            poll(lambda: len(arena.stats().workers) == 1, 20, "the worker registers")
            with posters:
                poll(lambda: posters.refused > 0 or not posters.are_busy, 60, "the disk is full")
                full_s = CLOCK.monotonic()
                poll(lambda: posters.refused > 20 or not posters.are_busy, 60, "new jobs are refused")
                assert posters.are_busy, f"the disk is not full: this run shows nothing: {posters.told}"
                (disk / "ballast").unlink()
                freed_s = CLOCK.monotonic()
                again_s = poll(lambda: posters.acked_s > freed_s, 10, "a new job is accepted once there is room")
                posters.join(60)
            arena.quiesce(_SETTLED_S)
            wait_replaced(arena, supervisor)
            fleet.stop()
            evidence = posters.explain(arena.evidence(fleet))
        assert "Traceback" not in server.log, server.log[-2000:]
    assert posters.answers.keys() <= {200, 201, 503, 507}
    evidence.faults = outage_faults("full disk", fleet.log(), [(full_s, freed_s + again_s)])
    assert checker.check(evidence) == []
    assert completed(evidence) == len(evidence.acked) == len(work)
    report(
        "the disk below the running server is full",
        injected=posters.refused,
        figures=figures_of(evidence),
        note=f"enqueued over HTTP, answers {posters.told}; accepted again {again_s:.1f} s after there was room",
    )


@contextmanager
def _on_small_disk(server: Server, *, size_mb: int, ballast_mb: int) -> Iterator[None]:
    """Start a server whose folder is a small disk of its own, of which some is taken."""
    owner = server.folder.owner()
    try:
        with small_disk(server.folder, size_mb):
            shutil.chown(server.folder, owner)
            server.start()
            _ballast(server).write_bytes(bytes(ballast_mb * _MB))
            try:
                yield
            finally:
                server.kill()
    finally:
        shutil.rmtree(server.folder)


def _ballast(server: Server) -> Path:
    return server.folder / "ballast"


def _fill_and_free(arena: Arena, server: Server, what: str, report: Report, store: str) -> str:
    """Let a worker and a producer meet the full disk, free some of it, and see that all goes on."""
    with closing(arena), arena.fleet() as fleet:
        checkpointer = server.part("checkpointer") if isinstance(server, PostgresServer) else 0
        supervisor = fleet.supervise(1, CALM)
        running = arena.enqueue([arena.call("work", n, seconds=1.0) for n in range(4)])
        poll(lambda: arena.started() == 4, 30, "jobs run")
        full_s, refusals = _fill(arena)
        words = sorted({str(one).partition(": ")[2][:80] for one in refusals})
        _ballast(server).resolve().unlink()
        freed_s = CLOCK.monotonic()
        note = f"{what}: refused {len(refusals)} times"
        if _has_ended(server) or not _comes_back(arena, 20.0):
            server.kill()
            server.start()  # an operator's part, or systemd's
            note += f", {STARTED_AGAIN}"
            assert _comes_back(arena, 20.0), f"it is not accepted again: {words}"
        back_s = CLOCK.monotonic()
        note += f", accepted again {back_s - freed_s:.1f} s after there was room"
        arena.quiesce(_SETTLED_S)
        wait_replaced(arena, supervisor)
        fleet.stop()
        evidence = arena.evidence(fleet)
    assert all("\n" not in str(one) for one in refusals)
    evidence.faults = outage_faults("full disk", fleet.log(), [(full_s, back_s)])
    # A log that cannot grow makes PostgreSQL crash, and then it starts all its own processes anew.
    if isinstance(server, PostgresServer) and server.part("checkpointer") != checkpointer:
        evidence.crashes = [(full_s, back_s)]
    assert checker.check(evidence) == []
    assert completed(evidence) >= len(arena.client.acked)
    assert set(running) <= evidence.jobs.keys()
    report(f"the disk of {store} is full", injected=len(refusals), figures=figures_of(evidence), note=note, store=store)
    return note


def _has_ended(server: Server) -> bool:
    """Whether the server has left by itself; nobody has waited for it yet."""
    return Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _fill(arena: Arena) -> tuple[float, list[StoreError]]:
    """Enqueue until the store refuses several times in a row; since when it has refused, and what it said."""
    refusals: list[StoreError] = []
    full_s = 0.0
    in_a_row = 0
    for number in range(MOST):
        asked_s = CLOCK.monotonic()
        try:
            load.enqueue(arena.app, arena.client, [arena.call("work", number, ballast=_noise(number))])
            in_a_row = 0
        except StoreError as error:
            full_s = full_s or asked_s
            refusals.append(error)
            in_a_row += 1
        if in_a_row == IN_A_ROW:
            return full_s, refusals
    raise AssertionError("the disk is not full: this run shows nothing")


def _noise(number: int) -> str:
    """100 kB that hardly get smaller when they are compressed."""
    return "".join(hashlib.sha256(f"{number} {part}".encode()).hexdigest() for part in range(1_600))


def _comes_back(arena: Arena, within_s: float) -> bool:
    def is_accepted() -> bool:
        try:
            arena.enqueue([arena.call("work", 0)])
        except StoreError:
            return False
        return True

    try:
        poll(is_accepted, within_s, "a new job is accepted")
    except AssertionError:
        return False
    return True
