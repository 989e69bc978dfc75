# SPDX-License-Identifier: Apache-2.0
"""Read the GPUs of a node: their values, their processes, and the devices that jobs may open.

The driver names processes by number only, and a number may mean another process a moment later. So a process
counts only if it was started before the driver listed it, and all about it is read through one descriptor.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from slurmscope.core.errors import MalformedAnswer
from slurmscope.node.cgroup.names import ProcessPlace, parse_place
from slurmscope.node.gpu.attribution import GpuMapping
from slurmscope.node.gpu.counters import JobCounters
from slurmscope.node.gpu.devices import GpuDevices
from slurmscope.node.gpu.drm import DrmReader, read_driver
from slurmscope.node.gpu.faults import MOST_RECORDS, FaultLog, KernelLog, LoggedXid
from slurmscope.node.gpu.nvml import CHILD, NvmlProcess, NvmlReader, NvmlUnavailable, child_environment
from slurmscope.node.gpu.records import Gpu, GpuProcess, Gpus
from slurmscope.node.job_use import JobKey
from slurmscope.node.kernel_files import HangGuard
from slurmscope.node.procfs.process import read_file
from slurmscope.node.procfs.stat import parse_stat

FILE_LIMIT_BYTES = 16 * 1024

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

PidOwner = Callable[[int], JobKey | None]
"""Returns the job of a process by other means, where jobs have no cgroups."""


def place_processes(
    gpu: Gpu, taken_at: float, procfs_root: Path, owner: PidOwner | None = None, guard: HangGuard | None = None
) -> Gpu:
    """Return a GPU whose processes know their place; ``taken_at`` is when they were listed, in seconds since boot."""
    if not gpu.processes:
        return gpu
    places = ((process, partial(_place, process, taken_at, procfs_root, owner)) for process in gpu.processes)
    placed = (guard.run_for(process.pid, place, process) if guard else place() for process, place in places)
    return replace(gpu, processes=tuple(placed))


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


DEVICE_FILES = Path("/dev")


TIMEOUT_SECONDS = 5.0
"""Timeout for the GPU driver; the process that calls it is then restarted."""
PLACE_SECONDS = 6.0
"""How long the files of one process may take."""
ENERGY_SECONDS = 0.5
"""Minimum interval between readings of the energy counters, which are slow."""

FindHolds = Callable[[Gpus], GpuMapping]
"""Returns which jobs hold which GPUs."""


MOST_WATTS = 10_000.0
"""More than any GPU uses: a counter that rises faster was set, and does not count."""


class DriverCounters:
    """Let energy and times at reduced clocks go on where the driver's counters jump. Not thread-safe.

    They fall when the driver is loaded again, and a broken board may report 0 once: the way back up is no energy.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[float, float, float]] = {}

    def go_on(self, gpu: Gpu, now: float) -> Gpu:
        """Return a GPU whose counters never fall; ``now`` is any steady clock."""
        if not gpu.uuid:
            return gpu
        joules = gpu.energy_joules
        return replace(
            gpu,
            energy_joules=None if joules is None else self._count(gpu.uuid, "", joules, now, MOST_WATTS),
            throttled_seconds={
                reason: self._count(gpu.uuid, reason, seconds, now, 2.0)
                for reason, seconds in gpu.throttled_seconds.items()
            },
        )

    def _count(self, uuid: str, name: str, value: float, now: float, most_per_second: float) -> float:
        last, total, at = self._known.get((uuid, name), (value, value, now))
        rise = value - last
        is_counted = 0 <= rise <= most_per_second * max(1.0, now - at)
        total += rise if is_counted else 0.0
        # Slow counters are read less often than the others: one that stands still rises for longer.
        self._known[uuid, name] = value, total, at if not rise else now
        return total


class GpuReader:
    """Read the GPUs of this node. Not thread-safe, except :meth:`close`."""

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        environment: Mapping[str, str],
        procfs_root: Path,
        sysfs: Path = Path("/sys"),
        job_cgroups: Callable[[], Mapping[JobKey, Path]] = dict,
        job_pids: Callable[[], Mapping[Hashable, Collection[int]]] = dict,
        find_owners: Callable[[], Mapping[int, JobKey]] = dict,
        find_holds: FindHolds = lambda _: GpuMapping(),
        device_files: Path = DEVICE_FILES,
        argv: Sequence[str] = CHILD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the roots and the functions that know jobs.

        ``environment`` is that of this process. ``job_cgroups`` returns the folders of jobs: of cgroup v2, or of the
        devices controller; ``job_pids`` their processes by user. ``find_owners`` returns
        the job of each process, for those without a job's cgroup. ``find_holds`` maps GPUs to jobs.
        """
        self._procfs_root = procfs_root
        # Longer than the jobs may take, which know the owners of processes.
        self._guard = HangGuard(procfs_root, patience_seconds=PLACE_SECONDS)
        self._job_cgroups = job_cgroups
        self._find_owners = find_owners
        self._find_holds = find_holds
        self._counters = JobCounters()
        self._faults = FaultLog()
        self._log = KernelLog(device_files / "kmsg")
        self._logged: list[LoggedXid] = []
        self._steady = DriverCounters()
        self._clock = clock
        self._devices = GpuDevices(procfs_root=procfs_root, clock=clock)
        child = child_environment(environment)
        self._nvml = NvmlReader(
            lambda: NvmlProcess(child, argv),
            timeout_seconds=TIMEOUT_SECONDS,
            energy_seconds=ENERGY_SECONDS,
            driver_signs=(procfs_root / "driver/nvidia", device_files / "nvidiactl"),
            clock=clock,
        )
        self._drm = DrmReader(sysfs=sysfs, procfs=procfs_root, pids=job_pids, guard=self._guard, clock=clock)

    def read(self) -> Gpus:
        """Read everything. A driver that cannot be queried is not an error: the result says so and has no GPUs."""
        # Kept until the GPUs can be read: what happens while they cannot is in the log only.
        self._logged = [*self._logged, *self._log.read()][-MOST_RECORDS:]
        try:
            sample = read_driver(self._nvml, self._drm)
        except NvmlUnavailable as failure:
            return Gpus(unavailable={"nvml": failure.why})
        now = self._clock()
        # Once for all processes: to know the jobs may take seconds.
        owners = functools.cache(self._find_owners)
        devices = tuple(
            place_processes(
                self._steady.go_on(gpu, now),
                sample.taken_at,
                self._procfs_root,
                lambda pid: owners().get(pid),
                self._guard,
            )
            for gpu in sample.devices
        )
        allowed = self._devices.read(devices, self._job_cgroups())
        problems = {"devices": self._devices.problem, "fdinfo": sample.problem}
        gpus = Gpus(
            devices=devices,
            allowed=allowed,
            unavailable={source: problem for source, problem in problems.items() if problem is not None},
        )
        found = self._find_holds(gpus)
        logged, self._logged = self._logged, []
        return replace(
            gpus,
            job_counters=self._counters.add(devices, found.holds, running=found.running, ended=found.ended),
            faults=self._faults.add(devices, self._log.add(logged, devices, sample.xids), found.holds, now),
        )

    def close(self) -> None:
        """End the process that queries the driver."""
        self._nvml.close()
        self._guard.close()
        self._drm.close()
        self._log.close()
