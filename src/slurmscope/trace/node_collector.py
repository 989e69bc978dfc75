# SPDX-License-Identifier: Apache-2.0
"""Join tracing to the node agent: export the processes that jobs on this node trace through its socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from slurmscope.core.settings import Section
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import SharedReading
from slurmscope.metrics.family import Family
from slurmscope.node.settings import PathSettings
from slurmscope.trace.collector import TRACE_METRICS, trace_families
from slurmscope.trace.samples import Traces
from slurmscope.trace.settings import NodeTraceSettings, check_forwarding


def collect(options: NoOptions, *, traces: Traces) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    yield from trace_families(traces)


COLLECTOR = Collector(
    name="traces",
    role=Role.NODE,
    help="Processes that jobs trace through the agent's socket; exports nothing unless trace.socket is set.",
    needs=("traces",),
    metrics=TRACE_METRICS,
    collect=collect,
)

ADVICE = "check the path of its socket and the directory, which the unit creates while the agent runs"


def _open(host: Host) -> Running:
    settings, paths = host.config.of(NodeTraceSettings), host.config.of(PathSettings)
    check_forwarding(settings)
    jobs = host.readings["node_jobs"]

    def share(read: Callable[[], Traces]) -> tuple[SharedReading]:
        return (SharedReading("traces", read, interval_seconds=jobs.interval_seconds, advice=ADVICE),)

    if settings.socket is None:
        return Running(readings=share(Traces))
    # Imported here: most nodes trace nothing, and need no server on a socket.
    from slurmscope.trace.node_endpoint import NodeTracing

    tracing = NodeTracing(settings.socket, settings, jobs, paths.below_root(paths.procfs))
    stack = ExitStack()
    stack.enter_context(tracing.open())
    return Running(readings=share(tracing.read), close=stack.close)


NODE_TRACING = Feature(
    name="trace", sections=(Section(name="trace", type=NodeTraceSettings),), collectors=(COLLECTOR,), open=_open
)
