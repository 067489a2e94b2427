"""Kafka: needs the package confluent-kafka, which `pip install 'holdfast[kafka]'` brings."""

from __future__ import annotations

from holdfast.streams.kafka.source import KafkaSource

__all__ = ["KafkaSource"]
