# SPDX-License-Identifier: Apache-2.0
"""A portal over a real cluster: each sees their own, and a server that goes away is told and costs no job."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import ALICE, BOB, SlurmLab
from lab.prometheus import Server, run_prometheus
from tests.e2e import half_idle_job
from tests.processes import Exporter, get_as, run_slurmscope, running, serving, until, values

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: nodes
    static_configs: [{{targets: ["{address}"]}}]
"""
PATIENCE_SECONDS = 180


@dataclass(frozen=True, kw_only=True)
class Site:
    """Reach a portal as somebody, and what stands behind it."""

    lab: SlurmLab
    portal: Exporter
    prometheus: Server
    folder: Path
    archive: Path

    def get(self, user: str, path: str) -> tuple[int, str]:
        """Ask as the proxy would for this user."""
        return get_as(self.portal, user, path)

    def run_job(self, user: str = ALICE) -> int:
        """Run a short job to its end."""
        job = self.lab.submit(
            user, "--ntasks=1", "--cpus-per-task=2", "--mem=200M", "--time=10",
            script=f"exec python3 {self.folder}/half_idle_job.py {self.folder}/told-$SLURM_JOB_ID 5 20",
        )  # fmt: skip
        self.lab.wait_state(job, {"COMPLETED"}, timeout=PATIENCE_SECONDS)
        return job

    def archived(self, job: int) -> dict[str, Any] | None:
        """Return the report that the archive has of an ended job."""
        status, body = self.get("root", f"/api/v2/jobs/{job}")
        report = json.loads(body) if status == 200 else {}
        return report if report.get("summary", {}).get("record", {}).get("state") == "COMPLETED" else None

    def is_listed(self, job: int) -> bool:
        """Tell whether the archive lists a job as ended."""
        status, body = self.get("root", "/api/v2/jobs?state=COMPLETED")
        return status == 200 and job in [row["job_id"] for row in json.loads(body)["jobs"]]


@pytest.fixture(scope="module")
def site(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run a node agent, a Prometheus and a portal over the lab."""
    lab = slurm_lab
    lab.reset()
    folder = lab.folder / "work" / "portal"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    shutil.copy(half_idle_job.__file__, folder / "half_idle_job.py")
    private = tmp_path_factory.mktemp("portal")
    database = (
        "--accounting.host", str(lab.layout.database_socket), "--accounting.password-file", str(private / "password"),
        "--accounting.user", "portal_reader",
    )  # fmt: skip
    granted = run_slurmscope("database", "grant", *database, environment=lab.environment)
    assert (0, "") == (granted.returncode, granted.stderr)
    with (
        serving("node", "--node.grace=10m") as agent,
        run_prometheus(private / "prometheus", CONFIG.format(address=agent.addresses[0])) as prometheus,
        running(
            "portal",
            *("--portal.listen-address", "127.0.0.1:0", "--portal.mode", "proxy", "--portal.proxy-peers", "127.0.0.1"),
            *("--portal.admins", "root", "--archive.url", str(private / "archive.db")),
            *("--prometheus.url", prometheus.url, "--prometheus.scrape-interval", "1s", "--prometheus.timeout", "2s"),
            *("--reporter.interval", "1s", "--reporter.admin-comment"),
            *("--slurm.bin-path", str(lab.bin_path), "--slurm.timeout", "3s", *database),
            environment=lab.environment,
            wait_for="msg=listening",
        ) as portal,
    ):
        yield Site(lab=lab, portal=portal, prometheus=prometheus, folder=folder, archive=private / "archive.db")
    run_slurmscope("database", "revoke", *database, environment=lab.environment)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Let a process of ours hang."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def killed(lab: SlurmLab, *daemons: str) -> Iterator[None]:
    """End daemons of the lab, and start them again."""
    for daemon in daemons:
        lab.kill(daemon)
    try:
        yield
    finally:
        for daemon in reversed(daemons):
            lab.start_daemon(daemon)


def forms(job: int) -> list[str]:
    """Return every address of a job."""
    return [
        f"/jobs/{job}", f"/api/v2/jobs/{job}", f"/pdf/{job}", f"/mail/{job}", f"/plot/{job}/jobs_rss",
        f"/pie/{job}/", f"/api/v1/jobs/{job}/usage", f"/jobs/{job}/charts.json",
    ]  # fmt: skip


def test_nobody_reads_what_is_not_theirs(site: Site) -> None:
    job = site.run_job(ALICE)
    until(lambda: site.is_listed(job), PATIENCE_SECONDS)
    for path, absent in zip(forms(job), forms(9999999), strict=True):
        assert (path, 404) == (path, site.get(BOB, path)[0])
        foreign, missing = site.get(BOB, path)[1], site.get(BOB, absent)[1]
        assert missing.replace("Job 9999999 ", "Job N ") == foreign.replace(f"Job {job} ", "Job N ")
    assert {200} == {site.get(ALICE, path)[0] for path in forms(job) if "/plot/" not in path}
    # The lab has jobs of his from other tests.
    assert {BOB} >= {row["user"] for row in json.loads(site.get(BOB, "/api/v2/jobs")[1])["jobs"]}
    assert f'/jobs/{job}"' not in site.get(BOB, f"/search?q={job}")[1]


def test_admin_comments_end_with_the_first_one_that_sacctmgr_changes(site: Site) -> None:
    # That of 22.05.8 writes them in lower case.
    assert "22.05.8" in site.lab.run("sacctmgr", "--version")
    jobs = [site.run_job(), site.run_job(BOB)]
    until(lambda: all(site.is_listed(job) for job in jobs), PATIENCE_SECONDS)
    metric = "slurmscope_reporter_admin_comments_stopped"
    until(lambda: {("lab",): 1} == values(site.get("root", "/metrics")[1], metric), PATIENCE_SECONDS)
    later = site.run_job()
    until(lambda: site.is_listed(later), PATIENCE_SECONDS)

    def rounds() -> float:
        return values(site.get("root", "/metrics")[1], "slurmscope_reporter_rounds_total")[()]

    before = rounds()
    until(lambda: rounds() > before + 2, PATIENCE_SECONDS)
    rows = site.lab.run("sacct", "-anXP", "-S", "2020-01-01", "-o", "JobID,AdminComment").splitlines()
    comments = [comment for _, _, comment in (row.partition("|") for row in rows) if comment]
    assert (True, 1, "js1:") == (len(rows) > 2, len(comments), comments[0][:4])
    assert 1 == len([line for line in site.portal.log if "no AdminComment is written any more" in line])
    flags = ("--slurm.bin-path", str(site.lab.bin_path), "--archive.url", str(site.archive), "--reporter.admin-comment")
    done = run_slurmscope("doctor", "portal", "--json", *flags, environment=site.lab.environment)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}["AdminComment"]
    assert ("failed", True) == (found["status"], "lab: slurm-wlm 22.05.8" in found["message"])


def test_prometheus_that_is_away_is_told_and_the_job_is_listed_as_not_measured_yet(site: Site) -> None:
    before = site.run_job()
    until(lambda: site.is_listed(before), PATIENCE_SECONDS)
    with stopped(site.prometheus.pid):
        job = site.run_job()
        until(lambda: site.is_listed(job), PATIENCE_SECONDS)
        assert 200 == site.get(ALICE, f"/jobs/{before}")[0]
        report = site.archived(job)
    assert report is not None
    assert report["missing"]


def test_database_that_is_away_is_told_and_no_job_is_lost(site: Site) -> None:
    before = site.run_job()
    until(lambda: site.is_listed(before), PATIENCE_SECONDS)
    with killed(site.lab, "slurmdbd", "mariadbd"):
        job = site.run_job()
        until(lambda: "database" in site.get("root", "/")[1], PATIENCE_SECONDS)
        assert 200 == site.get(ALICE, f"/jobs/{before}")[0]
        assert 200 == site.get("root", "/cluster")[0]
    until(lambda: site.is_listed(job), PATIENCE_SECONDS)


def test_controller_that_is_away_is_told_and_the_archive_goes_on(site: Site) -> None:
    before = site.run_job()
    until(lambda: site.is_listed(before), PATIENCE_SECONDS)
    site.lab.kill_controller()
    try:
        until(lambda: "cannot be read" in site.get("root", "/cluster")[1], PATIENCE_SECONDS)
        assert 200 == site.get(ALICE, f"/jobs/{before}")[0]
    finally:
        site.lab.start_controller()
    job = site.run_job()
    until(lambda: site.is_listed(job), PATIENCE_SECONDS)
    until(lambda: "cannot be read" not in site.get("root", "/cluster")[1], PATIENCE_SECONDS)
