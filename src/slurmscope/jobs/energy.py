# SPDX-License-Identifier: Apache-2.0
"""Summarize the energy of a job, and what it means by the numbers of the site: carbon and cost.

The agents split the energy of each node among its jobs: GPUs by their own counters, the rest by cores and CPU time.
The latter is an estimate, since no sensor measures a job. Where one node of the job was not measured, nothing is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from slurmscope.jobs.measured_run import MeasuredRun
from slurmscope.jobs.queries import GPU_PART, METERED_GPUS
from slurmscope.jobs.summary import Coverage, EnergySummary, GpuSummary, JobSummary

JOULES_PER_KWH = 3.6e6

_NARROWEST = ("gpus", "processors", "node")


def summarize_energy(run: MeasuredRun, gpu: GpuSummary, coverage: Coverage) -> EnergySummary:
    """Add up the parts of all nodes; ``coverage`` is that of CPU time, which the same agents read."""
    parts = run.totals.get("energy", {})
    if not parts:
        return _of_gpus_alone(gpu)
    nodes = {node for node, _part, _covers in parts}
    found = EnergySummary(coverage=replace(coverage, nodes=run.node_count, nodes_measured=len(nodes)))
    gpu_joules = math.fsum(joules for (_, part, _), joules in parts.items() if part == GPU_PART)
    # GPUs that count no energy are not idle ones: these use some, too. Three GPUs on four nodes leave one without any.
    with_gpus = {node for (node, part, _), joules in parts.items() if part == GPU_PART and joules}
    if not run.is_whole(nodes) or len(with_gpus) < min(run.node_count, run.record.gpus):
        return found
    covered = {covers for _node, _part, covers in parts}
    has_meters = METERED_GPUS not in covered
    rest = math.fsum(joules for (_, part, _), joules in parts.items() if part != GPU_PART)
    return replace(
        found,
        gpu_joules=gpu_joules if run.record.gpus else None,
        rest_joules=rest if has_meters else None,
        covers=next((name for name in _NARROWEST if name in covered), ""),
        is_estimated=has_meters or gpu.is_shared,
    )


def _of_gpus_alone(gpu: GpuSummary) -> EnergySummary:
    """Return what the GPUs counted, of agents that do not split the energy of their node."""
    if not gpu.work.energy_joules:
        return EnergySummary()
    return EnergySummary(
        gpu_joules=gpu.work.energy_joules, covers=METERED_GPUS, is_estimated=gpu.is_shared, coverage=gpu.coverage
    )


FindIntensity = Callable[[float, float], float | None]
"""Return the mean g CO2e/kWh between two Unix times; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySite:
    """What a kilowatt-hour costs and emits where the cluster is."""

    pue: float = 1.0
    price_per_kwh: float | None = None
    currency: str = ""
    find_intensity: FindIntensity | None = None

    def add_costs(self, summary: JobSummary) -> JobSummary:
        """Add carbon and cost to the energy of a job; without measured energy there are none."""
        joules = summary.energy.total_joules
        if joules is None:
            return summary
        kwh = joules / JOULES_PER_KWH * self.pue
        start = float(summary.record.start_seconds or 0)
        grams = self.find_intensity(start, summary.end_seconds) if self.find_intensity else None
        priced = replace(
            summary.energy,
            pue=self.pue,
            grams_per_kwh=grams,
            carbon_grams=None if grams is None else kwh * grams,
            cost=None if self.price_per_kwh is None else kwh * self.price_per_kwh,
            currency="" if self.price_per_kwh is None else self.currency,
        )
        return replace(summary, energy=priced)


def whole_energy(summary: JobSummary) -> EnergySummary:
    """Return the energy that sums may count: of jobs whose run was measured nearly whole."""
    return summary.energy if summary.energy.coverage.is_good else EnergySummary()
