# SPDX-License-Identifier: Apache-2.0
"""Turn what a command used of GPUs into curves and totals as those of a job, so that both are summarized alike."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from slurmscope.jobs.measured_run import MeasuredRun
from slurmscope.jobs.queries import FP32, GPU_LINKS
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.series import Measured, Series, total_of_rises
from slurmscope.jobs.summary import NOT_COVERED, Coverage
from slurmscope.jobs.traced_run import GpuUse, TracedRun

Point = tuple[float, Mapping[str, float]]
"""A time, and the totals so far."""
RATE_SECONDS = 5.0
"""Shorter intervals have no rates."""

_GPU_RATES = {
    "gpu_busy": "busy",
    "gpu_sm": "sm_active",
    "gpu_tensor": "tensor_active",
    "gpu_power": "energy",
    **{f"gpu_{link}": link for link in GPU_LINKS},
}
"""Curves of a GPU, and the totals whose rates they are."""
_GPU_TOTALS = {total: name for name, total in _GPU_RATES.items()} | {
    "dram_active": "gpu_dram",
    "energy": "gpu_energy",
    FP32: "gpu_fp32",
}
_THROTTLED = "throttled_"


def gpu_curves(run: TracedRun) -> Iterator[tuple[str, Series]]:
    """Yield the curves of each GPU; its totals were 0 when the command started."""
    for device, uses in used_gpus(run).items():
        labels = (run.host, *device)
        sizes = {time: float(use.memory_bytes) for time, use in uses.items() if use.memory_bytes is not None}
        totals = _apart([(run.start_seconds, {}), *((time, use.totals) for time, use in uses.items())])
        points = {name: _rates(totals, total) for name, total in _GPU_RATES.items()} | {"gpu_held_memory": sizes}
        yield from ((name, Series(labels, tuple(of), tuple(of.values()))) for name, of in points.items() if of)


def _apart(points: Sequence[Point]) -> list[Point]:
    """Leave out points that follow another one too soon: the driver updates its counters of energy now and then."""
    kept = list(points[:1])
    for point in points[1:]:
        if point[0] - kept[-1][0] >= RATE_SECONDS:
            kept.append(point)
    return kept if len(kept) > 1 else list(points)


def _rates(points: Iterable[Point], name: str) -> dict[float, float]:
    return {
        time: max(0.0, totals[name] - earlier.get(name, 0.0)) / (time - before)
        for (before, earlier), (time, totals) in pairwise(points)
        if name in totals and time > before
    }


def used_gpus(run: TracedRun) -> dict[tuple[str, str], dict[float, GpuUse]]:
    """Return every GPU that was used, with what was used of it at each time."""
    found: defaultdict[tuple[str, str], dict[float, GpuUse]] = defaultdict(dict)
    for sample in run.gpu_samples:
        for use in sample.gpus:
            found[use.device][sample.time_seconds] = use
    return found


def measured_gpus(run: TracedRun, measured: Measured, record: JobRecord) -> MeasuredRun:
    """Return the GPUs as those of a job; of the time after the last sample nothing is known."""
    end = max((sample.time_seconds for sample in run.gpu_samples), default=run.start_seconds + run.wall_seconds)
    totals: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for device, uses in used_gpus(run).items():
        for name, labels, value in _gpu_totals(list(uses.values()), end - run.start_seconds):
            totals[name][run.host, *device, *labels] = value
    ratios = totals["gpu_held_utilization"].values()
    if ratios and len(ratios) == len(totals["gpu_jobs"]):
        totals["gpu"][run.host,] = fmean(ratios)
    sizes = [[use.memory_bytes for use in sample.gpus] for sample in run.gpu_samples]
    known = [math.fsum(size or 0 for size in of_all) for of_all in sizes if None not in of_all]
    if known:
        totals["gpu_memory"][run.host,] = max(known)
    return MeasuredRun(
        record=record,
        start_seconds=run.start_seconds,
        end_seconds=end,
        nodes=(run.host,),
        curves=measured.curves,
        totals=totals,
    )


def _gpu_totals(uses: Sequence[GpuUse], seconds: float) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield what one GPU did, by the names of the queries for jobs, with labels behind those of the device."""
    last = uses[-1]
    yield "gpu_info", (last.uuid, last.model), 1.0
    yield "gpu_jobs", (), 2.0 if last.is_shared else 1.0
    sizes = [use.memory_bytes for use in uses if use.memory_bytes is not None]
    if sizes:
        yield "gpu_held_memory", (), float(max(sizes))
    if last.memory_size_bytes is not None:
        yield "gpu_memory_size", (), float(last.memory_size_bytes)
    for total in last.totals:
        value = total_of_rises([use.totals.get(total, 0.0) for use in uses])
        if total == "busy" and seconds > 0:
            yield "gpu_held_utilization", (), min(1.0, value / seconds)
        if total in _GPU_TOTALS:
            yield _GPU_TOTALS[total], (FP32,) if total == FP32 else (), value
        elif total.startswith(_THROTTLED):
            yield "gpu_throttled", (total.removeprefix(_THROTTLED),), value


def gpu_coverage(run: TracedRun, gpus: MeasuredRun) -> Coverage:
    """Return for how long the GPUs were measured; the driver may have hung before the end."""
    if not gpus.by_node("gpu"):
        return NOT_COVERED
    return Coverage(
        nodes=1,
        nodes_measured=1,
        run_ratio=min(1.0, gpus.span_seconds / run.wall_seconds) if run.wall_seconds > 0 else 1.0,
    )
