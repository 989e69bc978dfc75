# SPDX-License-Identifier: Apache-2.0
"""Read the GPUs of a node: their values, their processes, and the devices that jobs may open."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurmscope.model.gpus import Gpus
from slurmscope.model.job_use import JobKey
from slurmscope.settings import setting
from slurmscope.sources.gpu.devices import GpuDevices
from slurmscope.sources.gpu.nvml.process import CHILD, NvmlProcess, NvmlUnavailable, child_environment
from slurmscope.sources.gpu.nvml.reader import NvmlReader
from slurmscope.sources.gpu.processes import PidOwner, place_processes
from slurmscope.units import parse_positive_seconds

DEVICE_FILES = Path("/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """Hold the settings for GPUs."""

    timeout: float = setting(
        5.0,
        help="Timeout for the GPU driver; the process that calls it is then restarted.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )
    energy_interval: float = setting(
        30.0,
        help="Minimum interval between readings of the energy counters, which are slow.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )


class GpuReader:
    """Read the GPUs of this node. Not thread-safe, except :meth:`close`."""

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        settings: GpuSettings,
        *,
        environment: Mapping[str, str],
        procfs_root: Path,
        job_cgroups: Callable[[], Mapping[JobKey, Path]] = dict,
        pid_owner: PidOwner | None = None,
        device_files: Path = DEVICE_FILES,
        argv: Sequence[str] = CHILD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the roots and the functions that know jobs.

        ``environment`` is that of this process. ``job_cgroups`` returns the folders of jobs: of
        cgroup v2, or of the devices controller. ``pid_owner`` knows the job of a process where jobs have no
        cgroups.
        """
        self._procfs_root = procfs_root
        self._job_cgroups = job_cgroups
        self._pid_owner = pid_owner
        self._devices = GpuDevices(procfs_root=procfs_root, clock=clock)
        child = child_environment(environment)
        self._nvml = NvmlReader(
            lambda: NvmlProcess(child, argv),
            timeout_seconds=settings.timeout,
            energy_seconds=settings.energy_interval,
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
        return Gpus(
            devices=devices,
            allowed=allowed,
            unavailable={} if problem is None else {"devices": problem},
        )

    def close(self) -> None:
        """End the process that queries the driver."""
        self._nvml.close()
