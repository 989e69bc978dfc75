# SPDX-License-Identifier: Apache-2.0
"""Count the events of running jobs, and read their monitoring groups of resctrl.

There is one descriptor for each event and each core, and the kernel switches the counters whenever another cgroup gets
a core. Cgroups below count, too. On cgroup v1, Slurm makes no folders in the hierarchy perf_event. Where more counters
are in use than the processor has, the kernel takes turns, and what it missed is estimated.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from slurmscope.node.hardware.collector import LOCAL, TOTAL, HardwareUse
from slurmscope.node.job_use import WHOLE_JOB, JobKey, JobUse
from slurmscope.node.kernel_files import read_number

HARDWARE, SOFTWARE = 0, 1
COUNTED = "counted"
NO_HARDWARE, NOT_PERMITTED, NO_CGROUP, TOO_MANY, FAILED = (
    "no_hardware", "not_permitted", "no_cgroup", "too_many", "failed",
)  # fmt: skip

_RESULTS = {
    errno.ENOENT: NO_HARDWARE,
    errno.EOPNOTSUPP: NO_HARDWARE,
    errno.ENODEV: NO_HARDWARE,
    errno.ENOSYS: NO_HARDWARE,
    errno.EACCES: NOT_PERMITTED,
    errno.EPERM: NOT_PERMITTED,
    errno.EBADF: NO_CGROUP,
    errno.EMFILE: TOO_MANY,
    errno.ENFILE: TOO_MANY,
    errno.ENOMEM: TOO_MANY,
}
_CALL_NUMBERS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""The first version of the structure: type, size, event, period, samples, format of reads, flags, and three more."""
_WITH_TIMES = 0b11
_IN_CGROUP, _CLOSE_ON_EXEC = 1 << 2, 1 << 3
_COUNT = struct.Struct("=QQQ")


class Event(NamedTuple):
    """An event, by the numbers of linux/perf_event.h."""

    name: str
    kind: int
    number: int


EVENTS = (
    Event("instructions", HARDWARE, 1),
    Event("cycles", HARDWARE, 0),
    Event("cache_misses", HARDWARE, 3),
)

OpenEvent = Callable[[Event, int, int], int]
"""Takes an event, a descriptor of the folder of a cgroup, and a core; returns a descriptor or raises OSError."""


def open_event(event: Event, folder: int, core: int) -> int:
    """Begin to count."""
    number = _CALL_NUMBERS.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    attributes = _ATTRIBUTES.pack(event.kind, _ATTRIBUTES.size, event.number, 0, 0, _WITH_TIMES, 0, 0, 0, 0)
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = int(
        library.syscall(
            ctypes.c_long(number),
            ctypes.c_char_p(attributes),
            ctypes.c_int(folder),
            ctypes.c_int(core),
            ctypes.c_int(-1),
            ctypes.c_ulong(_IN_CGROUP | _CLOSE_ON_EXEC),
        )
    )
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


class _Count(NamedTuple):
    value: int = 0
    enabled_ns: int = 0
    running_ns: int = 0


class _Open(NamedTuple):
    """What a descriptor counts, and its last values."""

    event: Event
    core: int
    last: _Count = _Count()


class CgroupEvents:
    """Count the events of one cgroup from now on."""

    def __init__(
        self, path: Path, cores: Iterable[int], events: Iterable[Event] = EVENTS, open_event: OpenEvent = open_event
    ) -> None:
        """Open all descriptors; an event that the hardware does not have is left out.

        ``result`` is why nothing is counted.
        """
        self.result = COUNTED
        self.cores = tuple(cores)
        self._open_event = open_event
        self._open: dict[int, _Open] = {}
        self._totals: dict[Event, float] = {}
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self.result = NO_CGROUP
            return
        self._folder_number = os.fstat(folder).st_ino
        try:
            for event in events:
                self._begin(event, folder, self.cores)
        finally:
            os.close(folder)

    @property
    def descriptors(self) -> int:
        return len(self._open)

    def follow(self, path: Path, cores: tuple[int, ...]) -> bool:
        """Count on these cores from now on; return False if the folder is another one: its job has started anew."""
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return True  # it has just ended
        try:
            if os.fstat(folder).st_ino != self._folder_number:
                return False
            self._move(folder, cores)
        finally:
            os.close(folder)
        return True

    def read(self) -> dict[str, float]:
        """Return the events since the start, by name."""
        for descriptor, known in self._open.items():
            now = _Count(*_COUNT.unpack(os.read(descriptor, _COUNT.size)))
            before = known.last
            ran_ns = now.running_ns - before.running_ns
            if ran_ns > 0:
                share = (now.enabled_ns - before.enabled_ns) / ran_ns
                self._totals[known.event] += (now.value - before.value) * max(1.0, share)
                self._open[descriptor] = known._replace(last=now)
        return {event.name: total for event, total in self._totals.items()}

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()

    def _move(self, folder: int, cores: tuple[int, ...]) -> None:
        if cores == self.cores:
            return
        self.read()
        self._close({known for known in self._open.values() if known.core not in cores})
        added, self.cores = tuple(core for core in cores if core not in self.cores), cores
        for event in tuple(self._totals):
            if not self._begin(event, folder, added):
                # What is counted on some cores only is not the event of the job.
                self._close({known for known in self._open.values() if known.event == event})
                del self._totals[event]

    def _close(self, ended: Collection[_Open]) -> None:
        for descriptor in [descriptor for descriptor, known in self._open.items() if known in ended]:
            os.close(descriptor)
            del self._open[descriptor]

    def _begin(self, event: Event, folder: int, cores: tuple[int, ...]) -> bool:
        """Count an event on some cores; return whether that is possible."""
        opened: dict[int, _Open] = {}
        try:
            for core in cores:
                opened[self._open_event(event, folder, core)] = _Open(event, core)
        except OSError as error:
            for descriptor in opened:
                os.close(descriptor)
            if not self._open:
                self.result = _RESULTS.get(error.errno or 0, FAILED)
            return False
        self.result = COUNTED
        self._totals.setdefault(event, 0.0)
        self._open.update(opened)
        return True


MOST_JOBS = 64
MOST_DESCRIPTORS = 1536
"""Of all jobs together: three for each core of a job."""
PERF, RESCTRL = "perf", "resctrl"
NO_GROUP = "no_group"
_MOST_DOMAINS = 64

OpenEvents = Callable[[Path, Collection[int]], CgroupEvents]


class HardwareReader:
    """Count the events of running jobs. Not thread-safe."""

    def __init__(
        self, read_running: Callable[[], Iterable[JobUse]], sysfs: Path, open_events: OpenEvents = CgroupEvents
    ) -> None:
        self._read_running = read_running
        self._groups = sysfs / "fs/resctrl/mon_groups"
        self._open_events = open_events
        self._open: dict[JobKey, CgroupEvents] = {}

    def read(self) -> HardwareUse:
        jobs = {job.key: job for job in self._read_running()}
        for key in self._open.keys() - jobs.keys():
            self._open.pop(key).close()
        results: Counter[tuple[str, str]] = Counter()
        events: dict[JobKey, Mapping[str, float]] = {}
        for key, job in jobs.items():
            result = self._begin(job)
            results[PERF, result] += 1
            if result == COUNTED:
                events[key] = self._open[key].read()
        traffic = {key: found for key in jobs if (found := read_traffic(self._groups / f"job_{key.job_id}"))}
        results[RESCTRL, COUNTED] = len(traffic)
        results[RESCTRL, NO_GROUP] = len(jobs) - len(traffic)
        return HardwareUse(events=events, traffic=traffic, results=results)

    def close(self) -> None:
        """Close all descriptors."""
        while self._open:
            self._open.popitem()[1].close()

    def _begin(self, job: JobUse) -> str:
        """Return whether a job is counted, or why it is not; what failed is not tried again for this job."""
        cores, known = find_cores(job), self._open.get(job.key)
        if known is not None:
            if known.result != COUNTED:
                return known.result
            if self._has_room(cores, known) and known.follow(Path(job.cgroup), cores):
                return known.result
            self._open.pop(job.key).close()
        if not self._has_room(cores):
            return TOO_MANY
        if not job.cgroup:
            return NO_CGROUP
        self._open[job.key] = opened = self._open_events(Path(job.cgroup), cores)
        return opened.result

    def _has_room(self, cores: Collection[int], instead_of: CgroupEvents | None = None) -> bool:
        taken = [each.descriptors for each in self._open.values() if each.descriptors and each is not instead_of]
        return len(taken) < MOST_JOBS and sum(taken) + len(EVENTS) * len(cores) <= MOST_DESCRIPTORS


def find_cores(job: JobUse) -> tuple[int, ...]:
    """Return the cores that a job may run on; all of them where it is not confined."""
    cores = job.groups[WHOLE_JOB].cpu.cores if WHOLE_JOB in job.groups else None
    return tuple(range(os.cpu_count() or 1)) if cores is None else cores


def read_traffic(group: Path) -> dict[str, int]:
    """Read the bytes of a monitoring group, of all memory and of local memory; nothing where a part is not known."""
    try:
        domains = sorted((group / "mon_data").iterdir())[:_MOST_DOMAINS]
    except OSError:
        return {}
    found: dict[str, int] = {}
    for name in (TOTAL, LOCAL):
        # "Unavailable", or missing, in a part: the sum would fall.
        amounts = [read_number(domain / name) for domain in domains]
        if amounts and None not in amounts:
            found[name] = sum(amount for amount in amounts if amount is not None)
    return found
