# SPDX-License-Identifier: Apache-2.0
"""Parse the names that Slurm gives to cgroup folders.

::

    v1  slurm[_<node>] / uid_<uid> / <job> / step_<step> / task_<task>
    v2  .../[<node>_]slurmstepd.scope / <job> / step_<step> / {slurm, user / task_<task>}

A job is ``job_<id>``, or its SLUID since Slurm 26.05: the letter s and 13 characters of Crockford's base 32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SCOPE_SUFFIX = "slurmstepd.scope"
STEPD_FOLDER = "slurm"
USER_FOLDER = "user"
# Next to the jobs of a scope: where slurmstepd processes start, and slurmd itself where systemd does not manage it.
NOT_JOBS = frozenset({"system", "slurmd"})

# Job IDs have 32 bits; a folder with more digits is not Slurm's.
_JOB = re.compile(r"job_([0-9]{1,10})")
_SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")
_UID = re.compile(r"uid_([0-9]{1,10})")
# batch, extern, interactive, TBD, a number, or "0+1" for a component of a heterogeneous step.
_STEP = re.compile(r"step_([0-9A-Za-z+]{1,32})")
# A number, or "special" for what belongs to no task.
_TASK = re.compile(r"task_([0-9A-Za-z]{1,32})")


@dataclass(frozen=True, slots=True)
class JobName:
    """Hold the name of a job's folder: the job ID, or the SLUID instead of it."""

    job_id: int | None = None
    sluid: str = ""


def parse_job(name: str) -> JobName | None:
    """Parse the name of a job's folder; None for any other folder."""
    if match := _JOB.fullmatch(name):
        return JobName(job_id=int(match[1]))
    if _SLUID.fullmatch(name):
        return JobName(sluid=name)
    return None


def parse_uid(name: str) -> int | None:
    """Parse the name of a user's folder (v1 only)."""
    match = _UID.fullmatch(name)
    return int(match[1]) if match else None


def parse_step(name: str) -> str | None:
    """Parse the name of a step's folder."""
    match = _STEP.fullmatch(name)
    return match[1] if match else None


def parse_task(name: str) -> str | None:
    """Parse the name of a task's folder."""
    match = _TASK.fullmatch(name)
    return match[1] if match else None


def parse_scope(name: str) -> str | None:
    """Return the node name of a v2 scope, empty where only one slurmd runs; None for any other folder."""
    if name == SCOPE_SUFFIX:
        return ""
    if name.endswith(f"_{SCOPE_SUFFIX}"):
        return name.removesuffix(f"_{SCOPE_SUFFIX}") or None
    return None


def parse_slurm_folder(name: str) -> str | None:
    """Return the node name of a v1 top folder, empty where only one slurmd runs; None for any other folder."""
    if name == "slurm":
        return ""
    if name.startswith("slurm_"):
        return name.removeprefix("slurm_") or None
    return None
