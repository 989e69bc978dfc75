# SPDX-License-Identifier: Apache-2.0
"""Map GPUs to the jobs that hold them, from all sources, and sum up what each job uses of them.

Users can change the environment of their processes, so this is the weakest source.
The numbers in ``SLURM_JOB_GPUS`` are Slurm's own. Up to Slurm 20.11 they are the numbers of the device files,
later the positions in gres.conf, which is the order of nvidia-smi with AutoDetect and mostly without. Where both
readings mean the same GPU the number is used; elsewhere the site has to configure which one applies.
``CUDA_VISIBLE_DEVICES`` counts from 0 in each job where devices are constrained: only its UUIDs are usable.

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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurmscope.node.cgroup.names import job_of
from slurmscope.node.gpu.records import Gpu, GpuProcess, Gpus, Vendor
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs

JOB_GPUS = "SLURM_JOB_GPUS"
STEP_GPUS = "SLURM_STEP_GPUS"
VISIBLE = "CUDA_VISIBLE_DEVICES"
STEP_ID = "SLURM_STEP_ID"
NODE_COUNT = "SLURM_JOB_NUM_NODES"
SHARE_SIGNS = ("SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
ENVIRONMENT_NAMES = (JOB_GPUS, STEP_GPUS, VISIBLE, STEP_ID, NODE_COUNT, *SHARE_SIGNS)
"""Environment variables to read from a job's process."""

MOST_WORDS = 256
# A shorter beginning of a UUID may mean any GPU.
_LEAST_UUID = 8


class Numbering(enum.Enum):
    """How Slurm numbers GPUs: as nvidia-smi, as the device files, or only where both agree."""

    AUTO = "auto"
    INDEX = "index"
    MINOR = "minor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The GPUs (by UUID) that a source attributes to a job.

    ``is_complete`` means that the job has no others on this node; ``unresolved`` counts names that match no GPU here.
    """

    uuids: frozenset[str]
    is_complete: bool = False
    unresolved: int = 0


def claim_from_environment(
    environment: Mapping[str, str], gpus: Sequence[Gpu], numbering: Numbering = Numbering.AUTO
) -> Claim | None:
    """Return the GPUs that the environment of one process names; None when it has none of the variables."""
    texts = [environment[STEP_GPUS]] if STEP_GPUS in environment else []
    is_of_job = JOB_GPUS in environment and _is_of_this_node(environment)
    if is_of_job:
        texts.append(environment[JOB_GPUS])
    texts.append(",".join(word for word in _words(environment.get(VISIBLE, "")) if not word.isdecimal()))
    words = {word for text in texts for word in _words(text)}
    if not words:
        return None
    found = {word: resolve(word, gpus, numbering) for word in words}
    uuids = frozenset(gpu.uuid for gpu in found.values() if gpu is not None)
    unresolved = sum(gpu is None for gpu in found.values())
    return Claim(uuids=uuids, is_complete=is_of_job and not unresolved, unresolved=unresolved)


def resolve(word: str, gpus: Sequence[Gpu], numbering: Numbering) -> Gpu | None:
    """Find the one GPU that a number or a UUID means; None when it is none or ambiguous."""
    if not word.isdecimal():
        return _only(gpu for gpu in gpus if len(word) >= _LEAST_UUID and gpu.uuid.startswith(word))
    # Slurm numbers MIG instances and whole GPUs in one sequence, in an order that is unknown here.
    if len(word) > 6 or any(gpu.parent_uuid for gpu in gpus):
        return None
    number = int(word)
    by_index = _only(gpu for gpu in gpus if gpu.index == number)
    by_minor = _by_minor(number, gpus)
    if numbering is Numbering.INDEX:
        return by_index
    if numbering is Numbering.MINOR:
        return by_minor
    return by_index if by_index is by_minor else None


def _by_minor(number: int, gpus: Sequence[Gpu]) -> Gpu | None:
    """Find a GPU by its device file; render nodes, which begin at 128, are counted from 0 by Slurm."""
    if all(gpu.vendor is Vendor.NVIDIA for gpu in gpus):
        return _only(gpu for gpu in gpus if gpu.minor == number)
    ordered = sorted((gpu for gpu in gpus if gpu.minor is not None), key=lambda gpu: gpu.minor or 0)
    return ordered[number] if number < len(ordered) else None


def _is_of_this_node(environment: Mapping[str, str]) -> bool:
    """Return whether SLURM_JOB_GPUS was set on this node: srun passes that of the batch script to all nodes."""
    return environment.get(NODE_COUNT) == "1" or STEP_ID not in environment


def _words(text: str) -> list[str]:
    return [word for part in text.split(",")[:MOST_WORDS] if (word := part.strip()) and word != "NoDevFiles"]


def _only(gpus: Iterable[Gpu]) -> Gpu | None:
    found = list(gpus)
    return found[0] if len(found) == 1 else None


class Source(enum.Enum):
    """Source of the mapping between jobs and GPUs."""

    ENVIRONMENT = "environment"
    DEVICES = "devices"
    PROCESSES = "processes"


Claims = Mapping[Source, Claim]
ENVIRONMENT_ONLY = frozenset({Source.ENVIRONMENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHold:
    """The relation between a job and a GPU.

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
    """Every pair of job and GPU, the number of unresolved GPU names by job, and the jobs, of which some have ended."""

    holds: tuple[GpuHold, ...] = ()
    unresolved: Mapping[JobKey, int] = field(default_factory=dict)
    running: frozenset[JobKey] = frozenset()
    ended: frozenset[JobKey] = frozenset()


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
    ended = frozenset(job.key for job in jobs.jobs if job.has_ended)
    return GpuMapping(holds=holds, unresolved=unresolved, running=frozenset(running), ended=ended)


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
        rivals = [
            of_rival for rival, of_rival in named.items() if rival != key and not _do_share(jobs[key], jobs[rival])
        ]
        is_contested = _is_contested(sources, rivals)
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


def _do_share(job: JobUse, rival: JobUse) -> bool:
    """Return whether Slurm lets two jobs share GPUs; a sign that only one of them shows may be forged."""
    return all(any(name in one.environment for name in SHARE_SIGNS) for one in (job, rival))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGpuUse:
    """What a job uses of one GPU that it holds; ``jobs`` counts all jobs that hold it.

    Memory is None where the driver does not report it, utilization also where other jobs hold the GPU too.
    """

    hold: GpuHold
    jobs: int
    memory_bytes: int | None = None
    utilization_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGpuUse:
    """The sums of one job; None where one of its GPUs does not report, or other jobs use it too."""

    memory_bytes: int | None = None
    utilization_ratio: float | None = None


def find_held_use(mapping: GpuMapping) -> list[HeldGpuUse]:
    """Return the use of every GPU by every job that holds it."""
    held = [hold for hold in mapping.holds if hold.is_held]
    holders = Counter(hold.gpu.uuid for hold in held)
    return [
        HeldGpuUse(
            hold=hold,
            jobs=holders[hold.gpu.uuid],
            memory_bytes=_memory_bytes(hold.job, hold.gpu),
            utilization_ratio=hold.gpu.utilization_ratio if holders[hold.gpu.uuid] == 1 else None,
        )
        for hold in held
    ]


def sum_up_jobs(uses: Sequence[HeldGpuUse]) -> dict[JobKey, JobGpuUse]:
    """Sum up every job that holds a GPU."""
    by_job: defaultdict[JobKey, list[HeldGpuUse]] = defaultdict(list)
    for use in uses:
        by_job[use.hold.job].append(use)
    return {key: _sum_up(of_job) for key, of_job in by_job.items()}


def _sum_up(uses: Sequence[HeldGpuUse]) -> JobGpuUse:
    memory = [use.memory_bytes for use in uses if use.memory_bytes is not None]
    ratios = [use.utilization_ratio for use in uses if use.utilization_ratio is not None]
    return JobGpuUse(
        memory_bytes=sum(memory) if len(memory) == len(uses) else None,
        utilization_ratio=sum(ratios) / len(ratios) if ratios and len(ratios) == len(uses) else None,
    )


def _memory_bytes(key: JobKey, gpu: Gpu) -> int | None:
    """Add up the memory of the job's own processes; None where the processes of the GPU are not all known."""
    if gpu.processes is None:
        return None
    total = 0
    for process in gpu.processes:
        if process.place is None:
            return None
        if job_of(process.place, [key]) is not None:
            if process.memory_bytes is None:
                return None
            total += process.memory_bytes
    return total
