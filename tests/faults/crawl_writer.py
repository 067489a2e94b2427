"""A program that writes an output of a crawl and is killed on the way: `python -m tests.faults.crawl_writer SETTINGS`.

It forks for each run. A run opens the output and adds all pages there are, as a restart does that looks up what is
missing; its parent lets it sync a few times, and kills it at a random moment of the next sync. Every fourth one dies by
itself where it hurts most: its lines are in the file, and the ledger does not have them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from unittest.mock import patch

import msgspec
from msgspec import Struct

from holdfast.clock import SystemClock
from holdfast.crawl.ledger import Ledger
from holdfast.crawl.outputs import Done, open_output
from holdfast.crawl.urls import page_id
from holdfast.errors import ConfigError
from tests.faults.load import Dice

CRAWL = "shop"
_CLOCK = SystemClock()


class Settings(Struct, frozen=True, kw_only=True):
    """How often it is killed, and what it writes."""

    path: str
    pages: int
    kills: int
    seed: str
    batch: int = 25


class Summary(Struct, frozen=True, kw_only=True):
    """What it says at its end."""

    killed: int
    """Runs that were killed before they had written everything."""
    torn: int
    """Of these, with lines in the file that the ledger did not have."""
    refused: int
    """How often the parent was refused while a run was at work."""


def page(n: int) -> Done:
    """The n-th page: none, one or two items."""
    url = f"https://example.org/{n}"
    return Done(page_id(CRAWL, url), url, [{"n": n, "item": i, "text": "x" * (n % 97)} for i in range(n % 3)])


def write(settings: Settings, pages: Sequence[Done], go: int, told: int) -> None:
    """One run, to its end. It waits for a byte before it syncs something new, and sends one after it."""
    with closing(open_output(settings.path, CRAWL)) as output:
        os.write(told, b".")
        for start in range(0, len(pages), settings.batch):
            if output.add(pages[start : start + settings.batch]):
                os.read(go, 1)
                output.sync()
                os.write(told, b".")


def run(settings: Settings) -> Summary:
    """All the runs; the last one comes to its end."""
    dice, killed, torn, refused = Dice(settings.seed), 0, 0, 0
    pages = [page(n) for n in range(settings.pages)]
    most = settings.pages // settings.batch // settings.kills - 1
    for n in range(settings.kills):
        dies_by_itself = n % 4 == 0 and not settings.path.endswith(".db")  # which has no ledger beside it
        (go, let_go), (told, tell) = os.pipe(), os.pipe()
        if not (pid := os.fork()):
            if dies_by_itself:
                patch.object(Ledger, "add", _die).start()
            write(settings, pages, go, tell)
            os._exit(0)
        os.close(go)
        os.close(tell)
        os.read(told, 1)
        refused += _is_refused(settings.path)
        took_s = 0.0
        for _ in range(0 if dies_by_itself else 1 + dice.below(most)):
            began_s = _CLOCK.monotonic()
            os.write(let_go, b".")
            os.read(told, 1)
            took_s = _CLOCK.monotonic() - began_s
        os.write(let_go, b".")
        if not dies_by_itself:
            _CLOCK.sleep(dice.draw() * took_s)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(let_go)
        os.close(told)
        killed += os.WIFSIGNALED(status)
        size = os.path.getsize(settings.path)
        with closing(open_output(settings.path, CRAWL)):
            torn += os.path.getsize(settings.path) < size
    write(settings, pages, os.open("/dev/zero", os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
    return Summary(killed=killed, torn=torn, refused=refused)


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _is_refused(path: str) -> bool:
    if path.endswith(".db"):
        return False  # a database may be written by several
    try:
        open_output(path, CRAWL).close()
    except ConfigError:
        return True
    return False


if __name__ == "__main__":
    print(msgspec.json.encode(run(msgspec.json.decode(sys.argv[1], type=Settings))).decode())
