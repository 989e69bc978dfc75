# SPDX-License-Identifier: Apache-2.0
"""Check how busy a job kept its GPUs, and whether they failed or were stuck.

The numbers of errors (Xid) are those of https://docs.nvidia.com/deploy/xid-errors/, the sentences are ours.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from slurmscope.core.units import GIB, format_bytes, format_ratio, format_seconds, format_some
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Threshold, Thresholds, was_suspended
from slurmscope.jobs.suggestions import fewer_gpus_line
from slurmscope.jobs.summary import MIN_STUCK_SECONDS, GpuFault, JobSummary

LARGE_MEMORY_BYTES = 32.0 * GIB
"""A job that uses this much memory of each GPU may need them for that."""


class Blame(enum.Enum):
    """What to check first."""

    APPLICATION = "application"
    HARDWARE = "hardware"
    DRIVER = "driver"
    EITHER = "either"


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One kind of error: ``meaning`` is one sentence."""

    number: int
    meaning: str
    blame: Blame


def describe_xid(number: int) -> Xid:
    """Return what is known about an error; a number without an entry may mean anything."""
    meaning = "The driver reported an error that has no entry in our table; see NVIDIA's list of Xid errors."
    return XIDS.get(number, Xid(number=number, meaning=meaning, blame=Blame.EITHER))


_MEANINGS: Mapping[Blame, Mapping[int, str]] = {
    Blame.APPLICATION: {
        13: "A kernel did something that the GPU does not allow, such as an access out of bounds.",
        31: "A kernel read or wrote an address that is not mapped: mostly a wrong pointer or an index out of bounds.",
        43: "The GPU stopped the work of one process after a fault in it; the GPU itself is fine.",
        45: "The driver ended the GPU work of a process: the process was killed, or an earlier error ended it.",
        68: "The video decoder met an error: mostly a broken stream.",
        69: "A kernel sent the compute unit a command that is not valid.",
    },
    Blame.HARDWARE: {
        48: "GPU memory had an error of two bits that cannot be corrected; the job's data is lost.",
        54: "The auxiliary power of the GPU board is missing or not connected.",
        60: "The video unit met an error.",
        63: "A faulty row of GPU memory was recorded, to be replaced by a spare one at the next reset.",
        64: "A faulty row of GPU memory could not be recorded for replacement.",
        74: "A link between GPUs (NVLink) had an error.",
        79: "The GPU fell off the PCIe bus: it cannot be reached any more until the node is restarted.",
        92: "GPU memory has errors of one bit at a high rate.",
        94: "An uncorrectable memory error hit one process only; other processes may go on until the GPU is reset.",
        95: "An uncorrectable memory error could not be confined to one process; the GPU must be reset.",
        110: "The GPU reported a security fault: mostly a failure of the hardware.",
        121: "The chip-to-chip link between CPU and GPU had an error.",
        136: "A link between GPUs could not be trained.",
        140: "The GPU had an ECC error that could not be recovered.",
        143: "The GPU could not be initialized.",
        **dict.fromkeys(range(144, 151), "A part of the GPU's hardware for NVLink reported an error."),
        155: "The software that manages NVLink reported an error.",
        156: "A faulty part of the GPU was taken out of use.",
        157: "A faulty part of the GPU could not be taken out of use.",
        158: "The GPU met a fatal timeout in its own hardware.",
        160: "A channel of GPU memory was taken out of use.",
        161: "A faulty channel of GPU memory could not be taken out of use.",
        171: "GPU memory had an uncorrectable error; another Xid of the same time says how it ended.",
        172: "A cache of the GPU had an uncorrectable error; another Xid of the same time says how it ended.",
    },
    Blame.DRIVER: {
        38: "The firmware of the driver met an error.",
        44: "The driver met a fault while it switched between programs.",
        61: "The GPU's internal controller stopped; the GPU needs a reset.",
        62: "The GPU's internal controller halted; the GPU needs a reset.",
        119: "The GPU's system processor (GSP) did not answer in time; the GPU needs a reset.",
        120: "The GPU's system processor (GSP) met an error; the GPU needs a reset.",
        123: "The GPU's internal controller met an error while it set clocks or power.",
        154: "The driver asks for a recovery of the GPU; the recovery action says which.",
    },
    Blame.EITHER: {
        8: "The GPU stopped processing: a kernel ran for too long, or the GPU hangs.",
        16: "The display engine of the GPU hung.",
        32: "The GPU got a corrupted list of commands: mostly a fault of PCIe, rarely of the program.",
        46: "The GPU stopped processing and did not answer the driver in time.",
        66: "The driver was used in a way that is not allowed.",
        137: "An access to the memory of another GPU over NVLink failed: a wrong address, or the link.",
        109: "A switch from one program to another took too long on the GPU.",
    },
}  # fmt: skip
XIDS: Mapping[int, Xid] = {
    number: Xid(number=number, meaning=meaning, blame=blame)
    for blame, meanings in _MEANINGS.items()
    for number, meaning in meanings.items()
}


COUNTERS = "counters of the hardware (Hopper and later)"
_BLAME = {
    Blame.APPLICATION: "usually the program's fault",
    Blame.HARDWARE: "usually a fault of the hardware",
    Blame.DRIVER: "usually a fault of the driver",
    Blame.EITHER: "the fault of the program, the driver or the hardware",
}
_FAULT_ADVICE = {
    Blame.APPLICATION: "Look for invalid memory accesses: run a small case under compute-sanitizer, or with "
    "CUDA_LAUNCH_BLOCKING=1 to see which kernel it was.",
    Blame.HARDWARE: "Report node, GPU and time to the support of your cluster, and submit the job again without that "
    "node: --exclude={node}.",
    Blame.DRIVER: "Report node, GPU and time to the support of your cluster, and submit the job again.",
    Blame.EITHER: "Submit the job again. If it fails on another node too, look for the fault in the program; "
    "otherwise report node, GPU and time to the support of your cluster.",
}


def _utilization(summary: JobSummary) -> float | None:
    gpu = summary.gpu
    return gpu.mean_utilization if gpu.requested > 0 and gpu.coverage.is_good else None


def _gpu_idle(summary: JobSummary, values: Thresholds) -> Match | None:
    utilization, requested = _utilization(summary), summary.gpu.requested
    # GPUs without a process have their own rule: this one is about the others.
    opened = requested - (summary.gpu.held_idle or 0)
    if utilization is None or opened <= 0 or utilization * requested / opened >= values["min_utilization_ratio"]:
        return None
    subject = "The GPU was" if requested == 1 else f"The {requested} GPUs were"
    return Match(
        explanation=f"{subject} busy for only {format_ratio(utilization)} of the time.",
        numbers={"utilization_ratio": utilization, "gpus": float(requested)},
    )


def _held_without_process(summary: JobSummary, _values: Thresholds) -> Match | None:
    idle, requested = summary.gpu.held_idle, summary.gpu.requested
    if not idle or requested <= 0:
        return None
    # More GPUs than requested can be seen where Slurm counts slices or shares.
    rest = requested - idle
    return Match(
        explanation=f"{idle:,} of {format_some(requested, 'GPU')} had no process of the job for most of its run.",
        numbers={"idle_gpus": float(idle), "gpus": float(requested)},
        suggestion=fewer_gpus_line(summary, rest) if rest > 0 and summary.record.node_count == 1 else "",
        severity=Severity.CRITICAL if rest <= 0 else None,
        without=_with_used_gpus(summary, rest) if rest > 0 else None,
    )


def _with_used_gpus(summary: JobSummary, count: int) -> JobSummary:
    gpu, mean = summary.gpu, summary.gpu.mean_utilization
    return replace(
        summary,
        gpu=replace(gpu, requested=count, mean_utilization=None if mean is None else mean * gpu.requested / count),
    )


def _gpu_low(summary: JobSummary, values: Thresholds) -> Match | None:
    utilization = _utilization(summary)
    if utilization is None or utilization >= values["min_utilization_ratio"] or was_suspended(summary):
        return None
    requested, memory = summary.gpu.requested, summary.gpu.peak_memory_bytes
    needs_memory = memory is not None and memory / requested >= LARGE_MEMORY_BYTES
    held = "" if memory is None else f" The job used up to {format_bytes(memory)} of GPU memory."
    return Match(
        explanation=f"{format_some(requested, 'GPU')} computed for {format_ratio(utilization)} of the time on average."
        f"{held}",
        numbers={"utilization_ratio": utilization, "gpus": float(requested)}
        | ({} if memory is None else {"peak_memory_bytes": memory}),
        severity=Severity.INFO if needs_memory else None,
    )


def _fault(summary: JobSummary, _values: Thresholds) -> Match | None:
    faults = summary.gpu.faults
    if not faults:
        return None
    # The first one mostly caused the others.
    worst = next((fault for fault in faults if describe_xid(fault.xid).blame is Blame.HARDWARE), faults[0])
    known, more = describe_xid(worst.xid), len(faults) - 1
    others = f" {format_some(more, 'more kind', 'more kinds')} of errors followed or preceded it." if more else ""
    return Match(
        explanation=f"{describe_fault(worst)}: {known.meaning} This is {_BLAME[known.blame]}.{others}",
        numbers={"xid": float(worst.xid), "faults": float(sum(fault.count for fault in faults))},
        advice=_FAULT_ADVICE[known.blame].format(node=worst.node),
        severity=Severity.WARNING if known.blame is Blame.APPLICATION else None,
    )


def describe_fault(fault: GpuFault) -> str:
    """Return which GPU reported which error, and when."""
    mig = f" MIG {fault.mig}" if fault.mig else ""
    times = f" ({fault.count:,} times)" if fault.count > 1 else ""
    when = f" at {_format_utc(fault.last_seconds)}" if fault.last_seconds is not None else ""
    return f"GPU {fault.gpu}{mig} of {fault.node} reported Xid {fault.xid}{when}{times}"


def _format_utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _stuck(summary: JobSummary, values: Thresholds) -> Match | None:
    stuck = [gpu for gpu in summary.gpu.devices if (gpu.stuck_seconds or 0.0) >= values["min_stuck_seconds"]]
    if not stuck:
        return None
    first = min(stuck, key=lambda gpu: gpu.stuck_since_seconds or 0.0)
    since, seconds = first.stuck_since_seconds or 0.0, first.stuck_seconds or 0.0
    is_last = since + seconds >= summary.end_seconds - values["min_stuck_seconds"]
    return Match(
        explanation=f"From {_format_utc(since)} on, for {format_seconds(seconds)}, a kernel was running on "
        f"{len(stuck)} of {format_some(summary.gpu.requested, 'GPU')} without doing anything: the multiprocessors were "
        "idle, no data moved, and the power was that of an idle GPU.",
        numbers={"stuck_seconds": seconds, "stuck_gpus": float(len(stuck)), "gpus": float(summary.gpu.requested)},
        severity=None if is_last else Severity.WARNING,
        advice="" if summary.gpu.requested > 1 else _LONE_STUCK_ADVICE,
    )


_LONE_STUCK_ADVICE = (
    "A kernel that never ends, or waits for something that never comes, looks like this: py-spy dump --pid PID shows "
    "where the program is, and cuda-gdb -p PID which kernel runs."
)


RULES = (
    Rule(
        id="gpu_held_without_process",
        title="GPUs were allocated but not used",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="processes on the job's GPUs",
        advice="Request as many GPUs as the program uses (--gpus=N). If it should use all of them, start a process for "
        "each, such as torchrun --nproc_per_node=N or srun --ntasks-per-node=N.",
        check=_held_without_process,
        explains=("gpu_low",),
    ),
    Rule(
        id="gpu_idle",
        title="The GPUs were idle",
        subject=Subject.GPU,
        severity=Severity.CRITICAL,
        needs="GPU utilization on every node",
        advice='Check in the job that the program finds a GPU: python -c "import torch; '
        'print(torch.cuda.is_available())" prints True, or its log names one. If it does not need any, use a partition '
        "without GPUs.",
        check=_gpu_idle,
        thresholds=(Threshold("min_utilization_ratio", "ratio", 0.02, "Report a lower mean utilization."),),
        # That some GPUs had no process matters less where the others were idle too.
        explains=("gpu_held_without_process",),
        replaces=("gpu_low",),
    ),
    Rule(
        id="gpu_low",
        title="The GPUs were idle most of the time",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="GPU utilization on every node",
        advice="Feed the GPUs faster: more data loader workers (DataLoader(num_workers=8, pin_memory=True) in "
        "PyTorch), larger batches, data on fast storage. Or request fewer or smaller GPUs (--gpus=N), or a MIG slice.",
        check=_gpu_low,
        thresholds=(Threshold("min_utilization_ratio", "ratio", 0.25, "Report a lower mean utilization."),),
    ),
    Rule(
        id="gpu_fault",
        title="A GPU reported an error",
        subject=Subject.GPU,
        severity=Severity.CRITICAL,
        needs="errors that NVIDIA's driver reports (Xid)",
        advice="Application errors (Xid 13, 31, 43, 45): look for invalid memory accesses with compute-sanitizer. "
        "Hardware errors: report node, GPU and time to the support of your cluster.",
        check=_fault,
        min_run_seconds=0,
    ),
    Rule(
        id="gpu_stuck",
        title="GPUs were stuck",
        subject=Subject.GPU,
        severity=Severity.CRITICAL,
        needs=COUNTERS + " over time, power and GPU memory",
        advice="Processes that wait for each other in a collective operation look like this. See in the log which rank "
        "stopped first; py-spy dump --pid PID shows where each one is. Set TORCH_NCCL_ASYNC_ERROR_HANDLING=1 and a "
        "timeout in torch.distributed.init_process_group, so that a lost rank ends the job.",
        check=_stuck,
        thresholds=(
            Threshold("min_stuck_seconds", "seconds", MIN_STUCK_SECONDS, "Report GPUs that are stuck for this long."),
        ),
        replaces=("gpu_busy_without_work", "gpu_launch_bound", "gpu_starved", "gpu_some_idle"),
    ),
)
