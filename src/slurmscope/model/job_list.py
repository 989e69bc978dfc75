# SPDX-License-Identifier: Apache-2.0
"""Hold jobs one by one, for those who want a series for each."""

from __future__ import annotations

from typing import NamedTuple


class ListedJob(NamedTuple):
    """Name one job, or all tasks of an array that still wait."""

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
    """Hold every job the controller remembers, newest submission first for each number."""

    jobs: tuple[ListedJob, ...]
    unreadable_rows: int = 0
