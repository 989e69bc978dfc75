# SPDX-License-Identifier: Apache-2.0
"""Declare metrics once and hold their samples as plain data.

A :class:`Metric` is the declaration: one constant per metric, beside the code that measures it. A :class:`Family` is
that declaration with the samples of one page. Families are built fresh for each page and never changed afterwards, so
there are no stale label sets and no locks.
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
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Histogram:
    """One histogram: ``counts[i]`` events fell into bucket ``i``, the last bucket has no upper bound.

    Counts are per bucket, not cumulative; the writers accumulate them.
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

    ``name`` is the name of its samples, including ``_total`` or ``_info``. ``is_compat`` marks a name kept for
    dashboards of the tools that slurmscope replaces; ``metrics.compat = false`` drops it, and only such a name may
    break the naming conventions.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    is_compat: bool = False

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ValueError(f"metric name {self.name!r} is not valid")
        for label in self.labels:
            if not _NAME.match(label) or label.startswith("__"):
                raise ValueError(f"{self.name}: label name {label!r} is not valid")
            if label in _RESERVED_LABELS and not self.is_compat:
                raise ValueError(f"{self.name}: label {label!r} is reserved by Prometheus")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError(f"{self.name}: a label is declared twice")
        if (self.kind is MetricKind.HISTOGRAM) != bool(self.buckets) or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"{self.name}: a histogram, and nothing else, has increasing buckets")
        if self.buckets and ("le" in self.labels or not all(0 <= bound < inf for bound in self.buckets)):
            raise ValueError(f"{self.name}: bucket bounds must be finite and not negative, and le is reserved for them")
        if not self.help:
            raise ValueError(f"{self.name}: help is missing")

    @property
    def unit(self) -> str:
        """Return the base unit that the name ends in, or an empty string."""
        stem = self.name.removesuffix("_total")
        return next((unit for unit in UNITS if stem.endswith(f"_{unit}")), "")


UNITS = ("seconds", "bytes", "ratio", "joules", "watts", "celsius")
"""Base units that metric names may end in."""


@dataclass(frozen=True, slots=True)
class Family:
    metric: Metric
    samples: Samples = field(default_factory=dict)


def gauge(name: str, help: str, *labels: str) -> Metric:
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
    """Declare a histogram with its upper bounds, without infinity."""
    return Metric(name=name, kind=MetricKind.HISTOGRAM, help=help, labels=labels, buckets=buckets)


def compat_gauge(name: str, help: str, *labels: str) -> Metric:
    """Declare a gauge under the name that an older tool used."""
    return Metric(name=name, kind=MetricKind.GAUGE, help=help, labels=labels, is_compat=True)


def compat_counter(name: str, help: str, *labels: str) -> Metric:
    """Declare a counter under the name that an older tool used, with or without ``_total``."""
    return Metric(name=name, kind=MetricKind.COUNTER, help=help, labels=labels, is_compat=True)
