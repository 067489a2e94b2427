"""Rows 20, 21, 24 and 32 over HTTP: the store of a running server fails while clients enqueue through it.

They are told to send it again, never that the server is broken; it stays up, and takes jobs again by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.faults import checker
from tests.faults.api_server import DROPPED, ApiProcess, Posters
from tests.faults.arena import Arena, completed
from tests.faults.checker import Evidence
from tests.faults.conftest import AUDITED, full_only, on, waits
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.load import Dice
from tests.faults.outages import Outage, longest_s, outage_faults, wait_replaced
from tests.faults.report import Report, figures_of
from tests.faults.storm import CALM, WORKERS
from tests.faults.test_row20_backend import kill_one
from tests.faults.workers import CLOCK, poll, recovery_bound
from tests.servers import PostgresServer, RedisServer

pytestmark = waits
STRIKES = 10
PROBABILITY = 0.02
AGAIN_S = 10.0
"""By then the server takes new jobs again."""
_EVERY_S = 0.5


@contextmanager
def durable(store: str) -> Iterator[PostgresEngine | RedisEngine]:
    """A server of its own, which waits for the disk: its neighbours would fall too."""
    if store == "postgres":
        with PostgresServer({"fsync": "on"}) as postgres, closing(PostgresEngine(postgres)) as engine:
            yield engine
    else:
        with RedisServer({**AUDITED, "appendfsync": "always"}) as redis, closing(RedisEngine(redis)) as other:
            yield other


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[PostgresEngine | RedisEngine]:
    with durable(request.param) as engine:
        yield engine


class Aftermath(Struct, frozen=True, kw_only=True):
    """What is left of a run."""

    evidence: Evidence
    posters: Posters
    again_s: list[float]
    """After each strike, the time until the server took the next job."""

    @property
    def told(self) -> str:
        """What every finding says beside its figures."""
        return (
            f"enqueued over HTTP, answers {self.posters.told}; the server stayed up, and took jobs again within "
            f"{max(self.again_s):.2f} s{checker.told_bound(self.evidence)}"
        )


def weather(
    arena: Arena,
    strike: Callable[[Posters], None],
    *,
    jobs: int,
    strikes: int,
    is_outage: bool,
    url: str | None = None,
) -> Aftermath:
    """Clients, a server and workers go through so many strikes at the store; as in storm.py, but over HTTP."""
    outages: list[Outage] = []
    again_s: list[float] = []
    server = ApiProcess(arena.folder, url or arena.engine.url)
    work = [{"number": number, "seconds": 0.01, "failures": int(number % 100 == 99)} for number in range(jobs)]
    posters = Posters(server, arena.client, work, over_s=1.5 * strikes * _EVERY_S)
    with arena.fleet(url=url) as fleet:
        pids = [fleet.supervise(WORKERS, CALM)] if is_outage else [fleet.start(CALM) for _ in range(WORKERS)]
        with server:
            start_s = poll(lambda: len(arena.stats().workers) == WORKERS, 20, "all workers register")
            pid = server.pid
            with posters:
                poll(lambda: posters.acked_s > 0.0, 20, "the server takes jobs")
                for _ in range(strikes):
                    CLOCK.sleep(_EVERY_S)
                    assert posters.are_busy, "the load was over too soon"
                    began_s = CLOCK.monotonic()
                    strike(posters)
                    struck_s = CLOCK.monotonic()
                    outages.append((began_s, struck_s))
                    again_s.append(_taken_again(posters, struck_s))
                    arena.sample_again(AGAIN_S)
                posters.join(90)
            arena.quiesce(60)
            if is_outage:
                wait_replaced(arena, pids[0])
            arena.look_again()
            assert fleet.running == pids, f"a worker ended by itself: {fleet.log()}"
            fleet.stop()
            with server.client() as client:
                # Again and again: where connections are still being cut, who looks is told of it at once.
                poll(lambda: client.get("/health/ready").status_code == 200, AGAIN_S, "the server is ready again")
            assert server.pid == pid
            evidence = posters.explain(arena.evidence(fleet))
            log = fleet.log()
    assert "Traceback" not in server.log, server.log[-2000:]
    assert DROPPED not in posters.answers, f"it is the store that fails, and not the server: {posters.told}"
    assert sum(one.at <= outages[-1][1] for one in evidence.effects) > 10, "nothing ran under fault"
    if is_outage:
        bound_s = recovery_bound(away_s=longest_s(outages), start_s=start_s, in_turn=2)
        evidence = replace(evidence, faults=outage_faults("outage", log, outages), recovery_s=bound_s)
        if isinstance(arena.engine, PostgresEngine):
            evidence = replace(evidence, crashes=outages)
    assert checker.check(evidence) == []
    assert completed(evidence) == len(evidence.acked) == jobs
    return Aftermath(evidence=evidence, posters=posters, again_s=again_s)


def _taken_again(posters: Posters, struck_s: float) -> float:
    try:
        return poll(lambda: posters.acked_s > struck_s, AGAIN_S, "the server takes jobs again")
    except AssertionError as error:
        raise AssertionError(f"{error}: {posters.told}, such as {posters.refusal}") from None


@full_only
@on("postgres")
def test_a_killed_server_process_of_postgres_costs_clients_of_the_api_nothing_but_time(
    arena: Arena, engine: PostgresEngine, report: Report
) -> None:
    dice = Dice()

    def strike(_: Posters) -> None:
        with engine.connection() as witness:
            kill_one(engine, dice, witness)
            with pytest.raises(psycopg.OperationalError):
                witness.execute("SELECT pg_sleep(20)")
        poll(engine.answers, 30, "the server is back")

    after = weather(arena, strike, jobs=3_000, strikes=STRIKES, is_outage=True)
    assert after.posters.refused, "nobody heard of it: this run shows nothing"
    report(
        "a server process killed (SIGKILL), so that all sessions fall",
        injected=STRIKES,
        figures=figures_of(after.evidence),
        note=after.told,
        seed=dice.seed,
    )


@pytest.mark.parametrize("engine", [pytest.param("postgres", marks=full_only), "redis"], indirect=True)
def test_a_store_that_crashes_and_starts_again_costs_clients_of_the_api_nothing_but_time(
    arena: Arena, engine: PostgresEngine | RedisEngine, is_full: bool, report: Report
) -> None:
    jobs, strikes = (3_000, STRIKES) if is_full else (100, 1)

    def strike(posters: Posters) -> None:
        refused = posters.refused
        engine.server.kill()
        poll(lambda: posters.refused > refused, AGAIN_S, "somebody hears of it")
        engine.server.start()

    after = weather(arena, strike, jobs=jobs, strikes=strikes, is_outage=True)
    assert after.posters.refused, "nobody heard of it: this run shows nothing"
    report(
        "the store's server killed (SIGKILL) and started again",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=after.told,
        row="21" if isinstance(engine, PostgresEngine) else "24",
    )


@full_only
@on("postgres", "redis")
def test_connections_cut_at_random_cost_clients_of_the_api_nothing(
    arena: Arena, engine: PostgresEngine | RedisEngine, report: Report
) -> None:
    dice = Dice()
    proxy = engine.proxy(dice.draw)

    def strike(_: Posters) -> None:
        proxy.reset_probability = PROBABILITY  # from the first on: everybody has come this far without

    after = weather(arena, strike, jobs=1_000, strikes=40, is_outage=False, url=engine.url_by(proxy))
    assert proxy.traffic.resets > 50, "too few resets: this run shows nothing"
    report(
        "connections to the store cut at random, the server's and the workers'",
        injected=proxy.traffic.resets,
        figures=figures_of(after.evidence),
        note=f"{PROBABILITY:.0%} of all chunks, {after.told}",
        seed=dice.seed,
        row="32",
    )
