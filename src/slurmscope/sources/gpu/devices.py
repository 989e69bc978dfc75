# SPDX-License-Identifier: Apache-2.0
"""Read from the kernel which GPUs the processes of a job may open.

This also covers a job that holds a GPU and has no process on it. With cgroup v2 this is in the kernel's device
programs, which only root may read; with v1 the file ``devices.list``, where it lists devices at all: Slurm denies
single devices and leaves "everything" in the list, which is meaningless.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from slurmscope.model.gpus import Gpu, GpuReason
from slurmscope.model.job_use import JobKey
from slurmscope.sources.gpu.bpf import read_device_programs
from slurmscope.sources.gpu.device_program import UnknownProgram, judge

GPU_MAJOR = 195
LIST_LIMIT_BYTES = 64 * 1024
KEEP_SECONDS = 60.0

# No such GPU: what a program says of it is what it says of devices that it does not name.
_NO_MINOR = 0xFFFFE
_EVERYTHING = re.compile(r"a \*:\* ")
_RULE = re.compile(r"c (\d+):(\d+|\*) r?w?m?\Z")
_CAPABILITY_MINOR = re.compile(r"DeviceFileMinor:\s*(\d+)")
_CAPABILITY_MAJOR = re.compile(r"^\s*(\d+) nvidia-caps$", re.MULTILINE)
# The job is gone, its folder is not of cgroup v2, or the kernel has no device programs: nothing is known, and nothing
# is wrong.
_SILENT = frozenset({errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.EBADF, errno.EINVAL})

Device = tuple[int, int]


class GpuDevices:
    """Cache the GPUs that each job may open, and read them again after a while. Not thread-safe."""

    def __init__(
        self,
        *,
        procfs_root: Path,
        clock: Callable[[], float],
        read_programs: Callable[[Path], list[bytes]] = read_device_programs,
    ) -> None:
        """Set the root of /proc and a monotonic clock."""
        self.problem: GpuReason | None = None
        self._procfs_root = procfs_root
        self._clock = clock
        self._read_programs = read_programs
        self._known: dict[JobKey, tuple[float, frozenset[str] | None]] = {}

    def read(self, gpus: Iterable[Gpu], cgroups: Mapping[JobKey, Path]) -> dict[JobKey, frozenset[str]]:
        """Return the GPU UUIDs that each job may open; jobs that are not restricted, or not readable, are left out.

        ``cgroups`` are the jobs' folders, for v1 those of the devices controller. After :attr:`problem` is set to
        "no permission" no further job is read.
        """
        if self.problem is GpuReason.NO_PERMISSION:
            return {}
        self.problem = None
        devices = {gpu.uuid: device for gpu in gpus if gpu.is_holdable and (device := self._device(gpu))}
        now = self._clock()
        before, self._known = self._known, {}
        for key, cgroup in cgroups.items() if devices else ():
            asked_at, allowed = before.get(key, (None, None))
            if asked_at is None or now - asked_at >= KEEP_SECONDS:
                asked_at, allowed = now, self._ask(cgroup, devices)
            self._known[key] = (asked_at, allowed)
        return {key: allowed for key, (_, allowed) in self._known.items() if allowed is not None}

    def _ask(self, cgroup: Path, devices: Mapping[str, Device]) -> frozenset[str] | None:
        try:
            return self._allowed_by_list(cgroup, devices)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(error)
            return None
        try:
            return allowed_by_programs(self._read_programs(cgroup), devices)
        except UnknownProgram:
            self.problem = GpuReason.MALFORMED
        except OSError as error:
            self._note(error)
        return None

    def _allowed_by_list(self, cgroup: Path, devices: Mapping[str, Device]) -> frozenset[str] | None:
        with (cgroup / "devices.list").open("rb", buffering=0) as file:
            return allowed_by_list((file.read(LIST_LIMIT_BYTES) or b"").decode("ascii", "replace"), devices)

    def _note(self, error: OSError) -> None:
        if error.errno in (errno.EPERM, errno.EACCES):
            self.problem = GpuReason.NO_PERMISSION
        elif error.errno not in _SILENT:
            self.problem = GpuReason.FAILED

    def _device(self, gpu: Gpu) -> Device | None:
        """Return the numbers of the device file of a GPU, or of the one that grants a MIG instance."""
        if not gpu.parent_uuid:
            return None if gpu.minor is None else (GPU_MAJOR, gpu.minor)
        if gpu.minor is None:
            return None
        folder = self._procfs_root / "driver/nvidia/capabilities" / f"gpu{gpu.minor}" / "mig"
        try:
            text = (folder / f"gi{gpu.gpu_instance}" / f"ci{gpu.compute_instance}" / "access").read_text("ascii")
            majors = (self._procfs_root / "devices").read_text("ascii", "replace")
        except (OSError, UnicodeDecodeError):
            return None
        minor, major = _CAPABILITY_MINOR.search(text), _CAPABILITY_MAJOR.search(majors)
        return (int(major[1]), int(minor[1])) if major and minor else None


def allowed_by_list(text: str, devices: Mapping[str, Device]) -> frozenset[str] | None:
    """Read a ``devices.list`` of v1; None where it allows all GPUs without naming any."""
    rules = set()
    for line in text.splitlines():
        if match := _RULE.match(line):
            rules.add((match[1], match[2]))
        elif _EVERYTHING.match(line):
            return None
    if any((str(major), "*") in rules for major, _ in devices.values()):
        return None
    return frozenset(uuid for uuid, (major, minor) in devices.items() if (str(major), str(minor)) in rules)


def allowed_by_programs(programs: Sequence[bytes], devices: Mapping[str, Device]) -> frozenset[str] | None:
    """Run all programs for all GPUs; None where none is named, so that nothing is known.

    A GPU that may be opened, but only like every device that is not named, was not given to this job: systemd
    allows GPUs in this way, and Slurm those that gres.conf leaves out.
    """
    named, allowed = set(), set()
    for uuid, (major, minor) in devices.items():
        verdicts = [judge(program, major, minor) for program in programs]
        others = [judge(program, major, _NO_MINOR) for program in programs]
        if any(verdict.decided_at != other.decided_at for verdict, other in zip(verdicts, others, strict=True)):
            named.add(uuid)
        if all(verdict.is_allowed for verdict in verdicts):
            allowed.add(uuid)
    return frozenset(named & allowed) if named else None
