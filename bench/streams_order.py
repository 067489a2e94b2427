"""The messages of bench-streams: orders of 1,000 customers, about 100 bytes of JSON each."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, json

KEYS = 1_000


class Order(Struct):
    """What every subject that can decodes a message into."""

    number: int
    customer: str
    sku: str
    cents: int
    is_gift: bool


def orders(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; the keys take turns."""
    encode = json.Encoder().encode
    for number in range(count):
        key = f"customer-{number % KEYS:04}"
        yield (
            key.encode(),
            encode(Order(number, key, f"sku-{number % 977:06}", 100 + number % 9_900, is_gift=not number % 7)),
        )
