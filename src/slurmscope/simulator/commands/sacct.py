# SPDX-License-Identifier: Apache-2.0
"""Answer like sacct 22.05: which jobs ended between two moments, run or wait now, have these IDs or this user.

The queue is stored as a table; ``sacct_rows`` makes the jobs of a call from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from slurmscope.accounting.fields import COLUMNS, LAST_COLUMN, LATER_COLUMNS
from slurmscope.accounting.records import ENDINGS
from slurmscope.accounting.sacct import arguments
from slurmscope.cluster import completions
from slurmscope.simulator.cluster.records import ENDED_STATES, SimulatedCluster, SimulatedJob
from slurmscope.simulator.commands.call import NUL, encode
from slurmscope.simulator.commands.command_line import WORD, CommandLine
from slurmscope.simulator.commands.lists import nodes_text, tasks_text, tres_text
from slurmscope.simulator.commands.sacct_rows import MAX_ELAPSED_SECONDS, pack_rows, render_jobs, unpack_rows
from slurmscope.slurm.cluster_names import RECENT_ARGUMENTS
from slurmscope.slurm.states import WAITING_STATES

_FIELDS = (
    "JobID", "JobIDRaw", "JobName", "Cluster", "User", "UID", "Account", "Partition", "QOS", "Submit", "Eligible",
    "Start", "End", "TimelimitRaw", "AllocTRES", "ReqTRES", "NodeList", "NNodes", "NTasks", "State", "ExitCode",
    "ElapsedRaw", "CPUTimeRAW", "TotalCPU", "MaxRSS", "Reason", "WorkDir", "SubmitLine",
)  # fmt: skip
_TABLE = (*(name.lower() for name in _FIELDS), "kind", "perminute", "memory", "stepmaxrss")
_COLUMNS = (*COLUMNS, *(column for column in LATER_COLUMNS if column in _FIELDS), LAST_COLUMN)
_MAX_MODELS = 2000


def _model_rows(cluster: SimulatedCluster) -> Iterator[Mapping[str, str]]:
    """Yield the jobs that ended ones are modelled on."""
    started = (job for job in cluster.jobs if job.start_time is not None and job.node_names)
    for job in islice(started, _MAX_MODELS):
        elapsed = _elapsed(job, cluster.now)
        yield {
            **_common(job, cluster),
            "kind": "model",
            "perminute": str(max(1, len(cluster.jobs) // 60)),
            "partition": job.partitions[0],
            "alloctres": tres_text(job),
            "nodelist": nodes_text(job),
            "memory": str(job.memory_per_node_bytes),
            "elapsedraw": str(elapsed),
            "cputimeraw": str(elapsed * job.cpus),
            "reason": "None",
        }


def _current_rows(cluster: SimulatedCluster) -> Iterator[Mapping[str, str]]:
    """Yield the jobs that have not ended."""
    for job in cluster.jobs:
        if job.state not in ENDED_STATES:
            has_started = job.start_time is not None and job.state not in WAITING_STATES
            yield {
                **_common(job, cluster),
                "kind": "current",
                "jobidraw": str(job.id),
                "jobid": _id_text(job),
                "partition": ",".join(job.partitions),
                "submit": str(job.submit_time),
                "eligible": str(job.submit_time),
                "start": str(job.start_time) if has_started else "Unknown",
                "end": "Unknown",
                "alloctres": tres_text(job) if has_started else "",
                "nodelist": nodes_text(job) if has_started else "None assigned",
                "reason": job.reason,
                "state": _state_text(job) if has_started else "PENDING",
                "exitcode": "0:0",
                "elapsedraw": "0",
                "cputimeraw": "0",
                "totalcpu": "00:00:00",
            }


def _common(job: SimulatedJob, cluster: SimulatedCluster) -> Mapping[str, str]:
    return {
        "cluster": cluster.name,
        "jobname": job.name,
        "user": job.user.name,
        "uid": str(job.user.uid),
        "account": job.account or "",
        "qos": job.qos,
        "timelimitraw": "UNLIMITED" if job.time_limit_seconds is None else str(job.time_limit_seconds // 60),
        "reqtres": tres_text(job),
        "nnodes": str(job.nodes),
        "workdir": f"/home/{job.user.name}",
        "submitline": "sbatch job.sh",
    }


def _elapsed(job: SimulatedJob, now: int) -> int:
    start = now if job.start_time is None else job.start_time
    return max(0, min(now - start, (job.end_time or now) - start, MAX_ELAPSED_SECONDS))


def _id_text(job: SimulatedJob) -> str:
    """Write 17, 3_4, 3_[5-9%2] or 9+1."""
    if job.array_id is not None:
        tasks = tasks_text(job)
        return f"{job.array_id}_[{tasks}]" if job.state in WAITING_STATES else f"{job.array_id}_{tasks}"
    return str(job.id) if job.het_id is None else f"{job.het_id}+{job.het_offset}"


def _state_text(job: SimulatedJob) -> str:
    """Return the state of a job that has started in accounting's words; it has fewer states than the controller."""
    return "SUSPENDED" if job.state == "SUSPENDED" else "RUNNING"


def _respond_models(cluster: SimulatedCluster) -> bytes:
    return pack_rows(_TABLE, _model_rows(cluster))


def _respond_all(cluster: SimulatedCluster) -> bytes:
    return pack_rows(_TABLE, [*_model_rows(cluster), *_current_rows(cluster)])


def _respond_current(cluster: SimulatedCluster) -> bytes:
    rows = unpack_rows(pack_rows(_TABLE, _current_rows(cluster)))
    return render_jobs(rows, _COLUMNS, NUL, has_steps=True)


def _respond_cluster(cluster: SimulatedCluster) -> bytes:
    return encode(f"{cluster.name}\n")


def _respond_script(_cluster: SimulatedCluster) -> bytes:
    """Say that the site does not store scripts."""
    return b"Batch Script for this job\n" + b"-" * 80 + b"\nNONE\n"


def _lines_of(clusters: str) -> Iterator[CommandLine]:
    """Yield the command lines of the accounting reader for some clusters."""
    window = ("--starttime=", "--endtime=")
    for which, respond, selected_by in (
        ((*window, "--state=" + ",".join(sorted(ENDINGS))), _respond_models, "jobs"),
        (("--jobs=",), _respond_all, "jobs"),
        (("--user=", *window), _respond_all, "jobs"),
        (window, _respond_current, ""),
    ):
        yield CommandLine("sacct", arguments(clusters, WORD, _COLUMNS, *which), respond, selected_by)


LINES = (
    CommandLine("sacct", completions.arguments(0, 0, WORD), _respond_models, "jobs"),
    *(line for clusters in ("--local", "--allclusters", "--clusters=") for line in _lines_of(clusters)),
    CommandLine("sacct", RECENT_ARGUMENTS, _respond_cluster),
    CommandLine("sacct", ("--helpformat",), lambda _cluster: encode("\n".join(_FIELDS) + "\n")),
    *(
        CommandLine("sacct", ("--clusters=", "--user=", "--jobs=", what), _respond_script)
        for what in ("--batch-script", "--env-vars")
    ),
)
