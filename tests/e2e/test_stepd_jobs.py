# SPDX-License-Identifier: Apache-2.0
"""What the real slurmstepd does is not taken for its job, and several slurmd on one machine are kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from lab import ALICE, SlurmLab
from slurmscope.node.exporter import TrackingOptions, open_job_tracker
from slurmscope.node.job_use import JobUse
from slurmscope.node.tracker import JobTracker

# A shell and a sleep read their libraries and little else.
MOST_READS = 1000


@contextmanager
def tracking(options: TrackingOptions) -> Iterator[JobTracker]:
    with open_job_tracker(options) as tracker:
        tracker.snapshot()
        yield tracker


def uses(tracker: JobTracker, lab: SlurmLab, job: int) -> dict[str, JobUse]:
    """Return a job of this lab by node."""
    found = (use for use in tracker.snapshot().jobs if use.key.job_id == job)
    return {use.key.node_name: use for use in found if use.key.node_name in lab.nodes}


def stepd_reads(use: JobUse) -> int:
    """Return the reads of the job's slurmstepd by now, without those of its children."""
    stepds = [psutil.Process(pid) for pid in use.pids if psutil.Process(pid).name() == "slurmstepd"]
    return sum(process.io_counters().read_count for process in stepds)


def programs(use: JobUse) -> set[str]:
    """Return the names of the job's processes."""
    return {psutil.Process(pid).name() for pid in use.pids}


def test_reads_of_slurmstepd_are_not_those_of_a_sleeping_job(clean_lab: SlurmLab) -> None:
    with tracking(TrackingOptions()) as tracker:
        job = clean_lab.submit(ALICE, "--mem=100M", script="sleep 12")
        clean_lab.wait_for(
            lambda: any("slurmstepd" in programs(use) for use in uses(tracker, clean_lab, job).values()),
            what="the job to be seen with its slurmstepd",
        )
        (running,) = uses(tracker, clean_lab, job).values()
        clean_lab.wait_for(lambda: stepd_reads(running) > 2 * MOST_READS, what="slurmstepd to sample its job")
        # From here on nothing is read until the job ends: its last interval.
        clean_lab.wait_state(job, {"COMPLETED"})
        clean_lab.wait_for(
            lambda: all(use.has_ended for use in uses(tracker, clean_lab, job).values()), what="the end of the job"
        )
        (ended,) = uses(tracker, clean_lab, job).values()
    assert ended.processes is not None
    assert ended.processes.io is not None
    assert 0 < ended.processes.io.reads < MOST_READS


def test_job_on_two_nodes_of_one_machine_without_cgroups_has_numbers_for_each(
    clean_lab: SlurmLab, tmp_path: Path
) -> None:
    with tracking(TrackingOptions(cgroup_root=tmp_path)) as tracker:
        job = clean_lab.submit(ALICE, "--mem=100M", "--nodes=2", script="srun sleep 300")
        clean_lab.wait_for(lambda: len(uses(tracker, clean_lab, job)) == 2, what="both nodes of the job")
        nodes = set(clean_lab.run("squeue", "-h", "-j", str(job), "-o", "%N").split())
        expected = clean_lab.run("scontrol", "show", "hostnames", *nodes).split()
        # The sleep of each node, which is slurmstepd itself for a moment.
        clean_lab.wait_for(
            lambda: all("sleep" in programs(use) for use in uses(tracker, clean_lab, job).values()),
            what="the processes on both nodes",
        )
        found = uses(tracker, clean_lab, job)
        titles = {node: programs(use) for node, use in found.items()}
    assert sorted(expected) == sorted(found)
    assert all({"slurmstepd", "sleep"} <= names for names in titles.values())
    assert all(use.processes and use.processes.processes for use in found.values())
    assert set() == set.intersection(*(set(use.pids) for use in found.values()))
