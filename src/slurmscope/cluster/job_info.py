# SPDX-License-Identifier: Apache-2.0
"""Export one series per job; disabled by default because of the number of series.

::

    slurm_job_info{jobid="4711",user="alice",account="physics",partition="debug",state="RUNNING",...} 1
    slurm_job_cpu_alloc{jobid="4711"} 32
    slurm_job_mem_alloc{jobid="4711"} 68719476736

Such a name may contain a newline, or text like another job's row. Columns and rows are therefore
separated by a random text that is new for every call: it cannot occur in a name.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.cluster.sources import Sources
from slurmscope.cluster.squeue import JobList, ListedJob
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.tres import parse_tres
from slurmscope.exporter.collector import Collector, NoOptions, Reading, Role
from slurmscope.metrics.family import Family, compat_gauge, info
from slurmscope.slurm.command import random_separator
from slurmscope.slurm.states import RUNNING

COLUMNS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "UserName", "Account", "Partition", "QOS", "State", "NodeList",
    "NumCPUs", "tres-alloc", "Name",
)  # fmt: skip
_NOTHING = frozenset({"", "N/A", "(null)"})


def arguments(separator: str) -> tuple[str, ...]:
    """Return the arguments of one call; a row ends with the mark twice."""
    mark = _mark(separator)
    columns = ",".join(f"{column}:{mark}" for column in COLUMNS)
    return ("--noheader", "--all", "--states=all", "--local", f"--Format={columns}{mark}")


def parse_job_list(answer: bytes, separator: str) -> JobList:
    """Split rows and columns by the separator alone; an invalid row is counted and skipped."""
    text = answer.decode("utf-8", "surrogateescape")
    mark = _mark(separator)
    rows = text.split(f"{mark}{mark}\n")
    if rows.pop():
        raise MalformedAnswer("squeue: the answer ends in the middle of a row")
    jobs: list[ListedJob] = []
    for row in rows:
        try:
            jobs.append(_parse_row(row.split(mark)))
        except ValueError:
            continue
    return JobList(tuple(jobs), len(rows) - len(jobs))


def _mark(separator: str) -> str:
    # Begins with a byte that is nowhere else in it, so the end of a name can never be taken for its beginning.
    return f"\x1f{separator}"


def _parse_row(fields: list[str]) -> ListedJob:
    job_id, array_job_id, array_tasks, het_job_id, user, account, partition, qos, state, nodes, cpus, tres, name = (
        fields
    )
    is_array = array_tasks not in _NOTHING
    return ListedJob(
        job_id=str(int(job_id)),
        array_job_id=array_job_id if is_array else "",
        array_tasks=array_tasks if is_array else "",
        het_job_id="" if het_job_id in _NOTHING or het_job_id == "0" else het_job_id,
        user=user,
        account=account,
        partition=partition,
        qos=qos,
        state=state,
        node_list=nodes,
        name=name,
        cpus=int(cpus),
        memory_bytes=parse_tres(tres).memory_bytes,
    )


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


def read_job_list(slurm: Sources) -> JobList:
    """Run squeue, for the jobs of all users."""
    separator = random_separator()
    jobs = parse_job_list(slurm.run("squeue", arguments(separator)), separator)
    slurm.require_all_jobs()
    return jobs


JOB_LIST = Reading(name="job_list", read=read_job_list)
COLLECTOR = Collector(
    name="job_info",
    role=Role.CLUSTER,
    help="One series per job; costs one more squeue call per interval and as many series as there are jobs.",
    needs=(JOB_LIST,),
    metrics=(INFO, CPUS, MEMORY),
    collect=collect,
    is_default=False,
)
