# SPDX-License-Identifier: Apache-2.0
"""Tell of every job by itself: one series per job, so off unless asked for.

::

    slurm_job_info{jobid="4711",user="alice",account="physics",partition="debug",state="RUNNING",...} 1
    slurm_job_cpu_alloc{jobid="4711"} 32
    slurm_job_mem_alloc{jobid="4711"} 68719476736
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, info, seed_gauge
from slurmscope.model.job_list import JobList
from slurmscope.model.job_states import RUNNING

INFO = info(
    "slurm_job_info",
    "One series for each job the controller remembers; the tasks of an array that wait are one.",
    "jobid", "array_job_id", "array_tasks", "het_job_id", "user", "account", "partition", "qos", "state", "nodes",
    "name",
)  # fmt: skip
CPUS = seed_gauge("slurm_job_cpu_alloc", "CPUs of a running job.", "jobid")
MEMORY = seed_gauge("slurm_job_mem_alloc", "Memory of a running job in bytes.", "jobid")


def collect(options: NoOptions, *, job_list: JobList) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    """Yield one line per job, and what each running job holds."""
    yield Family(INFO, {job[:11]: 1.0 for job in job_list.jobs})
    running = [job for job in job_list.jobs if job.state == RUNNING]
    yield Family(CPUS, {(job.job_id,): job.cpus for job in running})
    yield Family(MEMORY, {(job.job_id,): job.memory_bytes for job in running if job.memory_bytes is not None})


COLLECTOR = Collector(
    name="job_info",
    role=Role.CLUSTER,
    help="A series for every job; costs one more question per interval and as many series as there are jobs.",
    needs=("job_list",),
    metrics=(INFO, CPUS, MEMORY),
    collect=collect,
    is_default=False,
)
