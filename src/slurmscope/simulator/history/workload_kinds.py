# SPDX-License-Identifier: Apache-2.0
"""Name the kinds of workloads of simulated jobs, and make the workload of a job from its record.

The same record and kind always give the same workload: what is random about it follows from the job ID.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from slurmscope.core.units import GIB, MIB
from slurmscope.jobs.record import JobRecord
from slurmscope.simulator.history.workloads import (
    Files,
    GpuLoad,
    Memory,
    NodeWorkload,
    ProgramKind,
    Threads,
    Work,
    Workload,
    run_program,
)

DEFAULT_BYTES_PER_CPU = 2 * GIB
GPU_BYTES = 80 * GIB


class WorkloadKind(enum.StrEnum):
    """Name what is special about a workload."""

    GOOD = "good"
    IDLE = "idle"
    SERIAL = "serial"
    BURSTY = "bursty"
    CORE_IMBALANCE = "core_imbalance"
    NODE_IMBALANCE = "node_imbalance"
    SPREAD = "spread"
    LEAKING = "leaking"
    OUT_OF_MEMORY = "out_of_memory"
    NEAR_LIMIT = "near_limit"
    MEMORY_OVER_REQUESTED = "memory_over_requested"
    TIME_OVER_REQUESTED = "time_over_requested"
    TIMED_OUT = "timed_out"
    STOPPED_EARLY = "stopped_early"
    TOO_SHORT = "too_short"
    SMALL_FILES = "small_files"
    TINY_REQUESTS = "tiny_requests"
    SCRATCH_UNUSED = "scratch_unused"
    MANY_THREADS = "many_threads"
    GPU_GOOD = "gpu_good"
    GPU_IDLE = "gpu_idle"
    GPU_HELD = "gpu_held"
    GPU_LOW = "gpu_low"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NODE_FAILED = "node_failed"


_TRACED_KINDS = frozenset({WorkloadKind.BURSTY, WorkloadKind.CORE_IMBALANCE, WorkloadKind.NODE_IMBALANCE})
"""Kinds whose jobs run their tasks on the first node under slurmscope run."""
TRACED_RANKS = 8


class _Plan(NamedTuple):
    """The good workload on one node that other kinds are derived from."""

    node: NodeWorkload
    random: Random
    length_seconds: float


def make_workload(
    record: JobRecord,
    kind: WorkloadKind,
    *,
    length_seconds: float,
    program: ProgramKind = ProgramKind.TRAINING,
) -> Workload:
    """Make the workload of a job that has started; ``length_seconds`` is how long it runs, or is thought to run.

    ``program`` is what a job does with its GPUs that uses them well.
    """
    random = Random(f"workload of {record.job_id}")
    length_seconds = max(1.0, length_seconds)
    shape = _SHAPES.get(kind)
    good = _good_node(record, random, length_seconds)
    made = shape(_Plan(good, random, length_seconds)) if shape else good
    if kind is WorkloadKind.GPU_GOOD:
        made = run_program(program, made, float(record.start_seconds or 0), length_seconds)
    nodes = tuple(
        replace(made, name=name, work=replace(made.work, seed=(record.job_id + index) % 97))
        for index, name in enumerate(record.nodes)
    )
    if kind is WorkloadKind.NODE_IMBALANCE:
        nodes = (nodes[0], *(_idle_node(node) for node in nodes[1:]))
    if kind in _TRACED_KINDS and nodes:
        nodes = (replace(nodes[0], traced_ranks=tuple(range(min(TRACED_RANKS, len(made.work.cores))))), *nodes[1:])
    return Workload(record.job_id, float(record.start_seconds or 0), nodes)


def _good_node(record: JobRecord, random: Random, length: float) -> NodeWorkload:
    count = max(1, len(record.nodes))
    cpus = max(1, (record.cpus or 0) // count)
    limit = (record.memory_bytes or (record.cpus or 0) * DEFAULT_BYTES_PER_CPU) / count
    gpus = record.gpus // count
    is_older = any(gres.model == "a100" for gres in record.gres)
    model = "NVIDIA A100-SXM4-80GB" if is_older else "NVIDIA H100 80GB HBM3"
    best = random.uniform(0.35, 0.6) if gpus else random.uniform(0.94, 0.99)
    work = Work(
        cores=tuple(best * random.uniform(0.96, 1.0) for _ in range(cpus)),
        dip_ratio=random.uniform(0.03, 0.14),
        period_seconds=max(60.0, length / random.uniform(5, 23)),
        system_ratio=random.uniform(0.01, 0.08),
    )
    last = limit * random.uniform(0.58, 0.8)
    return NodeWorkload(
        name="",
        work=work,
        memory=Memory(
            limit_bytes=limit,
            first_bytes=last * random.uniform(0.3, 0.8),
            last_bytes=last,
            length_seconds=length,
            shared_bytes=limit * random.uniform(0.001, 0.02),
            cache_bytes=limit * random.uniform(0.02, 0.1),
        ),
        files=Files(
            input_bytes=cpus * random.uniform(10, 400) * MIB,
            read_bytes_per_second=random.uniform(0.05, 4) * MIB,
            write_bytes_per_second=random.uniform(0.02, 3) * MIB,
            open_files=float(random.randrange(6, 60)),
        ),
        threads=Threads(program=_program(record.name), count=float(cpus), running=best * cpus),
        gpus=tuple(
            GpuLoad(
                number=number,
                utilization_ratio=random.uniform(0.78, 0.98),
                memory_bytes=GPU_BYTES * random.uniform(0.4, 0.9),
                model=model,
            )
            for number in range(gpus)
        ),
        # A large job would report thousands of cores; newer kernels report none.
        counts_cores=count == 1,
    )


def _program(job_name: str) -> str:
    """Guess the program from the name of the job, as people name their scripts after it."""
    word = job_name.partition(".")[0].partition("_")[0].partition("-")[0]
    return {"train": "python3", "md": "gmx_mpi", "relax": "vasp_std", "blast": "blastn"}.get(word, word or "a.out")


def _idle_node(node: NodeWorkload) -> NodeWorkload:
    """Return a node on which nothing was started."""
    work = replace(node.work, cores=tuple(0.002 for _ in node.work.cores))
    memory = replace(node.memory, first_bytes=20 * MIB, last_bytes=25 * MIB, cache_bytes=5 * MIB)
    bash = Threads(program="bash", count=1.0, running=0.0)
    return replace(node, work=work, memory=memory, files=Files(open_files=4.0), threads=bash)


def _few_cores(node: NodeWorkload, used: int) -> NodeWorkload:
    """Return a node of whose cores only the first ones are used."""
    cores = tuple(0.98 if number < used else 0.001 for number in range(len(node.work.cores)))
    threads = replace(node.threads, count=float(used), running=0.98 * used)
    return replace(node, work=replace(node.work, cores=cores, dip_ratio=0.04), threads=threads)


def _idle(plan: _Plan) -> NodeWorkload:
    cpus = len(plan.node.work.cores)
    return _few_cores(plan.node, max(1, int(cpus * plan.random.uniform(0.1, 0.5)))) if cpus > 3 else _waiting(plan)


def _waiting(plan: _Plan) -> NodeWorkload:
    """Return a node whose few cores mostly wait."""
    cores = tuple(plan.random.uniform(0.1, 0.4) for _ in plan.node.work.cores)
    threads = replace(plan.node.threads, running=sum(cores))
    return replace(plan.node, work=replace(plan.node.work, cores=cores), threads=threads)


def _bursty(plan: _Plan) -> NodeWorkload:
    return replace(
        plan.node, work=replace(plan.node.work, dip_ratio=0.95, period_seconds=max(60.0, plan.length_seconds / 6))
    )


def _uneven_cores(plan: _Plan) -> NodeWorkload:
    cores = tuple(
        0.98 if number % 4 else plan.random.uniform(0.35, 0.55) for number in range(len(plan.node.work.cores))
    )
    return replace(plan.node, work=replace(plan.node.work, cores=cores, dip_ratio=0.03))


def _leaking(plan: _Plan) -> NodeWorkload:
    limit = plan.node.memory.limit_bytes
    memory = replace(
        plan.node.memory, is_leaking=True, first_bytes=0.05 * limit, last_bytes=plan.random.uniform(0.75, 0.88) * limit,
        shared_bytes=0.0, cache_bytes=0.02 * limit,
    )  # fmt: skip
    return replace(plan.node, memory=memory)


def _killed(plan: _Plan) -> NodeWorkload:
    limit = plan.node.memory.limit_bytes
    memory = replace(
        plan.node.memory, is_leaking=True, first_bytes=0.15 * limit, last_bytes=0.99 * limit, shared_bytes=0.0,
        cache_bytes=0.005 * limit, killed_seconds=0.999 * plan.length_seconds,
    )  # fmt: skip
    return replace(plan.node, memory=memory)


def _near_limit(plan: _Plan) -> NodeWorkload:
    limit = plan.node.memory.limit_bytes
    memory = replace(
        plan.node.memory, first_bytes=0.6 * limit, last_bytes=0.985 * limit, shared_bytes=0.002 * limit,
        cache_bytes=0.01 * limit,
    )  # fmt: skip
    return replace(plan.node, memory=memory)


def _little_memory(plan: _Plan) -> NodeWorkload:
    limit = plan.node.memory.limit_bytes
    last = limit * plan.random.uniform(0.04, 0.3)
    return replace(
        plan.node, memory=replace(plan.node.memory, first_bytes=0.5 * last, last_bytes=last, shared_bytes=0.0)
    )


def _stopping(plan: _Plan) -> NodeWorkload:
    return replace(
        plan.node, work=replace(plan.node.work, stop_seconds=plan.length_seconds * plan.random.uniform(0.3, 0.7))
    )


def _small_files(plan: _Plan) -> NodeWorkload:
    open_files = float(plan.random.randrange(1500, 9000))
    moved = open_files * plan.random.uniform(0.02, 0.4) * MIB
    files = replace(
        plan.node.files, input_bytes=moved, input_seconds=plan.length_seconds, read_bytes_per_second=0.0,
        write_bytes_per_second=moved / plan.length_seconds, open_files=open_files, piece_bytes=4096.0,
    )  # fmt: skip
    return replace(plan.node, files=files)


def _tiny_requests(plan: _Plan) -> NodeWorkload:
    piece = float(plan.random.randrange(40, 200))
    files = replace(
        plan.node.files, input_bytes=0.0, read_bytes_per_second=piece * 1500, write_bytes_per_second=piece * 6000,
        piece_bytes=piece,
    )  # fmt: skip
    return replace(plan.node, files=files, work=replace(plan.node.work, system_ratio=0.6))


def _no_scratch(plan: _Plan) -> NodeWorkload:
    moved = plan.random.uniform(5, 80) * GIB / plan.length_seconds
    return replace(plan.node, files=replace(plan.node.files, read_bytes_per_second=moved, uses_scratch=False))


def _crowded(plan: _Plan) -> NodeWorkload:
    cpus = len(plan.node.work.cores)
    count = float(max(8, cpus * plan.random.choice((4, 8, 16))))
    work = replace(plan.node.work, system_ratio=0.35)
    return replace(plan.node, work=work, threads=replace(plan.node.threads, count=count, running=0.6 * count))


def _gpu_use(ratio: tuple[float, float], memory_ratio: float) -> WorkloadShape:
    def shape(plan: _Plan) -> NodeWorkload:
        gpus = (
            replace(gpu, utilization_ratio=plan.random.uniform(*ratio), memory_bytes=memory_ratio * GPU_BYTES)
            for gpu in plan.node.gpus
        )
        return replace(plan.node, gpus=tuple(gpus))

    return shape


def _gpu_held(plan: _Plan) -> NodeWorkload:
    """Leave all GPUs but the first without a process, and a single one too."""
    used = 1 if len(plan.node.gpus) > 1 else 0
    return replace(plan.node, gpus=tuple(replace(gpu, has_process=gpu.number < used) for gpu in plan.node.gpus))


WorkloadShape = Callable[[_Plan], NodeWorkload]

_SHAPES: Mapping[WorkloadKind, WorkloadShape] = MappingProxyType(
    {
        WorkloadKind.IDLE: _idle,
        WorkloadKind.SERIAL: lambda plan: _few_cores(plan.node, 1),
        WorkloadKind.BURSTY: _bursty,
        WorkloadKind.CORE_IMBALANCE: _uneven_cores,
        WorkloadKind.LEAKING: _leaking,
        WorkloadKind.OUT_OF_MEMORY: _killed,
        WorkloadKind.NEAR_LIMIT: _near_limit,
        WorkloadKind.MEMORY_OVER_REQUESTED: _little_memory,
        WorkloadKind.STOPPED_EARLY: _stopping,
        WorkloadKind.SMALL_FILES: _small_files,
        WorkloadKind.TINY_REQUESTS: _tiny_requests,
        WorkloadKind.SCRATCH_UNUSED: _no_scratch,
        WorkloadKind.MANY_THREADS: _crowded,
        WorkloadKind.GPU_IDLE: _gpu_use((0.0, 0.01), 0.02),
        WorkloadKind.GPU_HELD: _gpu_held,
        WorkloadKind.GPU_LOW: _gpu_use((0.06, 0.18), 0.15),
    }
)
"""What sets a workload apart from a good one; kinds that are not here differ in their record."""
