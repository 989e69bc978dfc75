# SPDX-License-Identifier: Apache-2.0
"""Read all that the cgroup v1 folders of one job, step or task tell: one folder per controller."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from slurmscope.model.job_use import BlockUse, CgroupUse, CpuUse, MemoryUse
from slurmscope.sources.cgroup.batch import Batch
from slurmscope.sources.cgroup.events import EventCounts
from slurmscope.sources.cgroup.files import (
    NANOSECONDS,
    counts_of,
    in_units,
    line_keys,
    parse_blkio,
    parse_core_seconds,
    parse_cores,
    parse_number,
)
from slurmscope.sources.cgroup.kept import Folder, KeptFile
from slurmscope.sources.cgroup.nodes import CgroupFolder
from slurmscope.sources.cgroup.pace import Pace
from slurmscope.sources.cgroup.places import TreeTools

# The files that change all the time, with their controllers. Those of blkio that are not "recursive" leave out what
# the folders below did, and the processes of a job are all below it.
FILES = {
    "cpuacct.usage": "cpuacct",
    "cpuacct.stat": "cpuacct",
    "cpuacct.usage_percpu": "cpuacct",
    "cpu.stat": "cpu",
    "memory.usage_in_bytes": "memory",
    "memory.stat": "memory",
    "memory.max_usage_in_bytes": "memory",
    "memory.kmem.usage_in_bytes": "memory",
    "pids.current": "pids",
    "blkio.throttle.io_service_bytes_recursive": "blkio",
    "blkio.throttle.io_serviced_recursive": "blkio",
}
TIME_KEYS = line_keys("user", "system")
THROTTLING_KEYS = line_keys("nr_periods", "nr_throttled", "throttled_time")
# The keys without "total" count one folder only, and the processes of a job are all below it.
MEMORY_KEYS = line_keys("total_cache", "total_rss", "total_shmem", "total_mapped_file", "total_swap")
RARE_FILES = {
    "cpuset.effective_cpus": "cpuset",
    "cpuset.cpus": "cpuset",
    "memory.limit_in_bytes": "memory",
    "memory.memsw.limit_in_bytes": "memory",
    "pids.max": "pids",
}
CONTROLLERS = frozenset((*FILES.values(), *RARE_FILES.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rare:
    """Hold what seldom changes."""

    cores: tuple[int, ...] | None = None
    memory_limit: int | None = None
    swap_limit: int | None = None
    pids_limit: int | None = None


class ControllerGroup:
    """Read a job, a step or a task of cgroup v1; controllers that have no folder for it tell nothing."""

    def __init__(
        self, hierarchies: Mapping[str, str], job: str, below: str, tools: TreeTools, *, is_spare: bool
    ) -> None:
        """Take the roots by controller, the path of the job below each of them, and the path below that."""
        self._hierarchies = hierarchies
        self._job = job
        self._relative = f"{job}/{below}".rstrip("/")
        self._tools = tools
        self._is_spare = is_spare
        self._pace = Pace(tools.clock, self._relative)
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._folders: dict[str, Folder] = {}
        self._files: dict[str, KeptFile] = {}
        self._batch = Batch(tools.budget, [None] * len(FILES))
        self._rare_files: dict[str, KeptFile] = {}
        self._core_set: Folder | None = None
        self._memory_node: CgroupFolder | None = None
        self._events: EventCounts | None = None
        self._rare = _Rare()
        self._is_closed = False

    def read(self) -> CgroupUse | None:
        """Read everything now; None when the cgroup is gone from every hierarchy."""
        if self._is_closed:
            return None
        # A young job gets its folders one after the other.
        if self._pace.is_due() or not self._folders:
            self._find_folders()
            self._rare = self._read_rare()
        texts = self._batch.read()
        events = self._events.read() if self._events else {}
        unreadable = self._check_folders()
        if unreadable is None:
            return None
        return CgroupUse(
            cpu=self._parse_cpu(*texts[:4]),
            memory=self._parse_memory(*texts[4:8], events=events),
            block=self._parse_block(*texts[9:]),
            pids=parse_number(texts[8]),
            pids_limit=self._rare.pids_limit,
            unreadable=unreadable,
        )

    def close(self) -> None:
        """Close all descriptors for good."""
        self._is_closed = True
        for folder in self._folders.values():
            folder.close()
        if self._memory_node:
            self._memory_node.close()

    def release(self) -> None:
        """Close all descriptors; everything stays readable."""
        for folder in self._folders.values():
            folder.release()
        if self._memory_node:
            self._memory_node.release()

    def _check_folders(self) -> dict[str, str] | None:
        """Return which files could not be read; None when it was not this cgroup that was read."""
        unreadable: dict[str, str] = {}
        is_here = False
        for folder in self._folders.values():
            if folder.was_opened and folder.was_replaced():
                return None
            # Nothing has been read of the core set just now, so it does not know that it is gone.
            is_here = is_here or not (folder.is_gone or folder is self._core_set)
            if folder.unreadable:
                unreadable.update(folder.unreadable)
        if not is_here:
            is_here = self._core_set is not None and self._core_set.count_links() > 0
        return unreadable if is_here else None

    def _parse_cpu(self, usage: bytes, stat: bytes, cores: bytes, throttling: bytes) -> CpuUse:
        user, system = counts_of(stat, TIME_KEYS)
        periods, throttled, throttled_time = counts_of(throttling, THROTTLING_KEYS)
        return CpuUse(
            total_seconds=in_units(parse_number(usage), NANOSECONDS),
            user_seconds=in_units(user, self._ticks_per_second),
            system_seconds=in_units(system, self._ticks_per_second),
            core_seconds=parse_core_seconds(cores, self._rare.cores),
            cores=self._rare.cores,
            periods=periods,
            throttled_periods=throttled,
            throttled_seconds=in_units(throttled_time, NANOSECONDS),
        )

    def _parse_memory(
        self, usage: bytes, stat: bytes, highest: bytes, kernel: bytes, *, events: Mapping[str, int]
    ) -> MemoryUse:
        cache, rss, shmem, mapped, swap = counts_of(stat, MEMORY_KEYS)
        return MemoryUse(
            current_bytes=parse_number(usage),
            anon_bytes=rss,
            file_bytes=cache,
            shmem_bytes=shmem,
            kernel_bytes=parse_number(kernel),
            mapped_file_bytes=mapped,
            swap_bytes=swap,
            peak_bytes=parse_number(highest),
            limit_bytes=self._rare.memory_limit,
            swap_limit_bytes=self._rare.swap_limit,
            events=events,
        )

    def _parse_block(self, service_bytes: bytes, serviced: bytes) -> Mapping[str, BlockUse]:
        return parse_blkio(service_bytes, serviced) if service_bytes else {}

    def _read_rare(self) -> _Rare:
        for folder in self._folders.values():
            if folder.retry():
                self._batch.reset()
        memory, both = self._limit("memory.limit_in_bytes"), self._limit("memory.memsw.limit_in_bytes")
        return _Rare(
            cores=parse_cores(self._read("cpuset.effective_cpus")) or parse_cores(self._read("cpuset.cpus")),
            memory_limit=memory,
            # v1 limits memory and swap together; the difference is what v2 calls the limit of swap.
            swap_limit=None if memory is None or both is None else max(0, both - memory),
            pids_limit=self._limit("pids.max"),
        )

    def _read(self, name: str) -> bytes:
        file = self._rare_files.get(name)
        return b"" if file is None else file.read()

    def _limit(self, name: str) -> int | None:
        own = self._read(name)
        if not own:
            return None
        controller = RARE_FILES[name]
        top = f"{self._hierarchies[controller]}/{self._job}"
        return self._tools.limits.effective(own, self._folders[controller].path, top, name)

    def _find_folders(self) -> None:
        new: dict[str, Folder] = {}
        for controller in (CONTROLLERS & self._hierarchies.keys()) - self._folders.keys():
            path = f"{self._hierarchies[controller]}/{self._relative}"
            folder = Folder(path, self._tools.budget, is_spare=self._is_spare)
            if not folder.is_gone:
                new[controller] = folder
        if new:
            self._open_files(new)

    def _open_files(self, new: Mapping[str, Folder]) -> None:
        self._folders.update(new)
        self._core_set = self._folders.get("cpuset")
        for name, controller in FILES.items():
            if controller in new:
                self._files[name] = new[controller].open_file(name)
        for name, controller in RARE_FILES.items():
            if controller in new:
                self._rare_files[name] = new[controller].rare_file(name)
        self._batch = Batch(self._tools.budget, [self._files.get(name) for name in FILES])
        if "memory" in new:
            self._memory_node = CgroupFolder(new["memory"].path, self._tools)
            self._events = EventCounts(self._memory_node, self._tools.budget, self._tools.clock)
