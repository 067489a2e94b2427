"""Metrics as values, and as the text that Prometheus reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal

from msgspec import Struct

from holdfast.runtime.counts import BOUNDS_S

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What the text is, over HTTP."""

Kind = Literal["gauge", "counter", "histogram"]

_LONGEST_LABEL: Final = 200


class Sample(Struct, frozen=True):
    """One number of a metric."""

    labels: Mapping[str, str]
    value: float
    suffix: str = ""
    """Of a histogram: `_bucket`, `_sum` or `_count`."""


class Metric(Struct, frozen=True):
    """A name, what it means, and its numbers."""

    name: str
    kind: Kind
    text: str
    samples: Sequence[Sample]


def histogram(
    labels: Mapping[str, str], buckets: Sequence[int], sum_s: float, bounds_s: Sequence[float] = BOUNDS_S
) -> list[Sample]:
    """A histogram's samples, from buckets that each count their own; the last one has no bound."""
    below = list(accumulate(buckets))
    bounds = [*(repr(bound_s) for bound_s in bounds_s), "+Inf"]
    samples = [Sample({**labels, "le": bound}, n, "_bucket") for bound, n in zip(bounds, below, strict=True)]
    return [*samples, Sample(labels, sum_s, "_sum"), Sample(labels, below[-1], "_count")]


def text_of(metrics: Iterable[Metric]) -> bytes:
    """The metrics in Prometheus's text format."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.text}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines += (f"{metric.name}{one.suffix}{_labels(one.labels)} {_number(one.value)}" for one in metric.samples)
    return "".join(f"{line}\n" for line in lines).encode()


def label(text: str) -> str:
    """Text as a label's value may have it: printable, not longer than a name may be, and in UTF-8."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return text[:_LONGEST_LABEL]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return label(value).replace("\\", r"\\").replace('"', r"\"")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
