# SPDX-License-Identifier: Apache-2.0
"""Find the metrics that expressions of rules and dashboards query, and those that slurmscope has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from slurmscope.cli.roles import all_collectors, feature_metrics
from slurmscope.exporter.collector import Role
from slurmscope.exporter.self_metrics import SELF_METRICS
from slurmscope.metrics.family import MetricKind
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
    collectors = [metric for role in Role for collector in all_collectors(role) for metric in collector.metrics]
    names: set[str] = set()
    for metric in (*collectors, *feature_metrics(Role.CLUSTER), *SELF_METRICS, *PORTAL_METRICS):
        if not metric.is_compat:
            is_histogram = metric.kind is MetricKind.HISTOGRAM
            ends = ("_bucket", "_sum", "_count") if is_histogram else ("",)
            names |= {metric.name + end for end in ends}
    return names | OF_PROMETHEUS
