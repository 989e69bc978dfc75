# SPDX-License-Identifier: Apache-2.0
"""What a real slurmctld and slurmdbd make of one job is archived as what it is, from sacct and from the database.

A job that is resized, suspended or requeued, an ID that is used again after slurmctld lost its state, and records that
reach slurmdbd two days late. Labs are our own: equal IDs, and a slurmdbd that is down, would confuse other tests.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab import ALICE, BOB, SlurmLab, temporary_lab
from slurmscope.accounting.database import DatabaseAccounting
from slurmscope.accounting.grant import grant
from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.clock import Clock
from slurmscope.jobs.record import JobAccounting
from slurmscope.jobs.runs import runs_of_job
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reporter.reporter import Reporter
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.local_jobs import find_array
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.sources import open_archive
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from tests.e2e.accounting_access import ADMIN, reader_settings

SETTINGS = ReporterSettings(interval=0.5)
HOUR, PATIENCE_SECONDS = 3600.0, 90.0


@dataclass
class Site:
    """Hold a lab and a reporter for each source, whose clock can be advanced."""

    lab: SlurmLab
    accounting: JobAccounting
    archive: SqlArchive
    later_seconds: float = 0.0
    reporter: Reporter = field(init=False)

    def __post_init__(self) -> None:
        clock = Clock(
            monotonic=lambda: time.monotonic() + self.later_seconds, wall=lambda: time.time() + self.later_seconds
        )
        parts = (ReportMaker(None), self.archive, Checkpoints(self.archive.database), SETTINGS)
        self.reporter = Reporter(self.accounting.of("lab"), *parts, cluster="lab", clock=clock)

    def rows(self, job_id: int) -> tuple[JobRow, ...]:
        self.reporter.work()
        return self.archive.find_shown(EVERYTHING, str(job_id))

    def wait_for_state(self, job_id: int, state: str) -> JobRow:
        """Wait until the only run of a job is archived in a state."""

        def is_archived() -> bool:
            return [state] == [row.state for row in self.rows(job_id)]

        self.lab.wait_for(is_archived, timeout=PATIENCE_SECONDS, what=f"job {job_id} as {state} in the archive")
        return self.rows(job_id)[0]


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    with temporary_lab() as lab:
        yield lab


@pytest.fixture(scope="module")
def password_file(lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_read(lab, tmp_path_factory.mktemp("reader") / "password")


def let_read(lab: SlurmLab, password_file: Path) -> Path:
    grant(reader_settings(lab, password_file), ADMIN, is_dry_run=False)
    return password_file


@contextmanager
def open_site(lab: SlurmLab, source: str, password_file: Path, archive_file: Path) -> Iterator[Site]:
    commands = SlurmCommands(SlurmSettings(bin_path=lab.bin_path, timeout=30.0), lab.environment)
    database = DatabaseAccounting(reader_settings(lab, password_file))
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{archive_file}", timeout=60.0))
    try:
        yield Site(lab, database if source == "database" else SacctAccounting(commands.run), archive)
    finally:
        archive.close()


@pytest.fixture(params=["sacct", "database"])
def site(request: pytest.FixtureRequest, lab: SlurmLab, password_file: Path, tmp_path: Path) -> Iterator[Site]:
    lab.reset()
    with open_site(lab, request.param, password_file, tmp_path / "archive.db") as site:
        yield site


def read_sacct(lab: SlurmLab, job_id: int, *columns: str) -> list[list[str]]:
    """Return the columns of each record of a job; times are Unix times."""
    options = ("--noheader", "--parsable2", "--duplicates", "--allocations", f"--jobs={job_id}")
    return [line.split("|") for line in lab.run("sacct", *options, f"--format={','.join(columns)}").splitlines()]


def is_accounted(lab: SlurmLab, job_id: int) -> bool:
    """Return whether slurmdbd knows the submission of a job, and its end."""
    records = read_sacct(lab, job_id, "Partition", "End")
    return bool(records) and all(partition and end != "Unknown" for partition, end in records)


def test_job_that_gives_a_node_back_is_one_run_whose_hours_count_once(site: Site) -> None:
    lab = site.lab
    job_id = lab.submit(ALICE, "--nodes=2", script="sleep 300")
    lab.wait_state(job_id, {"RUNNING"})
    before = site.wait_for_state(job_id, "RUNNING")
    time.sleep(3)
    lab.run("scontrol", "update", f"JobId={job_id}", "NumNodes=1")
    lab.wait_for(lambda: len(read_sacct(lab, job_id, "State")) == 2, what="the record of the smaller job")

    lab.wait_for(lambda: site.rows(job_id)[0].nodes == 1, timeout=PATIENCE_SECONDS, what="the smaller job")
    running = site.wait_for_state(job_id, "RUNNING")
    lab.run("scancel", str(job_id))
    row = site.wait_for_state(job_id, "CANCELLED")

    assert before.submit_seconds == running.submit_seconds == row.submit_seconds
    # Slurm's own sum counts the time before the resize twice: its later record begins with the job.
    (old_seconds, old_cpus), (all_seconds, new_cpus) = (
        map(int, record) for record in read_sacct(lab, job_id, "ElapsedRaw", "AllocCPUS")
    )
    assert (2, 1) == (old_cpus, new_cpus)
    assert old_cpus * old_seconds + new_cpus * (all_seconds - old_seconds) == row.core_seconds
    assert all_seconds == row.run_seconds


def test_suspended_job_is_shown_as_such_until_it_is_resumed(site: Site) -> None:
    lab = site.lab
    job_id = lab.submit(ALICE, script="sleep 300")
    lab.wait_state(job_id, {"RUNNING"})
    site.wait_for_state(job_id, "RUNNING")
    lab.run("scontrol", "suspend", str(job_id))

    site.wait_for_state(job_id, "SUSPENDED")
    time.sleep(3)
    first = site.wait_for_state(job_id, "SUSPENDED").run_seconds
    time.sleep(2)
    second = site.wait_for_state(job_id, "SUSPENDED").run_seconds
    lab.run("scontrol", "resume", str(job_id))
    site.wait_for_state(job_id, "RUNNING")
    lab.run("scancel", str(job_id))
    row = site.wait_for_state(job_id, "CANCELLED")

    # Suspended time is no run time; accounting rounds both to seconds.
    assert abs(second - first) <= 1
    assert [[str(int(row.run_seconds))]] == read_sacct(lab, job_id, "ElapsedRaw")


def test_requeued_task_of_an_array_is_one_task_in_its_last_run(site: Site) -> None:
    lab = site.lab
    array_id = lab.submit(
        BOB, "--array=1-2", script='[ "$SLURM_RESTART_COUNT" ] || [ "$SLURM_ARRAY_TASK_ID" = 2 ] || sleep 300'
    )
    lab.wait_for(lambda: "COMPLETED" in lab.job_states(array_id), what="the second task")
    lab.run("scontrol", "requeue", f"{array_id}_1")

    def has_requeued() -> bool:
        wanted = JobFilter(array_job_id=array_id)
        site.reporter.work()
        return {"COMPLETED", "REQUEUED"} == {row.state for row in site.archive.list_jobs(EVERYTHING, wanted).rows}

    lab.wait_for(has_requeued, timeout=PATIENCE_SECONDS, what="the first run")
    # Slurm would wait for two minutes.
    lab.run("scontrol", "update", f"JobId={array_id}_1", "StartTime=now")
    lab.wait_state(array_id, {"COMPLETED"}, timeout=300)  # where it waits all the same

    def read_states() -> list[tuple[str, str]]:
        site.reporter.work()
        found = find_array(
            EVERYTHING, array_id, archive=site.archive, accounting=site.accounting, maker=ReportMaker(None)
        )
        return [(report.record.shown_id, report.record.state) for report in found]

    def count_runs() -> int:
        return len(site.archive.list_jobs(EVERYTHING, JobFilter(array_job_id=array_id)).rows)

    expected = [(f"{array_id}_{task}", "COMPLETED") for task in (1, 2)]
    lab.wait_for(lambda: expected == read_states(), timeout=PATIENCE_SECONDS, what="the second run")
    lab.wait_for(lambda: expected == read_states() and count_runs() == 3, timeout=PATIENCE_SECONDS, what="its archive")


def test_id_that_slurmctld_uses_again_is_another_job(tmp_path: Path) -> None:
    with temporary_lab() as lab:
        password_file = let_read(lab, tmp_path / "password")
        first = lab.submit(ALICE, script="true")
        # slurmctld loses the messages too that slurmdbd has not got yet.
        lab.wait_for(lambda: is_accounted(lab, first), timeout=PATIENCE_SECONDS, what="the record of the first job")
        lose_state(lab)
        assert first == lab.submit(BOB, script="true")
        for source in ("sacct", "database"):
            with open_site(lab, source, password_file, tmp_path / source) as site:
                _compare_jobs_of_one_id(site, first)


def _compare_jobs_of_one_id(site: Site, job_id: int) -> None:
    def are_archived() -> bool:
        return [BOB, ALICE] == [row.user for row in site.rows(job_id) if row.end_seconds is not None]

    site.lab.wait_for(are_archived, timeout=PATIENCE_SECONDS, what="both jobs of one ID")
    newest, other = (report.record for report in site.archive.find(EVERYTHING, job_id))
    assert [newest] == runs_of_job(newest, [newest, other])
    assert {newest, other} == set(site.accounting.read_jobs([job_id]))


def lose_state(lab: SlurmLab) -> None:
    """Let slurmctld begin anew, as after a failure of its disk."""
    lab.reset()
    lab.kill_controller()
    for path in (lab.folder / "state").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    lab.start_controller()
    lab.reset()


def test_job_whose_record_arrives_two_days_late_is_archived(site: Site) -> None:
    lab = site.lab
    before = lab.submit(ALICE, script="true")
    site.wait_for_state(before, "COMPLETED")
    lab.kill("slurmdbd")
    late = lab.submit(ALICE, script="true")
    lab.wait_state(late, {"COMPLETED"})
    # While slurmdbd is down, its database answers, and sacct fails.
    site.later_seconds = 48 * HOUR
    site.reporter.work()
    assert () == site.archive.find_shown(EVERYTHING, str(late))

    lab.start_daemon("slurmdbd")
    site.reporter.work()
    # First slurmdbd gets the start of the job, with its state of now, then its end.
    lab.wait_for(lambda: is_accounted(lab, late), timeout=PATIENCE_SECONDS, what="the messages of slurmctld")
    site.later_seconds += HOUR
    site.wait_for_state(late, "COMPLETED")
