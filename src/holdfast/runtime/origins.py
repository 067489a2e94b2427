"""Where a record of a store came from, whatever it is."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from holdfast.runtime.crawl_origins import page_origin
from holdfast.runtime.ring_origins import ring_origin
from holdfast.runtime.streams.origins import message_origin
from holdfast.types import JobRecord


def origin_fields(record: JobRecord) -> dict[str, Any]:
    """An origin as lists and exports have it: `{"kind": "job"}`, or which message, elements of a ring or page it is.

    Offsets are text, as those of Redis are; None where there is none.
    """
    page = page_origin(record)
    if page is not None:
        return asdict(page)
    origin = message_origin(record) or ring_origin(record)
    if origin is None:
        return {"kind": "job"}
    return asdict(origin) | {"offset": None if origin.offset is None else str(origin.offset)}
