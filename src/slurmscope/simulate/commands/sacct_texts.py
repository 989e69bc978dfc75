# SPDX-License-Identifier: Apache-2.0
"""Describe how sacct prints jobs that others are modelled on, and jobs that run or wait now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from slurmscope.model.job_states import WAITING_STATES
from slurmscope.simulate.cluster.job_states import ENDED_STATES
from slurmscope.simulate.commands.job_fields import FIELDS, tres_text
from slurmscope.simulate.commands.sacct import MAX_ELAPSED_SECONDS

if TYPE_CHECKING:
    from slurmscope.simulate.cluster.records import SimulatedJob

_NOTHING = frozenset({"", "(null)", "N/A"})


def model_text(job: SimulatedJob, name: str, now: int) -> str:
    """Return one text about a job that ended jobs are modelled on."""
    if name == "elapsedraw":
        return str(_elapsed(job, now))
    if name == "cputimeraw":
        return str(_elapsed(job, now) * job.cpus)
    return _MODEL_TEXTS[name](job)


def current_text(job: SimulatedJob, name: str) -> str:
    """Return one text about a job that runs or waits."""
    return _CURRENT_TEXTS[name](job)


def is_current(job: SimulatedJob) -> bool:
    """Return whether accounting has no end time for the job."""
    return job.state not in ENDED_STATES


def _elapsed(job: SimulatedJob, now: int) -> int:
    start = now if job.start_time is None else job.start_time
    return max(0, min(now - start, (job.end_time or now) - start, MAX_ELAPSED_SECONDS))


def _as_squeue(name: str, nothing: str = "") -> Callable[[SimulatedJob], str]:
    """Print a field as squeue does, but for what is not known."""

    def text(job: SimulatedJob) -> str:
        shown = FIELDS[name].text(job)
        return nothing if shown in _NOTHING else shown

    return text


def _limit_text(job: SimulatedJob) -> str:
    return "UNLIMITED" if job.time_limit_seconds is None else str(job.time_limit_seconds // 60)


def _has_started(job: SimulatedJob) -> bool:
    return job.start_time is not None and job.state not in WAITING_STATES


def _state_text(job: SimulatedJob) -> str:
    """Return the state in accounting's words; it has fewer states than the controller."""
    if not _has_started(job):
        return "PENDING"
    return "SUSPENDED" if job.state == "SUSPENDED" else "RUNNING"


_COMMON: Mapping[str, Callable[[SimulatedJob], str]] = {
    "jobname": lambda job: job.name,
    "user": lambda job: job.user.name,
    "uid": lambda job: str(job.user.uid),
    "account": lambda job: job.account or "",
    "qos": lambda job: job.qos,
    "timelimitraw": _limit_text,
    "reqtres": tres_text,
    "nnodes": lambda job: str(job.nodes),
    "workdir": lambda job: f"/home/{job.user.name}",
}
_MODEL_TEXTS: Mapping[str, Callable[[SimulatedJob], str]] = {
    **_COMMON,
    "partition": lambda job: job.partitions[0],
    "alloctres": tres_text,
    "nodelist": _as_squeue("nodelist"),
    "memory": lambda job: str(job.memory_per_node_bytes),
}
_CURRENT_TEXTS: Mapping[str, Callable[[SimulatedJob], str]] = {
    **_COMMON,
    "jobidraw": lambda job: str(job.id),
    "jobid": _as_squeue("jobarrayid"),
    "partition": lambda job: ",".join(job.partitions),
    "submit": lambda job: str(job.submit_time),
    "eligible": lambda job: str(job.submit_time),
    "start": lambda job: str(job.start_time) if _has_started(job) else "Unknown",
    "alloctres": lambda job: tres_text(job) if _has_started(job) else "",
    "nodelist": lambda job: _as_squeue("nodelist")(job) if _has_started(job) else "None assigned",
    "reason": lambda job: job.reason,
    "state": _state_text,
}
