# SPDX-License-Identifier: Apache-2.0
"""Summarize what GPUs did for a job: which of their parts were at work, and the energy that took."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from statistics import fmean

from slurmscope.jobs.measured_run import MeasuredRun
from slurmscope.jobs.queries import FP32
from slurmscope.jobs.summary import GpuWork

Device = tuple[str, ...]

RATIOS = {
    "busy_ratio": "gpu_busy",
    "sm_ratio": "gpu_sm",
    "tensor_ratio": "gpu_tensor",
    "fp32_ratio": "gpu_fp32",
    "dram_ratio": "gpu_dram",
}
"""Fields of a summary, and the queries for their seconds."""


def find_work(run: MeasuredRun, devices: Iterable[Device]) -> dict[Device, GpuWork]:
    """Return the work of each GPU as shares of the run."""
    return {device: _work_of(run.totals, device, run.seconds) for device in devices}


def _work_of(totals: Mapping[str, Mapping[Device, float]], device: Device, seconds: float) -> GpuWork:
    def ratio(query: str) -> float | None:
        # That of arithmetic units has their kind behind the labels of the device.
        total = totals.get(query, {}).get((*device, FP32) if query == "gpu_fp32" else device)
        return None if total is None or seconds <= 0 else min(1.0, total / seconds)

    shares = {name: ratio(query) for name, query in RATIOS.items()}
    return GpuWork(**shares, energy_joules=totals.get("gpu_energy", {}).get(device))


def add_work(works: Collection[GpuWork]) -> GpuWork:
    """Return means of shares and the sum of energy; None where one GPU has none."""

    def known(name: str) -> list[float]:
        found = [value for work in works if (value := getattr(work, name)) is not None]
        return found if len(found) == len(works) else []

    means = {name: fmean(values) if (values := known(name)) else None for name in RATIOS}
    energy = known("energy_joules")
    return GpuWork(**means, energy_joules=math.fsum(energy) if energy else None)
