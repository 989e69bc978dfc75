# SPDX-License-Identifier: Apache-2.0
"""Read all that the cgroup v1 folders of one job, step or task tell: one folder per controller."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurmscope.model.job_use import CgroupUse, CpuUse, MemoryUse
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
from slurmscope.sources.cgroup.kept import PAGE, Folder
from slurmscope.sources.cgroup.nodes import Node
from slurmscope.sources.cgroup.pace import Pace
from slurmscope.sources.cgroup.places import Tools

# The files that change all the time, by controller. Those of blkio that are not "recursive" leave out what the folders
# below did, and the processes of a job are all below it.
FILES = {
    "cpuacct": ("cpuacct.usage", "cpuacct.stat", "cpuacct.usage_percpu"),
    "cpu": ("cpu.stat",),
    "cpuset": (),
    "memory": (
        "memory.usage_in_bytes",
        "memory.stat",
        "memory.max_usage_in_bytes",
        "memory.kmem.usage_in_bytes",
    ),
    "blkio": ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"),
    "pids": ("pids.current",),
}
TIME_KEYS = line_keys("user", "system")
THROTTLING_KEYS = line_keys("nr_periods", "nr_throttled", "throttled_time")
# The keys without "total" count one folder only, and the processes of a job are all below it.
MEMORY_KEYS = line_keys("total_cache", "total_rss", "total_shmem", "total_mapped_file", "total_swap")
RARE_FILES = {
    "cpuset": ("cpuset.effective_cpus", "cpuset.cpus"),
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    "pids": ("pids.max",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rare:
    """Hold what seldom changes."""

    cores: tuple[int, ...] | None = None
    memory_limit: int | None = None
    swap_limit: int | None = None
    pids_limit: int | None = None


class ControllerGroup:
    """Read a job, a step or a task of cgroup v1; controllers that have no folder for it tell nothing."""

    def __init__(self, hierarchies: Mapping[str, str], job: str, below: str, tools: Tools, *, is_spare: bool) -> None:
        """Take the roots by controller, the path of the job below each of them, and the path below that."""
        self._hierarchies = hierarchies
        self._job = job
        self._relative = f"{job}/{below}".rstrip("/")
        self._tools = tools
        self._is_spare = is_spare
        self._pace = Pace(tools.clock, self._relative)
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._folders: dict[str, Folder] = {}
        self._readers: dict[str, Callable[[], bytes]] = dict.fromkeys(_all_names(), bytes)
        self._memory_node: Node | None = None
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
        cpu = self._read_cpu()
        memory = self._read_memory()
        block = parse_blkio(*(self._readers[name]() for name in FILES["blkio"])) if "blkio" in self._folders else {}
        pids = parse_number(self._readers["pids.current"]())
        if not self._is_here():
            return None
        unreadable: dict[str, str] = {}
        for folder in self._folders.values():
            unreadable.update(folder.unreadable)
        return CgroupUse(
            cpu=cpu,
            memory=memory,
            block=block,
            pids=pids,
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

    def _is_here(self) -> bool:
        folders = self._folders.values()
        if any(folder.was_replaced() for folder in folders):
            return False
        cores = self._folders.get("cpuset")
        if any(not folder.is_gone for folder in folders if folder is not cores):
            return True
        # Nothing was read there just now, so it has to be looked at.
        return cores is not None and cores.count_links() > 0

    def _read_cpu(self) -> CpuUse:
        user, system = counts_of(self._readers["cpuacct.stat"](), TIME_KEYS)
        periods, throttled, throttled_time = counts_of(self._readers["cpu.stat"](), THROTTLING_KEYS)
        return CpuUse(
            total_seconds=in_units(parse_number(self._readers["cpuacct.usage"]()), NANOSECONDS),
            user_seconds=in_units(user, self._ticks_per_second),
            system_seconds=in_units(system, self._ticks_per_second),
            core_seconds=parse_core_seconds(self._readers["cpuacct.usage_percpu"](), self._rare.cores),
            cores=self._rare.cores,
            periods=periods,
            throttled_periods=throttled,
            throttled_seconds=in_units(throttled_time, NANOSECONDS),
        )

    def _read_memory(self) -> MemoryUse:
        cache, rss, shmem, mapped, swap = counts_of(self._readers["memory.stat"](), MEMORY_KEYS)
        return MemoryUse(
            current_bytes=parse_number(self._readers["memory.usage_in_bytes"]()),
            anon_bytes=rss,
            file_bytes=cache,
            shmem_bytes=shmem,
            kernel_bytes=parse_number(self._readers["memory.kmem.usage_in_bytes"]()),
            mapped_file_bytes=mapped,
            swap_bytes=swap,
            peak_bytes=parse_number(self._readers["memory.max_usage_in_bytes"]()),
            limit_bytes=self._rare.memory_limit,
            swap_limit_bytes=self._rare.swap_limit,
            events=self._events.read() if self._events else {},
        )

    def _read_rare(self) -> _Rare:
        for folder in self._folders.values():
            folder.retry()
        memory, both = (self._limit("memory", name) for name in RARE_FILES["memory"])
        return _Rare(
            cores=parse_cores(self._readers["cpuset.effective_cpus"]()) or parse_cores(self._readers["cpuset.cpus"]()),
            memory_limit=memory,
            # v1 limits memory and swap together; the difference is what v2 calls the limit of swap.
            swap_limit=None if memory is None or both is None else max(0, both - memory),
            pids_limit=self._limit("pids", "pids.max"),
        )

    def _limit(self, controller: str, name: str) -> int | None:
        folder = self._folders.get(controller)
        if folder is None:
            return None
        top = f"{self._hierarchies[controller]}/{self._job}"
        return self._tools.limits.effective(self._readers[name](), folder.path, top, name)

    def _find_folders(self) -> None:
        for controller in (FILES.keys() & self._hierarchies.keys()) - self._folders.keys():
            path = f"{self._hierarchies[controller]}/{self._relative}"
            folder = Folder(path, self._tools.budget, is_spare=self._is_spare)
            if folder.is_gone:
                continue
            self._folders[controller] = folder
            for name in FILES[controller]:
                size = 4 * PAGE if name.endswith("percpu") else PAGE
                self._readers[name] = folder.open_file(name, size).read
            for name in RARE_FILES.get(controller, ()):
                self._readers[name] = folder.rare_file(name).read
            if controller == "memory":
                self._memory_node = Node(path, self._tools)
                self._events = EventCounts(self._memory_node, self._tools.clock)


def _all_names() -> list[str]:
    return [name for files in (FILES, RARE_FILES) for names in files.values() for name in names]
