# SPDX-License-Identifier: Apache-2.0
"""Check what dashboards would lose when a replaced exporter is switched off, and how to keep it.

Series are compared over the labels that both pages have, summed over all others, as PromQL's ``sum by`` does. The
labels ``job`` and ``instance`` are left out: Prometheus sets them when it scrapes.
"""

from __future__ import annotations

import enum
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Metric
from slurmscope.metrics.parse import ParsedFamily, Type
from slurmscope.migrate import old_systems as cluster_exporter
from slurmscope.migrate import old_systems as jobs_exporter
from slurmscope.migrate import old_systems as profile_plugin
from slurmscope.migrate import old_systems as pseudo_exporter
from slurmscope.migrate import slurm_exporter
from slurmscope.migrate.old_systems import OldMetrics, OldSystem
from slurmscope.migrate.pages import Page

TARGET_LABELS = frozenset({"job", "instance"})
SHORT_LIVED_LABELS = frozenset({"jobid", "slurm_job", "pgid", "pid"})
"""Labels whose values come and go with jobs and processes; two pages never have the same ones."""

UNIT_FACTORS = {
    1.048576: "1 MiB is 1,048,576 bytes, not 1,000,000",
    1.073741824: "1 GiB is 1,073,741,824 bytes, not 1,000,000,000",
    1.099511627776: "1 TiB is 1,099,511,627,776 bytes, not 1,000,000,000,000",
    1.024: "1,024 instead of 1,000",
    **{float(factor): "another unit" for factor in (60, 100, 1000, 1024, 3600, 10**6, 2**20, 10**9, 2**30)},
}
_UNIT_TOLERANCE = 0.002

Series = Mapping[tuple[str, ...], float]


class Kind(enum.StrEnum):
    """What differs."""

    MISSING = "missing"
    TYPE = "type"
    LABEL = "label"
    LABEL_VALUES = "label_values"
    VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference of one metric; ``values`` are those of a label that only the old page has."""

    kind: Kind
    metric: str
    message: str
    label: str = ""
    renamed_to: str = ""
    values: tuple[str, ...] = ()
    factor: float | None = None


def compare(old: ParsedFamily, ours: ParsedFamily | None, *, tolerance: float) -> Iterator[Difference]:
    """Yield what differs between a family of the old page and ours of the same name."""
    if ours is None or not ours.samples:
        yield Difference(kind=Kind.MISSING, metric=old.name, message="is not served")
        return
    if ours.type is not old.type and Type.UNKNOWN not in {old.type, ours.type}:
        message = f"is a {ours.type.value}; it was a {old.type.value}"
        yield Difference(kind=Kind.TYPE, metric=old.name, message=message)
    old_values, our_values = _label_values(old), _label_values(ours)
    for label in sorted(old_values.keys() - our_values.keys()):
        yield _missing_label(old.name, label, old_values, our_values)
    common = sorted(old_values.keys() & our_values.keys())
    for label in common:
        if (lost := old_values[label] - our_values[label]) and label not in SHORT_LIVED_LABELS:
            yield _lost_values(old.name, label, lost)
    yield from _compare_values(old, ours, common, tolerance)


def _missing_label(
    metric: str, label: str, old: Mapping[str, frozenset[str]], ours: Mapping[str, frozenset[str]]
) -> Difference:
    """Return the missing label, with the new one that has most of its values."""
    same = {new: len(old[label] & values) for new, values in ours.items() if new not in old}
    renamed = max(same, key=lambda new: (same[new], new), default="")
    if not renamed or 2 * same[renamed] <= len(old[label]):
        return Difference(kind=Kind.LABEL, metric=metric, label=label, message=f"has no label {label}")
    message = f"has the label {renamed} instead of {label}"
    return Difference(kind=Kind.LABEL, metric=metric, label=label, renamed_to=renamed, message=message)


def _lost_values(metric: str, label: str, lost: frozenset[str]) -> Difference:
    some = "1 value" if len(lost) == 1 else f"{len(lost):,} values"
    message = f"has no series for {some} of {label}"
    return Difference(kind=Kind.LABEL_VALUES, metric=metric, label=label, values=tuple(sorted(lost)), message=message)


def _compare_values(old: ParsedFamily, ours: ParsedFamily, labels: list[str], tolerance: float) -> Iterator[Difference]:
    """Compare gauges by the median of the ratios; counters depend on when their exporter started."""
    if Type.COUNTER in {old.type, ours.type}:
        return
    before, after = _sums(old, labels), _sums(ours, labels)
    pairs = [(before[key], after[key]) for key in before.keys() & after.keys()]
    ratios = [new / was for was, new in pairs if was and new and math.isfinite(new / was)]
    if not ratios:
        if any(was for was, _ in pairs):
            yield Difference(kind=Kind.VALUE, metric=old.name, factor=0.0, message="is 0 here")
        return
    factor = statistics.median(ratios)
    if not 1 / (1 + tolerance) <= factor <= 1 + tolerance:
        message = f"is {factor:.4g} times the old value{_unit_hint(factor)}"
        yield Difference(kind=Kind.VALUE, metric=old.name, factor=factor, message=message)


def _unit_hint(factor: float) -> str:
    for unit, hint in UNIT_FACTORS.items():
        if any(math.isclose(factor, known, rel_tol=_UNIT_TOLERANCE) for known in (unit, 1 / unit)):
            return f" ({hint})"
    return ""


def _label_values(family: ParsedFamily) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for sample in family.samples:
        for label, value in sample.labels.items():
            if label not in TARGET_LABELS:
                found.setdefault(label, set()).add(value)
    return {label: frozenset(values) for label, values in found.items()}


def _sums(family: ParsedFamily, labels: list[str]) -> Series:
    sums: dict[tuple[str, ...], float] = {}
    for sample in family.samples:
        key = (sample.name, *(sample.labels.get(label, "") for label in labels))
        sums[key] = sums.get(key, 0.0) + sample.value
    return sums


SYSTEMS: tuple[OldSystem, ...] = (
    slurm_exporter.SYSTEM,
    jobs_exporter.JOBS_EXPORTER,
    pseudo_exporter.PSEUDO_EXPORTER,
    cluster_exporter.CLUSTER_EXPORTER,
    profile_plugin.PROFILE_PLUGIN,
)


@lru_cache(maxsize=1)
def known_metrics() -> Mapping[str, tuple[OldSystem, OldMetrics]]:
    """Return the tool and the description of each name."""
    return {name: (system, metrics) for system in SYSTEMS for name, metrics in system.by_name().items()}


DEFAULT_TOLERANCE = 0.04
"""Below the 4.9 % between a megabyte and a MiB."""

_OTHERS = re.compile(r"(?:go|process|promhttp|python|push|pushgateway|node|scrape|slurmscope)_")
"""Metrics of runtimes, gateways and node_exporter, which share a page with those of the replaced tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A metric that slurmscope declares; ``collector`` is empty for metrics of Slurm commands."""

    role: Role
    metric: Metric
    collector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMetric:
    """One difference with what to do about it; ``documented`` is what the documentation says about the metric."""

    difference: Difference
    remedy: str = ""
    documented: str = ""
    page: str = ""

    @property
    def counts(self) -> bool:
        """Return whether a dashboard loses something: a documented correction of a value is none."""
        return self.difference.kind is not Kind.VALUE or not self.documented


@dataclass(frozen=True, slots=True, kw_only=True)
class PageComparison:
    """The result of a check."""

    compared: int
    left_out: int
    has_instance: bool
    losses: tuple[LostMetric, ...]

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
) -> PageComparison:
    """Compare every family of the old page that belongs to a replaced tool with ours."""
    known = known_metrics()
    wanted = [family for name, family in old.items() if family.samples and (name in known or not _OTHERS.match(name))]
    losses = [
        _explain(difference, ours, declared)
        for family in wanted
        for difference in compare(family, ours.get(family.name), tolerance=tolerance)
        if not (difference.kind is Kind.VALUE and _is_volatile(difference.metric))
    ]
    return PageComparison(
        compared=len(wanted),
        left_out=len(old) - len(wanted),
        has_instance=any(TARGET_LABELS & sample.labels.keys() for family in wanted for sample in family.samples),
        losses=tuple(losses),
    )


def _is_volatile(name: str) -> bool:
    known = known_metrics().get(name)
    return known is not None and known[1].is_volatile


def _explain(difference: Difference, ours: Page, declared: Mapping[str, Declared]) -> LostMetric:
    known = known_metrics().get(difference.metric)
    remedy = _remedy(difference, ours, declared)
    if known is None:
        return LostMetric(difference=difference, remedy=remedy)
    system, metrics = known
    text = _documented(difference, metrics, is_declared=difference.metric in declared)
    return LostMetric(difference=difference, remedy=remedy, documented=text, page=f"docs/migrate/{system.page}.md")


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
