# SPDX-License-Identifier: Apache-2.0
"""Describe how squeue prints each field of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmscope.simulator.cluster.job_states import COMPACT_STATES, ENDED_STATES
from slurmscope.simulator.cluster.texts import duration_text, hosts_text, index_text, memory_text
from slurmscope.simulator.commands.listing import Field
from slurmscope.slurm.states import WAITING_STATES

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import SimulatedJob


# In these states the last column of the default listing shows why, in all others where.
_EXPLAINED_STATES = WAITING_STATES | {"FAILED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"}


def task_texts(job: SimulatedJob) -> list[str]:
    """Return the array index of each row of ``squeue -r``."""
    return [str(task) for task in job.tasks] or ["N/A"]


def id_texts(job: SimulatedJob) -> list[str]:
    """Return the job ID of each row of ``squeue -r``: 17, 3_4, 9+1."""
    if job.array_id is not None:
        return [f"{job.array_id}_{task}" for task in job.tasks]
    return [str(job.id) if job.het_id is None else f"{job.het_id}+{job.het_offset}"]


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


def gres_text(job: SimulatedJob) -> str:
    """Write the request for GPUs per node, which was spelled differently over the years."""
    if not job.gpus_per_node or job.dialect == 4:
        return "N/A"
    kind = f":{job.gpu_type}" if job.gpu_type else ""
    start = ("gpu", "gres:gpu", "gres/gpu", "gres/gpu")[job.dialect]
    return f"{start}{kind}{'=' if job.dialect == 3 else ':'}{job.gpus_per_node}"


def _array_text(job: SimulatedJob) -> str:
    if job.array_id is None:
        return "N/A"
    if job.state not in WAITING_STATES:
        return str(job.tasks[0])
    return index_text(job.tasks) + (f"%{job.task_limit}" if job.task_limit else "")


def _id_text(job: SimulatedJob) -> str:
    if job.array_id is not None and job.state in WAITING_STATES:
        return f"{job.array_id}_[{_array_text(job)}]"
    return id_texts(job)[0]


def _nodes_text(job: SimulatedJob) -> str:
    return job.node_names[0] if len(job.node_names) == 1 else hosts_text(job.node_names)


def _reason_or_nodes(job: SimulatedJob) -> str:
    return f"({job.reason})" if job.state in _EXPLAINED_STATES else _nodes_text(job)


def _used_seconds(job: SimulatedJob, now: int) -> int:
    if job.start_time is None or job.state in WAITING_STATES:
        return 0
    end_time = job.end_time if job.state in ENDED_STATES and job.end_time is not None else now
    return end_time - job.start_time


def _left_text(job: SimulatedJob, now: int) -> str:
    limit = job.time_limit_seconds
    return "UNLIMITED" if limit is None else duration_text(limit - _used_seconds(job, now))


def _pending_seconds(job: SimulatedJob, now: int) -> int:
    has_started = job.start_time is not None and job.state not in WAITING_STATES
    return (job.start_time if has_started and job.start_time is not None else now) - job.submit_time


def _end_text(job: SimulatedJob) -> str:
    if job.end_time is not None:
        return str(job.end_time)
    return "N/A" if job.start_time is None else "NONE"


def _evaluated_text(job: SimulatedJob, now: int) -> str:
    """Return when the scheduler last considered the job; held jobs are not considered."""
    return "N/A" if job.priority == 0 else str(max(job.submit_time, now - job.id % 30))


def _memory_text(job: SimulatedJob) -> str:
    # squeue prints the request per CPU and the request per node alike: the output does not distinguish them.
    size = job.memory_per_node_bytes // job.cpus_per_node if job.is_memory_per_cpu else job.memory_per_node_bytes
    return memory_text(size) if size else "0"


FIELDS: dict[str, Field[SimulatedJob]] = {
    "account": Field(header="ACCOUNT", text=lambda job: job.account or "(null)"),
    "arrayjobid": Field(header="ARRAY_JOB_ID", text=lambda job: str(job.array_id or job.id)),
    "arraytaskid": Field(header="ARRAY_TASK_ID", text=_array_text),
    "comment": Field(header="COMMENT", text=lambda _job: "(null)"),
    "dependency": Field(header="DEPENDENCY", text=lambda job: job.dependency or "(null)"),
    "eligibletime": Field(header="ELIGIBLE_TIME", text=lambda job: str(job.submit_time), is_time=True),
    "endtime": Field(header="END_TIME", text=_end_text, is_time=True),
    "exit_code": Field(header="EXIT_CODE", text=lambda job: str(job.exit_status)),
    "feature": Field(header="FEATURES", text=lambda job: job.features or "(null)"),
    "gres": Field(header="TRES_PER_NODE", text=gres_text),
    "groupname": Field(header="GROUP", text=lambda job: job.account or "users"),
    "hetjobid": Field(header="HET_JOB_ID", text=lambda job: str(job.het_id or "N/A")),
    "hetjoboffset": Field(
        header="HET_JOB_OFFSET", text=lambda job: "N/A" if job.het_offset is None else str(job.het_offset)
    ),
    "jobarrayid": Field(header="JOBID", text=_id_text),
    "jobid": Field(header="JOBID", text=lambda job: str(job.id)),
    "lastschedeval": Field(header="LAST_SCHED_EVAL", text_at=_evaluated_text, is_time=True),
    "licenses": Field(header="LICENSES", text=lambda job: job.licenses or "(null)"),
    "mincpus": Field(header="MIN_CPUS", text=lambda job: str(job.cpus_per_node)),
    "minmemory": Field(header="MIN_MEMORY", text=_memory_text),
    "name": Field(header="NAME", text=lambda job: job.name),
    "nodelist": Field(header="NODELIST", text=_nodes_text),
    "numcpus": Field(header="CPUS", text=lambda job: str(job.cpus)),
    "numnodes": Field(header="NODES", text=lambda job: str(job.nodes)),
    "numtasks": Field(header="TASKS", text=lambda job: str(job.cpus)),
    "partition": Field(header="PARTITION", text=lambda job: ",".join(job.partitions)),
    "pendingtime": Field(header="PENDING_TIME", text_at=lambda job, now: str(_pending_seconds(job, now))),
    "priority": Field(header="PRIORITY", text=lambda job: f"{job.priority / 2**32:.14f}"),
    "prioritylong": Field(header="PRIORITY", text=lambda job: str(job.priority)),
    "qos": Field(header="QOS", text=lambda job: job.qos or "(null)"),
    "reason": Field(header="REASON", text=lambda job: job.reason),
    "reasonlist": Field(header="NODELIST(REASON)", text=_reason_or_nodes),
    "reservation": Field(header="RESERVATION", text=lambda _job: "(null)"),
    "restartcnt": Field(header="RESTART_COUNT", text=lambda job: str(job.restarts)),
    "schednodes": Field(header="SCHEDNODES", text=lambda _job: "(null)"),
    "starttime": Field(
        header="START_TIME",
        text=lambda job: "N/A" if job.start_time is None else str(job.start_time),
        is_time=True,
    ),
    "state": Field(header="STATE", text=lambda job: job.state),
    "statecompact": Field(header="ST", text=lambda job: COMPACT_STATES[job.state]),
    "submittime": Field(header="SUBMIT_TIME", text=lambda job: str(job.submit_time), is_time=True),
    "timeleft": Field(header="TIME_LEFT", text_at=_left_text),
    "timelimit": Field(
        header="TIME_LIMIT",
        text=lambda job: "UNLIMITED" if job.time_limit_seconds is None else duration_text(job.time_limit_seconds),
    ),
    "timeused": Field(header="TIME", text_at=lambda job, now: duration_text(_used_seconds(job, now))),
    "tres-alloc": Field(header="TRES_ALLOC", text=tres_text),
    "tres-per-job": Field(
        header="TRES_PER_JOB", text=lambda job: f"gres:gpu:{job.gpus}" if job.gpus and job.dialect == 4 else "N/A"
    ),
    "tres-per-node": Field(header="TRES_PER_NODE", text=gres_text),
    "tres-per-socket": Field(header="TRES_PER_SOCKET", text=lambda _job: "N/A"),
    "tres-per-task": Field(header="TRES_PER_TASK", text=lambda _job: "N/A"),
    "userid": Field(header="UID", text=lambda job: str(job.user.uid)),
    "username": Field(header="USER", text=lambda job: job.user.name),
    "workdir": Field(header="WORK_DIR", text=lambda job: f"/home/{job.user.name}"),
}
