# SPDX-License-Identifier: Apache-2.0
"""Summarize the GPUs of a job: how busy they were, their memory, which of their parts worked, and their energy.

Sizes are joined by device: MIG instances and GPUs of different models each count with their own. Where the size of one
of the job's GPUs is unknown, so is that of all of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean

from slurmscope.core.hostlist import natural_order
from slurmscope.core.units import MIB
from slurmscope.jobs.curves import step_seconds
from slurmscope.jobs.measured_run import REACH_STEPS, MeasuredRun, cover
from slurmscope.jobs.queries import FP32, GPU_FAULTS_SECONDS, GPU_LINKS
from slurmscope.jobs.summary import GpuFault, GpuSummary, GpuWork, HeldGpu, OtherGpus

Device = tuple[str, ...]
"""Node, index, and numbers of a MIG instance."""

MOST_OF_THE_RUN_RATIO = 0.5
MAX_GPUS = 32
"""GPUs with a row of their own; the others are summed up."""

MAX_XID_DIGITS = 5

_OF_EACH = ("gpu_jobs", "gpu_memory_size", "gpu_held_memory", "gpu_held_utilization")


def summarize_gpus(run: MeasuredRun) -> GpuSummary:
    """Summarize GPUs; nodes are weighted by the job's GPUs on them, or equally where these are unknown."""
    held = run.totals.get("gpu_held_idle", {})
    weights = Counter(node for node, _gpu, _mig in held)
    utilization = run.by_node("gpu")
    memory = run.by_node("gpu_memory")
    # Three GPUs on four nodes leave a node without any.
    expected = min(run.node_count, run.record.gpus)
    mean = fmean(utilization.values(), [weights.get(node, 1) for node in utilization]) if utilization else None
    found = _devices(run)
    devices, others = _fold(found)
    return GpuSummary(
        requested=run.record.gpus,
        mean_utilization=while_running(run, mean),
        peak_memory_bytes=sum(memory.values()) if len(memory) >= expected > 0 else None,
        memory_size_bytes=_whole_size(run),
        held_idle=sum(ratio > MOST_OF_THE_RUN_RATIO for ratio in held.values()) if held else None,
        devices=devices,
        others=others,
        work=sum_work([device.work for device in found]),
        faults=_faults(run),
        coverage=cover(run, utilization, run.curves.get("gpu", ()), nodes=expected),
    )


def while_running(run: MeasuredRun, mean: float | None) -> float | None:
    """Return a mean over the run without the time in which the job was suspended, and its GPUs were idle."""
    return None if mean is None else min(1.0, mean * run.span_seconds / run.seconds)


def node_gpu_sizes(run: MeasuredRun) -> Mapping[str, float]:
    """Return the memory of the job's GPUs by node, for nodes on which the size of each is known."""
    sizes = run.totals.get("gpu_memory_size", {})
    by_node: defaultdict[str, list[float]] = defaultdict(list)
    for (node, _gpu, _mig), size in sizes.items():
        by_node[node].append(size)
    unknown = {device[0] for device in _held(run) if not sizes.get(device)}
    return {node: math.fsum(found) for node, found in by_node.items() if node not in unknown}


def _whole_size(run: MeasuredRun) -> float | None:
    """Return the memory of all GPUs; None if one was not seen, or more were seen than Slurm allocated."""
    sizes, held = run.totals.get("gpu_memory_size", {}), _held(run)
    is_whole = len(held) == run.record.gpus if run.record.gpus else bool(held)
    return math.fsum(sizes.values()) if is_whole and all(sizes.get(device) for device in held) else None


def _held(run: MeasuredRun) -> set[Device]:
    """Return every GPU that any query found."""
    return {device for name in ("gpu_held_idle", *_OF_EACH) for device in run.totals.get(name, {})}


def _devices(run: MeasuredRun) -> list[HeldGpu]:
    """Return a row for each GPU; none where the agents are too old to measure each."""
    totals = run.totals
    if not any(totals.get(name) for name in _OF_EACH):
        return []
    sizes, peaks = totals.get("gpu_memory_size", {}), totals.get("gpu_held_memory", {})
    ratios, jobs = totals.get("gpu_held_utilization", {}), totals.get("gpu_jobs", {})
    described = _describe(totals.get("gpu_info", {}))
    reasons = {labels[:-1]: labels[-1] for labels in sorted(totals.get("gpu_uncounted", {}))}
    found = []
    for device in sorted(_held(run), key=_device_order):
        node, gpu, mig = device
        uuid, model = described.get(device, ("", ""))
        # The utilization of a shared GPU is no job's: of it, only the job's part counts.
        is_shared = jobs.get(device, 0.0) > 1
        work = _work_of(run, device)
        stuck_seconds, stuck_since = (None, None) if is_shared else _stuck(run, device)
        ratio = work.busy_ratio if is_shared else while_running(run, ratios.get(device))
        found.append(
            HeldGpu(
                node=node,
                gpu=gpu,
                mig=mig,
                uuid=uuid,
                model=model,
                mean_utilization=ratio,
                peak_memory_bytes=peaks.get(device),
                memory_size_bytes=sizes.get(device) or None,
                jobs=int(jobs[device]) if device in jobs else None,
                work=work,
                uncounted=reasons.get(device, "") if work.busy_ratio is None else "",
                stuck_seconds=stuck_seconds,
                stuck_since_seconds=stuck_since,
            )
        )
    return found


def _describe(found: Iterable[tuple[str, ...]]) -> Mapping[Device, tuple[str, str]]:
    """Return UUID and model of each GPU; one that was replaced during the run has none."""
    described: dict[Device, tuple[str, str]] = {}
    for node, gpu, mig, uuid, model in found:
        device = (node, gpu, mig)
        described[device] = (uuid, model) if described.get(device, (uuid, model)) == (uuid, model) else ("", "")
    return described


def _fold(devices: Sequence[HeldGpu]) -> tuple[tuple[HeldGpu, ...], OtherGpus | None]:
    """Return the least busy GPUs, and the sum of the others."""
    if len(devices) <= MAX_GPUS:
        return tuple(devices), None
    order = sorted(range(len(devices)), key=lambda place: _busy(devices[place]))
    kept = set(order[:MAX_GPUS])
    rest = [device for place, device in enumerate(devices) if place not in kept]
    return tuple(devices[place] for place in sorted(kept)), OtherGpus(
        count=len(rest),
        mean_utilization=_combine([device.mean_utilization for device in rest], fmean),
        peak_memory_bytes=_combine([device.peak_memory_bytes for device in rest], math.fsum),
        memory_size_bytes=_combine([device.memory_size_bytes for device in rest], math.fsum),
        work=sum_work([device.work for device in rest]),
    )


_WORK = {
    "busy_ratio": "gpu_busy",
    "sm_ratio": "gpu_sm",
    "tensor_ratio": "gpu_tensor",
    "fp32_ratio": "gpu_fp32",
    "dram_ratio": "gpu_dram",
}
"""Shares of the run, and the queries for their seconds."""
_DCGM_WORK = {
    "sm_ratio": "dcgm_sm_active",
    "tensor_ratio": "dcgm_tensor_active",
    "fp32_ratio": "dcgm_fp32_active",
    "dram_ratio": "dcgm_dram_active",
}
"""The same shares where the node agent has no hardware counters, such as on Ampere, and the queries for them."""


def _work_of(run: MeasuredRun, device: Device) -> GpuWork:
    def ratio(query: str) -> float | None:
        # That of arithmetic units has their kind behind the labels of the device.
        total = run.totals.get(query, {}).get((*device, FP32) if query == "gpu_fp32" else device)
        return None if total is None or run.seconds <= 0 else min(1.0, total / run.seconds)

    shares = {name: ratio(query) for name, query in _WORK.items()}
    of_dcgm = {
        name: while_running(run, run.totals.get(query, {}).get(device))
        for name, query in _DCGM_WORK.items()
        if shares["sm_ratio"] is None
    }
    shares |= {name: share for name, share in of_dcgm.items() if share is not None}
    pcie = [run.totals.get(f"gpu_{link}", {}).get(device) for link in GPU_LINKS if link.startswith("pcie")]
    return GpuWork(
        **shares,
        energy_joules=run.totals.get("gpu_energy", {}).get(device),
        pcie_bytes=_combine(pcie, math.fsum),
        throttled_seconds={
            labels[-1]: seconds
            for labels, seconds in run.totals.get("gpu_throttled", {}).items()
            if labels[:-1] == device
        },
        is_from_dcgm=any(share is not None for share in of_dcgm.values()),
    )


def sum_work(works: Collection[GpuWork]) -> GpuWork:
    """Return means of shares and times, sums of energy and bytes; None where one GPU has none."""
    means = {name: _combine([getattr(work, name) for work in works], fmean) for name in _WORK}
    reasons = dict.fromkeys(reason for work in works for reason in work.throttled_seconds)
    return GpuWork(
        **means,
        energy_joules=_combine([work.energy_joules for work in works], math.fsum),
        pcie_bytes=_combine([work.pcie_bytes for work in works], math.fsum),
        throttled_seconds={
            reason: fmean(work.throttled_seconds.get(reason, 0.0) for work in works) for reason in reasons
        },
        is_from_dcgm=any(work.is_from_dcgm for work in works),
    )


STUCK_BUSY_RATIO = 0.95
STUCK_SM_RATIO = 0.02
STUCK_BYTES_PER_SECOND = float(MIB)
STUCK_POWER_RATIO = 1.1
"""One spinning thread on an H200: busy 99.99 %, SM 0.76 %, 0.1 MiB/s over PCIe, and the power of an idle context."""


def _stuck(run: MeasuredRun, device: Device) -> tuple[float | None, float | None]:
    """Return the longest time in which the GPU was busy doing nothing, and when it began; None if it is unknown.

    The power of an idle context is the lowest that was measured while a process held memory of the GPU.
    """
    curves = {
        name: dict(zip(series.times, series.values, strict=True))
        for name in ("gpu_busy", "gpu_sm", "gpu_power", "gpu_held_memory", *(f"gpu_{link}" for link in GPU_LINKS))
        for series in run.curves.get(name, ())
        if series.labels == device
    }
    needed = ("gpu_busy", "gpu_sm", "gpu_power", "gpu_held_memory", "gpu_pcie_received", "gpu_pcie_transmitted")
    if not all(name in curves for name in needed):
        return None, None
    # Boards without NVLink count none.
    links = [curves[f"gpu_{link}"] for link in GPU_LINKS if f"gpu_{link}" in curves]
    times = sorted(set.intersection(*(set(curves[name]) for name in needed)))
    held = [time for time in times if curves["gpu_held_memory"][time] > 0]
    # Within the first step the process may have opened the GPU late.
    idle_watts = min((curves["gpu_power"][time] for time in held[1:]), default=0.0)
    return _longest_span(
        run,
        times,
        lambda time: (
            curves["gpu_busy"][time] >= STUCK_BUSY_RATIO
            and curves["gpu_sm"][time] < STUCK_SM_RATIO
            and sum(link.get(time, 0.0) for link in links) < STUCK_BYTES_PER_SECOND
            and curves["gpu_power"][time] <= STUCK_POWER_RATIO * idle_watts
        ),
    )


def _longest_span(
    run: MeasuredRun, times: Sequence[float], is_in: Callable[[float], bool]
) -> tuple[float, float | None]:
    """Return length and begin of the longest row of points; each covers the time since the one before."""
    reach = REACH_STEPS * (step_seconds(run.curves["gpu_busy"]) or run.span_seconds)
    longest: tuple[float, float | None] = (0.0, None)
    begin: float | None = None
    previous = run.start_seconds
    for time in times:
        is_gap = time - previous > reach
        if not is_in(time):
            begin = None
        else:
            begin = max(previous, time - reach) if begin is None or is_gap else begin
            longest = max(longest, (time - begin, begin), key=lambda span: span[0])
        previous = time
    return longest


def _faults(run: MeasuredRun) -> tuple[GpuFault, ...]:
    """Return the errors of the job's GPUs; a number that is none is not the driver's, nor a time outside of the run."""
    last = run.end_seconds + GPU_FAULTS_SECONDS
    times = {
        labels: time
        for labels, time in run.totals.get("gpu_fault_time", {}).items()
        if run.start_seconds <= time <= last
    }
    found = [
        GpuFault(
            node=labels[0],
            gpu=labels[1],
            mig=labels[2],
            xid=int(labels[3]),
            count=max(1, int(count)),
            last_seconds=times.get(labels),
        )
        for labels, count in run.totals.get("gpu_faults", {}).items()
        if labels[3].isdecimal() and labels[3].isascii() and len(labels[3]) <= MAX_XID_DIGITS
    ]
    return tuple(sorted(found, key=lambda fault: (fault.last_seconds or math.inf, fault.node, fault.gpu, fault.xid)))[
        :MAX_GPUS
    ]


def _combine(values: Sequence[float | None], combine: Callable[[Sequence[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return combine(known) if known and len(known) == len(values) else None


def _busy(device: HeldGpu) -> float:
    return math.inf if device.mean_utilization is None else device.mean_utilization


def _device_order(device: Device) -> list[object]:
    return [natural_order(label) for label in device]
