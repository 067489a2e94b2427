"""Deletes what nobody needs any more: some of it with each call, so that no call takes long."""

from __future__ import annotations

from typing import Final

from holdfast.stores.causes import HOURS
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.people import delete_jobs
from holdfast.stores.postgres.queries import load
from holdfast.stores.postgres.values import COUNTS_KEPT_MINUTES, sum_up

_SQL = load("prune.sql")
_DROP_OLD_HOURS: Final = load("letters.sql")["drop_old_hours"]
_SWEEP_CLAIMS: Final = load("workers.sql")["sweep_claims"]
_GONE_KEPT_S: Final = 8 * 86_400.0
_REMOVED_KEPT_S: Final = 3600.0
_VALUES_AT_ONCE: Final = 5000
_MOST_AT_ONCE: Final = 5000


def prune_jobs(db: Db, limit: int) -> int:
    """Delete up to so many records whose time is over; say how many."""
    n_deleted = 0
    while n_deleted < limit:
        at_once = min(limit - n_deleted, _MOST_AT_ONCE)
        with db.transaction():
            rows = db.rows(_SQL["over"], limit=at_once)
            if rows:
                with db.together():
                    delete_jobs(db, rows)
        n_deleted += len(rows)
        if not rows:
            break
    return n_deleted


def prune_rest(db: Db) -> None:
    """Delete what is left of workers, values and minutes, and sum up what was counted."""
    with db.together():
        db.run(_SQL["delete_counts"], kept_minutes=COUNTS_KEPT_MINUTES)
        db.run(_SQL["delete_workers"], kept_s=_GONE_KEPT_S)
        db.run(_SQL["delete_counted"])
        db.run(_SQL["delete_cancelled"])
        db.run(_SQL["delete_listeners"])
        db.run(_DROP_OLD_HOURS, hours=HOURS)
        db.run(_SWEEP_CLAIMS)
    with db.together():
        db.run(_SQL["delete_removed_values"], kept_s=_REMOVED_KEPT_S, limit=_VALUES_AT_ONCE)
    with db.together():
        sum_up(db)
