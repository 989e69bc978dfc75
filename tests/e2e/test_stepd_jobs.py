# SPDX-License-Identifier: Apache-2.0
"""What the real slurmstepd does is not taken for its job, and several slurmd on one machine are kept apart."""

from __future__ import annotations

from pathlib import Path

import psutil

from lab import ALICE, SlurmLab
from tests.e2e.node_agent import of_job, running_agent

# A shell and a sleep read their libraries and little else.
MOST_READS = 1000


def find_sleeps(lab: SlurmLab, job: int) -> list[psutil.Process]:
    """Return the processes of a job of this lab that sleep."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ() if process.name() == "sleep" else {}
        except psutil.Error:
            continue
        if environment.get("SLURM_JOB_ID") == str(job) and environment.get("SLURMD_NODENAME") in lab.nodes:
            found.append(process)
    return found


def stepd_reads(sleep: psutil.Process) -> int:
    """Return the reads of the job's slurmstepd by now, without those of its children."""
    (stepd,) = (parent for parent in sleep.parents() if parent.name() == "slurmstepd")
    return int(stepd.io_counters().read_count)


def test_reads_of_slurmstepd_are_not_those_of_a_sleeping_job(clean_lab: SlurmLab) -> None:
    with running_agent(clean_lab) as agent:
        job = clean_lab.submit(ALICE, "--mem=100M", script="sleep 12")
        clean_lab.wait_for(lambda: find_sleeps(clean_lab, job), what="the job to sleep")
        (sleep,) = find_sleeps(clean_lab, job)
        clean_lab.wait_for(lambda: agent.values("jobs_io_reads_total", job), what="the job to be seen")
        clean_lab.wait_for(lambda: stepd_reads(sleep) > 2 * MOST_READS, what="slurmstepd to sample its job")
        # From here on nothing is read until the job ends: its last interval.
        clean_lab.wait_state(job, {"COMPLETED"})
        (reads,) = of_job(agent.wait_ended(job), "jobs_io_reads_total", job, clean_lab).values()

    assert 0 < reads < MOST_READS


def test_job_on_two_nodes_of_one_machine_without_cgroups_has_numbers_for_each(
    clean_lab: SlurmLab, tmp_path: Path
) -> None:
    with running_agent(clean_lab, "--path.cgroup", str(tmp_path)) as agent:
        job = clean_lab.submit(ALICE, "--mem=100M", "--nodes=2", script="srun sleep 300")
        clean_lab.wait_for(lambda: len(find_sleeps(clean_lab, job)) == 2, what="the sleep of each node")
        nodes = clean_lab.run("squeue", "-h", "-j", str(job), "-o", "%N").strip()
        expected = clean_lab.run("scontrol", "show", "hostnames", nodes).split()
        samples = agent.read()

    # One of the two on each node, none on both.
    threads = of_job(samples, "jobs_program_threads", job, clean_lab)
    assert {(node, "sleep"): 1 for node in expected} == {key: count for key, count in threads.items() if "sleep" in key}
    assert {(node,) for node in expected} == of_job(samples, "jobs_cpu_seconds_total", job, clean_lab).keys()
    assert {("processes",)} == samples["jobs_layout_info"].keys()
