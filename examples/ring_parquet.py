"""JSON records into Parquet files, through a ring: two consumers, retries, dead letters, checkpoints, restarts.

    pip install holdfast pyarrow
    python ring_parquet.py --make 100000 --bad 5    # orders.jsonl, one record a line, five of them broken
    python ring_parquet.py                          # stop it by Ctrl-C, kill it by -9, start it again: it goes on
    python ring_parquet.py --reprocess              # after you have mended out/dead-letters.jsonl

Every line of the source is one element, and its number is its offset. `orders` writes amounts, by day; `customers`
writes who has ordered. A broken amount is a dead letter of the one; the other does not mind it.

A line may be seen twice: after a kill, after a failed write, when a batch is halved. So its row goes into the part file
that its number says, in the place of one with the same number, and part files are replaced as a whole: each line is
there once, however often it was seen.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import msgspec
from msgspec import Meta, Struct

from holdfast import App, HoldfastError, RetryPolicy
from holdfast.ring import Consumer, Disruptor

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    sys.exit("this example needs pyarrow: pip install pyarrow")

READ: Final = 100
"""Lines that are produced at a time."""
PART: Final = 1_000
"""Lines of a part file. Never change it for an output that is there already."""

_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Order(Struct):
    """What `orders` needs of a record."""

    id: _Count
    day: date
    customer: str
    cents: _Count


class Visit(Struct):
    """What `customers` needs of it: less, so it minds less."""

    id: _Count
    customer: str


# ---------------------------------------------------------------- consumers


class Parts(Consumer[dict[str, Any]]):
    """Writes rows into Parquet files, each line once."""

    schema: pa.Schema

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def row(self, record: object) -> tuple[str, dict[str, Any]]:
        """The folder that a record belongs in, and its row; raises where it is no such record."""
        raise NotImplementedError

    def consume(self, elements: Sequence[dict[str, Any]]) -> None:
        """Everything is read before anything is written, so that a broken record costs no writes."""
        parts: defaultdict[Path, dict[int, dict[str, Any]]] = defaultdict(dict)
        for element in elements:
            line = element["line"]
            folder, row = self.row(element["record"])
            parts[self._folder / folder / f"part-{line - line % PART:012}.parquet"][line] = {"line": line, **row}
        for path, rows in parts.items():
            self._put(path, rows)

    def _put(self, path: Path, rows: dict[int, dict[str, Any]]) -> None:
        """On the disk when it returns: the checkpoint that is saved next says that it is."""
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync(path.parent.parent)
        if path.exists():
            rows = {row["line"]: row for row in pq.ParquetFile(path).read().to_pylist()} | rows
        unfinished = path.with_name(f".{path.name}")  # those who read Parquet folders pass over such names
        with open(unfinished, "wb") as file:
            pq.write_table(pa.Table.from_pylist([rows[line] for line in sorted(rows)], self.schema), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync(path.parent)
        print(f"wrote {path}: {len(rows)} rows", flush=True)


class Orders(Parts):
    """Amounts, by day."""

    schema = pa.schema([("line", pa.int64()), ("id", pa.int64()), ("customer", pa.string()), ("cents", pa.int64())])

    def row(self, record: object) -> tuple[str, dict[str, Any]]:  # noqa: D102 - the same
        order = msgspec.convert(record, Order)
        return f"day={order.day}", {"id": order.id, "customer": order.customer, "cents": order.cents}


class Customers(Parts):
    """Who has ordered."""

    schema = pa.schema([("line", pa.int64()), ("id", pa.int64()), ("customer", pa.string())])

    def row(self, record: object) -> tuple[str, dict[str, Any]]:  # noqa: D102 - the same
        visit = msgspec.convert(record, Visit)
        return "", {"id": visit.id, "customer": visit.customer}


def sync(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# ---------------------------------------------------------------- the source


def lines_from(source: BinaryIO, start: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Lists of elements from this line on, each with the number of its first; an empty one where no more are there."""
    skipped = sum(1 for _ in islice(source, start))
    if skipped < start:
        sys.exit(f"{source.name} has {skipped:,} lines, and {start:,} are done: is it another file?")
    rest = b""
    while True:
        elements: list[dict[str, Any]] = []
        for line in islice(source, READ):
            rest += line
            if not rest.endswith(b"\n"):
                break  # somebody is still writing it
            elements.append({"line": start + len(elements), "record": record_in(rest)})
            rest = b""
        yield start, elements
        start += len(elements)


def record_in(line: bytes) -> object:
    """What a line says; its text where it is no JSON, so that its dead letter shows it."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return line.decode(errors="replace").rstrip("\n")


def make(path: Path, n: int, bad: int) -> None:
    """Write so many records to try this with, some of them broken."""
    broken = {(2 * place + 1) * n // (2 * bad) for place in range(bad)}
    with open(path, "wb") as file:
        for line in range(n):
            order = {
                "id": 1_000_000 + line,
                "day": str(date(2026, 1, 1) + timedelta(days=3 * line // n)),
                "customer": f"customer {line * 7919 % 100}",
                "cents": "n/a" if line in broken else line * 31 % 20_000,
            }
            file.write(msgspec.json.encode(order) + b"\n")


# ---------------------------------------------------------------- the ring


def ring_into(out: Path, app: App | None) -> Disruptor[dict[str, Any]]:
    """The ring with its two consumers, as far as they were when they last ended, however they did."""
    out.mkdir(parents=True, exist_ok=True)
    ring: Disruptor[dict[str, Any]] = Disruptor(name="parquet", size=10 * PART, app=app)
    for name, consumer in (("orders", Orders(out / "orders")), ("customers", Customers(out / "customers"))):
        ring.register_consumer(
            consumer,
            name=name,
            batch_size=PART,
            retry=RetryPolicy(
                max_retries=5, initial_delay=0.2, max_delay=5.0
            ),  # a disk that is full or away for a while
            isolate=True,  # a broken record is found, and the others of its batch are written
            dead_letters=True if app is not None else out / "dead-letters.jsonl",
            checkpoint=out / f"{name}.checkpoint",
        )
    return ring


def run(options: argparse.Namespace, app: App | None) -> None:
    """Do what is left of the source, and say how far each consumer is."""
    with open(options.source, "rb") as source:  # first of all: nothing is made where there is no source
        ring = ring_into(options.out, app)
        try:
            with ring:  # Ctrl-C and SIGTERM leave it here: what was taken is finished, and the checkpoints are saved
                produce_from(source, ring, options)
        finally:
            for one in ring.stats().consumers:
                done = f"{one.processed:,} lines, {one.given_up:,} of them given up"
                print(f"{one.name}: {done}; up to line {one.offset or 0:,}")


def produce_from(source: BinaryIO, ring: Disruptor[dict[str, Any]], options: argparse.Namespace) -> None:
    """Begin where the slowest consumer is; the others pass over what they have done."""
    print(f"begins at line {ring.start_offset:,}", flush=True)
    for start, elements in lines_from(source, ring.start_offset):
        if elements:
            ring.produce(elements, offset=start)
        elif not options.follow:
            break
        time.sleep(options.pause if elements else 0.1)


def reprocess(out: Path) -> None:
    """Do the dead letters of the file again, and say what became of them."""
    with ring_into(out, None) as ring:
        print(ring.reprocess(out / "dead-letters.jsonl"))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--source", type=Path, default=Path("orders.jsonl"), help="JSON records, one a line [%(default)s]"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the Parquet files go [%(default)s]")
    parser.add_argument("--make", type=int, metavar="N", help="write a source of N records, and end")
    parser.add_argument("--bad", type=int, default=5, metavar="N", help="so many of these are broken [%(default)s]")
    parser.add_argument(
        "--app", metavar="URL", help="dead letters go to the inbox of this store, such as sqlite:///shop.db"
    )
    parser.add_argument("--reprocess", action="store_true", help="do the dead letters of the file again, and end")
    parser.add_argument("--follow", action="store_true", help="wait for more lines, until it is stopped")
    parser.add_argument("--pause", type=float, default=0.0, metavar="S", help="seconds between two reads, to watch it")
    options = parser.parse_args()
    if options.make is not None:
        make(options.source, options.make, options.bad)
        return 0
    if options.reprocess and options.app:
        parser.error(
            f"letters of the inbox are sent back by: holdfast dlq replay --url {options.app}; run with --follow"
        )
    app = App(options.app) if options.app else None
    try:
        if options.reprocess:
            reprocess(options.out)
        else:
            run(options, app)
    except (HoldfastError, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        return 130
    finally:
        if app is not None:
            app.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
