# SPDX-License-Identifier: Apache-2.0
"""Check what a job's GPUs did while they were busy: which of their parts worked, and what held them up.

Numbers lie between loads that were measured on an H200: matrix products in several precisions, copies, tiny kernels, a
spinning thread, a program that waits for its input, and an idle context.
"""

from __future__ import annotations

from dataclasses import replace

from slurmscope.core.units import GIB, MIB, format_bytes, format_count, format_ratio, format_seconds, format_some
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Threshold, Thresholds, mean_cores, was_suspended
from slurmscope.jobs.rules.gpu import COUNTERS
from slurmscope.jobs.suggestions import fewer_gpus_line
from slurmscope.jobs.summary import GpuWork, HeldGpu, JobSummary

COUNTED_SECONDS = 60.0
"""Counters of the hardware show within a minute what a program does: no need to wait for a whole run."""
_FULL_LOAD = "power_cap"
"""A board under full load runs at its power limit: that is no fault."""

BUSY_RATIO, NO_WORK_RATIO = 0.1, 0.02
"""A GPU is busy from the first share of the time on; below the second one it does nothing."""
LAUNCHES_BYTES_PER_SECOND = 10.0 * MIB
"""Commands are sent over PCIe: what starts kernels without a pause receives at least so much."""
UNUSED_TENSOR_RATIO = 0.1
"""Tensor cores that work for less of the time are not used on purpose."""
LEAST_CORE_RATIO, ONE_CORE = 0.85, 1.3
"""Cores are fully used from this share on; up to this many busy cores per GPU are a single one."""


def _work(summary: JobSummary) -> GpuWork:
    """Return what the GPUs counted over the run; nothing where others used them too, or a part is missing."""
    gpu = summary.gpu
    return gpu.work if gpu.coverage.is_good and not gpu.is_shared else GpuWork()


def _pcie_rate(summary: JobSummary) -> float | None:
    """Return the mean traffic of a GPU over PCIe, in bytes per second."""
    total, gpus = _work(summary).pcie_bytes, len(summary.gpu.devices)
    return None if total is None or not gpus or summary.run_seconds <= 0 else total / gpus / summary.run_seconds


def _only_copies(summary: JobSummary, values: Thresholds) -> Match | None:
    sm_ratio, rate = _work(summary).sm_ratio, _pcie_rate(summary)
    if sm_ratio is None or rate is None:
        return None
    if sm_ratio >= NO_WORK_RATIO or rate < values["min_bytes_per_second"]:
        return None
    return Match(
        explanation=f"{format_bytes(rate)} a second went over PCIe to and from each GPU, but on average only "
        f"{format_ratio(sm_ratio)} of the multiprocessors worked.",
        numbers={"sm_ratio": sm_ratio, "pcie_bytes_per_second": rate},
    )


def _launch_bound(summary: JobSummary, values: Thresholds) -> Match | None:
    match, rate = _busy_without_work(summary, values), _pcie_rate(summary)
    if match is None or rate is None or rate < LAUNCHES_BYTES_PER_SECOND:
        return None
    return replace(match, numbers={**match.numbers, "pcie_bytes_per_second": rate})


def _busy_without_work(summary: JobSummary, _values: Thresholds) -> Match | None:
    work = _work(summary)
    if work.busy_ratio is None or work.sm_ratio is None:
        return None
    if work.busy_ratio < BUSY_RATIO or work.sm_ratio >= NO_WORK_RATIO:
        return None
    return Match(
        explanation=f"A kernel was running for {format_ratio(work.busy_ratio)} of the time, but on average only "
        f"{format_ratio(work.sm_ratio)} of the multiprocessors worked.",
        numbers={"busy_ratio": work.busy_ratio, "sm_ratio": work.sm_ratio},
    )


def _starved(summary: JobSummary, values: Thresholds) -> Match | None:
    busy, cores, gpus = _work(summary).busy_ratio, mean_cores(summary), summary.gpu.requested
    if busy is None or cores is None or not gpus or was_suspended(summary):
        return None
    if not NO_WORK_RATIO <= busy < values["max_busy_ratio"]:
        return None
    per_gpu, allocated = cores / gpus, float(summary.record.cpus or 0)
    is_one = LEAST_CORE_RATIO <= per_gpu <= ONE_CORE
    is_all = cores >= LEAST_CORE_RATIO * allocated
    if not (is_one or is_all):
        return None
    explanation = (
        f"The GPUs were busy for {format_ratio(busy)} of the time, while the job kept {format_count(cores)} of "
        f"{format_some(allocated, 'core')} busy: they waited for data from the CPU."
    )
    numbers = {"busy_ratio": busy, "mean_cores": cores, "cores": allocated}
    more_cores = (
        "Request more cores for each GPU (--cpus-per-gpu), and let the data loader use them: "
        "DataLoader(num_workers=...) in PyTorch. Or prepare the data once, before training."
    )
    return Match(explanation=explanation, numbers=numbers, advice=more_cores if is_all else "")


def _some_idle(summary: JobSummary, values: Thresholds) -> Match | None:  # noqa: ARG001 - as all rules
    gpu = summary.gpu
    if gpu.others is not None or not gpu.coverage.is_good or was_suspended(summary):
        return None
    known = [(device, device.mean_utilization) for device in gpu.devices if device.mean_utilization is not None]
    idle = [device for device, ratio in known if ratio < NO_WORK_RATIO]
    busy = [ratio for _, ratio in known if ratio >= BUSY_RATIO]
    # GPUs without any process have their own rule.
    if len(known) < len(gpu.devices) or not busy or len(idle) <= (gpu.held_idle or 0):
        return None
    rest = max(1, gpu.requested - len(idle))
    what = "had a process but computed nothing"
    if gpu.held_idle:
        what = f"computed nothing, {gpu.held_idle} of them without a process"
    return Match(
        explanation=f"{len(idle)} of {format_some(gpu.requested, 'GPU')} {what} ({_names(idle)}), "
        f"while others were busy for up to {format_ratio(max(busy))} of the time.",
        numbers={"idle_gpus": float(len(idle)), "gpus": float(gpu.requested), "busy_ratio": max(busy)},
        suggestion=fewer_gpus_line(summary, rest) if summary.record.node_count == 1 else "",
        without=replace(
            summary,
            gpu=replace(gpu, requested=rest, mean_utilization=sum(ratio for _, ratio in known) / rest, held_idle=None),
        ),
    )


def _names(devices: list[HeldGpu]) -> str:
    shown = ", ".join(f"GPU {device.gpu} of {device.node}" for device in devices[:3])
    return f"{shown}, ..." if len(devices) > 3 else shown


def _throttled(summary: JobSummary, values: Thresholds) -> Match | None:
    seconds = {reason: time for reason, time in _work(summary).throttled_seconds.items() if reason != _FULL_LOAD}
    # Reasons may hold at the same time: the longest is the least that it can be.
    longest = max(seconds.values(), default=0.0)
    ratio = longest / summary.run_seconds if summary.run_seconds > 0 else 0.0
    if ratio <= values["max_throttled_ratio"]:
        return None
    reasons = ", ".join(
        f"{format_seconds(time)} ({reason.replace('_', ' ')})"
        for reason, time in sorted(seconds.items(), key=lambda item: -item[1])
        if time > 0
    )
    return Match(
        explanation=f"The clocks of the GPUs were held down for {format_ratio(ratio)} of the run: {reasons}.",
        numbers={"throttled_ratio": ratio, "throttled_seconds": longest},
    )


def _unused_memory(summary: JobSummary, values: Thresholds) -> Match | None:
    gpu = summary.gpu
    ratio, peak = gpu.mean_utilization, gpu.peak_memory_bytes
    if gpu.requested <= 0 or not gpu.coverage.is_good or ratio is None or peak is None:
        return None
    if ratio >= NO_WORK_RATIO or peak / gpu.requested < values["min_memory_bytes"]:
        return None
    return Match(
        explanation=f"The job held up to {format_bytes(peak)} of GPU memory, but the GPUs were busy for only "
        f"{format_ratio(ratio)} of the time.",
        numbers={"utilization_ratio": ratio, "peak_memory_bytes": peak},
    )


def _tensor_unused(summary: JobSummary, values: Thresholds) -> Match | None:
    work = _work(summary)
    if work.fp32_ratio is None or work.tensor_ratio is None:
        return None
    if work.fp32_ratio < values["min_fp32_ratio"] or work.tensor_ratio >= UNUSED_TENSOR_RATIO:
        return None
    return Match(
        explanation=f"Units for 32-bit numbers worked for {format_ratio(work.fp32_ratio)} of the time, tensor cores "
        f"for {format_ratio(work.tensor_ratio)}.",
        numbers={"fp32_ratio": work.fp32_ratio, "tensor_ratio": work.tensor_ratio},
    )


def _memory_bound(summary: JobSummary, values: Thresholds) -> Match | None:
    ratio = _work(summary).dram_ratio
    if ratio is None or ratio < values["min_bandwidth_ratio"]:
        return None
    return Match(
        explanation=f"The GPUs moved data to and from their memory at {format_ratio(ratio)} of its bandwidth, over the "
        "whole run.",
        numbers={"dram_ratio": ratio},
    )


RULES = (
    Rule(
        id="gpu_only_copies",
        title="The GPUs only copied data",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs=COUNTERS,
        advice="Keep data on the GPU between steps instead of copying it for each one (tensor.to(device) outside of "
        "the loop), and check that the computation itself runs there: model.to(device).",
        check=_only_copies,
        min_run_seconds=COUNTED_SECONDS,
        thresholds=(
            Threshold(
                "min_bytes_per_second", "per second", float(GIB), "Report at least this traffic over PCIe, per GPU."
            ),
        ),
        replaces=(
            "gpu_idle",
            "gpu_low",
            "gpu_busy_without_work",
            "gpu_launch_bound",
            "gpu_starved",
            "gpu_unused_memory",
        ),
    ),
    Rule(
        id="gpu_launch_bound",
        title="The GPUs ran kernels that are too small",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs=COUNTERS,
        advice="Starting the kernels took longer than their work. Use larger batches, fuse operations "
        "(model = torch.compile(model)), or record them once in a CUDA graph "
        '(torch.compile(model, mode="reduce-overhead")).',
        check=_launch_bound,
        min_run_seconds=COUNTED_SECONDS,
        replaces=("gpu_busy_without_work", "gpu_starved", "gpu_low"),
    ),
    Rule(
        id="gpu_busy_without_work",
        title="The GPUs were busy, but did hardly any work",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs=COUNTERS,
        advice="Processes that wait for each other in a collective operation look like this, and so do kernels that "
        "are far too small. py-spy dump --pid PID shows where each process is. Put more work into each kernel: larger "
        'batches, or torch.compile(model, mode="reduce-overhead"), which uses CUDA graphs.',
        check=_busy_without_work,
        replaces=("gpu_starved",),
    ),
    Rule(
        id="gpu_starved",
        title="The GPUs waited for their input",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs=COUNTERS + " and CPU time on every node",
        advice="One core prepares the data of each GPU. Let more of them do it: DataLoader(num_workers=8, "
        "pin_memory=True, persistent_workers=True) in PyTorch, dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE) "
        "in TensorFlow.",
        check=_starved,
        thresholds=(Threshold("max_busy_ratio", "ratio", 0.5, "Report GPUs that are busy for less than this share."),),
        # The cores that prepare no data are idle for the same reason: fewer of them would not help.
        explains=("core_imbalance", "cpu_uneven_over_time"),
        replaces=("gpu_low",),
    ),
    Rule(
        id="gpu_some_idle",
        title="Some of the GPUs were idle",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="utilization of each GPU",
        advice="Check that the program was told to use all of them (torchrun --nproc_per_node=N, "
        "CUDA_VISIBLE_DEVICES), or request fewer GPUs.",
        check=_some_idle,
        explains=("gpu_low",),
        replaces=("gpu_held_without_process", "gpu_starved"),
    ),
    Rule(
        id="gpu_unused_memory",
        title="GPU memory was held, but the GPUs were not used",
        subject=Subject.GPU,
        severity=Severity.CRITICAL,
        needs="GPU utilization and memory on every node",
        advice="Check that the model and its data are on the same device: model.to(device), batch.to(device). An "
        "interactive session that is not needed any more should be ended: scancel JOBID.",
        check=_unused_memory,
        thresholds=(
            Threshold(
                "min_memory_bytes",
                "bytes",
                2.0 * GIB,
                "With at least this memory of each GPU: more than an idle context with its libraries.",
            ),
        ),
        explains=("gpu_held_without_process",),
        replaces=("gpu_idle", "gpu_low"),
    ),
    Rule(
        id="gpu_throttled",
        title="The GPUs ran at reduced clocks",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="times at reduced clocks, as NVIDIA's driver counts them",
        advice="The program cannot change this. Report the node and the time to the support of your cluster: its "
        "cooling or power supply may be at fault.",
        check=_throttled,
        thresholds=(
            Threshold(
                "max_throttled_ratio",
                "ratio",
                0.05,
                "Report more than this share of the run. The power limit (power_cap) does not count: a GPU under full "
                "load runs at it.",
            ),
        ),
    ),
    Rule(
        id="gpu_tensor_unused",
        title="Tensor cores were not used",
        subject=Subject.GPU,
        severity=Severity.INFO,
        needs=COUNTERS,
        advice="If the program tolerates less precise 32-bit products, let it use TF32 or bfloat16. In PyTorch that is "
        'one line: torch.set_float32_matmul_precision("high"), or torch.autocast("cuda", dtype=torch.bfloat16) '
        "around the model.",
        check=_tensor_unused,
        min_run_seconds=COUNTED_SECONDS,
        thresholds=(
            Threshold("min_fp32_ratio", "ratio", 0.3, "Report GPUs whose 32-bit units work for at least this share."),
        ),
    ),
    Rule(
        id="gpu_memory_bound",
        title="The GPUs were limited by their memory",
        subject=Subject.GPU,
        severity=Severity.INFO,
        needs=COUNTERS,
        advice="More computing power would not help. Fuse operations (torch.compile), keep data in smaller types, or "
        "reuse what was loaded.",
        check=_memory_bound,
        min_run_seconds=COUNTED_SECONDS,
        thresholds=(
            Threshold(
                "min_bandwidth_ratio", "ratio", 0.7, "Report GPUs that use at least this share of the bandwidth."
            ),
        ),
    ),
)
