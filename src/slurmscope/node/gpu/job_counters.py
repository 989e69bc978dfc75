# SPDX-License-Identifier: Apache-2.0
"""Attribute what GPUs did to the jobs that hold them.

What a GPU does while one job holds it is that job's. Where several do, or the holder changed since the last reading,
the exact total of the GPU is split by the busy time of their processes. The driver gives the overlap of two processes
to one of them, so such parts are estimates. The server of MPS gets the busy time of all its clients: then, or where
another process outside of jobs did most of the work, the parts of the jobs are not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from slurmscope.node.gpu.attribution import GpuHold, job_of
from slurmscope.node.gpu.records import Gpu, GpuCounters, JobGpuCounters
from slurmscope.node.job_use import JobKey

# Less is noise of counters.
_LEAST_BUSY_SECONDS = 0.001

Pair = tuple[JobKey, str]
"""A job, and the UUID of a GPU that it holds."""


class JobCounters:
    """Add up what each running job did on each of its GPUs. Not thread-safe."""

    def __init__(self) -> None:
        self._earlier: dict[str, Gpu] = {}
        self._holders: dict[str, frozenset[JobKey]] = {}
        self._totals: dict[Pair, JobGpuCounters] = {}

    def add(self, devices: Iterable[Gpu], holds: Iterable[GpuHold]) -> Mapping[Pair, JobGpuCounters]:
        """Add what happened since the last reading; return the totals of the jobs that hold a GPU now."""
        holders: defaultdict[str, set[JobKey]] = defaultdict(set)
        for hold in holds:
            if hold.is_held:
                holders[hold.gpu.uuid].add(hold.job)
        counted = [gpu for gpu in devices if gpu.counters is not None and gpu.uuid]
        found = [pair for gpu in counted for pair in self._add_gpu(gpu, frozenset(holders[gpu.uuid])).items()]
        self._earlier = {gpu.uuid: gpu for gpu in counted}
        self._holders = {gpu.uuid: frozenset(holders[gpu.uuid]) for gpu in counted}
        self._totals = dict(found)
        return self._totals

    def _add_gpu(self, gpu: Gpu, jobs: frozenset[JobKey]) -> dict[Pair, JobGpuCounters]:
        earlier = self._earlier.get(gpu.uuid)
        passed = _passed(gpu, earlier)
        if len(jobs) == 1 and self._holders.get(gpu.uuid, frozenset()) <= jobs:
            shares: dict[JobKey, float] | None = dict.fromkeys(jobs, 1.0)
        else:
            shares = _shares_by_process(gpu, passed, sorted(jobs, key=repr))
        if shares is None:
            return {}
        totals = _all_totals(gpu, passed, earlier)
        return {
            (job, gpu.uuid): self._sum(
                (job, gpu.uuid), {name: share * total for name, total in totals.items()}, is_estimate=len(jobs) > 1
            )
            for job, share in shares.items()
        }

    def _sum(self, pair: Pair, more: Mapping[str, float], *, is_estimate: bool) -> JobGpuCounters:
        so_far = self._totals.get(pair, JobGpuCounters())
        names = so_far.totals.keys() | more.keys()
        return JobGpuCounters(
            totals={name: so_far.totals.get(name, 0.0) + more.get(name, 0.0) for name in names},
            is_estimate=so_far.is_estimate or is_estimate,
        )


def _passed(gpu: Gpu, earlier: Gpu | None) -> GpuCounters:
    assert gpu.counters is not None  # noqa: S101 - only such GPUs are counted
    return gpu.counters.since(None if earlier is None else earlier.counters)


def _all_totals(gpu: Gpu, passed: GpuCounters, earlier: Gpu | None) -> dict[str, float]:
    """Return what was counted, with what the driver counts by itself: energy and time at reduced clocks."""
    totals = dict(passed.totals)
    if gpu.energy_joules is not None:
        totals["energy"] = _rise(gpu.energy_joules, earlier.energy_joules if earlier else None)
    for reason, seconds in gpu.throttled_seconds.items():
        before = earlier.throttled_seconds.get(reason) if earlier else None
        totals[f"throttled_{reason}"] = _rise(seconds, before)
    return totals


def _rise(now: float, before: float | None) -> float:
    """Return what was added since the last reading; 0 at the first: the driver counts since it was loaded."""
    return 0.0 if before is None else max(0.0, now - before)


def _shares_by_process(gpu: Gpu, passed: GpuCounters, jobs: Sequence[JobKey]) -> dict[JobKey, float] | None:
    """Return the part of each job; None if most of the work was done by processes outside of jobs."""
    if not jobs:
        return {}
    busy: defaultdict[JobKey | None, float] = defaultdict(float)
    for process in gpu.processes or ():
        busy[job_of(process.place, jobs)] += passed.by_pid.get(process.pid, 0.0)
    whole = max(passed.totals.get("busy", 0.0), sum(busy.values()))
    if whole < _LEAST_BUSY_SECONDS:
        return dict.fromkeys(jobs, 1 / len(jobs))
    return None if busy[None] > whole / 2 else {job: busy[job] / whole for job in jobs}
