# SPDX-License-Identifier: Apache-2.0
"""Export since when a job has not moved: used no core, no GPU, no file, no network, and ended no collective operation.

::

    jobs_progress_seconds{slurm_job="4711",slurm_node="n17",kind="cpu"} 0
    jobs_progress_seconds{slurm_job="4711",slurm_node="n17",kind="gpu"} 1260.2

Something moves all the time: a log line, a timer, a thread that polls. Less than so much a second is no movement. A
GPU that waits for another one spins: its multiprocessors are at work, up to a fifth of them, but they transfer and
compute nothing. Where only the busy time of a GPU is known, such a wait looks like work.

A kind that is not measured is absent: GPUs that the job does not have or share, the network while the job is not alone
on the node, collective operations without a source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, gauge
from slurmscope.node.gpu.records import Absence, Gpus, JobGpuCounters
from slurmscope.node.job_metrics import JOB, job_labels
from slurmscope.node.job_use import WHOLE_JOB, JobKey, JobUse, NodeJobs, ProcessUse
from slurmscope.node.network import ETHERNET, NodeNetwork

CPU = "cpu"
GPU = "gpu"
IO = "io"
NETWORK = "network"
COLLECTIVES = "collectives"

SHORTEST_SECONDS = 5.0
"""Readings in shorter succession count as one: rates over less say nothing."""

LEAST_CORES = 0.01
LEAST_IO_BYTES = 1000.0
LEAST_ETHERNET_BYTES = 100_000.0
LEAST_RDMA_BYTES = 10_000.0
LEAST_GPU_SHARE = 0.005
LEAST_BUSY_SHARE = 0.02
LEAST_GPU_BYTES = 10e6
_GPU_SHARES = ("dram_active", "tensor_active", "fp64", "fp32", "fp16", "hmma", "imma", "dfma", "dmma")
_GPU_BYTES = ("pcie_received", "pcie_transmitted", "nvlink_received", "nvlink_transmitted")


class Amount(NamedTuple):
    """A total that grows while a job moves, and how much it has to grow a second."""

    total: float
    least: float


Part = tuple[str, str]
"""A kind of movement, and what it is made of."""
Amounts = Mapping[Part, Amount]


class ProgressReader:
    """Remember when each job last moved. Not thread-safe."""

    def __init__(
        self,
        read_jobs: Callable[[], NodeJobs],
        read_gpus: Callable[[], Gpus],
        read_network: Callable[[], NodeNetwork | None],
        read_collectives: Callable[[], Mapping[JobKey, float]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what reads the sources; ``read_collectives`` returns the collective operations that each job began."""
        self._read_jobs = read_jobs
        self._read_gpus = read_gpus
        self._read_network = read_network
        self._read_collectives = read_collectives
        self._clock = clock
        self._last: dict[JobKey, _Seen] = {}

    def read(self) -> dict[JobKey, dict[str, float]]:
        """Return, by job and kind, the seconds since the last movement."""
        jobs = [job for job in self._read_jobs().jobs if not job.has_ended]
        gpus, network, collectives = self._read_gpus(), self._read_network(), self._read_collectives()
        now = self._clock()
        of_gpus: dict[JobKey, dict[str, JobGpuCounters]] = {}
        for (key, uuid), known in gpus.job_counters.items():
            of_gpus.setdefault(key, {})[uuid] = known
        before, self._last = self._last, {}
        for job in jobs:
            of_network = network.jobs.get(job.key) if network and len(jobs) == 1 else None
            amounts = {**of_job_gpus(of_gpus.get(job.key, {})), **of_transports(of_network or {})}
            if job.key in collectives:
                amounts[COLLECTIVES, ""] = Amount(collectives[job.key], 0.0)
            self._last[job.key] = _advance(before.get(job.key), job, amounts, now)
        return {key: {kind: now - seen.moved_at[kind] for kind in seen.kinds} for key, seen in self._last.items()}


class _Seen(NamedTuple):
    """What a job had at one reading, or when it was last measured, and when it last moved, by kind."""

    at: float
    totals: Mapping[Part, tuple[float, float]]
    """With the time at which each was measured: those of processes that take long to read are of an earlier reading."""
    moved_at: Mapping[str, float]
    kinds: frozenset[str]


def _advance(before: _Seen | None, job: JobUse, amounts: Amounts, now: float) -> _Seen:
    if before is not None and now - before.at < SHORTEST_SECONDS:
        return before
    amounts = {**amounts, **of_cgroup(job), **(of_io(job.processes) if job.are_processes_read else {})}
    was = before.totals if before else {}
    # Their total goes on meanwhile; what else is not measured for a while counts anew.
    late = {} if job.are_processes_read else {part: known for part, known in was.items() if part[0] == IO}
    moved = {kind: now for kind, part in amounts if _has_moved(was.get((kind, part)), amounts[kind, part], now)}
    return _Seen(
        at=now,
        totals={**late, **{part: (amount.total, now) for part, amount in amounts.items()}},
        moved_at={**(before.moved_at if before else {}), **moved},
        kinds=frozenset(kind for kind, _ in amounts),
    )


def _has_moved(was: tuple[float, float] | None, amount: Amount, now: float) -> bool:
    """Return whether a total has grown since it was measured; one that is new or has fallen counts as movement."""
    if was is None or amount.total < was[0]:
        return True
    return amount.total > was[0] and amount.total - was[0] >= amount.least * (now - was[1])


def of_cgroup(job: JobUse) -> dict[tuple[str, str], Amount]:
    """Return the CPU time of a job, in which that of slurmstepd does not matter."""
    seconds = job.groups[WHOLE_JOB].cpu.total_seconds if WHOLE_JOB in job.groups else None
    return {} if seconds is None else {(CPU, ""): Amount(seconds, LEAST_CORES)}


def of_io(use: ProcessUse | None) -> dict[tuple[str, str], Amount]:
    """Return the bytes that processes read and wrote."""
    if use is None or use.io is None:
        return {}
    return {(IO, ""): Amount(use.io.read_chars + use.io.write_chars, LEAST_IO_BYTES)}


def of_job_gpus(counters: Mapping[str, JobGpuCounters]) -> dict[tuple[str, str], Amount]:
    """Return what the GPUs of a job computed and transferred; their busy time where nothing else is known."""
    found: dict[tuple[str, str], Amount] = {}
    for uuid, known in counters.items():
        if known.absence is not Absence.NONE:
            continue
        totals = known.totals
        amounts = {name: Amount(totals[name], LEAST_GPU_SHARE) for name in _GPU_SHARES if name in totals}
        if not amounts and "busy" in totals:
            amounts = {"busy": Amount(totals["busy"], LEAST_BUSY_SHARE)}
        amounts |= {name: Amount(totals[name], LEAST_GPU_BYTES) for name in _GPU_BYTES if name in totals}
        found.update({(GPU, f"{uuid} {name}"): amount for name, amount in amounts.items()})
    return found


def of_transports(transferred: Mapping[str, tuple[int, int]]) -> dict[tuple[str, str], Amount]:
    """Return the bytes of a job by transport."""
    return {
        (NETWORK, transport): Amount(sum(both), LEAST_ETHERNET_BYTES if transport == ETHERNET else LEAST_RDMA_BYTES)
        for transport, both in transferred.items()
    }


PROGRESS = gauge(
    "jobs_progress_seconds",
    "Time since the job last moved, as far as the agent saw it, by kind: cpu, gpu (transfers and arithmetic, not "
    "spinning), io, network (of the only job of a node), collectives (of NCCL).",
    *JOB,
    "kind",
)


def collect(
    options: NoOptions,  # noqa: ARG001 - part of the protocol
    *,
    progress: Mapping[JobKey, Mapping[str, float]],
    node_jobs: NodeJobs,
) -> Iterable[Family]:
    """Yield the times of all running jobs."""
    yield Family(PROGRESS, dict(_samples(progress, node_jobs.host_name)))


def _samples(progress: Mapping[JobKey, Mapping[str, float]], host_name: str) -> Iterator[tuple[tuple[str, ...], float]]:
    for key, kinds in progress.items():
        for kind, seconds in kinds.items():
            yield (*job_labels(key, host_name), kind), seconds


COLLECTOR = Collector(
    name="progress",
    role=Role.NODE,
    help="For how long jobs have not moved: CPU, GPU work, I/O, network and collective operations.",
    needs=("progress", "node_jobs"),
    metrics=(PROGRESS,),
    collect=collect,
)
