# SPDX-License-Identifier: Apache-2.0
"""Write the energy of a job, or of several, with carbon and cost; nothing where it was not measured."""

from __future__ import annotations

from typing import Protocol

from slurmscope.core.units import format_count, format_energy, format_some
from slurmscope.jobs.render.formatting import LabelledText
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.summary import EnergySummary

_COVERED = {
    "node": "",
    "processors": "processors and memory only",
    "gpus": "GPUs only: a node has no other meter",
}


def describe_energy(energy: EnergySummary) -> str:
    """Return the energy of a job in one line, with its carbon and cost; empty where it was not measured."""
    if energy.total_joules is None:
        return ""
    return ", ".join(
        filter(None, (_total(energy), format_carbon(energy.carbon_grams), format_cost(energy.cost, energy.currency)))
    )


def energy_rows(report: JobReport) -> tuple[LabelledText, ...]:
    """List the energy of a job with its parts, Slurm's own number, carbon and cost; none where nothing measured it."""
    energy, record = report.summary.energy, report.record
    rows = [LabelledText("Slurm's ConsumedEnergy", _consumed(report))] if record.consumed_joules else []
    if energy.total_joules is None:
        return tuple(rows)
    gpus, rest = energy.gpu_joules, energy.rest_joules
    has_parts = gpus is not None and rest is not None
    known = (
        ("Total", _total(energy)),
        ("Its GPUs", f"{format_energy(gpus)}{_shared(report)}" if has_parts else ""),
        ("Its share of the rest", f"{format_energy(rest)}, estimated{_covered(energy)}" if has_parts else ""),
        ("Carbon", _carbon(energy)),
        ("Cost", format_cost(energy.cost, energy.currency)),
    )
    return (*(LabelledText(label, text) for label, text in known if text), *rows)


class EnergySum(Protocol):
    """The energy of several jobs, of which some were measured."""

    @property
    def jobs(self) -> int: ...

    @property
    def energy_jobs(self) -> int: ...

    @property
    def energy_joules(self) -> float: ...

    @property
    def carbon_grams(self) -> float: ...

    @property
    def energy_cost(self) -> float: ...


def describe_energy_sum(total: EnergySum, currency: str) -> str:
    """Say how much energy jobs used, and how many of them were measured; empty where none was."""
    if not total.energy_jobs:
        return ""
    # A site without these settings has no carbon and no cost.
    carbon = format_carbon(total.carbon_grams) if total.carbon_grams else ""
    cost = format_cost(total.energy_cost, currency) if total.energy_cost and currency else ""
    amounts = ", ".join(filter(None, (f"{format_energy(total.energy_joules)} (estimated)", carbon, cost)))
    if total.energy_jobs >= total.jobs:
        return f"Energy: {amounts}."
    return f"Energy: {amounts}; measured for {total.energy_jobs:,} of {format_some(total.jobs, 'job')}."


def format_carbon(grams: float | None) -> str:
    """Format an amount of carbon dioxide; empty where it is not known."""
    if grams is None:
        return ""
    for unit, size in (("t", 1e6), ("kg", 1e3)):
        if grams >= size:
            return f"{grams / size:,.3g} {unit} CO2e" if grams < 1000 * size else f"{grams / size:,.0f} {unit} CO2e"
    return f"{grams:.3g} g CO2e"


def format_cost(cost: float | None, currency: str) -> str:
    """Format a price; empty where it is not known."""
    if cost is None:
        return ""
    return f"{cost:,.2f} {currency}".rstrip() if cost >= 0.01 or not cost else f"under 0.01 {currency}".rstrip()


def _total(energy: EnergySummary) -> str:
    notes = ["estimated"] if energy.is_estimated else []
    has_parts = energy.gpu_joules is not None and energy.rest_joules is not None
    notes += [_COVERED[energy.covers]] if _COVERED.get(energy.covers) and not has_parts else []
    notes += [] if energy.coverage.is_good else ["measured for a part of the run"]
    return ", ".join([format_energy(energy.total_joules), *notes])


def _shared(report: JobReport) -> str:
    return ", estimated: other jobs used them, too" if report.summary.gpu.is_shared else ", as they counted it"


def _covered(energy: EnergySummary) -> str:
    return f" ({text})" if (text := _COVERED.get(energy.covers)) else ""


def _carbon(energy: EnergySummary) -> str:
    if energy.carbon_grams is None:
        return ""
    pue = f", PUE {format_count(energy.pue)}" if energy.pue != 1 else ""
    return f"{format_carbon(energy.carbon_grams)} at {format_count(energy.grams_per_kwh)} g/kWh{pue}"


def _consumed(report: JobReport) -> str:
    return f"{format_energy(report.record.consumed_joules)}, all that its nodes used, with other jobs on them"
