"""Deletes what nobody needs any more: some of it with each call, so that no call holds up the server for long."""

from __future__ import annotations

from typing import Final

from holdfast.stores.causes import HOURS
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.scripts import PRUNE

_COUNTS_KEPT_MINUTES: Final = 8 * 24 * 60
_REMOVED_KEPT_S: Final = 3600.0
_GONE_KEPT_S: Final = 8 * 86_400.0


def prune_call(limit: int) -> Call[tuple[int, bool]]:
    """Delete up to so many records whose time is over, and with them what is left of others.

    Answers with how many records, and whether there are more.
    """
    words = (limit, _COUNTS_KEPT_MINUTES, _REMOVED_KEPT_S, _GONE_KEPT_S, HOURS)
    return Call(PRUNE, words, lambda reply: (reply[0], bool(reply[1])))
