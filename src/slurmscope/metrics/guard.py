# SPDX-License-Identifier: Apache-2.0
"""Keep every page valid: clean samples, drop invalid ones and count them.

Label values come from users (job names, comments), from files and from the network. With one value that is not UTF-8,
Prometheus rejects the whole page; duplicates, type conflicts or a million new series do harm unnoticed. The guard
stands between the collectors and the writers and passes valid families only.
"""

from __future__ import annotations

import enum
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain, islice
from math import isfinite
from typing import cast

from slurmscope.metrics.family import Family, Histogram, Labels, Metric, MetricKind, Samples, Value

_ROWS_PER_CHECK = 2000
_SURROGATE = re.compile("[\ud800-\udfff]")
_ELLIPSIS = "…"

_DERIVED = {
    MetricKind.COUNTER: ("_total", "_created"),
    MetricKind.INFO: ("_info",),
    MetricKind.HISTOGRAM: ("_bucket", "_count", "_sum", "_created"),
}
"""Sample names that belong to a family in one format or the other."""


class Reason(enum.StrEnum):
    """Why a sample was dropped; used as a label value."""

    DUPLICATE = "duplicate"
    TYPE_CLASH = "type_clash"
    LABELS = "labels"
    VALUE = "value"
    LIMIT = "limit"


class Guard:
    """Pass valid families and count dropped samples; one guard is used for all pages of a service.

    ``series_limit`` is per metric: series above it are dropped, but never one that was on the previous page.
    ``label_length_limit`` counts characters, not bytes, so that truncation never splits one.

    No sample makes the guard raise. Exceptions of a lazy iterable pass through as failures of its collector. Not
    thread-safe: the caller holds a lock, also while it iterates over the result of :meth:`admit`.
    """

    def __init__(self, *, series_limit: int = 100_000, label_length_limit: int = 1024) -> None:
        self._series_limit = series_limit
        self._label_length_limit = label_length_limit
        self._dropped: Counter[tuple[str, str]] = Counter()
        # By metric, not by page: a page without a metric must not reset the series known for it.
        self._served: dict[str, array[int]] = {}

    @property
    def dropped(self) -> Mapping[tuple[str, str], int]:
        """Return how many samples were dropped since the start, by metric name and :class:`Reason`."""
        return dict(self._dropped)

    def admit(self, families: Iterable[Family]) -> Iterator[Family]:
        """Yield the clean families of one page, their samples in a ``dict``; families without samples are left out.

        A metric may appear once.
        """
        taken: dict[str, Metric] = {}
        rows = _Rows(self._label_length_limit)
        for family in families:
            metric = family.metric
            if reason := _conflict(metric, taken):
                self._drop(metric, reason, _size(family.samples))
                continue
            samples = self._capped(metric, self._clean(metric, family.samples, rows), rows)
            if samples:
                taken.update(dict.fromkeys(used_names(metric), metric))
                yield Family(metric, samples)

    def _drop(self, metric: Metric, reason: Reason, count: int = 1) -> None:
        if count:
            self._dropped[metric.name, reason] += count

    def _clean(self, metric: Metric, samples: Samples, rows: _Rows) -> dict[Labels, Value]:
        if isinstance(samples, dict) and _are_servable(metric, samples) and rows.are_clean(samples, metric):
            return samples
        clean: dict[Labels, Value] = {}
        for labels, value in _pairs(samples):
            clean_labels = self._clean_labels(metric, labels)
            clean_value = _clean_value(metric, value)
            if clean_labels is None:
                self._drop(metric, Reason.LABELS)
            elif clean_value is None:
                self._drop(metric, Reason.VALUE)
            elif clean_labels in clean:
                self._drop(metric, Reason.DUPLICATE)
            else:
                clean[clean_labels] = clean_value
        return clean

    def _clean_labels(self, metric: Metric, labels: object) -> Labels | None:
        if not isinstance(labels, tuple) or len(labels) != len(metric.labels):
            return None
        try:
            joined = "".join(labels)
        except TypeError:
            return None
        # ASCII, and together no longer than one value may be: nothing to do in nearly all cases.
        if joined.isascii() and len(joined) <= self._label_length_limit:
            return labels
        return tuple(map(self._clean_text, labels))

    def _clean_text(self, value: str) -> str:
        if len(value) > self._label_length_limit:
            value = value[: self._label_length_limit - 1] + _ELLIPSIS
        return _SURROGATE.sub("\ufffd", value)

    def _capped(self, metric: Metric, samples: dict[Labels, Value], rows: _Rows) -> dict[Labels, Value]:
        """Drop new series above the limit, and store which ones are served."""
        excess = len(samples) - self._series_limit
        if excess > 0:
            self._drop(metric, Reason.LIMIT, excess)
            samples = self._without_newest(metric, samples)
        self._served[metric.name] = rows.hashes(samples)
        return samples

    def _without_newest(self, metric: Metric, samples: dict[Labels, Value]) -> dict[Labels, Value]:
        known = frozenset(self._served.get(metric.name, ()))
        is_old = [hash(labels) in known for labels in samples]
        room = self._series_limit - sum(is_old)
        kept: dict[Labels, Value] = {}
        for (labels, value), is_known in zip(samples.items(), is_old, strict=True):
            if is_known or room > 0:
                kept[labels] = value
                room -= not is_known
        # Hash collisions could make more series look known than there are.
        return dict(islice(kept.items(), self._series_limit))


class _Rows:
    """Check label sets, and cache the last ones: the next family often has the same (one job, many metrics)."""

    def __init__(self, length_limit: int) -> None:
        self._length_limit = length_limit
        self._clean: list[Labels] = []
        self._hashed: list[Labels] = []
        self._hashes: array[int] = array("q")

    def are_clean(self, samples: Mapping[Labels, Value], metric: Metric) -> bool:
        """Return whether all label sets can be served unchanged; False means that each must be checked."""
        if set(map(type, samples)) != {tuple} or set(map(len, samples)) != {len(metric.labels)}:
            return False
        rows = list(samples)
        if rows != self._clean:
            if not all(self._are_plain(rows[i : i + _ROWS_PER_CHECK]) for i in range(0, len(rows), _ROWS_PER_CHECK)):
                return False
            self._clean = rows
        return True

    def _are_plain(self, rows: list[Labels]) -> bool:
        try:
            texts = list(map("".join, rows))
        except TypeError:
            return False
        joined = "".join(texts)
        if not joined.isascii() and _SURROGATE.search(joined):
            return False
        # A row that is no longer than the limit has no value that is too long.
        return max(map(len, texts)) <= self._length_limit or self._has_no_long_value(rows)

    def _has_no_long_value(self, rows: list[Labels]) -> bool:
        return max(map(len, chain.from_iterable(rows))) <= self._length_limit

    def hashes(self, samples: Mapping[Labels, Value]) -> array[int]:
        """Return the hashes of the label sets: eight bytes each are kept until the next scrape."""
        rows = list(samples)
        if rows != self._hashed:
            self._hashed = rows
            self._hashes = array("q", map(hash, rows))
        return self._hashes


def _conflict(metric: Metric, taken: Mapping[str, Metric]) -> Reason | None:
    if other := next((taken[name] for name in used_names(metric) if name in taken), None):
        return Reason.DUPLICATE if _shape(other) == _shape(metric) else Reason.TYPE_CLASH
    return None


def used_names(metric: Metric) -> set[str]:
    """Return every name that the metric uses in either format."""
    stem = metric.name
    suffixes = _DERIVED.get(metric.kind, ())
    if metric.kind is not MetricKind.HISTOGRAM:
        if not suffixes or not stem.endswith(suffixes[0]):
            return {stem}
        stem = stem.removesuffix(suffixes[0])
    return {stem, *(stem + suffix for suffix in suffixes)}


def _shape(metric: Metric) -> tuple[object, ...]:
    return metric.name, metric.kind, metric.labels, metric.buckets


def _size(samples: Samples) -> int:
    return len(samples) if isinstance(samples, Sized) else sum(1 for _ in samples)


def _pairs(samples: Samples) -> Iterator[tuple[object, object]]:
    """Yield label sets with values, ``(None, None)`` for anything that is not a pair."""
    items: Iterable[object] = samples.items() if isinstance(samples, Mapping) else samples
    for item in items:
        yield item if isinstance(item, tuple) and len(item) == 2 else (None, None)


def _are_servable(metric: Metric, samples: Mapping[Labels, Value]) -> bool:
    """Return whether all values are plain finite numbers valid for the kind; False means that each must be checked."""
    if metric.kind is MetricKind.HISTOGRAM or not set(map(type, samples.values())) <= {int, float}:
        return False
    values = cast("Iterable[float]", samples.values())
    try:
        is_finite = all(map(isfinite, values))
    except OverflowError:
        return False
    if metric.kind is MetricKind.INFO:
        return set(values) <= {1}
    return is_finite and (metric.kind is not MetricKind.COUNTER or min(values, default=0) >= 0)


def _clean_value(metric: Metric, value: object) -> Value | None:
    if metric.kind is MetricKind.HISTOGRAM:
        return _clean_histogram(metric, value)
    number = _clean_number(value)
    if number is None or (metric.kind is MetricKind.INFO and number != 1):
        return None
    # OpenMetrics has no counter that is negative or not a number.
    if metric.kind is MetricKind.COUNTER and not number >= 0:
        return None
    return number


def _clean_number(value: object) -> float | None:
    """Return a plain int or float: True is 1; None for a number too large for a float."""
    if isinstance(value, float):
        return float.__float__(value)
    if not isinstance(value, int):
        return None
    try:
        isfinite(value)
    except OverflowError:
        return None
    return int.__int__(value)


def _clean_histogram(metric: Metric, value: object) -> Histogram | None:
    if not isinstance(value, Histogram) or not isinstance(cast("object", value.counts), tuple):
        return None
    counts = [count for count in map(_clean_count, value.counts) if count is not None]
    total = _clean_number(value.total)
    if not len(counts) == len(value.counts) == len(metric.buckets) + 1 or _clean_count(sum(counts)) is None:
        return None
    # A sum below zero or not a number would cost the whole page in OpenMetrics.
    return Histogram(tuple(counts), total) if total is not None and total >= 0 else None


def _clean_count(value: object) -> int | None:
    number = _clean_number(value) if isinstance(value, int) else None
    return int(number) if number is not None and number >= 0 else None
