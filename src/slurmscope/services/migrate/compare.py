# SPDX-License-Identifier: Apache-2.0
"""Compare two metrics pages, and find what a dashboard that was written for the first would lose with the second.

Series are compared over the labels that both pages have, summed over all others, as PromQL's ``sum by`` does. The
labels ``job`` and ``instance`` are left out: Prometheus sets them when it scrapes.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurmscope.metrics.parse import ParsedFamily, Type

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
    """Hold one difference of one metric; ``values`` are those of a label that only the old page has."""

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
