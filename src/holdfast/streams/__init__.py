"""Streams: sending messages to Kafka and Redis Streams, and what a stream's handler may ask for."""

from __future__ import annotations

from holdfast.ports import Outputs
from holdfast.streams.producer import Producer
from holdfast.streams.sent import Sent
from holdfast.types import Message

__all__ = ["Message", "Outputs", "Producer", "Sent"]
