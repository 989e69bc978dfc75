# SPDX-License-Identifier: Apache-2.0
"""Check what dashboards would lose when a replaced exporter is switched off, and how to keep it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Metric
from slurmscope.metrics.parse import ParsedFamily
from slurmscope.services.migrate.compare import TARGET_LABELS, Difference, Kind, compare
from slurmscope.services.migrate.old_system import OldMetrics
from slurmscope.services.migrate.pages import Page
from slurmscope.services.migrate.systems import known_metrics

DEFAULT_TOLERANCE = 0.04
"""Below the 4.9 % between a megabyte and a MiB."""

_OTHERS = re.compile(r"(?:go|process|promhttp|python|push|pushgateway|node|scrape|slurmscope)_")
"""Metrics of runtimes, gateways and node_exporter, which share a page with those of the replaced tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Hold a metric that slurmscope declares; ``collector`` is empty for metrics of Slurm commands."""

    role: Role
    metric: Metric
    collector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Hold one difference with what to do about it; ``documented`` is what the documentation says about the metric."""

    difference: Difference
    remedy: str = ""
    documented: str = ""
    page: str = ""

    @property
    def counts(self) -> bool:
        """Return whether a dashboard loses something: a documented correction of a value is none."""
        return self.difference.kind is not Kind.VALUE or not self.documented


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Hold the result of a check."""

    compared: int
    left_out: int
    has_instance: bool
    losses: tuple[Loss, ...]

    @property
    def is_lossless(self) -> bool:
        """Return whether a dashboard loses nothing."""
        return not any(loss.counts for loss in self.losses)


def find_roles(old: Page, declared: Mapping[str, Declared]) -> tuple[Role, ...]:
    """Return the exporters that serve metrics of the old page."""
    roles = {declared[name].role for name in old if name in declared}
    return tuple(role for role in Role if role in roles)


def check_pages(
    old: Page, ours: Page, declared: Mapping[str, Declared], *, tolerance: float = DEFAULT_TOLERANCE
) -> Comparison:
    """Compare every family of the old page that belongs to a replaced tool with ours."""
    known = known_metrics()
    wanted = [family for name, family in old.items() if family.samples and (name in known or not _OTHERS.match(name))]
    losses = [
        _explain(difference, ours, declared)
        for family in wanted
        for difference in compare(family, ours.get(family.name), tolerance=tolerance)
        if not (difference.kind is Kind.VALUE and _is_volatile(difference.metric))
    ]
    return Comparison(
        compared=len(wanted),
        left_out=len(old) - len(wanted),
        has_instance=any(TARGET_LABELS & sample.labels.keys() for family in wanted for sample in family.samples),
        losses=tuple(losses),
    )


def _is_volatile(name: str) -> bool:
    known = known_metrics().get(name)
    return known is not None and known[1].is_volatile


def _explain(difference: Difference, ours: Page, declared: Mapping[str, Declared]) -> Loss:
    known = known_metrics().get(difference.metric)
    remedy = _remedy(difference, ours, declared)
    if known is None:
        return Loss(difference=difference, remedy=remedy)
    system, metrics = known
    text = _documented(difference, metrics, is_declared=difference.metric in declared)
    return Loss(difference=difference, remedy=remedy, documented=text, page=f"docs/migrate/{system.page}.md")


def _documented(difference: Difference, metrics: OldMetrics, *, is_declared: bool) -> str:
    """Return what the documentation says about this difference; nothing if it says that the metric is the same."""
    if difference.kind is Kind.MISSING:
        return "" if is_declared else metrics.missing
    return "" if metrics.difference.startswith("same") else metrics.difference


def _remedy(difference: Difference, ours: Page, declared: Mapping[str, Declared]) -> str:
    if difference.renamed_to:
        return (
            f"Add to metric_relabel_configs: {{source_labels: [{difference.renamed_to}], "
            f"target_label: {difference.label}}}"
        )
    if difference.kind is not Kind.MISSING:
        return ""
    if difference.metric not in declared:
        return "" if difference.metric in known_metrics() else "slurmscope has no metric of this name."
    return _remedy_for_missing(declared[difference.metric], ours, declared)


def _remedy_for_missing(wanted: Declared, ours: Page, declared: Mapping[str, Declared]) -> str:
    """Return the flag that brings a metric, or why its collector has no value for it."""
    health = _collector_health(ours.get("slurmscope_collector_success"))
    # One page can hold those of both exporters.
    roles = {declared[name].role for name in ours if name in declared}
    if roles and wanted.role not in roles:
        return f"It is served by slurmscope {wanted.role.value}; give its page with --against as well."
    if wanted.collector and health and wanted.collector not in health:
        return f"Start slurmscope {wanted.role.value} with --collector.{wanted.collector}."
    if wanted.collector and health.get(wanted.collector) == 0:
        return f"The collector {wanted.collector} failed; slurmscope doctor {wanted.role.value} says why."
    if wanted.metric.is_compat and not any(name in ours for name in _compat_names(wanted.role, declared)):
        return f"Start slurmscope {wanted.role.value} with --metrics.compat."
    return "slurmscope has no value for it now; --metrics.exclude or PrivateData may hide it."


def _collector_health(family: ParsedFamily | None) -> Mapping[str, float]:
    return {sample.labels.get("collector", ""): sample.value for sample in family.samples} if family else {}


def _compat_names(role: Role, declared: Mapping[str, Declared]) -> Iterator[str]:
    return (name for name, one in declared.items() if one.role is role and one.metric.is_compat)


def declare(collectors: Iterable[Collector], of_commands: Iterable[Metric]) -> dict[str, Declared]:
    """Return all declared metrics by name; ``of_commands`` are those of the cluster exporter without a collector."""
    declared = {metric.name: Declared(role=Role.CLUSTER, metric=metric) for metric in of_commands}
    for collector in collectors:
        for metric in collector.metrics:
            # Of several collectors the first one counts: job_info has a metric for all jobs, traces for some of them.
            new = Declared(role=collector.role, metric=metric, collector=collector.name)
            declared.setdefault(metric.name, new)
    return declared
