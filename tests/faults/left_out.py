"""Parts of the fault plan that do not hold or are not done, each with the reason: the last table of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.faults.plan import LOAD, SIMULATION, Row

LEFT_OUT: Final[Mapping[Row, str]] = {
    LOAD: "10,000 jobs and four worker processes in each row: rows 1 and 14 have both; rows 12, 19 to 21, 24, 27, 28, "
    "32 and 58 have as many jobs, but one worker or two; most others have fewer, as the column of those acked says, "
    "though enough for the fault to hit some. Several have leases of their own (1 s in rows 4 and 5, 12 s in row 31), "
    "and handlers fail in rows 1, 3, 19 to 21, 24, 25, 27, 28 and 32 alone. The checker looks as soon as all has "
    "ended, and a lease and a sweep later in rows 1, 19 to 21, 24, 27, 28 and 32 alone. Tests, workers and servers "
    "share two processors, and a run with a soak of thirty minutes takes about 75 as it is",
    2: "each of 200 places: those beyond the third are tried by chance, as far as they are reached or there is time",
    3: "one job at most that runs twice for each pause: all that a worker holds is run elsewhere, and may end on both",
    17: "damage from the end of the last commit but one of the log on, which nobody can tell from a write that was cut "
    "short: it is left out without a word, as SQLite does (how often is above). Values that were changed where the "
    "structure of their page is whole: every job is there, and nobody is told (likewise). And a database of more than "
    "4 MiB, which is not read as a whole when it is opened",
    20: "several hosts: the server, workers and clients are processes of one machine, on its loopback. Hosts with a "
    "network between them (namespaces of one machine) are in rows 21, 33 and 37 alone",
    23: "a million jobs, of which 240,000 are run; and claims that are five times as slow at most, whatever is dead: "
    "dead rows slow them down, so their p10 is bounded up to the number that health tells of; it tells of them once "
    "their session has been open for 30 s, and until then they may be several times as many",
    24: "kills under load with appendfsync everysec, where two seconds of leases and settlements may be gone as well: "
    "it is done at rest, with a sync that hangs. What becomes of leases that a store has forgotten is tried in row 25",
    25: "several hosts, as in row 20: what is between workers, primary and replica are proxies",
    27: "how many were given up though they live: every worker loses its lease there and stops what it runs; whether "
    "the jobs come back by its own word or are taken from it first is not told apart",
    29: "a migration on Redis: keys of an older version are not brought over, but refused in words and left alone",
    31: "leases of 2 s while answers take up to 2.4 s: workers have the lease there that they have unless they are "
    "told otherwise, 12 s. On the narrow link it is 2 s",
    34: "a worker that notices within the time limit of a call: it asks once more on a new connection, which has a "
    "limit of its own",
    35: "a breaker that opens after its threshold and what is in flight: less than its threshold of each worker may "
    "come first, while what they have to tell each other is on its way",
    37: "SQLite, whose processes share one machine and so one clock, which row 38 sets",
    38: "a limit that holds when the clock of a server is set ahead: what the store remembers of it is over then, and "
    "it may be used up once more. On SQLite it holds. And on PostgreSQL and Redis the nights in which clocks change, "
    "and a clock that runs too fast: both are tried at once, on SQLite alone",
    39: "no operator: Redis with appendfsync always ends when its disk is full, and PostgreSQL where it has no room to "
    "recover from that; somebody has to start them when there is room again. The test does so. And one disk for log "
    "and the tables of PostgreSQL: it goes by chance which of them finds it full first",
    40: "syncs that fail or are slow on the servers' own disks: what PostgreSQL and Redis do then is theirs",
    41: "the servers' own disks turned read-only, likewise; no operator: the file system is mended, and workers are "
    "started again, by the test; and a running server on such a disk",
    42: "ten million jobs, which take half an hour: HOLDFAST_BACKLOG=10000000 runs them on SQLite",
    44: "5,000 requests a second, from clients that share two processors with the server; what was reached is above. "
    "And PostgreSQL and Redis: a server that is flooded, and a worker beside it, are tried on SQLite, and stalled "
    "sign-ins on the memory store",
    45: "atheris on the parsers: hypothesis feeds them, in tests/property and tests/unit",
    47: "PostgreSQL and Redis: who may do what is decided before a store is asked. Every route is tried in front of "
    "the memory store, and that of a running server on SQLite",
    48: "PostgreSQL and Redis, likewise: tried in front of the memory store, and with a running server on SQLite",
    49: "PostgreSQL and Redis: what the page, tables, commands and logs make of hostile texts is tried on SQLite alone",
    52: "the running server: nobody can hand it a URL to call. Those of webhooks stand in the program, and pages are "
    "fetched by crawls; both are tried with real connections, but within one process",
    53: "an option to encrypt arguments and results at rest: there is none, who can read the store reads them. And "
    "PostgreSQL and Redis: secrets are left out of what is shown, by the same code on each store. It is tried on "
    "SQLite, and webhooks without a store",
    54: "a noisy neighbour without rate={'tenant': …}: jobs run by priority and age, whoever's they are, so that "
    "others wait. With it, floods are tried on SQLite and in memory, not on servers. Breakers apart: a task has one "
    "for all tenants, so that one whose jobs fail opens it for the others, unless each has tasks with their own; "
    "likewise a plain rate",
    55: "the running server: it has no route that claims, settles or renews a lease. A forged worker has to reach the "
    "store, and there it is tried",
    56: "the running server: it sends webhooks, and takes none. What receivers are given to check them by is tried, "
    "also with requests that were sent for real, but within one process",
    57: "semgrep, whose rules would be those that ruff and bandit hold; and advisories, which are kept elsewhere",
    60: "NFS, for which there is no server here: FUSE stands in for it",
    62: "a power cut at each write: it fails before and after each sync, and at some of the writes by chance (how many "
    "is above). And a power cut of PostgreSQL and Redis: their servers' own files are not modelled, and a disk's word "
    "is taken",
    SIMULATION: "machines that die at each await: they die at requests, and where they wait for time to pass or for an "
    "answer. Where one waits for a part of itself, nobody outside can tell it from a death before its next request, or "
    "amid the job that it runs. And a seed is compared with itself in other processes, not on other machines or with "
    "another Python",
}
_WANTED_MINUTES: Final = 30.0


def left_out(soaked_minutes: Sequence[float]) -> dict[Row, str]:
    """All of it, in a run that soaked so long, on each store that it did."""
    return {**LEFT_OUT, "soak": _of_soak(soaked_minutes)}


def _of_soak(minutes: Sequence[float]) -> str:
    if not minutes:
        return "all of it: it is part of a whole run alone"
    flat = (
        "of what has to stay flat the first third, in which everything fills up: it is not judged. And the minute "
        "between two prunings: jobs are kept for 20 s there, and pruned every five"
    )
    if (shortest := min(minutes)) >= _WANTED_MINUTES:
        return flat
    return (
        f"thirty minutes for each store: they share the time, and each had {shortest:.3g} (SOAK=90 makes it thirty). "
        f"And {flat}"
    )
