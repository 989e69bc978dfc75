# SPDX-License-Identifier: Apache-2.0
"""Answer like squeue and sinfo 22.05.

sinfo prints a row for each node in each of its partitions, and no FUTURE nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from slurmscope.cluster import discovery, job_info, sinfo, squeue
from slurmscope.core.units import MIB
from slurmscope.jobs.pending import queue
from slurmscope.simulator.cluster.records import GpuPool, SimulatedCluster, SimulatedJob, SimulatedNode
from slurmscope.simulator.cluster.texts import duration_text, hosts_text, index_text, memory_text
from slurmscope.simulator.commands.command_line import WORD, CommandLine, join_lines, read_columns
from slurmscope.slurm.states import WAITING_STATES, node_state_text

TRACED_ARGUMENTS = (
    "--noheader", "--all", "--array", "--local", "--states=running,suspended,completing",
    "--Format=JobID:\x1f,UserID:\x1f,UserName:\x1f,Account:\x1f,State:\x1f,NodeList:\x1f,NumCPUs:\x1f,tres-alloc:",
)  # fmt: skip
"""Those of ``trace/owners``."""
_TOP_FORMAT = ",".join(
    f"{name}:\x1f{WORD}"
    for name in (
        "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "TimeUsed", "TimeLimit", "NumNodes",
        "NumCPUs", "UserName", "Name",
    )
)  # fmt: skip
TOP_ARGUMENTS = (
    "--noheader", "--local", "--states=RUNNING", "--jobs=1", f"--Format={_TOP_FORMAT}\x1f{WORD}",
)  # fmt: skip
"""Those of ``top/queue``; rows of other jobs than were requested do no harm there."""
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


JOB_FIELDS: Mapping[str, Callable[[SimulatedJob], str]] = {
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
        **JOB_FIELDS,
        # When the scheduler last considered the job; held jobs are not considered.
        "LastSchedEval": lambda job: "N/A" if job.priority == 0 else str(max(job.submit_time, now - job.id % 30)),
        "M": lambda job: duration_text(now - (now if job.start_time is None else job.start_time)),
        "TimeUsed": lambda job: duration_text(now - (now if job.start_time is None else job.start_time)),
    }


def _respond_squeue(arguments: Sequence[str], cluster: SimulatedCluster) -> bytes:
    """Return the rows of the jobs in the requested states; with ``--array`` one for each task of an array."""
    fields = _fields_at(cluster.now)
    columns = [(fields[name], suffix) for name, suffix in read_columns(arguments)]
    states = next(word for word in arguments if word.startswith("--states=")).removeprefix("--states=").upper()
    jobs = [job for job in cluster.jobs if states == "ALL" or job.state in states.split(",")]
    rows = ("".join(text(job) + suffix for text, suffix in columns) for job in jobs)
    counts = (job.rows if "--array" in arguments else 1 for job in jobs)
    return join_lines(row for row, count in zip(rows, counts, strict=True) for _ in range(count))


SQUEUE = tuple(
    CommandLine("squeue", arguments, partial(_respond_squeue, arguments))
    for arguments in (
        squeue.ARGUMENTS,
        squeue.ARGUMENTS_WITH_IDS,
        job_info.arguments(WORD),
        queue.arguments(WORD),
        TOP_ARGUMENTS,
        TRACED_ARGUMENTS,
        BUSY_ARGUMENTS,
    )
)


HOST_ARGUMENTS = ("--noheader", "--all", "--Node", "--Format=NodeList:\x1f,NodeHost:")
"""Those of ``trace/owners``."""
SIZE_ARGUMENTS = ("--noheader", "--Node", "--all", "--format=%N %c %m")
"""Those of ``reports/resubmission``."""
NAME_ARGUMENTS = ("--noheader", "--Node", "--format=%N")
"""Those of ``reports/series_checks``."""
CHECK_ARGUMENTS = ("--noheader", "--Node", "--format=%N %n")
"""Those of ``node/checks``."""

# The order in which the complete form names the flags.
FLAG_ORDER = (
    "cloud", "completing", "drain", "dynamic_future", "dynamic_norm", "invalid_reg", "fail", "maintenance",
    "power_down", "power_up", "perfctrs", "powered_down", "reboot_requested", "reboot_issued", "reserved", "resume",
    "not_responding", "planned", "powering_up", "powering_down",
)  # fmt: skip


def complete_state(base: str, flags: Collection[str]) -> str:
    """Write the base state and every flag: mixed+cloud+not_responding+powering_up."""
    return "+".join((base, *sorted(flags, key=FLAG_ORDER.index)))


def gres_text(node: SimulatedNode) -> str:
    """Write generic resources the way the site of this node configured them."""
    parts = [_typed("gpu", pool.type, pool.total) + _sockets(node) for pool in node.gpus]
    for kind, each in _extras(node):
        parts += [_typed(kind, pool.type, pool.total * each) + _sockets(node) for pool in node.gpus]
    return ",".join(parts) or "(null)"


def gres_used_text(node: SimulatedNode) -> str:
    """Write what of the generic resources is in use."""
    parts = [_typed("gpu", pool.type, pool.used) + _indexes(node, pool) for pool in node.gpus]
    for kind, each in _extras(node):
        shares = ",".join(f"0/{each}" for _ in range(node.gpus[0].total))
        parts.append(_typed(kind, node.gpus[0].type, 0) + f"({shares})")
    return ",".join(parts) or "gpu:0"


def _typed(kind: str, type_name: str, count: int) -> str:
    return f"{kind}:{type_name}:{count}" if type_name else f"{kind}:{count}"


def _extras(node: SimulatedNode) -> tuple[tuple[str, int], ...]:
    """Name the shares of a GPU that some sites hand out, and how many a device has."""
    return {3: (("shard", 4),), 4: (("mps", 100),)}.get(node.dialect, ()) if node.gpus else ()


def _sockets(node: SimulatedNode) -> str:
    return "(S:0-1)" if node.dialect in {0, 3} else ""


def _indexes(node: SimulatedNode, pool: GpuPool) -> str:
    if node.dialect in {1, 4}:
        return ""
    return f"(IDX:{index_text(range(pool.used)) if pool.used else 'N/A'})"


def cpus_text(node: SimulatedNode) -> str:
    """Write CPUs as allocated/idle/other/total; only a drained or a down node has others."""
    free = node.cpus - node.cpus_allocated
    other = free if node.base == "down" or "drain" in node.flags else 0
    return f"{node.cpus_allocated}/{free - other}/{other}/{node.cpus}"


def _user_text(node: SimulatedNode) -> str:
    if not node.reason:
        return "Unknown"
    return "root" if node.reason_user is None else node.reason_user.name


def _mib(size_bytes: int | None) -> str:
    return "N/A" if size_bytes is None else str(size_bytes // MIB)


NODE_FIELDS: Mapping[str, Callable[[SimulatedNode], str]] = {
    "AllocMem": lambda node: _mib(node.memory_allocated_bytes),
    "CPUsLoad": lambda node: "N/A" if node.cpu_load is None else f"{node.cpu_load:.2f}",
    "CPUsState": cpus_text,
    "Features": lambda node: node.features or "(null)",
    "FreeMem": lambda node: _mib(node.memory_free_bytes),
    "Gres": gres_text,
    "GresUsed": gres_used_text,
    "Memory": lambda node: _mib(node.memory_bytes),
    "NodeAddr": lambda node: node.name,
    "NodeHost": lambda node: node.name,
    "NodeList": lambda node: node.name,
    "Reason": lambda node: node.reason or "none",
    "StateComplete": lambda node: complete_state(node.base, node.flags),
    "StateLong": lambda node: node_state_text(node.base, frozenset(node.flags)),
    "Timestamp": lambda node: str(node.reason_time or "Unknown"),
    "User": _user_text,
    "Weight": lambda node: str(node.weight),
    "N": lambda node: node.name,
    "c": lambda node: str(node.cpus),
    "m": lambda node: _mib(node.memory_bytes),
    "n": lambda node: node.name,
}


def _respond_sinfo(arguments: Sequence[str], cluster: SimulatedCluster) -> bytes:
    """Return the rows of all nodes."""
    columns = read_columns(arguments)
    return join_lines(
        "".join((home if name == "PartitionName" else NODE_FIELDS[name](node)) + suffix for name, suffix in columns)
        for node in cluster.nodes
        if node.base != "future"
        for home in node.partitions
    )


SINFO = tuple(
    CommandLine("sinfo", arguments, partial(_respond_sinfo, arguments))
    for arguments in (
        sinfo.arguments(WORD),
        discovery.arguments(WORD),
        HOST_ARGUMENTS,
        SIZE_ARGUMENTS,
        ("--clusters=", *SIZE_ARGUMENTS),
        NAME_ARGUMENTS,
        CHECK_ARGUMENTS,
    )
)
