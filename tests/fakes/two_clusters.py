# SPDX-License-Identifier: Apache-2.0
"""Make jobs of two clusters with the same job IDs, node names and users."""

from __future__ import annotations

from slurmscope.jobs.report import JobReport
from tests.fakes.reports import make_record, make_report

ALPHA, BETA = "alpha", "beta"


def make_two_clusters() -> list[JobReport]:
    """Make job 4711 of ada in both clusters, 4712 of ada and bob, 4713 in one, and an array in both."""
    return [
        _job(ALPHA, 4711, name="on-alpha"),
        _job(BETA, 4711, name="on-beta", cpus=8),
        _job(ALPHA, 4712, name="mine"),
        _job(BETA, 4712, name="secret", user="bob", account="chemistry", nodes=("n7",)),
        _job(BETA, 4713, name="only"),
        *(_job(name, 4800 + task, array_job_id=4800, array_task_id=task) for name in (ALPHA, BETA) for task in (0, 1)),
        _job(BETA, 4900, name="foreign", user="bob", account="physics", nodes=("n9",)),
    ]


def make_job_and_array() -> list[JobReport]:
    """Make job 6000 of ada in one cluster, and the tasks of her array 6000 in the other."""
    tasks = (_job(BETA, 6000 + task, name="array-on-beta", array_job_id=6000, array_task_id=task) for task in (0, 1))
    return [_job(ALPHA, 6000, name="plain-on-alpha"), *tasks]


def _job(cluster: str, job_id: int, **changed: object) -> JobReport:
    return make_report(make_record(job_id, cluster=cluster, **changed))
