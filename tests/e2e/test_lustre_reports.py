# SPDX-License-Identifier: Apache-2.0
"""Reports show a job's use of Lustre file systems, out of a real Prometheus and a real VictoriaMetrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lab.prometheus import Server
from slurmscope.http_client.address import parse_address
from slurmscope.model.report import Chart, JobReport
from slurmscope.services.reporting.report_maker import ReportMaker
from slurmscope.sources.prometheus.client import Prometheus
from slurmscope.sources.prometheus.series import PrometheusSeries
from slurmscope.sources.prometheus.settings import PrometheusSettings
from tests.e2e.job_history import SCRAPE_SECONDS, History, prometheus_with, victoria_metrics_with
from tests.fakes.reports import make_record

START = int(time.time()) // 7200 * 7200 - 86400 + 7
RUN_SECONDS = 3600
JOB, OTHER = 4711, 47110
MB = 1e6
SERVERS: dict[str, Callable[[History, Path], AbstractContextManager[Server]]] = {
    "prometheus": prometheus_with,
    "victoria": victoria_metrics_with,
}


def make_history() -> History:
    history = History()
    # Plain job IDs, and such with the user and the host; copies from two servers count once.
    for replica in "ab":
        add(history, "lustre_job_read_bytes_total", str(JOB), "work-OST0000", 30 * MB, replica=replica)
    add(history, "lustre_job_read_bytes_total", f"{JOB}:1001:n1", "work-OST0000", 10 * MB)
    add(history, "lustre_job_read_bytes_total", f"{JOB}:1001:n2", "work-OST0001", 5 * MB)
    add(history, "lustre_job_write_bytes_total", str(JOB), "home-OST0000", 2 * MB)
    for operation, rate in (("open", 200.0), ("close", 100.0)):
        add(history, "lustre_job_stats_total", str(JOB), "work-MDT0000", rate, operation=operation)
    add(history, "lustre_job_stats_total", str(JOB), "work-OST0000", 7.0, operation="punch")
    add(history, "lustre_job_read_bytes_total", str(OTHER), "work-OST0000", 900 * MB)
    add(history, "lustre_job_read_bytes_total", f"{JOB}.1001", "work-OST0000", 900 * MB)
    return history


def add(history: History, metric: str, job: str, target: str, per_second: float, **labels: str) -> None:
    """Add a counter that grows at this rate while the job runs, and then stays for a while."""
    times = range(START + 2, START + RUN_SECONDS + 300, SCRAPE_SECONDS)
    points = {float(at): per_second * min(at - START, RUN_SECONDS) for at in times}
    history.add(metric, {"jobid": job, "target": target, **labels}, points)


@pytest.fixture(scope="module", params=SERVERS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobReport]:
    with SERVERS[request.param](make_history(), tmp_path_factory.mktemp("series") / "server") as server:
        settings = PrometheusSettings(url=parse_address(server.url))
        maker = ReportMaker(PrometheusSeries(Prometheus(settings), settings))
        record = make_record(job_id=JOB, start_seconds=START, end_seconds=START + RUN_SECONDS)
        (made,) = maker.make([record])
        yield made


def means(chart: Chart) -> dict[str, float]:
    """Return the mean of each line, without its ends."""
    values = {line.label: [value for value in line.values[3:-3] if value is not None] for line in chart.lines}
    return {label: sum(some) / len(some) for label, some in values.items()}


def test_totals_are_those_of_the_run_by_file_system(report: JobReport) -> None:
    home, work = report.summary.io.filesystems

    assert () == report.missing
    assert ("home", "work") == (home.name, work.name)
    assert work.read_bytes == pytest.approx(45 * MB * RUN_SECONDS, rel=0.02)
    assert home.write_bytes == pytest.approx(2 * MB * RUN_SECONDS, rel=0.02)
    assert work.metadata_operations == pytest.approx(300.0 * RUN_SECONDS, rel=0.02)
    assert (None, None) == (home.read_bytes, home.metadata_operations)


def test_charts_show_the_rates_over_time(report: JobReport) -> None:
    charts = {chart.name: means(chart) for chart in report.charts}

    assert charts["filesystem_read"] == pytest.approx({"work": 45 * MB}, rel=0.02)
    assert charts["filesystem_write"] == pytest.approx({"home": 2 * MB}, rel=0.02)
    assert charts["filesystem_metadata"] == pytest.approx({"work": 300.0}, rel=0.02)


def test_metadata_storm_is_found(report: JobReport) -> None:
    (found,) = (finding for finding in report.findings if finding.rule == "metadata_storm")

    assert found.numbers["operations_per_second"] == pytest.approx(300.0, rel=0.02)
