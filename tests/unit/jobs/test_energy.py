# SPDX-License-Identifier: Apache-2.0
"""Hand-worked energy of jobs: parts of nodes add up, an unmeasured node leaves all unknown; carbon and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.archive.interface import UseTotal
from slurmscope.core.tres import Gres
from slurmscope.jobs.energy import EnergySite, whole_energy
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render.energy import (
    describe_energy,
    describe_energy_sum,
    energy_rows,
    format_carbon,
    format_cost,
)
from slurmscope.jobs.summary import EnergySummary, JobSummary
from tests.fakes.measured import measure_nodes, summed, with_totals
from tests.fakes.reports import START, make_record, make_report

TWO_GPUS = (Gres(name="gpu", model="h200", count=2),)
KWH = 3.6e6
NOTHING = UseTotal(
    key="ada", jobs=0, core_seconds=0.0, measured_core_seconds=0.0, used_core_seconds=0.0, gpu_seconds=0.0,
    measured_gpu_seconds=0.0, used_gpu_seconds=0.0, jobs_with_findings=0,
)  # fmt: skip
SITE = EnergySite(pue=1.25, price_per_kwh=0.2, currency="EUR", find_intensity=lambda _start, _end: 400.0)


def node_parts(node: str, gpu: float, base: float, cpu: float, covers: str = "node") -> dict[tuple[str, ...], float]:
    return {(node, "gpu", covers): gpu, (node, "base", covers): base, (node, "cpu", covers): cpu}


def summarize(parts: dict[tuple[str, ...], float], record: JobRecord | None = None) -> JobSummary:
    record = record or make_record()
    return summed(record, with_totals(measure_nodes(dict.fromkeys(record.nodes, 2.0)), energy=parts))


def two_nodes() -> JobRecord:
    return make_record(nodes=("n1", "n2"), node_count=2, cpus=8, gres=TWO_GPUS)


def test_parts_of_all_nodes_add_up() -> None:
    energy = summarize(
        node_parts("n1", 1.5 * KWH, 0.25 * KWH, 0.5 * KWH) | node_parts("n2", 1.25 * KWH, 0.25 * KWH, 0.25 * KWH),
        two_nodes(),
    ).energy

    assert (2.75 * KWH, 1.25 * KWH, 4 * KWH) == (energy.gpu_joules, energy.rest_joules, energy.total_joules)
    assert ("node", True, True) == (energy.covers, energy.is_estimated, energy.coverage.is_good)


def test_job_without_gpus_has_no_energy_of_gpus() -> None:
    energy = summarize(node_parts("n1", 0.0, 3600.0, 7200.0, "processors")).energy
    assert (None, 10800.0, "processors") == (energy.gpu_joules, energy.total_joules, energy.covers)


def test_one_node_without_a_number_leaves_all_unknown() -> None:
    summary = summarize(node_parts("n1", KWH, KWH, KWH), two_nodes())

    assert summary.energy.total_joules is None
    assert (2, 1) == (summary.energy.coverage.nodes, summary.energy.coverage.nodes_measured)
    assert () == energy_rows(make_report(summary=summary))


def test_gpus_that_count_no_energy_are_not_free() -> None:
    assert summarize(node_parts("n1", 0.0, KWH, KWH), make_record(gres=TWO_GPUS)).energy.total_joules is None


def test_gpus_of_every_node_have_to_count_energy() -> None:
    # The agent of the second node has no part for GPUs that it cannot read.
    second = {("n2", part, "processors"): KWH for part in ("base", "cpu")}
    found = summarize(node_parts("n1", KWH, KWH, KWH, "processors") | second, two_nodes())
    one_gpu = replace(two_nodes(), gres=(Gres(name="gpu", model="h200", count=1),))

    assert found.energy.total_joules is None
    assert 5 * KWH == summarize(node_parts("n1", KWH, KWH, KWH, "processors") | second, one_gpu).energy.total_joules


def test_node_without_a_meter_has_its_gpus_only() -> None:
    summary = summarize({("n1", "gpu", "gpus"): 2 * KWH}, make_record(gres=TWO_GPUS))

    assert (2 * KWH, None, False) == (
        summary.energy.gpu_joules,
        summary.energy.rest_joules,
        summary.energy.is_estimated,
    )
    (total,) = energy_rows(make_report(summary=summary))
    assert ("Total", "2 kWh, GPUs only: a node has no other meter") == total


def test_older_agents_have_the_counters_of_gpus() -> None:
    gpu = ("n1", "0", "")
    measured = with_totals(measure_nodes({"n1": 2.0}), gpu_jobs={gpu: 2.0}, gpu_energy={gpu: KWH})
    energy = summed(make_record(gres=TWO_GPUS[:1]), measured).energy

    # Another job held it, too.
    assert (KWH, "gpus", True) == (energy.total_joules, energy.covers, energy.is_estimated)


def test_nothing_measured_is_absent_rather_than_0() -> None:
    summary = SITE.add_costs(summed(make_record(), measure_nodes({"n1": 2.0})))
    energy = summary.energy

    assert [None] * 4 == [energy.total_joules, energy.carbon_grams, energy.cost, energy.grams_per_kwh]
    assert () == energy_rows(make_report(summary=summary))


def test_site_adds_carbon_and_cost() -> None:
    # 4 kWh at the nodes are 5 kWh at the meter of the building.
    priced = SITE.add_costs(summarize(node_parts("n1", 0.0, 1 * KWH, 3 * KWH)))

    assert (2000.0, "EUR") == (priced.energy.carbon_grams, priced.energy.currency)
    assert pytest.approx(1.0) == priced.energy.cost
    plain = EnergySite().add_costs(priced).energy
    assert (None, None) == (plain.carbon_grams, plain.cost)


def test_intensity_is_of_the_time_of_the_run() -> None:
    asked = []
    site = EnergySite(find_intensity=lambda start, end: asked.append((start, end)))
    site.add_costs(summarize(node_parts("n1", 0.0, KWH, KWH)))
    assert [(START, START + 7200.0)] == asked


def test_rows_say_what_is_estimated() -> None:
    record = replace(make_record(gres=TWO_GPUS), consumed_joules=9_000_000)
    summary = SITE.add_costs(summarize(node_parts("n1", 1.5 * KWH, 0.2 * KWH, 0.3 * KWH, "processors"), record))
    rows = dict(energy_rows(make_report(summary=summary)))

    assert {
        "Total": "2 kWh, estimated",
        "Its GPUs": "1.5 kWh, as they counted it",
        "Its share of the rest": "500 Wh, estimated (processors and memory only)",
        "Carbon": "1 kg CO2e at 400 g/kWh, PUE 1.25",
        "Cost": "0.50 EUR",
        "Slurm's ConsumedEnergy": "2.5 kWh, all that its nodes used, with other jobs on them",
    } == rows


def test_job_without_gpus_has_no_parts_that_repeat_the_total() -> None:
    parts = node_parts("n1", 0.0, 0.2 * KWH, 0.3 * KWH, "processors")
    summary = SITE.add_costs(summarize({key: joules for key, joules in parts.items() if key[1] != "gpu"}))
    rows = dict(energy_rows(make_report(summary=summary)))

    assert ["Total", "Carbon", "Cost"] == list(rows)
    assert "500 Wh, estimated, processors and memory only" == rows["Total"]


def test_cost_without_a_currency_is_left_out_of_a_sum() -> None:
    total = replace(NOTHING, jobs=5, energy_jobs=5, energy_joules=7.2e6, carbon_grams=800.0, energy_cost=0.5)
    assert "Energy: 2 kWh (estimated), 800 g CO2e." == describe_energy_sum(total, "")


def test_part_of_a_run_is_shown_but_not_added_up() -> None:
    measured = with_totals(measure_nodes({"n1": 2.0}, seconds=1800.0), energy=node_parts("n1", 0.0, KWH, KWH))
    summary = summed(make_record(), measured)

    assert 2 * KWH == summary.energy.total_joules
    assert whole_energy(summary).total_joules is None
    assert "2 kWh, estimated, measured for a part of the run" == energy_rows(make_report(summary=summary))[0].text


@pytest.mark.parametrize(
    ("grams", "text"),
    [(None, ""), (0.0, "0 g CO2e"), (999.0, "999 g CO2e"), (1500.0, "1.5 kg CO2e"), (2.5e9, "2,500 t CO2e")],
)
def test_carbon_has_a_unit_of_its_size(grams: float | None, text: str) -> None:
    assert text == format_carbon(grams)


@pytest.mark.parametrize(
    ("cost", "text"), [(None, ""), (0.0, "0.00 EUR"), (0.004, "under 0.01 EUR"), (1234.5, "1,234.50 EUR")]
)
def test_cost_is_rounded_but_not_to_nothing(cost: float | None, text: str) -> None:
    assert text == format_cost(cost, "EUR")


@pytest.mark.parametrize(
    ("counted", "amounts", "text"),
    [
        (0, (0.0, 0.0, 0.0), ""),
        (5, (7.2e6, 0.0, 0.0), "Energy: 2 kWh (estimated)."),
        (5, (7.2e6, 800.0, 0.5), "Energy: 2 kWh (estimated), 800 g CO2e, 0.50 EUR."),
        (3, (7.2e6, 800.0, 0.0), "Energy: 2 kWh (estimated), 800 g CO2e; measured for 3 of 5 jobs."),
    ],
)
def test_sum_says_how_many_jobs_were_measured(counted: int, amounts: tuple[float, float, float], text: str) -> None:
    joules, grams, cost = amounts
    total = replace(NOTHING, jobs=5, energy_jobs=counted, energy_joules=joules, carbon_grams=grams, energy_cost=cost)
    assert text == describe_energy_sum(total, "EUR")


def test_one_line_has_carbon_and_cost() -> None:
    priced = SITE.add_costs(summarize(node_parts("n1", 0.0, 1 * KWH, 3 * KWH)))
    assert "4 kWh, estimated, 2 kg CO2e, 1.00 EUR" == describe_energy(priced.energy)
    assert "" == describe_energy(EnergySummary())
