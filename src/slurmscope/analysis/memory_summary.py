# SPDX-License-Identifier: Apache-2.0
"""Summarise the memory of a run: what it needed, what the kernel charged, what Slurm sampled.

The peak of a job is the sum of the peaks of its nodes: memory is requested and limited per node, and each node must
hold its own peak whether or not the others have theirs at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from slurmscope.analysis.coverage import cover
from slurmscope.analysis.curves import Aligned, add, align, growth_ratio, peak, sum_over
from slurmscope.analysis.run import MeasuredRun
from slurmscope.model.job_record import MAX_STEPS, StepRecord
from slurmscope.model.series import Series
from slurmscope.model.summary import MemorySummary

UNLIMITED_BYTES = float(1 << 60)
"""Without a limit, the kernel reports a number near 2^63."""


def summarise_memory(run: MeasuredRun, working: Aligned, limits: Mapping[str, float]) -> MemorySummary:
    """Summarise memory; sums over nodes are None unless every node reported."""
    peaks = working_peaks(working)
    is_whole = run.is_whole(peaks)
    return MemorySummary(
        asked_bytes=run.record.memory_bytes or None,
        limit_bytes=math.fsum(limits.values()) if run.is_whole(limits) else None,
        charged_peak_bytes=run.whole("memory_peak"),
        working_peak_bytes=math.fsum(peaks.values()) if is_whole else None,
        slurm_peak_bytes=_slurm_peak(run.record.steps),
        slurm_peak_is_whole=run.node_count == 1 and _is_one_task_at_a_time(run.record.steps),
        growth_ratio=_growth(run, working) if is_whole else None,
        oom_kills=_oom_kills(run),
        is_out_of_memory=run.record.state == "OUT_OF_MEMORY",
        coverage=cover(run, peaks, _measured(run)),
    )


def working_memory(run: MeasuredRun, *, points: int) -> Aligned:
    """Add anonymous and shared memory on each node; a node that does not report shared memory has none to add.

    A node without a memory controller has the resident memory of the job's processes. Pages that these share count
    once for each, so it may be more than the job needs, but not less.
    """
    names = ("memory_anon", "memory_shared", "memory_rss")
    aligned = align([series for name in names for series in _tagged(run, name)], combine=max, points=points)
    rows = {labels[:1]: values for labels, values in aligned.rows.items() if labels[1] == "memory_rss"}
    for labels, anon in aligned.rows.items():
        if labels[1] == "memory_anon":
            shared = aligned.rows.get((labels[0], "memory_shared"))
            rows[labels[:1]] = anon if shared is None else add(anon, shared)
    return Aligned(aligned.times, rows)


def working_peaks(working: Aligned) -> dict[str, float]:
    """Return the highest working memory of each node that reported it."""
    return {labels[0]: most for labels, values in working.rows.items() if (most := peak(values)) is not None}


def node_limits(run: MeasuredRun) -> dict[str, float]:
    """Return the limit of each node that has one."""
    return {node: limit for node, limit in run.by_node("memory_limit").items() if 0 < limit < UNLIMITED_BYTES}


def _measured(run: MeasuredRun) -> Sequence[Series]:
    """Return the curve of each node that says when its memory was measured."""
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
