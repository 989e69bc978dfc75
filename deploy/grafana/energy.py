# SPDX-License-Identifier: Apache-2.0
"""Energy: what nodes, GPUs and jobs draw, and how much of it is for nothing."""

from __future__ import annotations

from deploy.grafana.panels import BARS, DIAL, LINES, NUMBER, STACK, TABLE, Dashboard, Panel, Row

KWH = 3.6e6
OF_JOBS = "slurm_job:jobs_energy_joules:rate5m{NODE}"


def power(part: str = "") -> str:
    """Return the power of a part of all nodes."""
    return f"sum(rate(slurm_node_energy_{part}joules_total{{NODE}}[5m]))"


NOW = Row(
    "Now",
    (
        Panel(
            NUMBER,
            "Power",
            {"": "sum(slurm_node_power_watts{NODE})"},
            unit="watt",
            text="Of nodes with a meter, and of what it covers.",
        ),
        Panel(NUMBER, "Power of the GPUs", {"": power("gpu_")}, unit="watt", text="Mean of five minutes."),
        Panel(
            NUMBER,
            "Power of the jobs",
            {"": power("jobs_")},
            unit="watt",
            text="An estimate: no sensor measures a job.",
        ),
        Panel(
            DIAL,
            "Without a job",
            {"": f"{power('idle_')} / {power()}"},
            unit="percentunit",
            text="Share of the power of cores and GPUs that are not allocated, and of processes outside of jobs.",
        ),
        Panel(
            NUMBER,
            "Energy in the chosen time",
            {"": f"sum(increase(slurm_node_energy_joules_total{{NODE}}[$__range])) / {KWH:g}"},
            unit="kwatth",
            text="Of all nodes with a meter.",
        ),
        Panel(
            NUMBER,
            "Nodes with a meter",
            {"": "count(slurm_node_energy_source_info{NODE})"},
            text="Others have no energy here; `slurmscope doctor node` says what is missing.",
        ),
    ),
)

POWER = Row(
    "Power",
    (
        Panel(
            STACK,
            "Power of all nodes",
            {"jobs": power("jobs_"), "no job": power("idle_")},
            unit="watt",
            text="The part of jobs is an estimate.",
        ),
        Panel(
            LINES,
            "Power of the GPUs, and the floor",
            {"GPUs": power("gpu_"), "floor": "sum(slurm_node_power_floor_watts{NODE})"},
            unit="watt",
            text="Floor: lowest power of the nodes without their GPUs since the agents started, allocated or not.",
        ),
        Panel(
            BARS,
            "Nodes with most power",
            {"{{slurm_node}}": "topk(12, slurm_node_power_watts{NODE})"},
            unit="watt",
            text="Of what their meters cover.",
        ),
    ),
)

JOBS = Row(
    "Jobs",
    (
        Panel(
            STACK,
            "Jobs with most power",
            {"{{slurm_job}}": f"topk(12, {OF_JOBS})"},
            unit="watt",
            text="On all nodes of the job; an estimate.",
        ),
        Panel(
            BARS,
            "Jobs by energy in the chosen time",
            {"{{slurm_job}}": f"topk(12, sum_over_time({OF_JOBS}[$__range])) * 60 / {KWH:g}"},
            unit="kwatth",
            text="On all nodes of the job, as the rules recorded it once a minute; an estimate.",
        ),
        Panel(
            TABLE,
            "Meters",
            {"nodes": "count by (source, covers) (slurm_node_energy_source_info{NODE})"},
            labels=("source", "covers"),
            width=8,
            text="Where the energy of the nodes comes from, and what it covers.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="energy",
    title="Slurm energy",
    text="What nodes, GPUs and jobs draw, and how much of it without a job.",
    rows=(NOW, POWER, JOBS),
)
