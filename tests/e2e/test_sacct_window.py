# SPDX-License-Identifier: Apache-2.0
"""The real sacct lists for a window of time the jobs that ended from its first to its last second."""

from __future__ import annotations

import time

from lab import ALICE, SlurmLab
from slurmscope.cluster.completions import COMMAND, arguments, parse_ended_jobs
from slurmscope.slurm.command import SlurmCommands, SlurmSettings


def ended_jobs(lab: SlurmLab, start: int, end: int) -> list[int]:
    """Return the jobs that ended in this window, by the arguments of the exporter."""
    separator = "c0ffee"
    commands = SlurmCommands(SlurmSettings(bin_path=lab.bin_path, timeout=30.0), lab.environment)
    output = commands.run(COMMAND, arguments(start, end, separator))
    return [job.job_id for job in parse_ended_jobs(output, separator)[0]]


def end_seconds(lab: SlurmLab, job: int) -> int:
    """Return when a job ended, by the controller."""
    shown = lab.run("env", "SLURM_TIME_FORMAT=%s", "scontrol", "--oneliner", "show", "job", str(job))
    return int(shown.partition(" EndTime=")[2].split()[0])


def test_window_has_both_its_edges_and_nothing_beyond(clean_lab: SlurmLab) -> None:
    jobs = []
    for _ in range(3):
        # No job of an earlier test ends in the same second.
        time.sleep(2)
        jobs.append(clean_lab.submit(ALICE, script="true"))
        clean_lab.wait_state(jobs[-1], {"COMPLETED"})
    first, second, third = (end_seconds(clean_lab, job) for job in jobs)
    clean_lab.wait_for(lambda: jobs == ended_jobs(clean_lab, first, third + 3600), what="the jobs in accounting")

    assert jobs[:2] == ended_jobs(clean_lab, first, second)
    assert jobs[1:2] == ended_jobs(clean_lab, first + 1, third - 1)
    assert [] == ended_jobs(clean_lab, third + 1, third + 3600)
