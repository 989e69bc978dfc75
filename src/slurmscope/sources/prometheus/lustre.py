# SPDX-License-Identifier: Apache-2.0
"""Query the current rates of a Lustre exporter's job statistics.

Prometheus adds up the targets of each file system, so that an answer has one series per job ID and file system. Where
two servers scrape the same target, the higher rate counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.analysis.filesystem_use import filesystem_of
from slurmscope.collectors.lustre import LustreOptions
from slurmscope.model.filesystem_use import UNKNOWN, Quantity, UseRate
from slurmscope.sources.prometheus.answers import Reply
from slurmscope.sources.prometheus.promql import Matchers, quote

METRICS = {
    Quantity.READ: "lustre_job_read_bytes_total",
    Quantity.WRITE: "lustre_job_write_bytes_total",
    Quantity.METADATA: "lustre_job_stats_total",
}
_FILESYSTEM = "filesystem"
_TARGET = "(.+)-(?:OST|MDT)[0-9a-fA-F]{4}"
_METADATA_TARGET = ".+-MDT[0-9a-fA-F]{4}"


def rates_expression(quantity: Quantity, options: LustreOptions, matchers: Matchers = ()) -> str:
    """Return the expression for the rates of one quantity by job ID."""
    conditions = [f"{label}={quote(value)}" for label, value in matchers]
    if quantity is Quantity.METADATA:
        conditions.append(f"target=~{quote(_METADATA_TARGET)}")
        rates = _rates(quantity, options, conditions)
        return f"max by (jobid, target, operation) ({rates}) > 0"
    highest = f"max by (jobid, target) ({_rates(quantity, options, conditions)}) > 0"
    named = f"label_replace({highest}, {quote(_FILESYSTEM)}, {quote('$1')}, {quote('target')}, {quote(_TARGET)})"
    return f"sum by (jobid, {_FILESYSTEM}) ({named})"


def parse_rates(quantity: Quantity, reply: Reply) -> Iterator[UseRate]:
    """Yield the rates of an answer; series without a finite value have none."""
    for found in reply.series:
        labels = found.labels
        for per_second in found.values[-1:]:
            text = labels.get("jobid", "")
            if quantity is Quantity.METADATA:
                target = labels.get("target", "")
                yield UseRate(text, filesystem_of(target), per_second, target, labels.get("operation", ""))
            else:
                yield UseRate(text, labels.get(_FILESYSTEM) or UNKNOWN, per_second)


def _rates(quantity: Quantity, options: LustreOptions, conditions: list[str]) -> str:
    window = f"{max(1, round(options.range * 1000))}ms"
    return f"{options.rate}({METRICS[quantity]}{{{','.join(conditions)}}}[{window}])"
