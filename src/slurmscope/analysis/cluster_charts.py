# SPDX-License-Identifier: Apache-2.0
"""Make the charts of the whole cluster over a day: its jobs and its cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from slurmscope.analysis.curves import align, sum_over
from slurmscope.model.finding import Subject
from slurmscope.model.job_states import PENDING, RUNNING
from slurmscope.model.report import Chart, ChartLine
from slurmscope.model.series import Aggregation, Series, SeriesQuery

MIN_POINTS = 3
"""A chart of fewer points shows no more than the current values."""

_STATE = ("state",)

CLUSTER_CURVES: Mapping[str, SeriesQuery] = MappingProxyType(
    {
        "jobs": SeriesQuery(metric="slurm_jobs", how=Aggregation.MEAN, each=_STATE, by=_STATE),
        "cores": SeriesQuery(metric="slurm_cpus", how=Aggregation.MEAN, each=_STATE, by=_STATE),
    }
)
"""Queries by the names of the charts that they are drawn in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Describe one chart: ``lines`` are labels by state, ``total`` is the label of the sum over states."""

    name: str
    title: str
    unit: str
    help: str
    lines: Mapping[str, str]
    total: str = ""


def make_cluster_charts(curves: Mapping[str, Sequence[Series]]) -> tuple[Chart, ...]:
    """Make every chart that has enough points from the results of :data:`CLUSTER_CURVES`."""
    made = (_chart(plan, curves.get(plan.name, ())) for plan in _PLANS)
    return tuple(chart for chart in made if len(chart.times) >= MIN_POINTS)


def _chart(plan: _Plan, curves: Sequence[Series]) -> Chart:
    aligned = align([series for series in curves if series.labels[0] in plan.lines])
    lines = [
        ChartLine(label=label, values=aligned.rows[state,])
        for state, label in plan.lines.items()
        if (state,) in aligned.rows
    ]
    if plan.total:
        lines.append(ChartLine(label=plan.total, values=sum_over(aligned)))
    return Chart(
        name=plan.name,
        title=plan.title,
        unit=plan.unit,
        subject=Subject.NODES,
        times=aligned.times,
        lines=tuple(lines),
        help=plan.help,
    )


_PLANS = (
    _Plan(
        name="jobs", title="Jobs", unit="count", lines={RUNNING: "running", PENDING: "pending"},
        help="Running and pending jobs; each task of an array is a job.",
    ),
    _Plan(
        name="cores", title="Cores", unit="cores", total="all",
        lines={"allocated": "allocated", "idle": "idle", "unusable": "unusable"},
        help="Allocated cores, idle cores, and idle cores on nodes that take no jobs (unusable).",
    ),
)  # fmt: skip
