# SPDX-License-Identifier: Apache-2.0
"""Select the metrics that an exporter serves: by profile, by older names, and by a regular expression.

The profile ``reports`` follows from the queries of job reports and from the rules in ``deploy/rules``, so that a large
site stores no series that slurmscope does not query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from slurmscope.core.config import Config, Resolved
from slurmscope.exporter.collector import Role, all_collectors
from slurmscope.exporter.settings import MetricsProfile, MetricsProfileSettings, MetricsSettings
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.series import SeriesQuery
from slurmscope.metrics.family import Family, Metric

STEPS_KEY = "collector.job_use.steps"


RULE_METRICS = frozenset(
    {
        "slurmscope_collector_success",
        "slurmscope_config_last_reload_successful",
        "slurmscope_reading_age_seconds",
        "slurmscope_remote_write_dropped_samples_total",
        "slurmscope_series_dropped_total",
    }
)
"""Metrics of an agent that only the rules in ``deploy/rules`` query."""


def common_conditions(queries: Iterable[SeriesQuery]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the label and its values to which all queries of a metric are restricted, where they are."""
    by_metric: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for query in queries:
        by_metric.setdefault(query.metric, []).append(query.where)
    return {
        metric: (labels.pop(), frozenset(value for where in conditions for _, value in where))
        for metric, conditions in by_metric.items()
        if all(len(where) == 1 for where in conditions)
        and len(labels := {label for where in conditions for label, _ in where}) == 1
    }


REPORT_QUERIES = tuple(query for query in (*CURVES.values(), *TOTALS.values()) if not query.is_foreign)
REPORTS_METRICS = RULE_METRICS | {query.metric for query in REPORT_QUERIES}
"""Metrics of the profile ``reports``."""
REPORTS_CONDITIONS = common_conditions(REPORT_QUERIES)
"""Those of them that are exported with some values of a label only."""


def resolve_profile(config: Config, role: Role) -> Config:
    """Enable the series of steps in the profile ``full``, unless they are disabled explicitly."""
    if find_profile(config, role) is not MetricsProfile.FULL or not config.is_default(STEPS_KEY):
        return config
    return replace(config, values={**config.values, STEPS_KEY: Resolved(True, "metrics.profile")})


def find_profile(config: Config, role: Role) -> MetricsProfile:
    """Return the profile of an exporter; only the node agent has others than the standard."""
    return MetricsProfile(config.of(MetricsProfileSettings).profile) if role is Role.NODE else MetricsProfile.STANDARD


def wanted_metrics(config: Config, role: Role) -> Callable[[Metric], bool]:
    """Return the filter for the metrics to export.

    Collectors that are off by default are not part of a profile: a site that enables one wants its metrics.
    """
    settings = config.of(MetricsSettings)
    excluded = re.compile(settings.exclude) if settings.exclude else None
    further = {metric.name for c in all_collectors(role) if not c.is_default for metric in c.metrics}
    names = REPORTS_METRICS | further if find_profile(config, role) is MetricsProfile.REPORTS else None

    def is_wanted(metric: Metric) -> bool:
        if names is not None and metric.name not in names:
            return False
        return (settings.compat or not metric.is_compat) and not (excluded and excluded.search(metric.name))

    return is_wanted


def wanted_samples(config: Config, role: Role) -> Callable[[Family], Family]:
    """Return the function that leaves the wanted samples of a family, such as the one event that reports query."""
    if find_profile(config, role) is not MetricsProfile.REPORTS:
        return lambda family: family

    def narrow(family: Family) -> Family:
        condition = REPORTS_CONDITIONS.get(family.metric.name)
        return _select(family, *condition) if condition else family

    return narrow


def _select(family: Family, label: str, values: frozenset[str]) -> Family:
    position = family.metric.labels.index(label)
    samples = family.samples.items() if isinstance(family.samples, Mapping) else family.samples
    return Family(family.metric, {labels: value for labels, value in samples if labels[position] in values})
