"""The hot call: settle these, change these values, add these counts, and claim up to so many."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from holdfast.ports import Claim, Exchange, Exchanged, Value
from holdfast.stores.redis import state
from holdfast.stores.redis.call import Call, Texts
from holdfast.stores.redis.deliveries import read_deliveries
from holdfast.stores.redis.scripts import EXCHANGE
from holdfast.stores.redis.settle import settlement_rows, token_text
from holdfast.stores.redis.values import read_value

_MOST_CLAIMED: Final = 10_000
"""With one call, however many are wished for: the server does nothing else meanwhile."""


def exchange_call(exchange: Exchange, known: state.Texts) -> Call[Exchanged]:
    """The call of the one script that does it all."""
    texts = Texts()
    claim = exchange.claim
    words = (
        settlement_rows(exchange.settlements, texts),
        [(change.key, change.expected, texts.number_of(change.data)) for change in exchange.changes],
        [(count.minute, count.task, count.name, count.n) for count in exchange.counts],
        None if claim is None else _wish_of(claim),
        exchange.seen,
        exchange.counted,
    )
    token = b"" if claim is None else claim.token
    return _ExchangeCall(EXCHANGE, words, lambda reply: _exchanged(reply, token, known), texts)


class _ExchangeCall(Call[Exchanged]):
    """Its answer says which server it is of."""

    __slots__ = ()

    def __call__(self, reply: Any) -> Exchanged:
        return replace(self.read(reply), era=self.line)


def _wish_of(claim: Claim) -> tuple[Any, ...]:
    limit = min(claim.limit, _MOST_CLAIMED)
    return claim.worker, token_text(claim.token), limit, claim.queues, claim.caps, claim.is_alone, claim.per_lane


def _exchanged(reply: list[Any], token: bytes, known: state.Texts) -> Exchanged:
    now, settled, changed, next_due_s, newest, *deliveries, values = reply
    return Exchanged(
        now=float(now),
        settled=_signs(settled),
        changed=_signs(changed),
        deliveries=read_deliveries(deliveries, token, known) if deliveries[0] else [],
        values=[_value(key, text) for key, text in zip(values[::2], values[1::2], strict=True)],
        next_due_s=float(next_due_s) if next_due_s else None,
        newest=newest,
    )


def _signs(text: bytes) -> list[bool]:
    return [True] * len(text) if b"0" not in text else [sign == ord("1") for sign in text]


def _value(key: bytes, text: bytes) -> Value:
    return Value(key.decode(), *read_value(text))
