# SPDX-License-Identifier: Apache-2.0
"""Two clusters with equal job IDs share a slurmdbd, a Prometheus and an archive: neither gets the other's numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.prometheus import create_blocks, run_prometheus
from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.clock import Clock
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.reporters import Reporters
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.resubmission import NodeSizes
from slurmscope.reports.sources import open_archive
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from tests.e2e.accounting_access import administer
from tests.e2e.job_history import History
from tests.fakes.no_election import open_alone
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import make_record

pytestmark = pytest.mark.scaling

RUN_SECONDS = 3600
END = int(time.time()) // 7200 * 7200 - 7200
CORES = {("alpha", 7, "n1"): 1.0, ("beta", 7, "n2"): 3.0, ("alpha", 8, "n1"): 2.0, ("beta", 8, "n1"): 0.5}
"""Busy cores by cluster, job and node; job 7 added up is 4.0."""
SECOND = "beta"
FEDERATED = 2 << 26
"""What a federation adds to the IDs of jobs that were submitted to its second cluster."""


def make_history() -> History:
    history = History()
    for (cluster, job, node), cores in CORES.items():
        points = {float(at): cores * (at - END + RUN_SECONDS) for at in range(END - RUN_SECONDS, END + 1, 60)}
        labels = {"slurm_job": str(job), "slurm_node": node, "cluster": cluster}
        history.add("jobs_cpu_seconds_total", labels, points)
    return history


def make_records() -> list[JobRecord]:
    return [
        make_record(
            job, cluster=cluster, nodes=(node,), start_seconds=END - RUN_SECONDS, end_seconds=END, cpu_seconds=None
        )
        for cluster, job, node in CORES
    ]


def test_jobs_with_equal_ids_have_their_own_numbers(tmp_path: Path) -> None:
    create_blocks(tmp_path / "data", make_history().openmetrics())
    with run_prometheus(tmp_path / "data", "") as server:
        settings = PrometheusSettings(url=parse_address(server.url), scrape_interval=60.0, cluster_label="cluster")
        maker = ReportMaker(
            PrometheusSeries(Prometheus(settings), settings), wall_clock=lambda: END + 600.0, timeout_seconds=300.0
        )
        with closing(open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as archive:
            alone = open_alone(archive)
            parts = (FakeAccounting(make_records()), maker, alone, ReporterSettings())
            for reporter in Reporters(*parts, clock=Clock(wall=lambda: END + 600.0)).find():
                reporter.work()

            for (cluster, job, node), cores in CORES.items():
                (report,) = archive.find(EVERYTHING, job, cluster=cluster)
                # By hand: so many cores for an hour, on the node of this cluster's job alone.
                assert pytest.approx(cores * RUN_SECONDS, rel=0.01) == report.summary.cpu.time.used
                assert [node] == [use.node for use in report.summary.nodes]


@pytest.fixture
def second(slurm_lab: SlurmLab) -> Iterator[int]:
    """Register a second cluster with slurmdbd; give the ID of a job that both have."""
    job = slurm_lab.submit(ALICE, "--job-name=twin", script="true")
    slurm_lab.wait_for(lambda: "twin" in slurm_lab.run("sacct", "-nPX", "-j", str(job), "-o", "JobName"))
    slurm_lab.wait_for(lambda: "COMPLETED" in slurm_lab.run("sacct", "-nPX", "-j", str(job), "-o", "State"))
    slurm_lab.run("sacctmgr", "--immediate", "add", "cluster", SECOND)
    table = f"slurm_acct_db.{SECOND}_job_table"
    copied = f"INSERT INTO {table} SELECT * FROM slurm_acct_db.lab_job_table WHERE id_job = {job}"
    administer(
        slurm_lab,
        copied,
        f"UPDATE {table} SET nodelist = 'n9', job_db_inx = 100000, id_job = {job + FEDERATED}",
        copied,
        f"UPDATE {table} SET nodelist = 'n9' WHERE id_job = {job}",
    )
    yield job
    slurm_lab.run("sacctmgr", "--immediate", "delete", "cluster", f"name={SECOND}")


def test_sacct_reads_every_cluster_of_slurmdbd(slurm_lab: SlurmLab, second: int) -> None:
    run = SlurmCommands(SlurmSettings(bin_path=slurm_lab.bin_path, timeout=30.0), slurm_lab.environment).run
    local, every = SacctAccounting(run), SacctAccounting(run, clusters=["all"])

    assert (("lab",), {"lab", SECOND}) == (local.clusters(), set(every.clusters()))
    assert ["lab"] == [record.cluster for record in local.read_jobs([second])]
    assert {"lab", SECOND} == {record.cluster for record in every.read_jobs([second])}
    (twin,) = every.of(SECOND).read_jobs([second])
    assert (SECOND, second, "twin", ("n9",)) == (twin.cluster, twin.job_id, twin.name, twin.nodes)
    (federated,) = every.of(SECOND).read_jobs([second + FEDERATED])
    assert (second + FEDERATED, (2, second)) == (federated.job_id, federated.federated)
    # It has no slurmctld: the sizes of its nodes are unknown, those of the other are not.
    sizes = NodeSizes(run)
    (first,) = local.read_jobs([second])
    assert sizes.smallest(SECOND, ["n9"]) is None
    assert sizes.smallest("lab", first.nodes) is not None
    ended = SacctAccounting(run, clusters=["lab", SECOND]).read_ended(twin.submit_seconds, int(time.time()))
    assert {("lab", second), (SECOND, second)} <= {(record.cluster, record.job_id) for record in ended}
