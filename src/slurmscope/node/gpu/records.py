# SPDX-License-Identifier: Apache-2.0
"""Hold the GPUs of one node, as reported by the driver.

A value that the driver does not report for a device is None, never 0. Whole GPUs and MIG instances are both a
:class:`Gpu`: an instance has ``parent_uuid`` set, and a GPU that is partitioned into instances ``has_instances``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.job_use import JobKey


class Vendor(enum.Enum):
    """Whose driver a GPU has."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"


class GpuReason(enum.Enum):
    """Why all GPUs, one GPU, or one data source for GPUs cannot be read."""

    NOT_INSTALLED = "not_installed"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    NO_PERMISSION = "no_permission"
    VERSION_MISMATCH = "version_mismatch"
    LOST = "lost"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    MALFORMED = "malformed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """One process that has a context on a GPU; ``place`` is None if it could not be determined."""

    pid: int
    memory_bytes: int | None = None
    uid: int | None = None
    place: ProcessPlace | None = None
    is_mps_client: bool = False


NO_SOURCE = "none"
"""The source of counters where a driver counts nothing for a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCounters:
    """What a GPU did while the child process counted: ``totals`` in seconds or bytes, by name.

    ``seconds`` is the time that they cover. ``by_pid`` splits the busy seconds among the processes of now. All fall
    to 0 when that process is started again.
    """

    source: str
    seconds: float
    totals: Mapping[str, float] = field(default_factory=dict)
    by_pid: Mapping[int, float] = field(default_factory=dict)

    def since(self, earlier: GpuCounters | None) -> GpuCounters:
        """Return what happened after an earlier reading; all of it, if counting has started again since."""
        if earlier is None or earlier.seconds > self.seconds:
            return self
        return GpuCounters(
            source=self.source,
            seconds=self.seconds - earlier.seconds,
            totals={name: max(0.0, n - earlier.totals.get(name, 0.0)) for name, n in self.totals.items()},
            by_pid={pid: max(0.0, n - earlier.by_pid.get(pid, 0.0)) for pid, n in self.by_pid.items()},
        )

    def mean(self, name: str) -> float | None:
        """Return a total of seconds as a share of the time, rounded to what was counted; None if there was none."""
        total = self.totals.get(name)
        return None if total is None or self.seconds <= 0 else min(1.0, round(total / self.seconds, 4))


class Absence(enum.Enum):
    """Why a job has no counters of a GPU that it holds."""

    NONE = ""
    DRIVER = "driver"
    """The driver does not count what this device does."""
    MPS = "mps"
    """Jobs share the GPU through a server, to which the driver attributes the work of all of them."""
    OTHER_PROCESSES = "other_processes"
    """Jobs share the GPU, and processes outside of jobs did most of the work."""
    PROCESS_TIMES = "process_times"
    """Jobs share the GPU, and the driver does not report how long each process used it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGpuCounters:
    """What one job did on one GPU, by name: seconds, bytes, or joules of ``energy``; or why that is not known."""

    totals: Mapping[str, float] = field(default_factory=dict)
    is_estimate: bool = False
    absence: Absence = Absence.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """One error that the driver reported; ``gpu_instance`` is set if it hit that MIG instance only."""

    uuid: str
    xid: int
    at_seconds: float
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How often an error happened, and the Unix time of the last one."""

    count: int = 0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFaults:
    """The errors of GPUs by index, MIG instance and Xid, those of jobs likewise, and lost GPUs by index and UUID."""

    xids: Mapping[tuple[str, str, int], Fault] = field(default_factory=dict)
    job_xids: Mapping[tuple[JobKey, str, str, int], Fault] = field(default_factory=dict)
    lost: Mapping[tuple[str, str], bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU or MIG instance.

    ``index`` is the nvidia-smi index, ``minor`` that of the device file; those of the parent for an instance. GPUs of
    AMD and Intel are numbered by PCI address; their device file is the render node, from 128 on.
    ``problem`` is set for a GPU that exists but cannot be read: then only ``index`` is reliable.
    ``utilization_ratio`` is the share of time in which a kernel was running, ``memory_utilization_ratio`` that in
    which memory was read or written, both since the reading before.
    """

    index: int
    uuid: str = ""
    vendor: Vendor = Vendor.NVIDIA
    model: str = ""
    minor: int | None = None
    bus_id: str = ""
    parent_uuid: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    has_instances: bool = False
    problem: GpuReason | None = None
    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    memory_size_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    power_watts: float | None = None
    energy_joules: float | None = None
    throttled_seconds: Mapping[str, float] = field(default_factory=dict)
    health: Mapping[str, float] = field(default_factory=dict)
    temperature_celsius: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    counters: GpuCounters | None = None

    @property
    def mig(self) -> str:
        """Return the numbers of the GPU instance and its compute instance, or an empty string."""
        return f"{self.gpu_instance}/{self.compute_instance}" if self.parent_uuid else ""

    @property
    def is_holdable(self) -> bool:
        """Return whether it can be allocated to a job: a GPU partitioned into instances cannot."""
        return bool(self.uuid) and not self.has_instances and self.problem is None


def with_means(gpu: Gpu, earlier: Gpu | None) -> Gpu:
    """Add the utilization since an earlier reading; that of before, if nothing was counted in between."""
    if gpu.counters is None:
        return gpu
    passed = gpu.counters.since(earlier.counters if earlier else None)
    if passed.seconds <= 0 and earlier is not None:
        passed_by = earlier.utilization_ratio, earlier.memory_utilization_ratio
    else:
        passed_by = passed.mean("busy"), passed.mean("memory_busy")
    return replace(gpu, utilization_ratio=passed_by[0], memory_utilization_ratio=passed_by[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSample:
    """What a driver reported at once; its processes were listed at ``taken_at`` seconds since boot, or later."""

    taken_at: float
    devices: tuple[Gpu, ...]
    xids: tuple[XidEvent, ...] = ()
    problem: GpuReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """All GPUs of a node.

    ``allowed`` holds by job the GPUs (by UUID) that the kernel lets its processes open; a job that is missing there
    is not restricted, or its restrictions could not be read. ``job_counters`` are by job and UUID. ``unavailable``
    holds the data sources that do not work: ``nvml`` (the driver), ``devices`` (the kernel's device rules) and
    ``fdinfo`` (what the kernel knows of a process that uses a GPU of AMD or Intel).
    """

    devices: tuple[Gpu, ...] = ()
    allowed: Mapping[JobKey, frozenset[str]] = field(default_factory=dict)
    job_counters: Mapping[tuple[JobKey, str], JobGpuCounters] = field(default_factory=dict)
    faults: GpuFaults = field(default_factory=GpuFaults)
    unavailable: Mapping[str, GpuReason] = field(default_factory=dict)


DRIVER_SIGNS = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"))
"""One of these exists where the driver is loaded."""
