"""Jobs in a PostgreSQL database: durable, shared by any number of workers on any number of machines."""

from __future__ import annotations

from holdfast.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
