# SPDX-License-Identifier: Apache-2.0
"""Select the metrics that an exporter serves: by profile, by older names, and by a regular expression.

The metrics of the profile ``reports`` are handed in; see :mod:`slurmscope.jobs.report_metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from slurmscope.core.config import Config, Resolved
from slurmscope.exporter.collector import Collector, Role
from slurmscope.exporter.settings import MetricsProfile, MetricsProfileSettings, MetricsSettings
from slurmscope.metrics.family import Family, Metric

STEPS_KEY = "collector.job_use.steps"


@dataclass(frozen=True, slots=True)
class ReportMetrics:
    """The metrics of the profile ``reports``, and the label values to which some of them are restricted."""

    names: frozenset[str] = frozenset()
    conditions: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)


def resolve_profile(config: Config, role: Role) -> Config:
    """Enable the series of steps in the profile ``full``, unless they are disabled explicitly."""
    if find_profile(config, role) is not MetricsProfile.FULL or not config.is_default(STEPS_KEY):
        return config
    return replace(config, values={**config.values, STEPS_KEY: Resolved(True, "metrics.profile")})


def find_profile(config: Config, role: Role) -> MetricsProfile:
    """Return the profile of an exporter; only the node agent has others than the standard."""
    return MetricsProfile(config.of(MetricsProfileSettings).profile) if role is Role.NODE else MetricsProfile.STANDARD


def wanted_metrics(
    config: Config, role: Role, collectors: Iterable[Collector], reports: ReportMetrics
) -> Callable[[Metric], bool]:
    """Return the filter for the metrics to export.

    Collectors that are off by default are not part of a profile: a site that enables one wants its metrics.
    """
    settings = config.of(MetricsSettings)
    excluded = re.compile(settings.exclude) if settings.exclude else None
    further = {metric.name for c in collectors if not c.is_default for metric in c.metrics}
    names = reports.names | further if find_profile(config, role) is MetricsProfile.REPORTS else None

    def is_wanted(metric: Metric) -> bool:
        if names is not None and metric.name not in names:
            return False
        return (settings.compat or not metric.is_compat) and not (excluded and excluded.search(metric.name))

    return is_wanted


def wanted_samples(config: Config, role: Role, reports: ReportMetrics) -> Callable[[Family], Family]:
    """Return the function that leaves the wanted samples of a family, such as the one event that reports query."""
    if find_profile(config, role) is not MetricsProfile.REPORTS:
        return lambda family: family

    def narrow(family: Family) -> Family:
        condition = reports.conditions.get(family.metric.name)
        return _select(family, *condition) if condition else family

    return narrow


def _select(family: Family, label: str, values: frozenset[str]) -> Family:
    position = family.metric.labels.index(label)
    samples = family.samples.items() if isinstance(family.samples, Mapping) else family.samples
    return Family(family.metric, {labels: value for labels, value in samples if labels[position] in values})
