# SPDX-License-Identifier: Apache-2.0
"""Reports list traced processes from real servers, and say where hand-worked series disagree with the node agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lab.prometheus import Server
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.charts import AGENTS, TRACED
from slurmscope.jobs.process_samples import MAX_PROCESSES
from slurmscope.jobs.render.tables import trace_sentences
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.make import ReportMaker
from tests.e2e.job_history import SCRAPE_SECONDS, History, prometheus_with, victoria_metrics_with
from tests.fakes.reports import make_record

START = int(time.time()) // 7200 * 7200 - 86400 + 7
RUN_SECONDS = 3600
JOB, OTHER, UNTRACED = 4711, 47110, 4712
NODES = ("n1", "n2")
RANKS = 40
MIB = float(1 << 20)
SERVERS: dict[str, Callable[[History, Path], AbstractContextManager[Server]]] = {
    "prometheus": prometheus_with,
    "victoria": victoria_metrics_with,
}


def make_history() -> History:
    """Trace 40 ranks, of which rank N keeps N hundredths of a core busy: 7.8 cores, where the agents saw 10."""
    history = History()
    for rank in range(RANKS):
        for replica in "ab":
            add_process(history, JOB, rank, cores=rank / 100, replica=replica)
        add_process(history, OTHER, rank, cores=9.0)
    for node in NODES:
        for job in (JOB, UNTRACED):
            labels = {"slurm_job": str(job), "slurm_node": node}
            history.add("jobs_cpu_seconds_total", labels, growing(5.0))
            history.add("jobs_memory_anon_bytes", labels, dict.fromkeys(growing(0.0), 1000 * MIB))
    return history


def add_process(history: History, job: int, rank: int, *, cores: float, **labels: str) -> None:
    node = NODES[rank % len(NODES)]
    own = {
        "slurm_job": str(job), "slurm_node": f"{node}.example.org", "pid": str(1000 + rank), "rank": str(rank),
        "step": "0", "command": "solver", **labels,
    }  # fmt: skip
    history.add("slurm_trace_cpu_seconds_total", own, growing(cores))
    history.add("slurm_trace_read_bytes_total", own, growing(1e6))
    history.add("slurm_trace_memory_rss_bytes", own, dict.fromkeys(growing(0.0), 100 * MIB))
    history.add("slurm_trace_threads", own, dict.fromkeys(growing(0.0), 2.0 + rank))


def growing(per_second: float) -> dict[float, float]:
    """Return a counter that grows while the job runs, and then stays for a minute."""
    times = range(START + 2, START + RUN_SECONDS + 60, SCRAPE_SECONDS)
    return {float(at): per_second * min(at - START, RUN_SECONDS) for at in times}


@pytest.fixture(scope="module", params=SERVERS)
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[JobReport]]:
    with SERVERS[request.param](make_history(), tmp_path_factory.mktemp("series") / "server") as server:
        settings = PrometheusSettings(url=parse_address(server.url))
        maker = ReportMaker(PrometheusSeries(Prometheus(settings), settings))
        times = {"start_seconds": START, "end_seconds": START + RUN_SECONDS}
        records = [make_record(job, nodes=NODES, node_count=2, cpus=16, **times) for job in (JOB, UNTRACED)]
        yield maker.make(records)


def test_busiest_processes_are_listed_and_the_others_counted(reports: list[JobReport]) -> None:
    report = reports[0]
    processes = report.summary.traces.processes
    busiest = range(RANKS - 1, RANKS - 1 - MAX_PROCESSES, -1)

    assert () == report.missing
    assert [str(rank) for rank in busiest] == [process.rank for process in processes]
    assert RANKS - MAX_PROCESSES == report.summary.traces.others
    for rank, process in zip(busiest, processes, strict=True):
        assert (NODES[rank % 2], str(1000 + rank), "solver", "0") == (
            process.node, process.pid, process.command, process.step,
        )  # fmt: skip
        assert process.cpu_seconds == pytest.approx(36.0 * rank, rel=0.01)
        assert process.read_bytes == pytest.approx(3.6e9, rel=0.01)
        assert (100 * MIB, 2.0 + rank) == (process.peak_memory_bytes, process.peak_threads)
        assert process.write_bytes is None


def test_disagreements_are_those_worked_out_by_hand(reports: list[JobReport]) -> None:
    cpu, memory = reports[0].summary.traces.differences

    assert (cpu.traced, cpu.measured) == pytest.approx((7.8 * RUN_SECONDS, 10.0 * RUN_SECONDS), rel=0.01)
    assert (4000 * MIB, 2000 * MIB) == (memory.traced, memory.measured)
    first, second = trace_sentences(reports[0])
    assert "used 7 h 48 min of CPU time, 22 % less than the 10 h that the node agents measured" in first
    assert "had up to 3.91 GiB of memory, 100 % more than the 1.95 GiB that the node agents measured" in second


def test_charts_show_processes_beside_the_node_agents(reports: list[JobReport]) -> None:
    charts = {chart.name: chart for chart in reports[0].charts}
    cpu = means(charts["traced_cpu"])

    assert cpu["rank 39: solver on n2"] == pytest.approx(0.39, rel=0.02)
    assert MAX_PROCESSES == len(cpu)
    assert means(charts["traced_cpu_node"]) == pytest.approx({TRACED: 7.8, AGENTS: 10.0}, rel=0.02)
    assert means(charts["traced_memory_node"]) == pytest.approx({TRACED: 4000 * MIB, AGENTS: 2000 * MIB})
    assert means(charts["traced_read"])["rank 38: solver on n1"] == pytest.approx(1e6, rel=0.02)
    assert means(charts["traced_threads"])["rank 38: solver on n1"] == pytest.approx(40.0)
    assert means(charts["traced_memory"])["rank 38: solver on n1"] == pytest.approx(100 * MIB)


def test_job_without_traces_has_none(reports: list[JobReport]) -> None:
    assert () == reports[1].summary.traces.processes
    assert not [chart for chart in reports[1].charts if chart.name.startswith("traced_")]


def means(chart: Chart) -> dict[str, float]:
    """Return the mean of each line, without its ends."""
    values = {line.label: [value for value in line.values[3:-3] if value is not None] for line in chart.lines}
    return {label: sum(some) / len(some) for label, some in values.items()}
