"""The Disruptor: a ring inside one process, for pipelines that must not leave it."""

from __future__ import annotations

from holdfast.ring.consumer import Consumer
from holdfast.ring.disruptor import Disruptor
from holdfast.ring.reprocess import Reprocessed

__all__ = ["Consumer", "Disruptor", "Reprocessed"]
