"""The rows of the fault plan, the stores of each, and the parts that they make up in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

Row = int | str
"""A number of the plan; or a word, of what is none of its rows."""

PARTS: Final = {
    "Workers": range(1, 14),
    "Store": range(14, 30),
    "Network": range(30, 36),
    "Clock": range(37, 39),
    "Disk and memory": range(39, 43),
    "Bad input": range(43, 47),
    "Security": range(47, 58),
    "Operators": range(58, 63),
    "Streams": range(36, 37),
}
"""In the order of the report; rows of several parts are also run on streams."""
WORDS: Final = {"ring": "Rings", "crawl": "Crawls", "soak": "Soak"}
"""What is no row of the plan, by the first word of its file."""
LOAD: Final = "load"
"""What the plan says of all rows that have no other."""
SIMULATION: Final = "simulation"
"""What is no row of the plan, and has a section of its own in the report."""
ELSE: Final = "Other tests"
STREAMS: Final = ("kafka", "redis streams", "streams")
"""How the names of these begin where others have a store."""

PLAN: Final = {
    1: "workers killed at random",
    2: "workers killed at every call of the store",
    3: "a worker paused past its lease, and going on",
    4: "all workers of a host frozen",
    5: "a handler that holds the interpreter for longer than its lease",
    6: "jobs that kill their worker",
    7: "handlers that never return",
    8: "workers told to stop under load",
    9: "handlers that fork a child which outlives the worker",
    10: "jobs that need more memory than there is",
    11: "no file descriptors left",
    12: "the handler has succeeded, and the acknowledgement is lost",
    13: "old and new code side by side",
    14: "several processes that write to SQLite at full speed",
    15: "a reader that holds its SQLite transaction open",
    16: "a process killed at a write or sync of the SQLite file",
    17: "damaged bytes in the SQLite file",
    18: "parts of the SQLite file deleted, or copied live",
    19: "sessions of PostgreSQL ended",
    20: "a server process of PostgreSQL killed",
    21: "PostgreSQL crashes",
    22: "a transaction of PostgreSQL that stands still",
    23: "PostgreSQL tables full of dead rows",
    24: "Redis restarted, in each mode of its append-only file",
    25: "Redis fails over to a replica that lags",
    26: "Redis out of memory",
    27: "Redis stands still, or drops its clients",
    28: "Redis forgets its scripts",
    29: "the schema migrated under load",
    30: "a write whose reply is lost",
    31: "a slow and jittery network",
    32: "connections cut at random",
    33: "a host cut off from the store",
    34: "a network that swallows everything",
    35: "a downstream service that is dead, or flaps",
    36: "consumers of streams killed, also amid a rebalance",
    37: "a worker whose clock is wrong by hours",
    38: "the clock of the machine set, and run too fast",
    39: "the disk full",
    40: "syncs of the disk that fail, or are slow",
    41: "the file system turned read-only",
    42: "a backlog of a million jobs",
    43: "huge, deep and odd payloads",
    44: "slow clients and floods",
    45: "the API fuzzed",
    46: "schedules and patterns that would never end",
    47: "no, old and other credentials on every route",
    48: "requests forged by other sites",
    49: "markup and scripts in everything that is shown",
    50: "SQL, Lua and commands in everything that is sent",
    51: "pickles and paths of functions in the store",
    52: "addresses that lead into the inner network",
    53: "secrets in everything that is run",
    54: "one tenant against the other",
    55: "a forged worker",
    56: "forged and repeated webhooks",
    57: "known weaknesses in the code and in what it needs",
    58: "the whole inbox replayed twice, by two operators",
    59: "changes by hand racing with those of workers",
    60: "wrong configuration",
    61: "an old backup restored under running workers",
    62: "everything killed at once, without what was not synced",
}

STORES: Final = {"S": "sqlite", "P": "postgres", "R": "redis", "K": "kafka", "X": "redis streams"}
"""By the letters of docs/explanation/faults.md."""
STORES_OF: Final[Mapping[Row, str]] = {
    row: letters
    for letters, rows in {
        "SPRKX": (6,),
        "SPR": (*range(1, 6), *range(7, 14), 29, 35, 38, 39, 42, 43, 45, 50, 51, 54, 55, *range(58, 63), "crawl"),
        "S": (*range(14, 19), 40, 41, 44, *range(47, 50), 53),
        "P": range(19, 24),
        "R": range(24, 29),
        "PRKX": (30, 32),
        "PR": (31, 33, 34, 37),
        "KX": (36,),
        "": (46, 52, 56, 57, "ring"),
    }.items()
    for row in rows
}
"""Where a whole run has to have tried each row; without a letter it needs no store. What is tried on others, such as
the memory store, is tried besides.
"""

INBOX: Final = "an inbox of very many letters, opened in a browser"
MODEL: Final = "operations at random on the store and on a model of it, side by side"
PROPERTIES: Final = "what must hold of the parts in every case, in cases at random"
HISTORIES: Final = "simulated histories, with replies lost, late and doubled, made again call by call at their instants"
BESIDES: Final[Sequence[tuple[int, str, str]]] = (
    (42, INBOX, "S"),
    (45, MODEL, "SPR"),
    (45, PROPERTIES, ""),
    (45, HISTORIES, "SPR"),
)
"""What a whole run has to have found besides: the row, the words of the finding, and where. Other findings of their
rows must not hide that these are missing.
"""


def named(row: Row) -> str:
    """What a row is about, or a word."""
    if isinstance(row, int):
        return PLAN[row]
    if row == SIMULATION:
        return "the simulation"
    return "the load, where a row has no other" if row == LOAD else WORDS[row].lower()


def is_on(store: str, found: str) -> bool:
    """Whether a finding's store is this one, perhaps with its shards."""
    return found == store or found.startswith(f"{store}, ")


def part_of(row: str, store: str) -> str:
    """Where a finding stands in the report."""
    if store.startswith(STREAMS):
        return "Streams"
    if row.isdigit():
        return next((part for part, rows in PARTS.items() if int(row) in rows), ELSE)
    return WORDS.get(row, ELSE)
