# SPDX-License-Identifier: Apache-2.0
"""Check what dashboards would lose when a replaced exporter is switched off, and how to keep it.

Series are compared one by one, over the labels that both pages have, summed over all others, as PromQL's ``sum by``
does. The labels ``job`` and ``instance`` are left out: Prometheus sets them when it scrapes. A series that differs is
lost, unless a documented reason holds for its very numbers.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Metric
from slurmscope.metrics.parse import ParsedFamily, Type
from slurmscope.migrate import slurm_exporter
from slurmscope.migrate.old_systems import (
    CLUSTER_EXPORTER,
    JOBS_EXPORTER,
    PROFILE_PLUGIN,
    PSEUDO_EXPORTER,
    OldMetrics,
    OldSystem,
    Pages,
    SeriesChange,
    is_close,
)
from slurmscope.migrate.other_exporters import CEEMS, CGROUP_EXPORTER, JOBSTATS, SCKYZO
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
    SERIES = "series"
    VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference of one metric; ``values`` are those of a label that only the old page has, or examples."""

    kind: Kind
    metric: str
    message: str
    label: str = ""
    renamed_to: str = ""
    values: tuple[str, ...] = ()
    factor: float | None = None


def compare(old: ParsedFamily, ours: ParsedFamily | None) -> Iterator[Difference]:
    """Yield what differs in name, type and labels between a family of the old page and ours of the same name."""
    if ours is None or not ours.samples:
        yield Difference(kind=Kind.MISSING, metric=old.name, message="is not served")
        return
    if ours.type is not old.type and Type.UNKNOWN not in {old.type, ours.type}:
        message = f"is a {ours.type.value}; it was a {old.type.value}"
        yield Difference(kind=Kind.TYPE, metric=old.name, message=message)
    old_values, our_values = _label_values(old), _label_values(ours)
    for label in sorted(old_values.keys() - our_values.keys()):
        yield _missing_label(old.name, label, old_values, our_values)


def find_changes(old: ParsedFamily, ours: ParsedFamily, *, tolerance: float) -> Iterator[SeriesChange]:
    """Yield each series that is missing or has another value; counters depend on when their exporter started."""
    old_values, our_values = _label_values(old), _label_values(ours)
    labels = sorted(old_values.keys() & our_values.keys())
    before, after = _sums(old, labels), _sums(ours, labels)
    are_counters = Type.COUNTER in {old.type, ours.type}
    for key, was in before.items():
        now = after.get(key)
        named = dict(zip(labels, key[1:], strict=True))
        if now is None:
            is_same = any(named[label] not in our_values[label] for label in SHORT_LIVED_LABELS & named.keys())
        else:
            is_same = are_counters or _is_same(was, now, tolerance)
        if not is_same:
            yield SeriesChange(old.name, named, was, now)


def _is_same(was: float, now: float, tolerance: float) -> bool:
    if was == now or (math.isnan(was) and math.isnan(now)):
        return True
    return was * now > 0 and 1 / (1 + tolerance) <= now / was <= 1 + tolerance


def describe(changes: Sequence[SeriesChange], ours: ParsedFamily) -> Iterator[Difference]:
    """Yield in one sentence each what happened to these series of one metric: those that are missing, and values."""
    missing = [change for change in changes if change.now is None]
    if missing:
        yield _lost_series(missing, _label_values(ours))
    changed = [change for change in changes if change.now is not None]
    if changed:
        yield _changed_values(changed)


def _lost_series(missing: Sequence[SeriesChange], ours: Mapping[str, frozenset[str]]) -> Difference:
    """Name the label whose values are all gone, or else the labels of the series."""
    metric = missing[0].metric
    for label in sorted({label for change in missing for label in change.labels}):
        values = {change.labels.get(label, "") for change in missing}
        if not values & ours.get(label, frozenset()):
            some = "1 value" if len(values) == 1 else f"{len(values):,} values"
            message = f"has no series for {some} of {label}"
            found = tuple(sorted(values))
            return Difference(kind=Kind.LABEL_VALUES, metric=metric, label=label, values=found, message=message)
    shown = tuple(sorted(_labels_text(change) for change in missing))
    message = f"has no series for {len(shown):,} combination{'s' * (len(shown) > 1)} of labels"
    return Difference(kind=Kind.SERIES, metric=metric, values=shown, message=message)


def _changed_values(changed: Sequence[SeriesChange]) -> Difference:
    """Name the factor if all series have the same one, or else what each series was and is."""
    metric = changed[0].metric
    factors = [change.now / change.was for change in changed if change.was and change.now]
    if len(factors) == len(changed) and all(is_close(each, factors[0]) for each in factors):
        message = f"is {factors[0]:.4g} times the old value{_unit_hint(factors[0])}"
        return Difference(kind=Kind.VALUE, metric=metric, factor=factors[0], message=message)
    if not any(change.now for change in changed):
        return Difference(kind=Kind.VALUE, metric=metric, factor=0.0, message=f"is 0 here{_in_series(changed)}")
    shown = tuple(f"{_labels_text(change)}: {change.was:.6g}, now {change.now:.6g}" for change in changed)
    return Difference(kind=Kind.VALUE, metric=metric, values=shown, message=f"differs{_in_series(changed)}")


def _in_series(changed: Sequence[SeriesChange]) -> str:
    return f" in {len(changed):,} series" if len(changed) > 1 else ""


def _labels_text(change: SeriesChange) -> str:
    return ",".join(f"{label}={value}" for label, value in change.labels.items()) or "without labels"


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
    JOBS_EXPORTER,
    PSEUDO_EXPORTER,
    CLUSTER_EXPORTER,
    PROFILE_PLUGIN,
    SCKYZO,
    CEEMS,
    CGROUP_EXPORTER,
    JOBSTATS,
)


@lru_cache(maxsize=1)
def known_metrics() -> Mapping[str, tuple[OldSystem, OldMetrics]]:
    """Return the tool and the description of each name."""
    return {name: (system, metrics) for system in SYSTEMS for name, metrics in system.by_name().items()}


DEFAULT_TOLERANCE = 0.04
"""Below the 4.9 % between a megabyte and a MiB."""

_OTHERS = re.compile(r"(?:go|promhttp|python|push|pushgateway|node|scrape|slurmscope)_")
"""Metrics of runtimes, gateways and node_exporter, which share a page with those of the replaced tools."""


_OWN = "process_"
"""Metrics that each exporter has of itself: their names stay, their values are others."""


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
        """Return whether a dashboard loses something: a series that changed for a documented reason is none."""
        is_of_series = self.difference.kind in {Kind.VALUE, Kind.LABEL_VALUES, Kind.SERIES}
        return not is_of_series or not self.documented


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
    pages = Pages(old, ours)
    losses = [loss for family in wanted for loss in _find_losses(family, pages, declared, tolerance)]
    return PageComparison(
        compared=len(wanted),
        left_out=len(old) - len(wanted),
        has_instance=any(TARGET_LABELS & sample.labels.keys() for family in wanted for sample in family.samples),
        losses=tuple(losses),
    )


def _find_losses(
    old: ParsedFamily, pages: Pages, declared: Mapping[str, Declared], tolerance: float
) -> Iterator[LostMetric]:
    """Yield what differs of one family: first what no reason explains, then what each reason explains."""
    system, metrics = known_metrics().get(old.name, (None, OldMetrics(names=(old.name,))))
    page = f"docs/migrate/{system.page}.md" if system else ""
    ours = pages.ours.get(old.name)
    for difference in compare(old, ours):
        documented = metrics.missing if difference.kind is Kind.MISSING and old.name not in declared else ""
        remedy = _remedy(difference, pages.ours, declared)
        yield LostMetric(difference=difference, remedy=remedy, documented=documented, page=page)
    if ours is None or not ours.samples:
        return
    by_reason: dict[str, list[SeriesChange]] = {"": []}
    for change in find_changes(old, ours, tolerance=tolerance):
        if change.now is None or not (metrics.is_volatile or old.name.startswith(_OWN)):
            reason = next((each.text for each in metrics.reasons if each.explains(change, pages)), "")
            by_reason.setdefault(reason, []).append(change)
    for documented, changes in by_reason.items():
        for difference in describe(changes, ours):
            yield LostMetric(difference=difference, documented=documented, page=page)


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
