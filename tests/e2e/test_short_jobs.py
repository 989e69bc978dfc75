# SPDX-License-Identifier: Apache-2.0
"""Jobs that come and go between two scrapes leave their numbers, and the last seconds of a job are not lost.

What a job used is told by the job itself, from its own getrusage. The machine that runs these tests may be busy with
other things, so that the tracker wakes up late: the bounds are wide, but far from "nothing was seen".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.cgroups import has_cgroup_v1
from slurmscope.node.exporter import TrackingOptions, open_job_tracker
from slurmscope.node.job_registry import YOUNG_SECONDS
from slurmscope.node.job_use import WHOLE_JOB, JobKey, JobUse, NodeJobs
from slurmscope.node.tracker import JobTracker
from tests.e2e.busy_job import PROGRAM

needs_cgroups = pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers")

# The shell that starts the job uses some milliseconds as well.
OVERHEAD_SECONDS = 0.25
LEAST_SHARE = 0.6


@pytest.fixture
def tracker() -> Iterator[JobTracker]:
    """Track the jobs of this machine; those of other labs among them."""
    with open_job_tracker(TrackingOptions()) as opened:
        opened.snapshot()
        yield opened


class Users:
    """Let a user run jobs that work for a given time and write down what they really used."""

    def __init__(self, lab: SlurmLab) -> None:
        self.lab = lab
        self.folder = lab.layout.users / ALICE
        (self.folder / "busy.py").write_text(PROGRAM, encoding="utf-8")

    def submit(self, seconds: float, *sbatch_arguments: str, go: str = "") -> int:
        script = f"exec python3 busy.py used-$SLURM_JOB_ID {seconds} {go}"
        return self.lab.submit(ALICE, "--mem=100M", *sbatch_arguments, script=script)

    def used_seconds(self, job: int | str) -> float:
        return float((self.folder / f"used-{job}").read_text(encoding="utf-8"))

    def wait(self, job: int) -> None:
        self.lab.wait_state(job, {"COMPLETED"})


@pytest.fixture
def users(clean_lab: SlurmLab) -> Users:
    """Give the users of an idle cluster."""
    return Users(clean_lab)


def find(jobs: NodeJobs, lab: SlurmLab, number: int) -> JobUse | None:
    """Return a job of this lab."""
    return next((job for job in jobs.jobs if job.key.job_id == number and job.key.node_name in lab.nodes), None)


def wait_ended(tracker: JobTracker, lab: SlurmLab, number: int) -> JobUse:
    """Return the last numbers of a job: Slurm calls it completed before it has removed its cgroups."""
    found: list[JobUse] = []

    def has_ended() -> bool:
        job = find(tracker.snapshot(), lab, number)
        assert job is not None, f"job {number} was missed"
        found[:] = [job]
        return job.has_ended

    lab.wait_for(has_ended, what=f"the end of job {number}")
    return found[0]


def cpu_seconds(job: JobUse) -> float:
    total = job.groups[WHOLE_JOB].cpu.total_seconds
    assert total is not None
    return total


@needs_cgroups
def test_job_of_half_a_second_is_accounted(users: Users, tracker: JobTracker) -> None:
    # Where other tests take all cores the tracker may wake up too late once, not three times.
    for _ in range(3):
        job = users.submit(0.5)
        users.wait(job)
        seen = wait_ended(tracker, users.lab, job)
        used = users.used_seconds(job)
        assert cpu_seconds(seen) <= used + OVERHEAD_SECONDS
        if cpu_seconds(seen) >= LEAST_SHARE * used:
            break
    assert cpu_seconds(seen) >= LEAST_SHARE * used
    assert 100 * 1024 * 1024 == seen.groups[WHOLE_JOB].memory.limit_bytes
    assert (seen.groups[WHOLE_JOB].memory.peak_bytes or 0) > 1024 * 1024


@needs_cgroups
def test_last_seconds_of_a_job_are_not_lost(users: Users, tracker: JobTracker) -> None:
    # Where other tests take all cores, a cgroup may be gone before it is read; not three times.
    for number in range(3):
        job = users.submit(1.0, go=f"go{number}")
        users.lab.wait_for(lambda job=job: find(tracker.snapshot(), users.lab, job), what="the job to be seen")  # type: ignore[misc]
        # After its young days it is read only for a scrape, or when it ends.
        time.sleep(max(YOUNG_SECONDS) + 0.5)
        users.lab.wait_for(
            lambda job=job: seen_seconds(tracker, users, job) > 0.9,  # type: ignore[misc]
            what="the first half of the job's work",
        )
        before = seen_seconds(tracker, users, job)
        (users.folder / f"go{number}").touch()
        users.wait(job)
        after = cpu_seconds(wait_ended(tracker, users.lab, job))
        rest = users.used_seconds(job) - before
        assert rest > 0.7
        assert after - before <= rest + OVERHEAD_SECONDS
        if after - before >= LEAST_SHARE * rest:
            return
    pytest.fail("the last seconds of three jobs were lost")


def seen_seconds(tracker: JobTracker, users: Users, job: int) -> float:
    seen = find(tracker.snapshot(), users.lab, job)
    assert seen is not None
    return cpu_seconds(seen)


@needs_cgroups
def test_twenty_short_jobs_are_all_seen(users: Users, tracker: JobTracker) -> None:
    # Where other tests take all cores the tracker may read too many of them too early once, not three times.
    for _ in range(3):
        jobs = [users.submit(0.3, "--cpus-per-task=1") for _ in range(20)]
        for job in jobs:
            users.wait(job)
        seen = {job: wait_ended(tracker, users.lab, job) for job in jobs}
        assert all(job.groups for job in seen.values())
        used, counted = sum(map(users.used_seconds, jobs)), sum(map(cpu_seconds, seen.values()))
        assert counted <= used + 20 * OVERHEAD_SECONDS
        if counted >= LEAST_SHARE * used:
            break
    assert counted >= LEAST_SHARE * used


@needs_cgroups
def test_job_counts_on_when_its_next_step_begins(users: Users, tracker: JobTracker) -> None:
    first, second = users.lab.nodes[:2]
    step = f"srun --nodes=1 --ntasks=1 --nodelist={second} python3 busy.py used-$SLURM_JOB_ID-{{}} 1.6"
    script = f"{step.format(0)}; sleep 1; {step.format(1)}"
    job = users.lab.submit(ALICE, "--nodes=2", f"--nodelist={first},{second}", "--mem=100M", script=script)
    users.wait(job)

    def on_second_node() -> JobUse | None:
        jobs = tracker.snapshot().jobs
        return next((use for use in jobs if use.key == JobKey(job, second) and use.has_ended), None)

    users.lab.wait_for(on_second_node, what="the end of the job on its second node")
    seen = on_second_node()
    assert seen is not None
    used = users.used_seconds(f"{job}-0") + users.used_seconds(f"{job}-1")
    assert LEAST_SHARE * used <= cpu_seconds(seen) <= used + 2 * OVERHEAD_SECONDS


def test_short_jobs_without_cgroups_are_found_by_their_processes(users: Users, tmp_path: Path) -> None:
    with open_job_tracker(TrackingOptions(cgroup_root=tmp_path)) as tracker:
        tracker.snapshot()
        used = counted = 0.0
        # One after another, and at another moment between two polls each: the node is idle when a job starts.
        for _ in range(6):
            job = users.submit(0.5)
            users.wait(job)
            counted += cpu_seconds(wait_ended(tracker, users.lab, job))
            used += users.used_seconds(job)
        assert "processes" == tracker.snapshot().layout
    assert LEAST_SHARE * used <= counted <= used + 6 * OVERHEAD_SECONDS


@needs_cgroups
def test_tracker_of_an_idle_machine_uses_no_cpu_time(users: Users, tracker: JobTracker) -> None:
    job = users.lab.submit(ALICE, script="sleep 60")
    users.lab.wait_for(lambda: find(tracker.snapshot(), users.lab, job), what="the job to be seen")
    time.sleep(max(YOUNG_SECONDS) + 0.5)
    # Other labs on this machine start jobs meanwhile, hardly in all of these moments; alone it is some hundred
    # microseconds.
    assert any(spent_seconds(5.0) < 0.25 for _ in range(3))


def spent_seconds(duration: float) -> float:
    """Return the CPU time that this process uses while it waits."""
    began = time.process_time()
    time.sleep(duration)
    return time.process_time() - began
