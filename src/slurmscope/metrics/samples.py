# SPDX-License-Identifier: Apache-2.0
"""Split families into single samples, as a scrape of the page finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from math import inf
from typing import cast

from slurmscope.metrics.family import Family, Histogram, Labels, MetricKind
from slurmscope.metrics.write import spell_bound

SampleGroup = tuple[str, tuple[str, ...], Iterable[tuple[Labels, float]]]
"""The name of samples, the names of their labels, and the samples."""


def flat_samples(family: Family) -> Iterator[SampleGroup]:
    """Yield the samples of a family by their name; those of a histogram have three."""
    metric = family.metric
    items = family.samples.items() if isinstance(family.samples, Mapping) else family.samples
    if metric.kind is not MetricKind.HISTOGRAM:
        yield metric.name, metric.labels, cast("Iterable[tuple[Labels, float]]", items)
        return
    histograms = list(cast("Iterable[tuple[Labels, Histogram]]", items))
    bounds = [spell_bound(bound) for bound in (*metric.buckets, inf)]
    buckets = (
        ((*labels, bound), float(count))
        for labels, histogram in histograms
        for bound, count in zip(bounds, accumulate(histogram.counts), strict=True)
    )
    yield f"{metric.name}_bucket", (*metric.labels, "le"), buckets
    yield f"{metric.name}_count", metric.labels, [(labels, float(sum(h.counts))) for labels, h in histograms]
    yield f"{metric.name}_sum", metric.labels, [(labels, h.total) for labels, h in histograms]
