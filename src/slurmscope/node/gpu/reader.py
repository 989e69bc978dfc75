# SPDX-License-Identifier: Apache-2.0
"""Read the GPUs of a node: their values, their processes, and the devices that jobs may open.

The driver names processes by number only, and a number may mean another process a moment later. So a process
counts only if it was started before the driver listed it, and all about it is read through one descriptor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slurmscope.core.errors import MalformedAnswer
from slurmscope.node.cgroup.names import parse_job, parse_scope, parse_slurm_folder, parse_uid
from slurmscope.node.gpu.attribution import GpuHold
from slurmscope.node.gpu.devices import GpuDevices
from slurmscope.node.gpu.job_counters import JobCounters
from slurmscope.node.gpu.nvml import CHILD, NvmlProcess, NvmlReader, NvmlUnavailable, child_environment
from slurmscope.node.gpu.records import Gpu, GpuProcess, Gpus, ProcessPlace
from slurmscope.node.job_use import JobKey
from slurmscope.node.procfs.process import read_file
from slurmscope.node.procfs.stat import parse_stat

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


DEVICE_FILES = Path("/dev")


TIMEOUT_SECONDS = 5.0
"""Timeout for the GPU driver; the process that calls it is then restarted."""
ENERGY_SECONDS = 0.5
"""Minimum interval between readings of the energy counters, which are slow."""

FindHolds = Callable[[Gpus], Iterable[GpuHold]]
"""Returns which jobs hold which GPUs."""


class GpuReader:
    """Read the GPUs of this node. Not thread-safe, except :meth:`close`."""

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        environment: Mapping[str, str],
        procfs_root: Path,
        job_cgroups: Callable[[], Mapping[JobKey, Path]] = dict,
        pid_owner: PidOwner | None = None,
        find_holds: FindHolds = lambda _: (),
        device_files: Path = DEVICE_FILES,
        argv: Sequence[str] = CHILD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the roots and the functions that know jobs.

        ``environment`` is that of this process. ``job_cgroups`` returns the folders of jobs: of
        cgroup v2, or of the devices controller. ``pid_owner`` knows the job of a process where jobs have no
        cgroups. ``find_holds`` maps GPUs to jobs.
        """
        self._procfs_root = procfs_root
        self._job_cgroups = job_cgroups
        self._pid_owner = pid_owner
        self._find_holds = find_holds
        self._counters = JobCounters()
        self._devices = GpuDevices(procfs_root=procfs_root, clock=clock)
        child = child_environment(environment)
        self._nvml = NvmlReader(
            lambda: NvmlProcess(child, argv),
            timeout_seconds=TIMEOUT_SECONDS,
            energy_seconds=ENERGY_SECONDS,
            driver_signs=(procfs_root / "driver/nvidia", device_files / "nvidiactl"),
            clock=clock,
        )

    def read(self) -> Gpus:
        """Read everything. A driver that cannot be queried is not an error: the result says so and has no GPUs."""
        try:
            sample = self._nvml.read()
        except NvmlUnavailable as failure:
            return Gpus(unavailable={"nvml": failure.why})
        devices = tuple(
            place_processes(gpu, sample.taken_at, self._procfs_root, self._pid_owner) for gpu in sample.devices
        )
        allowed = self._devices.read(devices, self._job_cgroups())
        problem = self._devices.problem
        gpus = Gpus(
            devices=devices,
            allowed=allowed,
            unavailable={} if problem is None else {"devices": problem},
        )
        return replace(gpus, job_counters=self._counters.add(devices, self._find_holds(gpus)))

    def close(self) -> None:
        """End the process that queries the driver."""
        self._nvml.close()
