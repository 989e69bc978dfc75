# SPDX-License-Identifier: Apache-2.0
"""Jobs that come and go between two scrapes leave their numbers, and the last seconds of a job are not lost.

What a job used is told by the job itself, from its own getrusage. The machine that runs these tests may be busy with
other things, so that the agent wakes up late: the bounds are wide, but far from "nothing was seen".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from lab import ALICE, SlurmLab
from lab.cgroups import has_cgroup_v1
from tests.e2e.busy_job import PROGRAM
from tests.e2e.node_agent import Agent, of_job, running_agent
from tests.processes import Samples

needs_cgroups = pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers")

# The shell that starts the job uses some milliseconds as well.
OVERHEAD_SECONDS = 0.25
LEAST_SHARE = 0.6
# A new job is read again and again for two seconds; afterwards only for a scrape, or when it ends.
YOUNG_SECONDS = 2.5


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


@pytest.fixture
def agent(clean_lab: SlurmLab) -> Iterator[Agent]:
    """Run the agent of this machine."""
    with running_agent(clean_lab) as agent:
        yield agent


def cpu_seconds(samples: Samples, lab: SlurmLab, job: int) -> float:
    """Return the CPU time of a job that runs on one node."""
    (seconds,) = of_job(samples, "jobs_cpu_seconds_total", job, lab).values()
    return seconds


def assert_counted(count: Callable[[], tuple[float, float]], *, shells: int = 1) -> None:
    """Check what was counted against what was used, of up to three jobs that are run by the function.

    Where other tests take all cores, the agent wakes up too late for one job, or its cgroup is gone before it is read;
    it may also miss the whole job.
    """
    tries: list[object] = []
    while len(tries) < 3:
        try:
            seen, used = count()
        except AssertionError as error:
            tries.append(str(error))
            continue
        assert seen <= used + shells * OVERHEAD_SECONDS
        if seen >= LEAST_SHARE * used:
            return
        tries.append((seen, used))
    pytest.fail(f"too few seconds were seen of those used, three times: {tries}")


@needs_cgroups
def test_job_of_half_a_second_is_accounted(users: Users, agent: Agent) -> None:
    pages: list[tuple[int, Samples]] = []

    def count() -> tuple[float, float]:
        job = users.submit(0.5)
        users.wait(job)
        pages.append((job, agent.wait_ended(job)))
        return cpu_seconds(pages[-1][1], users.lab, job), users.used_seconds(job)

    assert_counted(count)
    job, page = pages[-1]
    assert [100 * 1024 * 1024] == [*of_job(page, "jobs_memory_limit_bytes", job, users.lab).values()]
    (peak_bytes,) = of_job(page, "jobs_memory_peak_bytes", job, users.lab).values()
    assert peak_bytes > 1024 * 1024


@needs_cgroups
def test_last_seconds_of_a_job_are_not_lost(users: Users, agent: Agent) -> None:
    def count() -> tuple[float, float]:
        go = f"go{time.monotonic_ns()}"
        job, seen_seconds = run_first_half(users, agent, go)
        (users.folder / go).touch()
        users.wait(job)
        rest = users.used_seconds(job) - seen_seconds
        assert rest > 0.7
        return cpu_seconds(agent.wait_ended(job), users.lab, job) - seen_seconds, rest

    assert_counted(count)


def run_first_half(users: Users, agent: Agent, go: str) -> tuple[int, float]:
    """Let a job work for a second and wait; return it, and what was seen of it."""
    job = users.submit(1.0, go=go)
    users.lab.wait_for(lambda: agent.values("jobs_cpu_seconds_total", job), what="the job to be seen")
    time.sleep(YOUNG_SECONDS)
    users.lab.wait_for(lambda: cpu_seconds(agent.read(), users.lab, job) > 0.9, what="the first half of the job's work")
    return job, cpu_seconds(agent.read(), users.lab, job)


@needs_cgroups
def test_twenty_short_jobs_are_all_seen(users: Users, agent: Agent) -> None:
    def count() -> tuple[float, float]:
        jobs = [users.submit(0.3, "--cpus-per-task=1") for _ in range(20)]
        for job in jobs:
            users.wait(job)
        counted = sum(cpu_seconds(agent.wait_ended(job), users.lab, job) for job in jobs)
        return counted, sum(map(users.used_seconds, jobs))

    assert_counted(count, shells=20)


@needs_cgroups
def test_job_counts_on_when_its_next_step_begins(users: Users, agent: Agent) -> None:
    first, second = users.lab.nodes[:2]
    step = f"srun --nodes=1 --ntasks=1 --nodelist={second} python3 busy.py used-$SLURM_JOB_ID-{{}} 1.6"
    script = f"{step.format(0)}; sleep 1; {step.format(1)}"

    def count() -> tuple[float, float]:
        job = users.lab.submit(ALICE, "--nodes=2", f"--nodelist={first},{second}", "--mem=100M", script=script)
        users.wait(job)
        seen = of_job(agent.wait_ended(job), "jobs_cpu_seconds_total", job, users.lab)[second,]
        return seen, users.used_seconds(f"{job}-0") + users.used_seconds(f"{job}-1")

    assert_counted(count, shells=2)


def test_short_jobs_without_cgroups_are_found_by_their_processes(users: Users, tmp_path: Path) -> None:
    with running_agent(users.lab, "--path.cgroup", str(tmp_path)) as agent:

        def count() -> tuple[float, float]:
            used = counted = 0.0
            # One after another, and at another moment between two polls each: the node is idle when a job starts.
            for _ in range(6):
                job = users.submit(1.5)
                users.wait(job)
                page = agent.wait_ended(job)
                assert {("processes",)} == page["jobs_layout_info"].keys()
                counted += cpu_seconds(page, users.lab, job)
                used += users.used_seconds(job)
            return counted, used

        assert_counted(count, shells=6)


@needs_cgroups
def test_agent_of_an_idle_machine_uses_no_cpu_time(users: Users, agent: Agent) -> None:
    job = users.lab.submit(ALICE, script="sleep 60")
    users.lab.wait_for(lambda: agent.values("jobs_cpu_seconds_total", job), what="the job to be seen")
    time.sleep(YOUNG_SECONDS)
    # Other labs on this machine start jobs meanwhile, hardly in all of these moments; alone it is some hundred
    # microseconds.
    assert any(spent_seconds(agent, 5.0) < 0.25 for _ in range(3))


def spent_seconds(agent: Agent, duration: float) -> float:
    """Return the CPU time that the agent uses while nobody scrapes it."""
    process = psutil.Process(agent.exporter.process.pid)
    before = process.cpu_times()
    time.sleep(duration)
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system)
