"""A store in this process's memory: the oracle that other stores are compared with, and a real backend (`memory://`)."""

from __future__ import annotations

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
