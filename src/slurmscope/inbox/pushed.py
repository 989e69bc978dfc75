# SPDX-License-Identifier: Apache-2.0
"""Hold pushed families as text, label them, and find conflicts between them.

Pushed families differ from those of collectors: each series has labels of its own choice, and other programs chose
type and help. They are never changed, so each series is kept as the text that is served::

    PushedFamily("backup_seconds", Type.GAUGE, "…", {'backup_seconds{instance="",job="backup"}': "12.5"})
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope.core.errors import SlurmscopeError
from slurmscope.metrics.family import Metric, MetricKind
from slurmscope.metrics.guard import used_names
from slurmscope.metrics.parse import ParsedFamily, Type
from slurmscope.metrics.write import spell_number

PUSH_TIME = "push_time_seconds"
FAILURE_TIME = "push_failure_time_seconds"
_TIMES = frozenset({PUSH_TIME, FAILURE_TIME})
_SUFFIXES = {Type.HISTOGRAM: ("_bucket", "_count", "_sum"), Type.SUMMARY: ("_count", "_sum")}
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
    """Know the metrics of the exporter itself, which no push may change.

    Some of them, such as ``process_open_fds``, are exported by every program: a pushed family of the same type may
    stand beside them.
    """

    def __init__(self, metrics: Iterable[Metric], shared: Iterable[Metric]) -> None:
        """Take all metrics that are exported, and those of them that may be pushed as well."""
        self.shared = {metric.name: _TYPES[metric.kind] for metric in shared}
        self._names = frozenset(name for metric in metrics for name in used_names(metric))

    def check(self, family: PushedFamily) -> None:
        """Raise PushConflict if a family uses a name that is taken."""
        if family.name in _TIMES:
            raise PushConflict(f"{family.name} is set by the inbox itself")
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
