# SPDX-License-Identifier: Apache-2.0
"""Map GPUs to the jobs that hold them, from all sources, and detect where these contradict each other.

- ``devices``: the kernel lets the job's processes open the GPU. The strongest source, and a complete one.
- ``processes``: a process of the job has a context on the GPU.
- ``environment``: Slurm's variables in the job's environment name the GPU. Users can change them.

A pair of job and GPU is disputed when a source that names all GPUs of the job leaves out one that another source
names, or when different sources name different jobs for the same GPU. Every named pair is held, except one that
only the environment names while the kernel denies it or better evidence gives the GPU to another job. Jobs that
Slurm lets share GPUs (shards, MPS) do not contradict each other.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurmscope.analysis.gpus.claims import SHARE_SIGNS, Claim, Numbering, claim_from_environment
from slurmscope.model.gpus import Gpu, GpuProcess, Gpus, ProcessPlace
from slurmscope.model.job_use import JobKey, JobUse, NodeJobs


class Source(enum.Enum):
    """Source of the mapping between jobs and GPUs."""

    ENVIRONMENT = "environment"
    DEVICES = "devices"
    PROCESSES = "processes"


Claims = Mapping[Source, Claim]
ENVIRONMENT_ONLY = frozenset({Source.ENVIRONMENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHold:
    """Hold the relation between a job and a GPU.

    ``is_idle`` means that the job has no process on it; None where processes are unknown.
    """

    job: JobKey
    gpu: Gpu
    sources: frozenset[Source]
    is_held: bool
    is_disputed: bool
    is_idle: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMapping:
    """Hold every pair of job and GPU, and the number of unresolved GPU names by job."""

    holds: tuple[GpuHold, ...] = ()
    unresolved: Mapping[JobKey, int] = field(default_factory=dict)


def map_gpus(gpus: Gpus, jobs: NodeJobs, numbering: Numbering = Numbering.AUTO) -> GpuMapping:
    """Join the GPUs and the jobs of one node; jobs that have ended hold nothing."""
    running = {job.key: job for job in jobs.jobs if not job.has_ended}
    holdable = [gpu for gpu in gpus.devices if gpu.is_holdable]
    used = _claims_of_processes(holdable, running)
    claims = {key: _claims(job, holdable, gpus, used.get(key), numbering) for key, job in running.items()}
    holds = tuple(hold for gpu in holdable for hold in _holds(gpu, claims, running))
    unresolved = {
        key: claim.unresolved
        for key, of_job in claims.items()
        if (claim := of_job.get(Source.ENVIRONMENT)) is not None and claim.unresolved
    }
    return GpuMapping(holds=holds, unresolved=unresolved)


def job_of(place: ProcessPlace | None, jobs: Iterable[JobKey]) -> JobKey | None:
    """Find the job in whose cgroup a process is; a SLUID distinguishes two runs of a job."""
    if place is None or not place.is_in_job:
        return None
    for key in jobs:
        is_same = key.sluid == place.sluid if place.sluid else key.job_id == place.job_id
        if is_same and key.node_name == place.node_name:
            return key
    return None


def _claims(
    job: JobUse, gpus: Sequence[Gpu], all_gpus: Gpus, used: frozenset[str] | None, numbering: Numbering
) -> dict[Source, Claim]:
    claims = {}
    if (claim := claim_from_environment(job.environment, gpus, numbering)) is not None:
        claims[Source.ENVIRONMENT] = claim
    if job.key in all_gpus.allowed:
        claims[Source.DEVICES] = Claim(uuids=all_gpus.allowed[job.key], is_complete=True)
    if used is not None:
        claims[Source.PROCESSES] = Claim(uuids=used)
    return claims


def _claims_of_processes(gpus: Sequence[Gpu], jobs: Mapping[JobKey, JobUse]) -> dict[JobKey, frozenset[str]]:
    used: defaultdict[JobKey, set[str]] = defaultdict(set)
    for gpu in gpus:
        for process in gpu.processes or ():
            if (key := job_of(process.place, jobs)) is not None:
                used[key].add(gpu.uuid)
    return {key: frozenset(uuids) for key, uuids in used.items()}


def _holds(gpu: Gpu, claims: Mapping[JobKey, Claims], jobs: Mapping[JobKey, JobUse]) -> Iterator[GpuHold]:
    """Yield every job that some source names for this GPU."""
    named = {key: _naming(gpu, of_job) for key, of_job in claims.items() if _naming(gpu, of_job)}
    for key, sources in named.items():
        rivals = [of_rival for rival, of_rival in named.items() if rival != key]
        is_contested = not _is_sharing(jobs[key]) and _is_contested(sources, rivals)
        is_left_out = any(claim.is_complete and gpu.uuid not in claim.uuids for claim in claims[key].values())
        is_denied = Source.DEVICES in claims[key] and Source.DEVICES not in sources
        is_overruled = is_denied or (is_contested and any(map(_is_strong, rivals)))
        yield GpuHold(
            job=key,
            gpu=gpu,
            sources=sources,
            is_held=sources != ENVIRONMENT_ONLY or not is_overruled,
            is_disputed=is_left_out or is_contested,
            is_idle=_is_idle(jobs[key], gpu.processes),
        )


def _naming(gpu: Gpu, claims: Claims) -> frozenset[Source]:
    return frozenset(source for source, claim in claims.items() if gpu.uuid in claim.uuids)


def _is_sharing(job: JobUse) -> bool:
    return any(name in job.environment for name in SHARE_SIGNS)


def _is_strong(sources: frozenset[Source]) -> bool:
    return Source.DEVICES in sources or len(sources) > 1


def _is_contested(sources: frozenset[Source], rivals: Iterable[frozenset[Source]]) -> bool:
    """Return whether the only source for a job is contradicted by a source for another job."""
    return not _is_strong(sources) and any(rival - sources for rival in rivals)


def _is_idle(job: JobUse, processes: Sequence[GpuProcess] | None) -> bool | None:
    """Return whether no process on the GPU can belong to the job.

    A process of the job's user outside of all jobs may have been moved there by a container runtime.
    """
    if processes is None:
        return None
    return not any(_may_be_of(job, process) for process in processes)


def _may_be_of(job: JobUse, process: GpuProcess) -> bool:
    if process.place is None:
        return True
    if process.place.is_in_job:
        return job_of(process.place, [job.key]) is not None
    return process.uid == job.uid
