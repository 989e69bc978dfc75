# SPDX-License-Identifier: Apache-2.0
"""Export what GPUs did as counters: of each GPU, and of each job on each of its GPUs.

::

    gpu_busy_seconds_total{gpu="0",mig=""} 8160.4
    gpu_pipe_active_seconds_total{gpu="0",mig="",pipe="hmma"} 7710.2
    jobs_gpu_tensor_active_seconds_total{slurm_job="4711",slurm_node="n17",gpu="0",mig=""} 512.8

``rate()`` of a counter of seconds is a mean share of time. A GPU that counts nothing but its busy time (Ampere and
older) has that series alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurmscope.metrics.family import Family, Labels, Metric, counter, gauge, info
from slurmscope.node.gpu.records import Gpu, JobGpuCounters
from slurmscope.node.job_metrics import JOB

_KINDS = {
    "busy": ("busy_seconds", "Time in which a kernel was running"),
    "sm_active": ("sm_active_seconds", "Time in which multiprocessors were at work, as a mean over all of them,"),
    "tensor_active": ("tensor_active_seconds", "Time in which tensor cores were at work, as a mean over all of them,"),
    "dram_active": ("dram_active_seconds", "Time that the transferred data of GPU memory takes at full bandwidth,"),
    "pcie_received": ("pcie_received_bytes", "Data received over PCIe"),
    "pcie_transmitted": ("pcie_transmitted_bytes", "Data transmitted over PCIe"),
    "nvlink_received": ("nvlink_received_bytes", "Data received over NVLink"),
    "nvlink_transmitted": ("nvlink_transmitted_bytes", "Data transmitted over NVLink"),
}
_PIPES = ("fp64", "fp32", "fp16", "integer", "hmma", "imma", "dfma", "dmma")
_THROTTLED = "throttled_"
_GPU = ("gpu", "mig")
PAIR = (*JOB, *_GPU)

DEVICE = {name: counter(f"gpu_{end}_total", f"{text} on the GPU.", *_GPU) for name, (end, text) in _KINDS.items()}
OF_JOB = {
    name: counter(f"jobs_gpu_{end}_total", f"{text} on the GPU, while the job held it.", *PAIR)
    for name, (end, text) in _KINDS.items()
}
_PIPE_HELP = (
    "Time in which a kind of arithmetic unit was at work, as a mean over all multiprocessors: fp64, fp32, fp16, "
    "integer, and the tensor cores by kind of operation: hmma (half, bfloat16, TF32), imma (integer), dfma and dmma "
    "(double)."
)
PIPE = counter("gpu_pipe_active_seconds_total", _PIPE_HELP, *_GPU, "pipe")
JOB_PIPE = counter("jobs_gpu_pipe_active_seconds_total", f"Of a job: {_PIPE_HELP}", *PAIR, "pipe")
_THROTTLED_HELP = "for which clocks were held down, by reason: power_cap, thermal, power_brake, ..."
THROTTLED = counter("gpu_throttled_seconds_total", f"Time {_THROTTLED_HELP}", *_GPU, "reason")
JOB_THROTTLED = counter("jobs_gpu_throttled_seconds_total", f"Time of the job {_THROTTLED_HELP}", *PAIR, "reason")
JOB_ENERGY = counter(
    "jobs_gpu_energy_joules_total", "Energy used by the GPU while the job held it; its part of a shared GPU.", *PAIR
)
SOURCE = info(
    "gpu_counters_source_info",
    "What the counters of the GPU are taken from: gpm (hardware counters), samples (the driver's buffer of the "
    "utilization gauge) or gauge (the gauge every 4 s).",
    *_GPU,
    "source",
)
ESTIMATED = gauge(
    "jobs_gpu_counters_estimated",
    "1 if the GPU was shared with other jobs, so that the counters of the job are estimates; 0 otherwise.",
    *PAIR,
)

METRICS = (
    *DEVICE.values(), *OF_JOB.values(), PIPE, JOB_PIPE, THROTTLED, JOB_THROTTLED, JOB_ENERGY, SOURCE, ESTIMATED,
)  # fmt: skip


def device_counters(gpus: Mapping[Labels, Gpu]) -> Iterator[Family]:
    """Yield the counters of each GPU."""
    counted = {labels: gpu.counters for labels, gpu in gpus.items() if gpu.counters is not None}
    totals = {labels: counters.totals for labels, counters in counted.items()}
    throttled = {labels: _prefixed(gpu.throttled_seconds) for labels, gpu in gpus.items()}
    yield Family(SOURCE, {(*labels, counters.source): 1.0 for labels, counters in counted.items()})
    yield from _families(DEVICE, totals)
    yield Family(PIPE, _pipes(totals))
    yield Family(THROTTLED, _throttles(throttled))


def job_counters(counters: Mapping[Labels, JobGpuCounters]) -> Iterator[Family]:
    """Yield the counters of each job on each GPU that it holds."""
    totals = {labels: of_job.totals for labels, of_job in counters.items()}
    yield Family(ESTIMATED, {labels: float(of_job.is_estimate) for labels, of_job in counters.items()})
    yield from _families(OF_JOB, totals)
    yield Family(JOB_PIPE, _pipes(totals))
    yield Family(JOB_THROTTLED, _throttles(totals))
    yield Family(JOB_ENERGY, {labels: known["energy"] for labels, known in totals.items() if "energy" in known})


Totals = Mapping[Labels, Mapping[str, float]]


def _families(metrics: Mapping[str, Metric], totals: Totals) -> Iterator[Family]:
    for name, metric in metrics.items():
        yield Family(metric, {labels: known[name] for labels, known in totals.items() if name in known})


def _pipes(totals: Totals) -> dict[Labels, float]:
    return {(*labels, pipe): known[pipe] for labels, known in totals.items() for pipe in _PIPES if pipe in known}


def _throttles(totals: Totals) -> dict[Labels, float]:
    return {
        (*labels, name.removeprefix(_THROTTLED)): seconds
        for labels, known in totals.items()
        for name, seconds in known.items()
        if name.startswith(_THROTTLED)
    }


def _prefixed(seconds: Mapping[str, float]) -> dict[str, float]:
    return {_THROTTLED + reason: value for reason, value in seconds.items()}
