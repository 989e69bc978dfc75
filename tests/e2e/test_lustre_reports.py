# SPDX-License-Identifier: Apache-2.0
"""Reports show a job's use of Lustre file systems, out of a real Prometheus and a real VictoriaMetrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lab.prometheus import Server
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClients
from slurmscope.portal.filesystems import read_top_clients
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.make import ReportMaker
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


@pytest.fixture(scope="module", params=SERVERS)
def top(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopClients]:
    history, now = History(), int(time.time())
    all_day, evening = (range(now - seconds, now, 120) for seconds in (2 * 86400, 21600))
    job = {"filesystem": "work", "user": "ada", "account": "physics", "partition": "debug"}
    program = {"filesystem": "work", "user": "bob", "group": "staff", "program": "cp"}
    for replica in "ab":
        history.add(
            "cluster_filesystem_read_bytes_per_second",
            {**job, "replica": replica},
            {float(at): 100 * MB for at in all_day},
        )
    history.add("cluster_filesystem_program_read_bytes_per_second", program, {float(at): 10 * MB for at in evening})
    history.add(
        "cluster_filesystem_top_job_metadata_operations_per_second",
        {**job, "jobid": "4711"},
        {float(at): 500.0 for at in evening},
    )
    with SERVERS[request.param](history, tmp_path_factory.mktemp("top") / "server") as server:
        client = Prometheus(PrometheusSettings(url=parse_address(server.url)))
        yield read_top_clients(client, (), until=time.monotonic() + 60)


def test_those_who_use_a_file_system_most_are_listed_now_and_over_a_day(top: TopClients) -> None:
    found = {(one.period, one.kind, one.quantity, one.name): one.amount for one in top.clients}
    now, day, read, operations = Period.NOW, Period.DAY, Quantity.READ, Quantity.METADATA

    assert () == top.problems
    assert found == pytest.approx(
        {
            (now, ClientKind.USER, read, "ada"): 100 * MB,
            (now, ClientKind.USER, read, "bob"): 10 * MB,
            (now, ClientKind.PROGRAM, read, "cp"): 10 * MB,
            (now, ClientKind.JOB, operations, "4711"): 500.0,
            (day, ClientKind.USER, read, "ada"): 100 * MB * 86400,
            (day, ClientKind.USER, read, "bob"): 10 * MB * 21600,
            (day, ClientKind.PROGRAM, read, "cp"): 10 * MB * 21600,
            (day, ClientKind.JOB, operations, "4711"): 500.0 * 21600,
        },
        rel=0.02,
    )


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
    assert work.peak_read_bytes == pytest.approx(45 * MB, rel=0.05)


def test_charts_show_the_rates_over_time(report: JobReport) -> None:
    charts = {chart.name: means(chart) for chart in report.charts}

    assert charts["filesystem_read"] == pytest.approx({"work": 45 * MB}, rel=0.02)
    assert charts["filesystem_write"] == pytest.approx({"home": 2 * MB}, rel=0.02)
    assert charts["filesystem_metadata"] == pytest.approx({"work": 300.0}, rel=0.02)


def test_metadata_storm_is_found(report: JobReport) -> None:
    (found,) = (finding for finding in report.findings if finding.rule == "metadata_storm")

    assert found.numbers["operations_per_second"] == pytest.approx(300.0, rel=0.02)
