"""A source in this process's memory: the oracle that other sources are compared with, and for users' own tests."""

from __future__ import annotations

from holdfast.streams.memory.broker import MemoryBroker
from holdfast.streams.memory.source import MemorySource

__all__ = ["MemoryBroker", "MemorySource"]
