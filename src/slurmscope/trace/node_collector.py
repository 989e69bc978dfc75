# SPDX-License-Identifier: Apache-2.0
"""Export the processes that jobs on this node trace through the agent's socket."""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family
from slurmscope.trace.collector import TRACE_METRICS, trace_families
from slurmscope.trace.samples import Traces


def collect(options: NoOptions, *, traces: Traces) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    """Yield one series per process and value."""
    yield from trace_families(traces)


COLLECTOR = Collector(
    name="traces",
    role=Role.NODE,
    help="Processes that jobs trace through the agent's socket; exports nothing unless trace.socket is set.",
    needs=("traces",),
    metrics=TRACE_METRICS,
    collect=collect,
)
