# SPDX-License-Identifier: Apache-2.0
"""Export one series per job; disabled by default because of the number of series.

::

    slurm_job_info{jobid="4711",user="alice",account="physics",partition="debug",state="RUNNING",...} 1
    slurm_job_cpu_alloc{jobid="4711"} 32
    slurm_job_mem_alloc{jobid="4711"} 68719476736
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, compat_gauge, info
from slurmscope.model.job_states import RUNNING
from slurmscope.model.jobs import JobList

INFO = info(
    "slurm_job_info",
    "One series per job known to the controller; pending tasks of an array share one.",
    "jobid", "array_job_id", "array_tasks", "het_job_id", "user", "account", "partition", "qos", "state", "nodes",
    "name",
)  # fmt: skip
CPUS = compat_gauge("slurm_job_cpu_alloc", "CPUs allocated to a running job.", "jobid")
MEMORY = compat_gauge("slurm_job_mem_alloc", "Memory allocated to a running job in bytes.", "jobid")


def collect(options: NoOptions, *, job_list: JobList) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    """Yield one series per job, and the allocation of running jobs."""
    yield Family(INFO, {job[:11]: 1.0 for job in job_list.jobs})
    running = [job for job in job_list.jobs if job.state == RUNNING]
    yield Family(CPUS, {(job.job_id,): job.cpus for job in running})
    yield Family(MEMORY, {(job.job_id,): job.memory_bytes for job in running if job.memory_bytes is not None})


COLLECTOR = Collector(
    name="job_info",
    role=Role.CLUSTER,
    help="One series per job; costs one more squeue call per interval and as many series as there are jobs.",
    needs=("job_list",),
    metrics=(INFO, CPUS, MEMORY),
    collect=collect,
    is_default=False,
)
