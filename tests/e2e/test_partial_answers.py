# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus whose second storage is down answers with a part of the series: no job keeps such numbers."""

from __future__ import annotations

import select
import socket
import threading
import time
from pathlib import Path

import pytest

from lab.prometheus import Server, create_blocks, run_prometheus
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.clock import Clock
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.reporter import Reporter
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from tests.e2e.job_history import History
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import make_record
from tests.fakes.scripted_server import scripted_server

pytestmark = pytest.mark.scaling

RUN_SECONDS = 7200
# Two cores for two hours.
CPU_SECONDS = 14_400.0
END = int(time.time()) // 7200 * 7200 - 7200
JOBS = range(1001, 1201)
REMOTE = "remote_read: [{{url: '{url}/api/v1/read', read_recent: true}}]\n"


class Relay:
    """Pass connections on to a server, unless it is down."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.url.rpartition("/")[2].partition(":")
        self._address = (host, int(port))
        self.is_up = threading.Event()

    def handle(self, connection: socket.socket) -> None:
        """Copy bytes both ways until one side closes."""
        if not self.is_up.is_set():
            return
        with socket.create_connection(self._address, timeout=30) as other:
            targets = {connection: other, other: connection}
            while ready := select.select([*targets], [], [], 30)[0]:
                for source in ready:
                    data = source.recv(65536)
                    if not data:
                        return
                    targets[source].sendall(data)


def history_of(jobs: range) -> History:
    history = History()
    times = range(END - RUN_SECONDS + 60, END + 1, 60)
    for job in jobs:
        points = {float(at): 2.0 * (at - END + RUN_SECONDS) for at in times}
        history.add("jobs_cpu_seconds_total", {"slurm_job": str(job), "slurm_node": "n1"}, points)
    return history


def test_jobs_have_their_numbers_after_the_second_storage_is_back(tmp_path: Path) -> None:
    create_blocks(tmp_path / "a", history_of(JOBS[::2]).openmetrics())
    create_blocks(tmp_path / "b", history_of(JOBS[1::2]).openmetrics())
    with run_prometheus(tmp_path / "b", "") as second:
        relay = Relay(second)
        with scripted_server(relay.handle) as url, run_prometheus(tmp_path / "a", REMOTE.format(url=url)) as first:
            settings = PrometheusSettings(url=parse_address(first.url), scrape_interval=60.0, retries=0)
            client = Prometheus(settings)
            archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))
            records = [
                make_record(job, start_seconds=END - RUN_SECONDS, end_seconds=END, cpu_seconds=None) for job in JOBS
            ]
            now = END + 600.0
            reporter = Reporter(
                FakeAccounting(records),
                ReportMaker(PrometheusSeries(client, settings), wall_clock=lambda: now, timeout_seconds=300.0),
                archive,
                Checkpoints(archive.database),
                ReporterSettings(),
                cluster="lab",
                clock=Clock(wall=lambda: now, monotonic=lambda: now),
            )

            reporter.work()
            assert (len(JOBS), 0) == (reporter.progress.jobs_archived, reporter.progress.failures)
            assert "only a part of the series" in reporter.progress.series_problem
            assert len(JOBS) == len(archive.incomplete_runs(cluster="lab"))

            relay.is_up.set()
            now += 600.0
            reporter.work()
            assert {} == archive.incomplete_runs(cluster="lab")
            found = [archive.find(EVERYTHING, job)[0].summary.cpu.time.used for job in JOBS]
            assert [CPU_SECONDS] * len(JOBS) == found
            archive.close()
