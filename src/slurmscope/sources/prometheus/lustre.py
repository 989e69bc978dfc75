# SPDX-License-Identifier: Apache-2.0
"""Query the current rates of an exporter's statistics by job ID.

Prometheus adds up the targets of each file system, so that an answer has one series per job ID and file system. Where
two servers scrape the same target, the higher rate counts. Exporters that name the file system in a label run on
clients; there all series are added up.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.analysis.filesystem_use import filesystem_of
from slurmscope.collectors.lustre import LustreOptions
from slurmscope.model.filesystem_use import UNKNOWN, Quantity, UseRate
from slurmscope.sources.prometheus.answers import Reply
from slurmscope.sources.prometheus.promql import Matchers, quote

_FILESYSTEM = "filesystem"
_TARGET = "(.+)-(?:OST|MDT)[0-9a-fA-F]{4}"
_METADATA_TARGET = ".+-MDT[0-9a-fA-F]{4}"


def rates_expression(quantity: Quantity, options: LustreOptions, matchers: Matchers = ()) -> str:
    """Return the expression for the rates of one quantity by job ID."""
    job, target, is_metadata = options.job_label, options.target_label, quantity is Quantity.METADATA
    conditions = [f"{label}={quote(value)}" for label, value in matchers]
    if options.filesystem_label:
        operation = f", {options.operation_label}" if is_metadata else ""
        rates = _rates(quantity, options, conditions)
        return f"sum by ({job}, {options.filesystem_label}{operation}) ({rates} > 0)"
    if is_metadata:
        rates = _rates(quantity, options, [*conditions, f"{target}=~{quote(_METADATA_TARGET)}"])
        return f"max by ({job}, {target}, {options.operation_label}) ({rates}) > 0"
    highest = f"max by ({job}, {target}) ({_rates(quantity, options, conditions)}) > 0"
    named = f"label_replace({highest}, {quote(_FILESYSTEM)}, {quote('$1')}, {quote(target)}, {quote(_TARGET)})"
    return f"sum by ({job}, {_FILESYSTEM}) ({named})"


def parse_rates(quantity: Quantity, options: LustreOptions, reply: Reply) -> Iterator[UseRate]:
    """Yield the rates of an answer; series without a finite value have none."""
    is_metadata = quantity is Quantity.METADATA
    takes_target = is_metadata and not options.filesystem_label
    job_label, label = options.job_label, options.filesystem_label or _FILESYSTEM
    for found in reply.series:
        labels = found.labels
        target = labels.get(options.target_label, "") if takes_target else ""
        filesystem = filesystem_of(target) if takes_target else labels.get(label) or UNKNOWN
        operation = labels.get(options.operation_label, "") if is_metadata else ""
        for per_second in found.values[-1:]:
            yield UseRate(labels.get(job_label, ""), filesystem, per_second, target, operation)


def _rates(quantity: Quantity, options: LustreOptions, conditions: list[str]) -> str:
    selectors = {
        Quantity.READ: options.read_metric,
        Quantity.WRITE: options.write_metric,
        Quantity.METADATA: options.metadata_metric,
    }
    name, _, own = selectors[quantity].partition("{")
    selected = ",".join([own.removesuffix("}"), *conditions] if own else conditions)
    window = f"{max(1, round(options.range * 1000))}ms"
    return f"{options.rate}({name}{{{selected}}}[{window}])"
