"""Redis Streams as a source: one stream shared by its consumers, or several that are sharded by key."""

from __future__ import annotations

from holdfast.streams.redis_streams.source import RedisSource

__all__ = ["RedisSource"]
