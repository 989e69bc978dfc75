# SPDX-License-Identifier: Apache-2.0
"""Find the metrics that expressions of rules and dashboards query, and those that slurmscope has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from slurmscope.cli.roles import all_collectors, feature_metrics
from slurmscope.exporter.collector import Role
from slurmscope.exporter.self_metrics import SELF_METRICS
from slurmscope.metrics.family import Metric, MetricKind
from slurmscope.portal.metrics import PORTAL_METRICS

OF_PROMETHEUS = {"up", "scrape_samples_scraped", "scrape_duration_seconds"}
"""Prometheus makes these itself."""


def queried_names(expressions: Iterable[str]) -> set[str]:
    """Return the metrics that expressions query: words outside of braces, quotes and lists of labels."""
    without_labels = (re.sub(r"\b(?:by|without|on) *\([^)]*\)", "", expression) for expression in expressions)
    text = " ".join(re.sub(r"\{[^}]*\}", "", re.sub(r'"[^"]*"', "", expression)) for expression in without_labels)
    return set(
        re.findall(
            r"(?<![\w:])(?:slurm_|jobs_|gpu_|slurmscope_|cluster_filesystem_|process_|scrape_)\w+(?!\w*:)\b|\bup\b",
            text,
        )
    )


def declared_names() -> set[str]:
    """Return the names of all series under their newer names."""
    return declared_labels().keys() | OF_PROMETHEUS


def declared_labels() -> dict[str, set[str]]:
    """Return the labels of all series by newer name; those that Prometheus adds are left out."""
    return {
        metric.name + end: {*metric.labels, *(("le",) if end == "_bucket" else ())}
        for metric in _declared()
        if not metric.is_compat
        for end in (("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",))
    }


def _declared() -> Iterator[Metric]:
    for role in Role:
        for collector in all_collectors(role):
            yield from collector.metrics
    yield from (*feature_metrics(Role.CLUSTER), *SELF_METRICS, *PORTAL_METRICS)


def selected_labels(expressions: Iterable[str]) -> set[tuple[str, str]]:
    """Return the pairs of metric and label in the selectors of expressions, ``{label="value"}``."""
    return {
        (name, label)
        for expression in expressions
        for name, selector in re.findall(r"([a-zA-Z_:][\w:]*)\{([^{}]*)\}", expression)
        for label in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', selector)
    }
