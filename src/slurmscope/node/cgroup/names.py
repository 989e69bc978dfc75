# SPDX-License-Identifier: Apache-2.0
"""Find the job and the user of a process.

slurmstepd writes its job ID into its process title, which all users may read unless /proc is mounted with hidepid.

::

    v1  slurm[_<node>] / uid_<uid> / <job> / step_<step> / task_<task>
    v2  .../[<node>_]slurmstepd.scope / <job> / step_<step> / {slurm, user / task_<task>}

A job is ``job_<id>``, or its SLUID since Slurm 26.05: the letter s and 13 characters of Crockford's base 32.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from slurmscope.node.job_use import JobKey
from slurmscope.node.kernel_files import HangGuard, read_bytes

SCOPE_SUFFIX = "slurmstepd.scope"
STEPD_FOLDER = "slurm"
USER_FOLDER = "user"

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
    """The name of a job's folder: the job ID, or the SLUID instead of it."""

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
    match = _STEP.fullmatch(name)
    return match[1] if match else None


def parse_task(name: str) -> str | None:
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


# Users own parts of this slice and may call a folder there whatever they like.
_USERS_SLICE = "user.slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """The job in whose cgroup a process runs, by job ID or by SLUID; without both it is in no job."""

    job_id: int | None = None
    sluid: str = ""
    node_name: str = ""

    @property
    def is_in_job(self) -> bool:
        return self.job_id is not None or bool(self.sluid)


def parse_place(cgroup: bytes) -> ProcessPlace:
    """Parse ``/proc/PID/cgroup``: the first hierarchy with a job folder counts."""
    # Not splitlines: users name the cgroups below their own, and the kernel refuses the line feed only.
    for line in cgroup.decode("utf-8", "replace").split("\n"):
        path = line.split(":", 2)[-1]
        if (place := _parse_path(path)) is not None:
            return place
    return ProcessPlace()


def _parse_path(path: str) -> ProcessPlace | None:
    folders = path.strip("/").split("/")
    if folders[0] == _USERS_SLICE:
        return None
    for position in range(1, len(folders)):
        name = parse_job(folders[position])
        if name is None:
            continue
        node_name = parse_scope(folders[position - 1])
        if position > 1 and parse_uid(folders[position - 1]) is not None:
            node_name = parse_slurm_folder(folders[position - 2])
        if node_name is not None:
            return ProcessPlace(job_id=name.job_id, sluid=name.sluid, node_name=node_name)
    return None


def job_of(place: ProcessPlace | None, jobs: Iterable[JobKey]) -> JobKey | None:
    """Find the job in whose cgroup a process is; a SLUID distinguishes two runs of a job."""
    if place is None or not place.is_in_job:
        return None
    for key in jobs:
        is_same = key.sluid == place.sluid if place.sluid else key.job_id == place.job_id
        if is_same and key.node_name == place.node_name:
            return key
    return None


TITLE = re.compile(rb"slurmstepd: \[([0-9]{1,10})\.[^\]\0]{1,64}\]")
REAL_UID = re.compile(rb"^Uid:\s+([0-9]{1,10})\s", re.MULTILINE)
MOST_BYTES = 1 << 20
# Processes per job that are checked.
MAX_PROCESSES = 16


class ProcessOwners:
    """Read the files of a process that identify its job and user."""

    def __init__(self, procfs_root: Path, guard: HangGuard | None = None) -> None:
        """Without a guard, a process whose files hang blocks the caller."""
        self._root = procfs_root
        self._guard = guard
        self._trusted_uids = (0, os.geteuid())

    def find_stepd(self, pids: Iterable[int]) -> int | None:
        """Return the process that is slurmstepd: it is the oldest in its folder, so the first that is checked."""
        return next((pid for pid in sorted(pids) if self.titled_job(pid) is not None), None)

    def titled_job(self, pid: int) -> int | None:
        """Return the job ID in the title of a slurmstepd; None for any other process.

        Users can give their processes any title, even those of a setuid program: only the real user identifies them.
        """
        match = TITLE.match(self._read(pid, "cmdline"))
        return int(match[1]) if match and self._real_user(pid) in self._trusted_uids else None

    def common_user(self, pids: Iterable[int]) -> int | None:
        """Return the first user other than root: the sleep process of the extern step always runs as root."""
        for pid in sorted(pids)[:MAX_PROCESSES]:
            uid = self._real_user(pid)
            if uid:
                return uid
        return None

    def _real_user(self, pid: int) -> int | None:
        match = REAL_UID.search(self._read(pid, "status"))
        return int(match[1]) if match else None

    def _read(self, pid: int, name: str) -> bytes:
        read = partial(read_bytes, self._root / str(pid) / name, MOST_BYTES)
        return self._guard.run_for(pid, read, b"") if self._guard else read()
