"""The hot call, as it is sent."""

from __future__ import annotations

import gc
import weakref

from holdfast.ports import Exchange
from holdfast.stores.redis.exchange import exchange_call
from holdfast.stores.redis.state import Texts


def test_what_it_takes_along_is_freed_with_it_and_waits_for_no_collector() -> None:
    gc.disable()
    try:
        call = exchange_call(Exchange(), Texts())
        read = weakref.ref(call.read)
        del call
        assert read() is None
    finally:
        gc.enable()
