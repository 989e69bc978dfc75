# SPDX-License-Identifier: Apache-2.0
"""Hold pushed families as text, label them, and find conflicts between them.

Pushed families differ from those of collectors: each series has labels of its own choice, and other programs chose
type and help. They are never changed, so each series is kept as the text that is served::

    PushedFamily("backup_seconds", Type.GAUGE, "…", {'backup_seconds{instance="",job="backup"}': "12.5"})
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from slurmscope.core.errors import MalformedAnswer, SlurmscopeError
from slurmscope.metrics.family import Metric, MetricKind
from slurmscope.metrics.guard import used_names
from slurmscope.metrics.parse import ParsedFamily, ParsedSample, Type
from slurmscope.metrics.write import spell_bound, spell_number

PUSH_TIME = "push_time_seconds"
FAILURE_TIME = "push_failure_time_seconds"
TIMES = frozenset({PUSH_TIME, FAILURE_TIME})
"""Set by the inbox itself; what a push says of them is ignored."""
_PROMETHEUS = re.compile(r"up\Z|ALERTS\Z|ALERTS_FOR_STATE\Z|scrape_")
"""Metrics that Prometheus makes itself: with ``honor_labels``, pushed ones would pass for those of any target."""
_SUFFIXES = {Type.HISTOGRAM: ("_bucket", "_count", "_sum"), Type.SUMMARY: ("_count", "_sum")}
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,4})?|inf(?:inity)?|nan)\Z", re.ASCII | re.IGNORECASE)
_BOUNDS = {Type.HISTOGRAM: "le", Type.SUMMARY: "quantile"}
_ALL_SUFFIXES = ("_bucket", "_count", "_sum")
_TYPES = {MetricKind.GAUGE: Type.GAUGE, MetricKind.COUNTER: Type.COUNTER}
_SHOWN_CHARACTERS = 100


class PushConflict(SlurmscopeError):
    """Pushed metrics are not valid beside those that exist."""


@dataclass(frozen=True, slots=True)
class PushedFamily:
    """One family of one group: numbers by series, both as they are served."""

    name: str
    type: Type
    help: str
    samples: Mapping[str, str]

    @property
    def used_names(self) -> frozenset[str]:
        return frozenset((self.name, *(self.name + suffix for suffix in _SUFFIXES.get(self.type, ()))))

    @property
    def header(self) -> str:
        """Return the lines before the samples; help is optional."""
        text = self.help.replace("\\", "\\\\").replace("\n", "\\n")
        help_line = f"# HELP {self.name} {text}\n" if text else ""
        return f"{help_line}# TYPE {self.name} {_type_text(self.type)}\n"

    @property
    def lines(self) -> str:
        return "".join(f"{series} {number}\n" for series, number in self.samples.items())


class OwnMetrics:
    """Know the metrics that no push may change: those of the exporter itself, and those that reports trust.

    Some of them, such as ``process_open_fds``, are exported by every program: a pushed family of the same type may
    stand beside them.
    """

    def __init__(self, metrics: Iterable[Metric], shared: Iterable[Metric], others: Iterable[str] = ()) -> None:
        """Take all metrics that are exported, those of them that may be pushed as well, and names of other exporters.

        Reports read what others measured of a job: a push must not pass for that.
        """
        self._others = frozenset(others)
        self.shared = {metric.name: _TYPES[metric.kind] for metric in shared}
        self._names = frozenset(name for metric in metrics for name in used_names(metric))

    def check(self, family: PushedFamily) -> None:
        """Raise PushConflict if a family uses a name that is taken."""
        if _PROMETHEUS.match(family.name):
            raise PushConflict(f"{family.name} is a metric of Prometheus itself")
        if ":" in family.name:
            raise PushConflict(f"{family.name} is the name of a recording rule")
        if taken := family.used_names & self._others:
            raise PushConflict(f"{min(taken)} is a metric of another exporter, from which reports are made")
        if (shared := self.shared.get(family.name)) is not None:
            if shared is not family.type:
                raise PushConflict(
                    f"{family.name} of this exporter has the type {_type_text(shared)}, not {_type_text(family.type)}"
                )
        elif taken := family.used_names & self._names:
            raise PushConflict(f"{min(taken)} is a metric of this exporter")


def label_family(family: ParsedFamily, grouping: Mapping[str, str], label_length_limit: int) -> PushedFamily:
    """Give every sample the labels of its group; raise PushConflict for a timestamp, a long label or a repeated series.

    ``instance`` is always set, if only to nothing, so that Prometheus does not set it to ours.
    """
    samples: dict[str, str] = {}
    bound = _BOUNDS.get(family.type, "")
    if bound in grouping:
        raise PushConflict(f"{bound} cannot be a label of a group with {family.name}, a {family.type.value}")
    for sample in family.samples:
        if sample.timestamp_seconds is not None:
            raise PushConflict("pushed metrics must not have timestamps")
        labels = {name: value for name, value in sample.labels.items() if value}
        series = series_text(sample.name, {**labels, **grouping})
        if max(map(len, sample.labels.values()), default=0) > label_length_limit:
            raise PushConflict(f"a label of {sample.name} is longer than {label_length_limit} characters")
        if series in samples:
            raise PushConflict(f"{_shown(series)} is pushed twice")
        samples[series] = spell_number(sample.value)
    return PushedFamily(family.name, family.type, family.help, samples)


def text_length(family: ParsedFamily, grouping: Mapping[str, str]) -> int:
    """Return about how long a family of a group is as text, without making that."""
    shared = len(family.name) + sum(map(len, grouping)) + sum(map(len, grouping.values()))
    return sum(shared + sum(map(len, s.labels)) + sum(map(len, s.labels.values())) for s in family.samples)


def complete(family: ParsedFamily) -> ParsedFamily:
    """Write bounds and quantiles as Go does, and add what a histogram or summary must have, as Pushgateway does.

    Raises MalformedAnswer for a bound that is not a number; a bucket or quantile without one is left out.
    """
    bound = _BOUNDS.get(family.type)
    return replace(family, samples=tuple(_completed(family, bound))) if bound else family


def _completed(family: ParsedFamily, bound: str) -> Iterator[ParsedSample]:
    name, is_histogram = family.name, family.type is Type.HISTOGRAM
    missing: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], dict[str, float]]] = {}
    for sample in family.samples:
        labels = {label: value for label, value in sample.labels.items() if label != bound}
        _, parts = missing.setdefault(tuple(sorted(labels.items())), (labels, {}))
        part = sample.name.removeprefix(name)
        if part not in ("_sum", "_count"):
            if bound not in sample.labels:
                continue
            labels = {**labels, bound: _normal_bound(sample, bound)}
            part = "_bucket" if labels[bound] == "+Inf" else ""
        parts[part] = sample.value
        yield sample._replace(labels=labels)
    for labels, parts in missing.values():
        if is_histogram and "_bucket" not in parts:
            yield ParsedSample(f"{name}_bucket", {**labels, bound: "+Inf"}, parts.get("_count", 0.0), None)
        for part in ("_sum", "_count"):
            if part not in parts:
                yield ParsedSample(name + part, labels, 0.0, None)


def _normal_bound(sample: ParsedSample, bound: str) -> str:
    text = sample.labels[bound]
    if not _NUMBER.match(text):
        raise MalformedAnswer(f"the label {bound} of {sample.name} is not a number")
    value = float(text)
    sign = "-" if value < 0 else ""
    return sign + spell_bound(abs(value)).removesuffix(".0") if isfinite(value) else spell_number(value)


def series_text(name: str, labels: Mapping[str, str]) -> str:
    """Return a series as it is served: labels in order, ``instance`` always among them."""
    pairs = sorted({"instance": "", **labels}.items())
    text = ",".join(f'{label}="{_escaped(value)}"' for label, value in pairs)
    return f"{name}{{{text}}}"


def find_related(family: PushedFamily) -> Iterator[str]:
    """Yield the names that other families, which could use the same sample names, would have."""
    for suffix in _ALL_SUFFIXES:
        yield family.name + suffix
        if family.name.endswith(suffix):
            yield family.name.removesuffix(suffix)


def check_beside(family: PushedFamily, other: PushedFamily) -> None:
    """Raise PushConflict if two families cannot be on one page; their help may differ."""
    if family.name != other.name:
        if taken := family.used_names & other.used_names:
            raise PushConflict(f"{min(taken)} belongs to both {family.name} and {other.name}")
    elif family.type is not other.type:
        types = f"{_type_text(other.type)}, not {_type_text(family.type)}"
        raise PushConflict(f"{family.name} has the type {types}, in another group")


def check_owners(family: PushedFamily, owners: Mapping[str, object], group: object) -> None:
    """Raise PushConflict if another group has one of the series; ``owners`` has the group of each series."""
    for series in family.samples:
        if owners.get(series, group) != group:
            raise PushConflict(f"{_shown(series)} is also in another group")


def time_family(name: str, help: str, times: Iterable[tuple[Mapping[str, str], float]]) -> PushedFamily:
    """Return when each group was pushed, or failed to be."""
    samples = {series_text(name, labels): spell_number(seconds) for labels, seconds in times}
    return PushedFamily(name, Type.GAUGE, help, samples)


def _type_text(type: Type) -> str:
    return "untyped" if type is Type.UNKNOWN else type.value


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _shown(series: str) -> str:
    return series if len(series) <= _SHOWN_CHARACTERS else f"{series[:_SHOWN_CHARACTERS]}…"
