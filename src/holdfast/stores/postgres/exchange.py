"""The hot call: settlements, counts, a claim and changed values, in one round trip where that is possible."""

from __future__ import annotations

from typing import Final

from holdfast.ports import Delivery, Exchange, Exchanged
from holdfast.stores.lanes import Lanes
from holdfast.stores.postgres.claim import Claiming
from holdfast.stores.postgres.connection import Line
from holdfast.stores.postgres.db import Cursor, Db
from holdfast.stores.postgres.enqueue import Setting
from holdfast.stores.postgres.news import News
from holdfast.stores.postgres.queries import load
from holdfast.stores.postgres.settle import Settling, settle_each
from holdfast.stores.postgres.values import add_counts, send_changes, send_newer, sum_up, sum_up_letters, values_of

_NOW: Final = load("claim.sql")["now"]
_NOTIFY: Final = load("values.sql")["notify"]
_SWEEP_CLAIMS: Final = load("workers.sql")["sweep_claims"]
_MOST_KNOWN: Final = 100_000
_SUM_EVERY: Final = 256
_SWEEP_EVERY: Final = 32
_SUM_LETTERS_EVERY: Final = 2000


class Exchanges:
    """What a process knows beside the database, kept from one exchange to the next; used by one thread at a time."""

    def __init__(self, store: str, setting: Setting, news: News) -> None:
        self.lanes = Lanes()
        self._store = store
        self._setting = setting
        self._news = news
        self._known: dict[str, int] = {}
        """The rows of the jobs that this process has claimed."""
        self._server: tuple[Line | None, float] = (None, 0.0)
        """The connection and the start of the server that answered last."""
        self._era = 0
        self._n = 0
        self._letters = 0

    def exchange(self, db: Db, exchange: Exchange) -> Exchanged:
        """Settle, count, claim and change values; a claim that brings too little may take further round trips.

        Each of them is a transaction, and each part may be sent twice: so what is lost between two does no harm.
        """
        settlements = exchange.settlements
        settled: list[bool] = []
        has_news = bool(exchange.changes)
        settling: Settling | None = None
        if len({one.id for one in settlements}) < len(settlements):
            settled, is_news = settle_each(db, settlements, self._setting.key_window_s)
            has_news = has_news or is_news
        elif settlements:
            settling = Settling(db, settlements, self._known, self._setting.key_window_s)
            has_news = has_news or settling.has_news
        claim = exchange.claim
        claiming = None if claim is None else Claiming(db, claim, self.lanes)
        is_alone = not (settlements or exchange.counts or exchange.changes)
        changes: list[Cursor] = []
        newer: Cursor | None = None
        if claiming is None or not is_alone or not claiming.send_whole():
            with db.together():
                if settling is not None:
                    settling.send()
                if exchange.counts:
                    add_counts(db, exchange.counts, exchange.counted)
                if claiming is not None:
                    claiming.send(is_alone=is_alone)
                else:
                    clock = db.run(_NOW)
                if has_news:
                    db.run(_NOTIFY, channel=self._setting.channel, listener=self._setting.listener)
                if exchange.changes:
                    changes = send_changes(db, exchange.changes, self._store)
                    newer = send_newer(db, exchange.seen)
        if settling is not None:
            settled = settling.answers()
            self._letters += settling.letters
        for one in settlements:
            self._known.pop(one.id, None)
        deliveries: list[Delivery] = []
        next_due_s = None
        if claiming is None:
            ((now, newest_value, started_at),) = clock.fetchall()
        else:
            deliveries, next_due_s = self._claim(db, claiming, exchange)
            now, newest_value, started_at = claiming.now, claiming.newest_value, claiming.server_started_at
        if not changes and newest_value > exchange.seen:
            newer = send_newer(db, exchange.seen)
        if has_news:
            self._news.tell()
        self._keep_house(db)
        return Exchanged(
            now=now,
            settled=settled,
            changed=[bool(cursor.fetchall()) for cursor in changes],
            deliveries=deliveries,
            values=[] if newer is None else values_of(newer.fetchall()),
            next_due_s=next_due_s,
            newest=newest_value,
            era=self._era_of(db.line, started_at),
        )

    def _era_of(self, line: Line, started_at: float) -> int:
        """Behind a new connection may be another server, or the same after a crash; behind a pooler at any time."""
        server = (line, started_at)
        if server != self._server:
            self._server = server
            self._era += 1
        return self._era

    def _claim(self, db: Db, claiming: Claiming, exchange: Exchange) -> tuple[list[Delivery], float | None]:
        claim = exchange.claim
        assert claim is not None  # noqa: S101 - there is one on its way
        deliveries, rows = claiming.answers()
        if claim.limit > 0 and self._news.claimed(db, is_full=len(deliveries) >= claim.limit):
            deliveries += claiming.look_again(rows)  # what came before this process was on the list
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known |= rows
        return deliveries, claiming.next_due_s

    def _keep_house(self, db: Db) -> None:
        """Now and then, sum up what was counted, and forget the claims that are settled to their end."""
        self._n += 1
        if self._n % _SWEEP_EVERY == 0:
            db.run(_SWEEP_CLAIMS)
        if self._n % _SUM_EVERY == 0:
            with db.together():
                sum_up(db)
        if self._letters >= _SUM_LETTERS_EVERY:
            self._letters = 0
            with db.together():
                sum_up_letters(db)
