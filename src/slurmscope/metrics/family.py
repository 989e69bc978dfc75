# SPDX-License-Identifier: Apache-2.0
"""Declare metrics once and hold their samples as plain data.

A :class:`Metric` is the declaration: one constant per metric, beside the code that measures it.
A :class:`Family` is that declaration with the samples of one scrape. Families are built fresh at
each scrape and never changed afterwards, so there is no stale label set and no lock.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

Labels = tuple[str, ...]
"""Label values in the order of :attr:`Metric.labels`."""


class MetricKind(enum.Enum):
    """Tell what a metric's value means."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Hold one histogram: ``counts[i]`` events fell into bucket ``i``, the last one is above every bound.

    Counts are per bucket, not cumulative; the writers add them up.
    """

    counts: tuple[int, ...]
    total: float


Value = float | Histogram
# The key is always Labels; Mapping does not let mypy say so for tuples of a known length.
Samples = Mapping[Any, Value] | Iterable[tuple[Labels, Value]]

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_RESERVED_LABELS = frozenset({"job", "instance", "le", "quantile"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Declare one metric.

    ``name`` is the name of its samples, with ``_total`` or ``_info`` where it has one. ``is_seed``
    marks a name kept for dashboards written for the tools we replace; ``compat = false`` drops it,
    and only such a name may break the naming conventions.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    is_seed: bool = False

    def __post_init__(self) -> None:
        """Refuse a declaration that could never be served."""
        if not _NAME.match(self.name):
            raise ValueError(f"metric name {self.name!r} is not valid")
        for label in self.labels:
            if not _NAME.match(label) or label.startswith("__"):
                raise ValueError(f"{self.name}: label name {label!r} is not valid")
            if label in _RESERVED_LABELS and not self.is_seed:
                raise ValueError(f"{self.name}: label {label!r} belongs to Prometheus")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError(f"{self.name}: a label is named twice")
        if (self.kind is MetricKind.HISTOGRAM) != bool(self.buckets) or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"{self.name}: a histogram, and nothing else, has rising buckets")
        if self.buckets and ("le" in self.labels or not all(0 <= bound < inf for bound in self.buckets)):
            raise ValueError(f"{self.name}: bucket bounds are finite and not negative, and le is theirs")
        if not self.help:
            raise ValueError(f"{self.name}: help is missing")

    @property
    def unit(self) -> str:
        """Return the base unit that the name ends in, or an empty text."""
        stem = self.name.removesuffix("_total")
        return next((unit for unit in UNITS if stem.endswith(f"_{unit}")), "")


UNITS = ("seconds", "bytes", "ratio", "joules", "watts", "celsius")
"""Base units a metric name may end in."""


@dataclass(frozen=True, slots=True)
class Family:
    """Hold one metric with the samples of one scrape."""

    metric: Metric
    samples: Samples = field(default_factory=dict)


def gauge(name: str, help: str, *labels: str) -> Metric:
    """Declare a gauge."""
    return Metric(name=name, kind=MetricKind.GAUGE, help=help, labels=labels)


def counter(name: str, help: str, *labels: str) -> Metric:
    """Declare a counter; its name ends in ``_total``."""
    if not name.endswith("_total"):
        raise ValueError(f"{name}: a counter ends in _total")
    return Metric(name=name, kind=MetricKind.COUNTER, help=help, labels=labels)


def info(name: str, help: str, *labels: str) -> Metric:
    """Declare an info metric; its name ends in ``_info`` and its value is always 1."""
    if not name.endswith("_info"):
        raise ValueError(f"{name}: an info metric ends in _info")
    return Metric(name=name, kind=MetricKind.INFO, help=help, labels=labels)


def histogram(name: str, help: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    """Declare a histogram with its upper bounds, infinity left out."""
    return Metric(name=name, kind=MetricKind.HISTOGRAM, help=help, labels=labels, buckets=buckets)


def seed_gauge(name: str, help: str, *labels: str) -> Metric:
    """Declare a gauge under a name that an older tool made known."""
    return Metric(name=name, kind=MetricKind.GAUGE, help=help, labels=labels, is_seed=True)


def seed_counter(name: str, help: str, *labels: str) -> Metric:
    """Declare a counter under a name that an older tool made known, with or without ``_total``."""
    return Metric(name=name, kind=MetricKind.COUNTER, help=help, labels=labels, is_seed=True)
