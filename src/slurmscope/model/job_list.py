# SPDX-License-Identifier: Apache-2.0
"""Hold jobs one by one, for one series per job."""

from __future__ import annotations

from typing import NamedTuple


class ListedJob(NamedTuple):
    """Hold one job, or all pending tasks of an array."""

    job_id: str
    array_job_id: str
    array_tasks: str
    het_job_id: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    node_list: str
    name: str
    cpus: int
    memory_bytes: int | None


class JobList(NamedTuple):
    """Hold every job known to the controller, newest submission first for each job id."""

    jobs: tuple[ListedJob, ...]
    unreadable_rows: int = 0
