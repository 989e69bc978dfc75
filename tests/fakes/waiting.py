# SPDX-License-Identifier: Apache-2.0
"""Make pending jobs for tests."""

from __future__ import annotations

from typing import Any

from slurmscope.jobs.pending.queue import PendingJob, PendingQueue
from tests.fakes.reports import START

NOW = START + 3 * 86400
"""The clock of the fake portal."""


def make_waiting(job_id: int, **values: Any) -> PendingJob:
    """Make a pending job of ada in the partition batch."""
    job = PendingJob(
        job_id=job_id,
        name="train",
        user="ada",
        account="physics",
        partitions=("batch",),
        qos="normal",
        state="PENDING",
        reason="Priority",
        submit_seconds=NOW - 600,
        eligible_seconds=NOW - 600,
        time_limit_seconds=3600,
        cpus=4,
        memory_bytes=8 << 30,
        priority=1000,
    )
    return job._replace(**values)


def make_queue(*jobs: PendingJob, cluster: str = "lab") -> PendingQueue:
    """Make a queue, newest submission first."""
    ordered = sorted(jobs, key=lambda job: (job.submit_seconds, job.job_id), reverse=True)
    return PendingQueue(jobs=tuple(ordered), cluster=cluster, taken_at_seconds=NOW - 5.0)
