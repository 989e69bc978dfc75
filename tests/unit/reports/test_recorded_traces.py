# SPDX-License-Identifier: Apache-2.0
"""Check that pages of node agents, recorded without Prometheus, become reports with traced processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.jobs.charts import AGENTS, TRACED
from slurmscope.jobs.report import JobReport
from slurmscope.metrics.write import Format, write
from slurmscope.reports.make import ReportMaker
from slurmscope.trace.node_collector import trace_families
from slurmscope.trace.samples import RunningJobOwner, TracedProcess, Traces, TraceSample
from tests.fakes.recorded_samples import INTERVAL, START, make_recorder
from tests.fakes.reports import make_record

RUN_SECONDS = 600
MIB = float(1 << 20)
AGENT_PAGE = (
    'jobs_cpu_seconds_total{{slurm_job="4711",slurm_node="n1"}} {cpu}\n'
    'jobs_memory_anon_bytes{{slurm_job="4711",slurm_node="n1"}} {memory}\n'
)


def agent_page(after_seconds: float) -> str:
    """Write the page of an agent: two traced processes of 1 and 0.5 cores, in a job of 3 cores."""
    processes = (
        TracedProcess(
            RunningJobOwner(4711, 1001, "ada"), "n1", "socket",
            TraceSample(
                4711, pid=100 + rank, rank=rank, step="0", command="solver", cpu_seconds=cores * after_seconds,
                threads=2.0, memory_bytes=200 * MIB, write_bytes=1e6 * after_seconds,
            ),
        )
        for rank, cores in enumerate((1.0, 0.5))
    )  # fmt: skip
    families = trace_families(Traces(processes=tuple(processes), is_enabled=True))
    text = b"".join(write(families, Format.TEXT)).decode()
    return text + AGENT_PAGE.format(cpu=3.0 * after_seconds, memory=400 * MIB)


@pytest.fixture
def report(tmp_path: Path) -> JobReport:
    """Record ten minutes, and make the report."""
    with make_recorder(tmp_path) as recorder:
        for turn in range(int(RUN_SECONDS / INTERVAL) + 1):
            after = turn * INTERVAL
            assert 0 == recorder.record_page(START + after, agent_page(after), nodes=("n1",))
        record = make_record(start_seconds=int(START), end_seconds=int(START) + RUN_SECONDS)
        (made,) = ReportMaker(recorder.series()).make([record])
    return made


def test_processes_and_their_disagreement_are_in_the_report(report: JobReport) -> None:
    first, second = report.summary.traces.processes

    assert ("0", 600.0, 200 * MIB, 2.0, None, 6e8) == (
        first.rank, first.cpu_seconds, first.peak_memory_bytes, first.peak_threads, first.read_bytes, first.write_bytes,
    )  # fmt: skip
    assert ("1", 300.0) == (second.rank, second.cpu_seconds)
    (difference,) = report.summary.traces.differences
    assert ("cpu_seconds", 900.0, 1800.0) == (difference.quantity, difference.traced, difference.measured)


def test_charts_have_the_rates_of_each_process(report: JobReport) -> None:
    charts = {chart.name: {line.label: line.values[-1] for line in chart.lines} for chart in report.charts}

    assert {
        "rank 0: solver on n1": pytest.approx(1.0), "rank 1: solver on n1": pytest.approx(0.5)
    } == charts["traced_cpu"]  # fmt: skip
    assert {TRACED: pytest.approx(1.5), AGENTS: pytest.approx(3.0)} == charts["traced_cpu_node"]
    assert {TRACED: 400 * MIB, AGENTS: 400 * MIB} == charts["traced_memory_node"]
    assert pytest.approx(1e6) == charts["traced_write"]["rank 1: solver on n1"]
    assert "traced_read" not in charts
