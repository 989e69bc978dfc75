# SPDX-License-Identifier: Apache-2.0
"""Find out to which job and user each process on a GPU belongs.

The driver names processes by number only, and a number may mean another process a moment later. So a process
counts only if it was started before the driver listed it, and all about it is read through one descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slurmscope.errors import MalformedAnswer
from slurmscope.model.gpus import Gpu, GpuProcess, ProcessPlace
from slurmscope.model.job_use import JobKey
from slurmscope.sources.cgroup.names import parse_job, parse_scope, parse_slurm_folder, parse_uid
from slurmscope.sources.procfs.process import read_file
from slurmscope.sources.procfs.stat import parse_stat

FILE_LIMIT_BYTES = 16 * 1024

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Users own parts of this slice and may call a folder there whatever they like.
_USERS_SLICE = "user.slice"

PidOwner = Callable[[int], JobKey | None]
"""Returns the job of a process by other means, where jobs have no cgroups."""


def place_processes(gpu: Gpu, taken_at: float, procfs_root: Path, owner: PidOwner | None = None) -> Gpu:
    """Return a GPU whose processes know their place; ``taken_at`` is when they were listed, in seconds since boot."""
    if not gpu.processes:
        return gpu
    placed = tuple(_place(process, taken_at, procfs_root, owner) for process in gpu.processes)
    return replace(gpu, processes=placed)


def parse_place(cgroup: bytes) -> ProcessPlace:
    """Parse ``/proc/PID/cgroup``: the first hierarchy with a job folder counts."""
    for line in cgroup.decode("utf-8", "replace").splitlines():
        path = line.split(":", 2)[-1]
        if (place := _parse_path(path)) is not None:
            return place
    return ProcessPlace()


def _place(process: GpuProcess, taken_at: float, procfs_root: Path, owner: PidOwner | None) -> GpuProcess:
    try:
        folder = os.open(procfs_root / str(process.pid), _FOLDER)
    except OSError:
        return process
    try:
        uid = os.fstat(folder).st_uid
        started_at = parse_stat(read_file("stat", folder, FILE_LIMIT_BYTES), uid).start_ticks / _TICKS_PER_SECOND
        cgroup = read_file("cgroup", folder, FILE_LIMIT_BYTES)
    except (OSError, MalformedAnswer):
        return process
    finally:
        os.close(folder)
    if started_at >= taken_at:  # another process with a number that was given again
        return process
    place = parse_place(cgroup)
    if not place.is_in_job and owner is not None and (key := owner(process.pid)) is not None:
        place = ProcessPlace(job_id=key.job_id, sluid=key.sluid, node_name=key.node_name)
    return replace(process, uid=uid, place=place)


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
