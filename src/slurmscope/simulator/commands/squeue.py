# SPDX-License-Identifier: Apache-2.0
"""Answer like squeue 22.05."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from slurmscope.cluster import job_info, squeue
from slurmscope.jobs.pending import queue
from slurmscope.simulator.cluster.records import SimulatedCluster, SimulatedJob
from slurmscope.simulator.cluster.texts import duration_text, hosts_text, index_text, memory_text
from slurmscope.simulator.commands.command_line import WORD, CommandLine, join_lines, read_columns
from slurmscope.slurm.states import WAITING_STATES

TRACED_ARGUMENTS = (
    "--noheader", "--all", "--array", "--local", "--states=running,suspended,completing",
    "--Format=JobID:\x1f,UserID:\x1f,UserName:\x1f,Account:\x1f,State:\x1f,NodeList:\x1f,NumCPUs:\x1f,tres-alloc:",
)  # fmt: skip
"""Those of ``trace/owners``."""
BUSY_ARGUMENTS = ("--noheader", "--states=RUNNING", "--format=%M %N")
"""Those of ``reports/series_checks``."""


def tres_text(job: SimulatedJob) -> str:
    """Write the allocation, or what a pending job requests: cpu=4,mem=200M,node=1,billing=4,gres/gpu=1."""
    memory = f"mem={memory_text(job.memory_bytes)}," if job.memory_bytes else ""
    text = f"cpu={job.cpus},{memory}node={job.nodes},billing={job.cpus}"
    if not job.gpus:
        return text
    # Which of the two a site has depends on the resources it tracks; many have both, and both count the same devices.
    typed = f",gres/gpu:{job.gpu_type}={job.gpus}" if job.gpu_type and job.dialect != 1 else ""
    plain = f",gres/gpu={job.gpus}" if not typed or job.dialect != 2 else ""
    return text + plain + typed


def tasks_text(job: SimulatedJob) -> str:
    """Write the array task of a job, or all pending ones: 4, 4-10%3, N/A."""
    if job.array_id is None:
        return "N/A"
    if job.state not in WAITING_STATES:
        return str(job.tasks[0])
    return index_text(job.tasks) + (f"%{job.task_limit}" if job.task_limit else "")


def nodes_text(job: SimulatedJob) -> str:
    """Write the nodes of a job; nothing while it is pending."""
    return job.node_names[0] if len(job.node_names) == 1 else hosts_text(job.node_names)


def _limit_text(job: SimulatedJob) -> str:
    return "UNLIMITED" if job.time_limit_seconds is None else duration_text(job.time_limit_seconds)


FIELDS: Mapping[str, Callable[[SimulatedJob], str]] = {
    "Account": lambda job: job.account or "(null)",
    "ArrayJobID": lambda job: str(job.array_id or job.id),
    "ArrayTaskID": tasks_text,
    "Dependency": lambda job: job.dependency or "(null)",
    "EligibleTime": lambda job: str(job.submit_time),
    "Feature": lambda job: job.features or "(null)",
    "HetJobID": lambda job: str(job.het_id or "N/A"),
    "HetJobOffset": lambda job: "N/A" if job.het_offset is None else str(job.het_offset),
    "JobID": lambda job: str(job.id),
    "Licenses": lambda job: job.licenses or "(null)",
    "Name": lambda job: job.name,
    "NodeList": nodes_text,
    "NumCPUs": lambda job: str(job.cpus),
    "NumNodes": lambda job: str(job.nodes),
    "Partition": lambda job: ",".join(job.partitions),
    "PriorityLong": lambda job: str(job.priority),
    "QOS": lambda job: job.qos or "(null)",
    "Reason": lambda job: job.reason,
    "Reservation": lambda _job: "(null)",
    "SchedNodes": lambda _job: "(null)",
    "StartTime": lambda job: "N/A" if job.start_time is None else str(job.start_time),
    "State": lambda job: job.state,
    "SubmitTime": lambda job: str(job.submit_time),
    "TimeLimit": _limit_text,
    "UserID": lambda job: str(job.user.uid),
    "UserName": lambda job: job.user.name,
    "tres-alloc": tres_text,
    "N": nodes_text,
}


def _fields_at(now: int) -> Mapping[str, Callable[[SimulatedJob], str]]:
    return {
        **FIELDS,
        # When the scheduler last considered the job; held jobs are not considered.
        "LastSchedEval": lambda job: "N/A" if job.priority == 0 else str(max(job.submit_time, now - job.id % 30)),
        "M": lambda job: duration_text(now - (now if job.start_time is None else job.start_time)),
    }


def respond(arguments: Sequence[str], cluster: SimulatedCluster) -> bytes:
    """Return the rows of the jobs in the requested states; with ``--array`` one for each task of an array."""
    fields = _fields_at(cluster.now)
    columns = [(fields[name], suffix) for name, suffix in read_columns(arguments)]
    states = next(word for word in arguments if word.startswith("--states=")).removeprefix("--states=").upper()
    jobs = [job for job in cluster.jobs if states == "ALL" or job.state in states.split(",")]
    rows = ("".join(text(job) + suffix for text, suffix in columns) for job in jobs)
    counts = (job.rows if "--array" in arguments else 1 for job in jobs)
    return join_lines(row for row, count in zip(rows, counts, strict=True) for _ in range(count))


LINES = tuple(
    CommandLine("squeue", arguments, partial(respond, arguments))
    for arguments in (
        squeue.ARGUMENTS,
        squeue.ARGUMENTS_WITH_IDS,
        job_info.arguments(WORD),
        queue.arguments(WORD),
        TRACED_ARGUMENTS,
        BUSY_ARGUMENTS,
    )
)
