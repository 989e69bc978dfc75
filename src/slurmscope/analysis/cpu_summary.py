# SPDX-License-Identifier: Apache-2.0
"""Compare the CPU time of a run with the allocated CPU time.

CPU time has two sources, and both may report too little, never too much: the last sample of a node may be one scrape
before the end, and Slurm's TotalCPU misses processes that were killed with their step. So the higher value counts.
While a job runs, only nodes report it.

Where not every node reported, Slurm's figure is taken for the whole job. If there is none, or if it is below the sum of
the measured nodes, the measured part is compared with the allocation on the measured nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean

from slurmscope.analysis.coverage import counted_by_node
from slurmscope.analysis.curves import align, idle_tail_seconds, peak, sum_over
from slurmscope.analysis.run import MeasuredRun
from slurmscope.model.summary import Coverage, CpuSummary, NodeSummary, UsedShare

USED_RATIO = 0.8
"""A core was used if it did this much of a fair share of the work."""


def summarise_cpu(run: MeasuredRun, nodes: tuple[NodeSummary, ...], coverage: Coverage) -> CpuSummary:
    """Summarise CPU time; sums over nodes are None unless every node reported."""
    time, cpus = _time(run, nodes, coverage), run.record.cpus
    is_whole = time.coverage is None or time.coverage.nodes_measured >= time.coverage.nodes
    mean_cores = time.ratio * cpus if cpus and is_whole and time.ratio is not None else None
    aligned = align(run.curves.get("cpu", ()))
    busy = sum_over(aligned) if run.is_whole(labels[0] for labels in aligned.rows) else ()
    return CpuSummary(
        time=time,
        user_seconds=run.whole("cpu_user"),
        system_seconds=run.whole("cpu_system"),
        mean_cores=mean_cores,
        peak_cores=_peak_cores(peak(busy), _scraped_peak(run), mean_cores),
        cores_used=_cores_used(run, nodes),
        idle_tail_seconds=idle_tail_seconds(
            aligned.times[: len(busy)], busy, end_seconds=run.end_seconds, cpus=cpus or 0
        ),
    )


def _scraped_peak(run: MeasuredRun) -> float | None:
    """Return the most cores busy between two scrapes, capped at the job's cores: scrapes may be very close."""
    reported = run.whole("busy_peak")
    return reported if reported is None or not run.record.cpus else min(reported, float(run.record.cpus))


def _peak_cores(curve: float | None, scraped: float | None, mean: float | None) -> float | None:
    """Return the highest: for a long job, points of a curve are means over minutes, those of agents over seconds.

    The mean alone is not a peak, but a lower bound: the few points of a short job miss what came before the first.
    """
    peaks = [amount for amount in (curve, scraped) if amount is not None]
    return max(*peaks, mean or 0.0) if peaks else None


def node_cpus(run: MeasuredRun) -> Mapping[str, float]:
    """Return the allocated cores of each node: all on a single node, otherwise as reported by its agent.

    Where no agent reports them, an even share is assumed if there is one; otherwise they are unknown.
    """
    record = run.record
    if run.node_count == 1 and record.cpus:
        return dict.fromkeys(run.nodes, float(record.cpus))
    reported = run.by_node("cores")
    count = max(1, run.node_count)
    if reported or not record.cpus or record.cpus % count:
        return reported
    return dict.fromkeys(run.nodes, record.cpus / count)


def chosen_cores(core_seconds: Mapping[str, float], cpus: float | None) -> Mapping[str, float]:
    """Keep the job's own cores: the busiest cores of the node, as many as the job has.

    Keep nothing when much of the work was done on other cores: then the job was not bound to its cores.
    """
    if cpus is None:
        return {}
    busiest = sorted(core_seconds.items(), key=lambda core: (-core[1], len(core[0]), core[0]))[: int(cpus)]
    total = math.fsum(core_seconds.values())
    if math.fsum(seconds for _, seconds in busiest) < 0.95 * total:
        return {}
    return dict(sorted(busiest, key=lambda core: (len(core[0]), core[0])))


def _time(run: MeasuredRun, nodes: tuple[NodeSummary, ...], coverage: Coverage) -> UsedShare:
    record = run.record
    allocated = record.cpus * run.seconds if record.cpus else None
    # Every job uses some CPU time: Slurm reports exactly 0 where it does not gather it.
    accounted = record.cpu_seconds if record.has_ended and record.cpu_seconds else None
    measured = [node.cpu_seconds for node in nodes if node.cpu_seconds is not None]
    counted = math.fsum(measured) if measured else None
    if counted is None or (accounted is not None and accounted >= counted):
        return UsedShare(asked=allocated, used=accounted)
    return UsedShare(asked=_allocated_to_measured(run, nodes), used=counted, coverage=coverage)


def _allocated_to_measured(run: MeasuredRun, nodes: tuple[NodeSummary, ...]) -> float | None:
    """Return cores times counted time of the measured nodes; None where the cores of any are unknown."""
    seconds = counted_by_node(run)
    measured = [node for node in nodes if node.cpu_seconds is not None]
    if run.record.cpus and run.is_whole(node.node for node in measured):
        return run.record.cpus * fmean(seconds[node.node] for node in measured)
    parts = [node.cpus * seconds[node.node] for node in measured if node.cpus is not None]
    return math.fsum(parts) if len(parts) == len(measured) else None


def _cores_used(run: MeasuredRun, nodes: tuple[NodeSummary, ...]) -> int | None:
    """Count the cores that did their share; a process that moves between cores seems to use all of them."""
    measured = [node for node in nodes if node.core_seconds]
    if not run.record.cpus or not run.is_whole(node.node for node in measured):
        return None
    seconds = [value for node in measured for value in node.core_seconds.values()]
    fair_seconds = math.fsum(seconds) / run.record.cpus
    return sum(value >= USED_RATIO * fair_seconds > 0 for value in seconds)
