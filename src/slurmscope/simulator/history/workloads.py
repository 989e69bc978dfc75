# SPDX-License-Identifier: Apache-2.0
"""Describe what a simulated job does from its first second to its last.

Every number is a closed formula of the time since the start, so that a workload can be evaluated at any time, in any
order: counters never fall, and parts add up to their whole at any time. Times are seconds since the start of the
job; a workload that runs longer than planned stays as it was at its planned end.

The load is constant within a tenth of an iteration. Its sum up to any moment is a closed formula, because the noise
repeats after a hundred iterations: any time can be evaluated at once, and always gives the same number.

Loads of programs on a GPU were measured on an H200; a job's program follows from its ID, like all that is random.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from slurmscope.core.units import GIB, MIB

STEPS = 10
"""Steps of an iteration; the last one is the checkpoint."""
CHECKPOINT_LOAD = 0.7
STARTUP_LOAD = 0.5

_CYCLE = 100 * STEPS
_random = Random("rhythm of simulated programs")
NOISE = tuple(_random.random() for _ in range(_CYCLE))
_WEIGHTS = tuple(CHECKPOINT_LOAD if step % STEPS == STEPS - 1 else 1.0 for step in range(_CYCLE))
_WEIGHT_SUMS = (0.0, *accumulate(_WEIGHTS))
_NOISE_SUMS = (0.0, *accumulate(weight * noise for weight, noise in zip(_WEIGHTS, NOISE, strict=True)))

STUCK_PART = 0.4
"""Part of a run after which a program that gets stuck does nothing."""
FAULT_PART = 0.97
"""Part of a run after which a GPU reports an error."""


def load_in(step: int, *, dip_ratio: float, seed: int) -> float:
    """Return the load of a step since the start, from 0 to 1; noise lowers it by up to ``dip_ratio``."""
    place = (step + STEPS * seed) % _CYCLE
    load = _WEIGHTS[place] * (1 - dip_ratio * NOISE[place])
    return STARTUP_LOAD * load if step == 0 else load


def sum_before(step: int, *, dip_ratio: float, seed: int) -> float:
    """Return the sum of the loads of all steps before this one."""
    first = STEPS * seed
    total = _sum_to(first + step, dip_ratio) - _sum_to(first, dip_ratio)
    return total - load_in(0, dip_ratio=dip_ratio, seed=seed) * (1 / STARTUP_LOAD - 1) if step > 0 else 0.0


def checkpoints(at: float, period_seconds: float) -> float:
    """Return how many checkpoints were written until this time; the last one may be unfinished."""
    whole, part = divmod(at / period_seconds, 1.0)
    return whole + max(0.0, (part - (1 - 1 / STEPS)) * STEPS)


def noise_at(at: float, step_seconds: float) -> float:
    """Return noise from 0 to 1 that changes once per step."""
    return NOISE[math.floor(at / step_seconds) % _CYCLE]


def _sum_to(step: int, dip_ratio: float) -> float:
    cycles, place = divmod(step, _CYCLE)
    weights = cycles * _WEIGHT_SUMS[-1] + _WEIGHT_SUMS[place]
    return weights - dip_ratio * (cycles * _NOISE_SUMS[-1] + _NOISE_SUMS[place])


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Describe how busy each core is (0 to 1) at its best, how deep the load dips, and when the work stops.

    ``period_seconds`` is the length of an iteration; ``seed`` sets the noise of one node apart from that of others.
    """

    cores: tuple[float, ...]
    dip_ratio: float = 0.1
    period_seconds: float = 600.0
    stop_seconds: float = math.inf
    system_ratio: float = 0.05
    seed: int = 0

    def done_seconds(self, at: float) -> float:
        """Return how long a core that is never idle at its best would have computed so far."""
        worked = max(0.0, min(at, self.stop_seconds))
        width = self.period_seconds / STEPS
        step = math.floor(worked / width)
        whole = sum_before(step, dip_ratio=self.dip_ratio, seed=self.seed)
        return width * whole + (worked - step * width) * self._load_in(step)

    def load(self, at: float) -> float:
        """Return the load of this moment as a share of the best one."""
        if at > self.stop_seconds:
            return 0.0
        return self._load_in(math.floor(max(0.0, at) * STEPS / self.period_seconds))

    def _load_in(self, step: int) -> float:
        return load_in(step, dip_ratio=self.dip_ratio, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Describe how memory grows from ``first_bytes`` to ``last_bytes``: at once, or all the time where it leaks."""

    limit_bytes: float
    first_bytes: float
    last_bytes: float
    length_seconds: float
    shared_bytes: float = 0.0
    cache_bytes: float = 0.0
    is_leaking: bool = False
    killed_seconds: float = math.inf
    """When the kernel kills a process that ran out of memory."""

    def anon_bytes(self, at: float) -> float:
        """Return memory that is backed by no file; it breathes a little below what is charged."""
        return self._held_bytes(at) * (1 - 0.02 * noise_at(at, 70.0))

    def charged_bytes(self, at: float) -> float:
        """Return what the kernel charges; it never falls, because file cache takes the place of what is let go."""
        return self._held_bytes(at) + self.file_bytes(at)

    def file_bytes(self, at: float) -> float:
        """Return shared memory and file cache, which the kernel counts together."""
        return self.shared_bytes + self.cache_bytes * (1 - math.exp(-at / 300.0))

    def _held_bytes(self, at: float) -> float:
        part = at / self.length_seconds
        grown = min(1.0, part) if self.is_leaking else 1 - math.exp(-12 * part)
        return self.first_bytes + (self.last_bytes - self.first_bytes) * grown


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Describe how fast a job reads and writes, in pieces of which size, and how many files it has open."""

    input_bytes: float = 0.0
    """What is read in the first ``input_seconds``."""
    input_seconds: float = 120.0
    read_bytes_per_second: float = 0.0
    write_bytes_per_second: float = 0.0
    piece_bytes: float = 128 * 1024.0
    open_files: float = 12.0
    uses_scratch: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """Describe how many threads the job's program has, and how many of them want to run at its best."""

    program: str
    count: float
    running: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProgram:
    """Describe what parts of a GPU do while it is busy, as shares of that time, and its power in watts then.

    ``pcie_bytes`` are per second of the run, ``thermal`` is the part of the busy time at reduced clocks. The defaults
    are those of a training in half precision.
    """

    sm: float = 0.91
    tensor: float = 0.33
    fp32: float = 0.0
    dram: float = 0.34
    watts: float = 690.0
    pcie_bytes: float = 41.0 * MIB
    thermal: float = 0.0
    xid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """Describe what a job does with one GPU; one without a process is held for nothing.

    From ``stuck_seconds`` on, one thread spins; an error is reported at ``fault_seconds``, in Unix time
    ``fault_at_seconds``.
    """

    number: int
    utilization_ratio: float
    memory_bytes: float
    has_process: bool = True
    model: str = "NVIDIA H100 80GB HBM3"
    memory_size_bytes: float = 80.0 * GIB
    program: GpuProgram = GpuProgram()
    stuck_seconds: float = math.inf
    fault_seconds: float = math.inf
    fault_at_seconds: float = 0.0

    @property
    def has_counters(self) -> bool:
        """Return whether the hardware counts what its parts do: not before Hopper."""
        return "A100" not in self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWorkload:
    """What a job does on one of its nodes; ``counts_cores`` is for kernels that count CPU time per core."""

    name: str
    work: Work
    memory: Memory
    files: Files
    threads: Threads
    gpus: tuple[GpuLoad, ...] = ()
    counts_cores: bool = True
    traced_ranks: tuple[int, ...] = ()
    """Ranks that run under slurmscope run; they share the cores in turn."""

    def cpu_seconds(self, at: float) -> float:
        """Return the CPU time so far."""
        return math.fsum(self.work.cores) * self.work.done_seconds(at)

    def busy_cores(self, at: float) -> float:
        return math.fsum(self.work.cores) * self.work.load(at)

    def read_bytes(self, at: float) -> float:
        """Return what was read so far."""
        files, worked = self.files, min(at, self.work.stop_seconds)
        return files.input_bytes * min(1.0, worked / files.input_seconds) + files.read_bytes_per_second * worked

    def written_bytes(self, at: float) -> float:
        """Return what was written so far: a fifth as it comes, the rest with the checkpoints."""
        worked, period = min(at, self.work.stop_seconds), self.work.period_seconds
        return self.files.write_bytes_per_second * (0.2 * worked + 0.8 * period * checkpoints(worked, period))

    def gpu_ratio(self, at: float) -> float | None:
        """Return the mean utilization of the GPUs; None where there are none."""
        if not self.gpus:
            return None
        return math.fsum(self.one_gpu_ratio(gpu, at) for gpu in self.gpus) / len(self.gpus)

    def one_gpu_ratio(self, gpu: GpuLoad, at: float) -> float:
        if at > gpu.stuck_seconds:
            return 1.0
        return gpu.utilization_ratio * self.work.load(at) if gpu.has_process else 0.0

    def one_gpu_seconds(self, gpu: GpuLoad, at: float) -> float:
        """Return the time so far in which the GPU was busy."""
        return self.worked_seconds(gpu, at) + max(0.0, at - gpu.stuck_seconds)

    def worked_seconds(self, gpu: GpuLoad, at: float) -> float:
        """Return the time so far in which the GPU was busy and not stuck."""
        return gpu.utilization_ratio * self.work.done_seconds(min(at, gpu.stuck_seconds)) if gpu.has_process else 0.0

    def gpu_bytes(self, at: float) -> float | None:
        """Return the GPU memory that processes hold; it is filled within the first minute."""
        if not self.gpus:
            return None
        return math.fsum(self.one_gpu_bytes(gpu, at) for gpu in self.gpus)

    def one_gpu_bytes(self, gpu: GpuLoad, at: float) -> float:
        return gpu.memory_bytes * min(1.0, at / 60.0) if gpu.has_process else 0.0


class Workload(NamedTuple):
    job_id: int
    start_seconds: float
    nodes: tuple[NodeWorkload, ...]

    def cpu_seconds(self, at: float) -> float:
        """Return the CPU time of all nodes so far."""
        return math.fsum(node.cpu_seconds(at) for node in self.nodes)


class ProgramKind(enum.StrEnum):
    """Name what is special about a program that uses GPUs."""

    TRAINING = "training"
    FP32 = "fp32"
    MEMORY_BOUND = "memory_bound"
    LAUNCH_BOUND = "launch_bound"
    COPIES = "copies"
    STARVED = "starved"
    SOME_IDLE = "some_idle"
    UNUSED_MEMORY = "unused_memory"
    STUCK = "stuck"
    THROTTLED = "throttled"
    BAD_POINTER = "bad_pointer"
    LOST = "lost"


_PROGRAMS: Mapping[ProgramKind, GpuProgram] = MappingProxyType(
    {
        ProgramKind.FP32: GpuProgram(sm=0.97, tensor=0.06, fp32=0.74, dram=0.12, watts=634, pcie_bytes=10 * MIB),
        ProgramKind.MEMORY_BOUND: GpuProgram(sm=0.99, tensor=0.0, dram=0.88, watts=580, pcie_bytes=22 * MIB),
        ProgramKind.LAUNCH_BOUND: GpuProgram(sm=0.001, tensor=0.0, dram=0.0, watts=128, pcie_bytes=152 * MIB),
        ProgramKind.COPIES: GpuProgram(sm=0.0, tensor=0.0, dram=0.01, watts=130, pcie_bytes=55_036 * MIB),
        ProgramKind.STARVED: GpuProgram(sm=0.76, tensor=0.74, dram=0.2, watts=780, pcie_bytes=30 * MIB),
        ProgramKind.THROTTLED: GpuProgram(thermal=0.3, watts=520),
        ProgramKind.BAD_POINTER: GpuProgram(xid=31),
        ProgramKind.LOST: GpuProgram(xid=79),
    }
)
"""Programs that differ from a training in half precision, which keeps tensor cores at work."""
_BUSY: Mapping[ProgramKind, float] = MappingProxyType(
    {
        ProgramKind.MEMORY_BOUND: 0.98,
        ProgramKind.LAUNCH_BOUND: 0.22,
        ProgramKind.COPIES: 0.0001,
        ProgramKind.STARVED: 0.24,
    }
)
PROGRAM_SHARES: Mapping[ProgramKind, float] = MappingProxyType(
    {
        ProgramKind.TRAINING: 45,
        ProgramKind.FP32: 12,
        ProgramKind.MEMORY_BOUND: 8,
        ProgramKind.LAUNCH_BOUND: 5,
        ProgramKind.COPIES: 4,
        ProgramKind.STARVED: 7,
        ProgramKind.SOME_IDLE: 4,
        ProgramKind.UNUSED_MEMORY: 3,
        ProgramKind.STUCK: 4,
        ProgramKind.THROTTLED: 4,
        ProgramKind.BAD_POINTER: 2,
        ProgramKind.LOST: 2,
    }
)
"""How often each kind occurs."""
PROGRAM_ENDINGS: Mapping[ProgramKind, tuple[str, int, int]] = MappingProxyType(
    {
        ProgramKind.BAD_POINTER: ("FAILED", 1, 0),
        ProgramKind.LOST: ("FAILED", 1, 0),
        ProgramKind.STUCK: ("CANCELLED", 0, 15),
    }
)
"""State, exit code and signal of jobs that do not end well."""


def draw_program(job_id: int, gpus: int) -> ProgramKind:
    """Choose a program; one of several GPUs can be idle, of one it cannot."""
    random = Random(f"program of {job_id}")
    can = [kind for kind in PROGRAM_SHARES if gpus > 1 or kind is not ProgramKind.SOME_IDLE]
    return random.choices(can, weights=[PROGRAM_SHARES[kind] for kind in can])[0]


def run_program(kind: ProgramKind, node: NodeWorkload, start_seconds: float, length_seconds: float) -> NodeWorkload:
    """Return a node on which the GPUs are used by such a program."""
    program = _PROGRAMS.get(kind, GpuProgram())
    gpus = tuple(
        replace(gpu, program=program, utilization_ratio=_BUSY.get(kind, gpu.utilization_ratio)) for gpu in node.gpus
    )
    work = node.work
    if kind is ProgramKind.SOME_IDLE:
        gpus = (gpus[0], *(replace(gpu, utilization_ratio=0.0, memory_bytes=500 * MIB) for gpu in gpus[1:]))
    elif kind is ProgramKind.UNUSED_MEMORY:
        gpus = tuple(replace(gpu, utilization_ratio=0.002) for gpu in gpus)
    elif kind is ProgramKind.STUCK:
        gpus = tuple(replace(gpu, stuck_seconds=STUCK_PART * length_seconds) for gpu in gpus)
    elif kind is ProgramKind.STARVED:
        # One process for each GPU reads and prepares its data.
        cores = tuple(0.99 if number < len(gpus) else 0.005 for number in range(len(work.cores)))
        work = replace(work, cores=cores, dip_ratio=0.02)
    if program.xid is not None:
        gpus = (_with_fault(gpus[0], start_seconds, length_seconds), *gpus[1:]) if gpus else ()
    return replace(node, gpus=gpus, work=work)


def _with_fault(gpu: GpuLoad, start_seconds: float, length_seconds: float) -> GpuLoad:
    seconds = FAULT_PART * length_seconds
    return replace(gpu, fault_seconds=seconds, fault_at_seconds=start_seconds + seconds)
