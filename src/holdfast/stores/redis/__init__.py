"""Jobs in Redis or Valkey: shared by any number of machines, as durable as the server is set up to be."""

from __future__ import annotations

from holdfast.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
