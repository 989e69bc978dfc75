# SPDX-License-Identifier: Apache-2.0
"""A controller that hangs or is dead: scrapes answer in time, nothing shows zeros, all comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from lab import ALICE, SlurmLab
from tests.processes import AS_NOBODY, Exporter, run_slurmscope, serving, until, values

INTERVAL_SECONDS = 1
DEADLINE_SECONDS = 5


@pytest.fixture
def exporter(clean_lab: SlurmLab) -> Iterator[Exporter]:
    """Serve a cluster with one running job, asked every second."""
    clean_lab.wait_state(clean_lab.submit(ALICE, script="sleep 600"), {"RUNNING"})
    flags = ("--slurm.bin-path", str(clean_lab.bin_path), f"--slurm.poll-limit={INTERVAL_SECONDS}", "--slurm.timeout=2")
    with serving("cluster", *flags, environment=clean_lab.environment) as exporter:
        until(lambda: values(scrape(exporter)[1], "slurm_up") == {(): 1})
        yield exporter


def scrape(exporter: Exporter) -> tuple[float, str]:
    """Scrape as Prometheus does, with a deadline; return how long it took."""
    started = time.monotonic()
    status, page = exporter.get(headers={"X-Prometheus-Scrape-Timeout-Seconds": str(DEADLINE_SECONDS)})
    assert 200 == status
    return time.monotonic() - started, page


@pytest.mark.parametrize(
    ("stop", "start"),
    [(SlurmLab.suspend_controller, SlurmLab.resume_controller), (SlurmLab.kill_controller, SlurmLab.start_controller)],
    ids=["hanging", "dead"],
)
def test_nothing_shows_zeros_and_all_comes_back(
    clean_lab: SlurmLab, exporter: Exporter, stop: Callable[[SlurmLab], None], start: Callable[[SlurmLab], None]
) -> None:
    _, before = scrape(exporter)
    stop(clean_lab)
    try:
        until(lambda: values(scrape(exporter)[1], "slurm_up") == {(): 0})
        for _ in range(3):
            took, page = scrape(exporter)
            assert took < DEADLINE_SECONDS
            assert {(): 0} == values(page, "slurm_up")
            assert dict.fromkeys(values(before, "slurm_controller_up"), 0) == values(page, "slurm_controller_up")
            assert 0 == values(page, "slurmscope_collector_success")["jobs",]
            # The last good numbers, with their age, and no zero in their place.
            assert values(before, "slurm_jobs") == values(page, "slurm_jobs")
            assert values(before, "slurm_cpus_total") == values(page, "slurm_cpus_total")
            assert values(page, "slurmscope_reading_age_seconds")["jobs",] > 0
    finally:
        start(clean_lab)
    until(lambda: values(scrape(exporter)[1], "slurm_up") == {(): 1})
    until(lambda: values(scrape(exporter)[1], "slurmscope_collector_success")["jobs",] == 1)
    assert 1 == values(scrape(exporter)[1], "slurm_jobs")["RUNNING",]


def test_private_data_hides_users_unless_told_otherwise(clean_lab: SlurmLab) -> None:
    config = clean_lab.folder / "etc" / "slurm.conf"
    text = config.read_text(encoding="utf-8")
    try:
        config.write_text(f"{text}\nPrivateData=jobs,users\n", encoding="utf-8")
        clean_lab.run("scontrol", "reconfigure")
        clean_lab.wait_for(
            lambda: "PrivateData             = jobs,users" in clean_lab.run("scontrol", "show", "config")
        )
        # All daemons read their configuration first, so that no launch meets that on a busy machine.
        clean_lab.wait_state(clean_lab.submit(ALICE, script="sleep 600"), {"RUNNING"})
        for flag, has_users in (("respect", False), ("ignore", True)):
            flags = ("--slurm.bin-path", str(clean_lab.bin_path), f"--slurm.private-data={flag}")
            with serving("cluster", *flags, environment=clean_lab.environment) as exporter:
                until(lambda: values(scrape(exporter)[1], "slurm_jobs").get(("RUNNING",)) == 1)
                _, page = scrape(exporter)
                assert 1 == values(page, "slurmscope_collector_success")["jobs",]
                assert has_users == bool(values(page, "slurm_user_jobs"))
                assert has_users == bool(values(page, "slurm_user_state_total"))
    finally:
        config.write_text(text, encoding="utf-8")
        clean_lab.run("scontrol", "reconfigure")


def test_doctor_names_munge_when_it_is_down(clean_lab: SlurmLab) -> None:
    flags = ("--slurm.bin-path", str(clean_lab.bin_path), "--slurm.timeout=1")
    clean_lab.kill("munged")
    try:
        done = run_slurmscope("doctor", "cluster", *flags, environment=clean_lab.environment)
    finally:
        clean_lab.start_daemon("munged")

    assert 1 == done.returncode
    assert "failed  munge: munged does not listen on" in done.stdout
    assert "failed  controllers: no controller answers" in done.stdout


def test_jobs_that_private_data_hides_are_no_empty_queue(clean_lab: SlurmLab) -> None:
    config = clean_lab.folder / "etc" / "slurm.conf"
    text = config.read_text(encoding="utf-8")
    flags = ("--slurm.bin-path", str(clean_lab.bin_path))
    try:
        config.write_text(f"{text}\nPrivateData=jobs\n", encoding="utf-8")
        clean_lab.run("scontrol", "reconfigure")
        clean_lab.wait_for(lambda: "PrivateData             = jobs" in clean_lab.run("scontrol", "show", "config"))
        with serving("cluster", *flags, environment=clean_lab.environment, prefix=AS_NOBODY) as exporter:
            _, page = scrape(exporter)
            assert {} == values(page, "slurm_job_unreadable_rows")
            assert 0 == values(page, "slurmscope_collector_success")["jobs",]
            until(lambda: any("PrivateData hides the jobs of others" in line for line in exporter.log))
    finally:
        config.write_text(text, encoding="utf-8")
        clean_lab.run("scontrol", "reconfigure")
