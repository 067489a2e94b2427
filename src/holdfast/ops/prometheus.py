"""Metrics for the registry of `prometheus_client`, which is asked for only here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError
from holdfast.extras import how_to_install
from holdfast.runtime.exposition import Metric, label

if TYPE_CHECKING:
    from prometheus_client.core import Metric as ClientMetric
    from prometheus_client.registry import Collector


def collector_of(look: Callable[[], Iterable[Metric]], name: str) -> Collector:
    """A collector that looks whenever it is asked. ConfigError without `prometheus_client`; name: who needs it."""
    try:
        from prometheus_client.core import Metric as Theirs  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(f"{name}(…) needs prometheus-client: {how_to_install('web')}") from None

    class Looking:
        """Looks whenever it is asked."""

        def collect(self) -> Iterator[ClientMetric]:
            """Every metric."""
            for metric in look():
                theirs = Theirs(metric.name.removesuffix("_total"), metric.text, metric.kind)
                for one in metric.samples:
                    labels = {name: label(value) for name, value in one.labels.items()}
                    theirs.add_sample(f"{metric.name}{one.suffix}", labels, one.value)
                yield theirs

        def describe(self) -> list[ClientMetric]:
            """Nothing ahead of time: registering must need neither a store nor a ring."""
            return []

    return Looking()
