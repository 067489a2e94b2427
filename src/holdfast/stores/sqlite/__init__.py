"""Jobs in a SQLite file: durable, fast, shared by every process of one machine, and nothing to set up."""

from __future__ import annotations

from holdfast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
