# SPDX-License-Identifier: Apache-2.0
"""Summarize how a run used its cores and its memory.

CPU time has two sources. That of the nodes counts where all of them were measured; Slurm's TotalCPU misses processes
that were killed with their step, and may count those of a fork storm twice. While a job runs, only nodes report it.

Where not every node reported, Slurm's figure is taken for the whole job. If there is none, or if it is clearly below
the sum of the measured nodes, the measured part is compared with the allocation on the measured nodes.

The peak of a job is the sum of the peaks of its nodes: memory is requested and limited per node, and each node must
hold its own peak whether or not the others have theirs at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from slurmscope.jobs.curves import (
    Aligned,
    AlignedValues,
    add,
    align,
    growth_rate,
    growth_ratio,
    idle_start_seconds,
    idle_tail_seconds,
    peak,
    sum_over,
)
from slurmscope.jobs.measured_run import ROUNDING_SECONDS, MeasuredRun, counted_by_node, cover
from slurmscope.jobs.record import MAX_STEPS, StepRecord
from slurmscope.jobs.series import Series
from slurmscope.jobs.summary import (
    Coverage,
    CpuSummary,
    MemorySummary,
    NodeSummary,
    UsedShare,
)

ROUNDING_RATIO = 0.01
"""Slurm rounds the CPU time of each step: so much less is the same."""
USED_RATIO = 0.8
"""A core was used if it did this much of a fair share of the work."""


def summarize_cpu(run: MeasuredRun, nodes: tuple[NodeSummary, ...], coverage: Coverage) -> CpuSummary:
    """Summarize CPU time; sums over nodes are None unless every node reported."""
    time, cpus = _time(run, nodes, coverage), run.record.cpus
    is_whole = time.coverage is None or time.coverage.nodes_measured >= time.coverage.nodes
    mean_cores = time.ratio * cpus if cpus and is_whole and time.ratio is not None else None
    aligned = align(run.curves.get("cpu", ()))
    busy = sum_over(aligned) if run.is_whole(labels[0] for labels in aligned.rows) else ()
    times = aligned.times[: len(busy)]
    return CpuSummary(
        time=time,
        user_seconds=run.whole("cpu_user"),
        system_seconds=run.whole("cpu_system"),
        mean_cores=mean_cores,
        peak_cores=_peak_cores(peak(busy), _scraped_peak(run), mean_cores),
        cores_used=_cores_used(run, nodes),
        idle_tail_seconds=idle_tail_seconds(times, busy, end_seconds=run.end_seconds, cpus=cpus or 0),
        idle_start_seconds=idle_start_seconds(times, busy, start_seconds=run.start_seconds, cpus=cpus or 0),
        queue_ratio=_queue_ratio(run),
    )


def _queue_ratio(run: MeasuredRun) -> float | None:
    ran, waited = run.whole("cpu"), run.whole("cpu_queue")
    return waited / (ran + waited) if ran is not None and waited is not None and ran + waited > 0 else None


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

    Those of the other nodes are an even share of the rest if there is one; otherwise they are unknown.
    """
    record = run.record
    if run.node_count == 1 and record.cpus:
        return dict.fromkeys(run.nodes, float(record.cpus))
    reported = run.by_node("cores")
    others = [node for node in run.nodes if node not in reported]
    rest = (record.cpus or 0) - math.fsum(reported.values())
    if not others or len(run.nodes) < run.node_count or rest <= 0 or rest % len(others):
        return reported
    return {**reported, **dict.fromkeys(others, rest / len(others))}


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
    allocated = record.allocated_seconds(run.seconds)[0] if record.cpus else None
    # Every job uses some CPU time: Slurm reports exactly 0 where it does not gather it.
    accounted = record.cpu_seconds if record.has_ended and record.cpu_seconds else None
    measured = [node.cpu_seconds for node in nodes if node.cpu_seconds is not None]
    counted = math.fsum(measured) if measured else None
    if counted is None or _is_more_complete(run, accounted, counted, coverage):
        return UsedShare(requested=allocated, used=accounted)
    return UsedShare(requested=_allocated_to_measured(run, nodes), used=counted, coverage=coverage)


def _is_more_complete(run: MeasuredRun, accounted: float | None, counted: float, coverage: Coverage) -> bool:
    """Return whether Slurm's figure is to be preferred to the sum of the measured nodes.

    Where every node was measured to the end, that is only one that adds what came after the last sample. Slurm may
    count too much where processes are short. A part of the nodes is preferred only to a figure that is clearly below.
    """
    if accounted is None:
        return False
    if not coverage.is_good:
        return accounted >= counted * (1 - ROUNDING_RATIO) - ROUNDING_SECONDS
    last = min((series.times[-1] for series in run.curves.get("cpu", ())), default=run.start_seconds)
    unseen = (run.record.cpus or 0) * (run.end_seconds - last)
    return counted < accounted <= counted + unseen


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


SLACK_BYTES, SLACK_RATIO = float(64 << 20), 0.05
"""The kernel's peak also counts the memory of the kernel for the job: this much is not a peak that samples missed."""
MIN_PART = 0.1
"""Memory of a run that ended before this share of its time limit is not continued."""
UNLIMITED_BYTES = float(1 << 60)
"""Without a limit, the kernel reports a number near 2^63."""


def summarize_memory(run: MeasuredRun, working: Aligned, limits: Mapping[str, float]) -> MemorySummary:
    """Summarize memory; sums over nodes are None unless every node reported."""
    peaks, slurm_peak = needed_bytes(run, working), _slurm_peak(run.record.steps)
    is_whole = run.is_whole(peaks)
    return MemorySummary(
        requested_bytes=run.record.memory_bytes or None,
        limit_bytes=math.fsum(limits.values()) if run.is_whole(limits) else None,
        charged_peak_bytes=run.whole("memory_peak"),
        # Of several nodes it is not known on which one Slurm saw its peak.
        working_peak_bytes=max(math.fsum(peaks.values()), slurm_peak or 0.0) if is_whole else None,
        slurm_peak_bytes=slurm_peak,
        slurm_peak_is_whole=run.node_count == 1 and _is_one_task_at_a_time(run.record.steps),
        growth_ratio=_growth(run, working) if is_whole else None,
        expected_bytes=_expected(run, working),
        shared_peak_bytes=_shared_peak(run),
        is_bounded=run.is_whole(run.by_node("memory_peak")) and _is_read_to_the_end(run),
        refaults_per_second=_refaults(run),
        oom_kills=_oom_kills(run),
        is_out_of_memory=run.record.state == "OUT_OF_MEMORY",
        coverage=cover(run, peaks, _measured(run)),
    )


def _refaults(run: MeasuredRun) -> Mapping[str, float]:
    most: dict[str, float] = {}
    for (_node, kind), pages in run.totals.get("refaults", {}).items():
        most[kind] = max(most.get(kind, 0.0), pages / run.seconds)
    return most


def _is_read_to_the_end(run: MeasuredRun) -> bool:
    """Return whether no agent may have missed a peak at the end; older agents do not say."""
    return not run.record.has_ended or all(run.by_node("memory_peak_final").values())


def working_memory(run: MeasuredRun, *, points: int) -> Aligned:
    """Add anonymous and shared memory on each node; a node that does not report shared memory has none to add.

    A node without a memory controller has the resident memory of the job's processes. Pages that these share count
    once for each, so it may be more than the job needs, but not less.
    """
    names = ("memory_anon", "memory_shared", "memory_rss")
    aligned = align([series for name in names for series in _tagged(run, name)], combine=max, points=points)
    rows: dict[tuple[str, ...], AlignedValues] = {
        (labels[0],): values for labels, values in aligned.rows.items() if labels[1] == "memory_rss"
    }
    for labels, anon in aligned.rows.items():
        if labels[1] == "memory_anon":
            shared = aligned.rows.get((labels[0], "memory_shared"))
            rows[labels[0],] = anon if shared is None else add(anon, shared)
    return Aligned(aligned.times, rows)


def working_peaks(working: Aligned) -> dict[str, float]:
    """Return the highest working memory of each node that reported it."""
    return {labels[0]: most for labels, values in working.rows.items() if (most := peak(values)) is not None}


def needed_bytes(run: MeasuredRun, working: Aligned) -> dict[str, float]:
    """Return the memory that each node needed: as sampled, or what samples missed by the kernel's peak.

    A process that was OOM-killed had nothing left to reclaim: then the kernel's peak is the need. On a single node,
    MaxRSS of a task is memory that the job needed as well, and so is the limit that it reached.
    """
    sampled, charged, files = working_peaks(working), run.by_node("memory_peak"), run.by_node("memory_file")
    shared = _shared_peaks(run)
    was_killed = run.record.state == "OUT_OF_MEMORY" or bool(_oom_kills(run))
    least = max(_slurm_peak(run.record.steps) or 0.0, _reached_limit(run)) if run.node_count == 1 else 0.0
    return {
        node: max(
            _needed(peak, charged.get(node), files.get(node, 0.0) - shared.get(node, 0.0), was_killed=was_killed), least
        )
        for node, peak in sampled.items()
    }


def _reached_limit(run: MeasuredRun) -> float:
    """Return the limit at which a job was OOM-killed after its agent's last reading; 0 where that is not certain.

    A step with a limit of its own may have reached that one.
    """
    record = run.record
    has_own_limits = not record.submit_line or any("--mem" in step.request for step in record.steps)
    if record.state != "OUT_OF_MEMORY" or has_own_limits or _is_read_to_the_end(run):
        return 0.0
    return max(node_limits(run).values(), default=float(record.memory_bytes or 0))


def _shared_peaks(run: MeasuredRun) -> dict[str, float]:
    return {series.labels[0]: max(series.values) for series in run.curves.get("memory_shared", ())}


def _shared_peak(run: MeasuredRun) -> float | None:
    peaks = _shared_peaks(run)
    return math.fsum(peaks.values()) if run.is_whole(peaks) else None


def _needed(sampled: float, charged: float | None, cache: float, *, was_killed: bool) -> float:
    if charged is None:
        return sampled
    rest = charged - max(0.0, cache)
    if was_killed or rest > sampled + max(SLACK_BYTES, SLACK_RATIO * charged):
        return max(sampled, charged)
    return max(sampled, rest)


def _expected(run: MeasuredRun, working: Aligned) -> float | None:
    """Continue the memory curve of the fullest node up to the time limit, for a job that did not complete."""
    limit = run.record.time_limit_seconds
    if not limit or run.record.state == "COMPLETED" or not run.record.has_ended or run.seconds < MIN_PART * limit:
        return None
    lines = [
        [(t, v) for t, v in zip(working.times, row, strict=True) if v is not None] for row in working.rows.values()
    ]
    points = max((line for line in lines if line), key=lambda line: line[-1][1], default=[])
    rate = growth_rate(points)
    if rate is None or run.seconds >= limit:
        return None
    return max([points[-1][1], *run.by_node("memory_peak").values()]) + rate * (limit - run.seconds)


def node_limits(run: MeasuredRun) -> dict[str, float]:
    return {node: limit for node, limit in run.by_node("memory_limit").items() if 0 < limit < UNLIMITED_BYTES}


def _measured(run: MeasuredRun) -> Sequence[Series]:
    by_node = {
        series.labels[0]: series for name in ("memory_rss", "memory_anon") for series in run.curves.get(name, ())
    }
    return tuple(by_node.values())


def _tagged(run: MeasuredRun, name: str) -> Sequence[Series]:
    return [Series((series.labels[0], name), series.times, series.values) for series in run.curves.get(name, ())]


def _growth(run: MeasuredRun, working: Aligned) -> float | None:
    return growth_ratio(working.times, sum_over(working), start_seconds=run.start_seconds, end_seconds=run.end_seconds)


def _oom_kills(run: MeasuredRun) -> int | None:
    """Count OOM kills; None where there were none but not every node reported."""
    reported = run.by_node("oom_kills")
    kills = round(math.fsum(reported.values()))
    return kills if kills or run.is_whole(reported) else None


def _slurm_peak(steps: Sequence[StepRecord]) -> float | None:
    """Return the highest MaxRSS of any step; Slurm reports 0 for a step that it did not sample."""
    return max((float(step.max_rss_bytes) for step in steps if step.max_rss_bytes), default=None)


def _is_one_task_at_a_time(steps: Sequence[StepRecord]) -> bool:
    """Return whether no two tasks ran side by side; the batch script only waits for the steps that it starts."""
    # With this many steps, others may have been left out.
    if len(steps) >= MAX_STEPS or any((step.tasks or 1) > 1 for step in steps):
        return False
    spans = sorted(_span(step) for step in steps if step.name[:1].isdecimal())
    return all(end <= next_start for (_, end), (next_start, _) in pairwise(spans))


def _span(step: StepRecord) -> tuple[float, float]:
    """Return when a step ran; where that is unknown, it may have run at any time."""
    start = -math.inf if step.start_seconds is None else float(step.start_seconds)
    return start, math.inf if step.end_seconds is None else float(step.end_seconds)
