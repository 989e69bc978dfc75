# SPDX-License-Identifier: Apache-2.0
"""Read the cgroup v1 folders of one job, step or task: one folder per controller.

On v2 the kernel counts events for a whole subtree. On v1 each folder counts only its own: a kill is counted in the
folder of the killed task, a reached limit in the folder that has the limit. Slurm removes these folders when a step
ends, so their last counts are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurmscope.node.cgroup.files import (
    NANOSECONDS,
    CheckedParser,
    count_of,
    in_units,
    line_keys,
    name_refaults,
    parse_blkio,
    parse_core_seconds,
    parse_cores,
    parse_numa,
    parse_number,
)
from slurmscope.node.cgroup.folders import FOLDER_SECONDS, NUMA_FILE, CgroupFolder, RereadTimer, SharedState
from slurmscope.node.cgroup.kept_files import Batch, DescriptorBudget, Folder, KeptFile
from slurmscope.node.job_use import BlockUse, CgroupUse, CpuUse, MemoryUse


class MemoryEvents:
    """Count the events of one folder and of all below it; the counts never decrease."""

    def __init__(self, cgroup: CgroupFolder, budget: DescriptorBudget, clock: Callable[[], float]) -> None:
        self._cgroup = cgroup
        self._budget = budget
        self._timer = RereadTimer(clock, cgroup.folder.path, FOLDER_SECONDS)
        self._counters: dict[CgroupFolder, _Counters] = {}
        self._batch = Batch(budget)
        self._texts: list[bytes] = []
        self._ended_limits = 0
        self._ended_kills = 0
        self._counts: dict[str, int] = {}

    def read(self) -> dict[str, int]:
        """Return the counts by their v2 names; counts that the kernel does not have are absent."""
        if not self._cgroup.is_settled() or self._timer.is_due():
            self._follow()
        texts = self._batch.read()
        if texts != self._texts:
            self._take(texts)
            if any(cgroup.folder.is_gone for cgroup in self._counters):  # another step may have started instead
                self._follow()
                self._take(self._batch.read())
            self._add_up()
        return self._counts

    def _follow(self) -> None:
        before, self._counters = self._counters, {}
        for cgroup in self._cgroup.walk() if self._cgroup.refresh() else ():
            known = before.pop(cgroup, None)
            self._counters[cgroup] = _Counters(cgroup) if known is None else known
        for counters in before.values():
            self._ended_limits += counters.limits or 0
            self._ended_kills += counters.kills or 0
        files = [file for counters in self._counters.values() for file in counters.files]
        self._batch = Batch(self._budget, files)
        self._texts = []

    def _take(self, texts: list[bytes]) -> None:
        self._texts = texts
        for counters, failures, oom_control in zip(self._counters.values(), texts[::2], texts[1::2], strict=True):
            counters.take(failures, oom_control)

    def _add_up(self) -> None:
        limits = [counters.limits for counters in self._counters.values() if counters.limits is not None]
        kills = [counters.kills for counters in self._counters.values() if counters.kills is not None]
        counts = dict(self._counts)
        if limits:
            counts["max"] = sum(limits) + self._ended_limits
        if kills:
            counts["oom_kill"] = sum(kills) + self._ended_kills
        self._counts = counts


class _Counters:
    """The counters of one folder; None where the kernel has none. A failed read keeps the last count."""

    __slots__ = ("files", "kills", "limits")

    def __init__(self, cgroup: CgroupFolder) -> None:
        self.limits: int | None = None
        self.kills: int | None = None
        self.files = tuple(cgroup.folder.open_file(name) for name in ("memory.failcnt", "memory.oom_control"))

    def take(self, failures: bytes, oom_control: bytes) -> None:
        limits = parse_number(failures)
        self.limits = self.limits if limits is None else limits
        # Kernels before 4.13 do not count kills.
        kills = count_of(oom_control, b"oom_kill")
        self.kills = self.kills if kills is None else kills


# The files that change all the time, with their controllers. Those of blkio that are not "recursive" leave out what
# the folders below did, and the processes of a job are all below it.
FILES = {
    "cpuacct.usage": "cpuacct",
    "memory.usage_in_bytes": "memory",
    "memory.stat": "memory",
    "memory.max_usage_in_bytes": "memory",
    "memory.kmem.usage_in_bytes": "memory",
    "blkio.throttle.io_service_bytes_recursive": "blkio",
    "blkio.throttle.io_serviced_recursive": "blkio",
}
# And those that stay the same while no process runs, as do the counts of memory events.
FILES_OF_RUNNING = {
    "cpuacct.stat": "cpuacct",
    "cpuacct.usage_percpu": "cpuacct",
    "cpu.stat": "cpu",
    "pids.current": "pids",
}
TIME_KEYS = line_keys("user", "system")
THROTTLING_KEYS = line_keys("nr_periods", "nr_throttled", "throttled_time")
# The keys without "total" count one folder only, and the processes of a job are all below it.
MEMORY_KEYS = line_keys(
    "total_cache", "total_rss", "total_shmem", "total_mapped_file", "total_workingset_refault_anon",
    "total_workingset_refault_file", "total_swap",
)  # fmt: skip
SELDOM_FILES = {
    "cpuset.effective_cpus": "cpuset",
    "cpuset.cpus": "cpuset",
    "memory.limit_in_bytes": "memory",
    "memory.memsw.limit_in_bytes": "memory",
    "pids.max": "pids",
}
# With the folders below, in pages.
NUMA_KINDS = (b"hierarchical_anon=", b"hierarchical_file=")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CONTROLLERS = frozenset((*FILES.values(), *FILES_OF_RUNNING.values(), *SELDOM_FILES.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeldomRead:
    """Values that seldom change."""

    cores: tuple[int, ...] | None = None
    memory_limit: int | None = None
    swap_limit: int | None = None
    pids_limit: int | None = None
    numa_bytes: Mapping[str, int] = field(default_factory=dict)


class V1Group:
    """Read a job, a step or a task of cgroup v1; a controller without a folder for it gives no values."""

    def __init__(
        self, hierarchies: Mapping[str, str], job: str, below: str, shared: SharedState, *, is_optional: bool
    ) -> None:
        """Set the roots by controller, the path of the job below each of them, and the path below that."""
        self._hierarchies = hierarchies
        self._job = job
        self._relative = f"{job}/{below}".rstrip("/")
        self._shared = shared
        self._is_optional = is_optional
        self._timer = RereadTimer(shared.clock, self._relative)
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._folders: dict[str, Folder] = {}
        self._files: dict[str, KeptFile] = {}
        self._batch = Batch(shared.budget, [None] * len(FILES))
        self._batch_of_running = Batch(shared.budget, [None] * len(FILES_OF_RUNNING))
        self._seldom_files: dict[str, KeptFile] = {}
        self._cpuset: Folder | None = None
        self._memory_cgroup: CgroupFolder | None = None
        self._events: MemoryEvents | None = None
        self._seldom = _SeldomRead()
        self._texts: tuple[list[bytes], list[bytes]] = ([], [])
        self._last: CgroupUse | None = None
        self._is_closed = False

    def read(self) -> CgroupUse | None:
        """Read everything now; None when the cgroup is gone from every hierarchy."""
        if self._is_closed:
            return None
        # A new job gets its folders one after the other.
        if self._timer.is_due() or not self._folders:
            self._find_folders()
            self._seldom = self._read_seldom()
            self._last = None
        texts, last = self._batch.read(), self._last
        if last is not None and texts[0] and texts[0] == self._texts[0][0]:
            of_running, events = self._texts[1], last.memory.events
        else:
            of_running, events = self._batch_of_running.read(), self._events.read() if self._events else {}
        unreadable = self._check_folders()
        if unreadable is None:
            return None
        both = (texts, of_running)
        if last is None or both != self._texts or events != last.memory.events or unreadable or last.unreadable:
            self._texts, self._last = both, self._parse(texts, of_running, events, unreadable)
        return self._last

    def _parse(
        self, texts: list[bytes], of_running: list[bytes], events: Mapping[str, int], unreadable: Mapping[str, str]
    ) -> CgroupUse:
        parser = CheckedParser()
        usage, *memory = texts[:5]
        *cpu, pids = of_running
        return CgroupUse(
            cpu=self._parse_cpu(parser, usage, *cpu),
            memory=self._parse_memory(parser, *memory, events=events),
            block=self._parse_block(*texts[5:]),
            pids=parser.number("pids.current", pids),
            pids_limit=self._seldom.pids_limit,
            unreadable={**unreadable, **parser.malformed},
        )

    def close(self) -> None:
        self._is_closed = True
        for folder in self._folders.values():
            folder.close()
        if self._memory_cgroup:
            self._memory_cgroup.close()

    def release(self) -> None:
        for folder in self._folders.values():
            folder.release()
        if self._memory_cgroup:
            self._memory_cgroup.release()

    def _check_folders(self) -> dict[str, str] | None:
        """Return the unreadable files; None when the cgroup is gone or was replaced."""
        unreadable: dict[str, str] = {}
        is_here = False
        for folder in self._folders.values():
            if folder.was_opened and folder.was_replaced():
                return None
            # No file of the cpuset was read in this pass, so its ``is_gone`` may be outdated.
            is_here = is_here or not (folder.is_gone or folder is self._cpuset)
            if folder.unreadable:
                unreadable.update(folder.unreadable)
        if not is_here:
            is_here = self._cpuset is not None and self._cpuset.count_links() > 0
        return unreadable if is_here else None

    def _parse_cpu(self, parser: CheckedParser, usage: bytes, stat: bytes, cores: bytes, throttling: bytes) -> CpuUse:
        user, system = parser.counts("cpuacct.stat", stat, TIME_KEYS)
        periods, throttled, throttled_time = parser.counts("cpu.stat", throttling, THROTTLING_KEYS)
        return CpuUse(
            total_seconds=in_units(parser.number("cpuacct.usage", usage), NANOSECONDS),
            user_seconds=in_units(user, self._ticks_per_second),
            system_seconds=in_units(system, self._ticks_per_second),
            core_seconds=parse_core_seconds(cores, self._seldom.cores),
            cores=self._seldom.cores,
            periods=periods,
            throttled_periods=throttled,
            throttled_seconds=in_units(throttled_time, NANOSECONDS),
        )

    def _parse_memory(
        self,
        parser: CheckedParser,
        usage: bytes,
        stat: bytes,
        highest: bytes,
        kernel: bytes,
        *,
        events: Mapping[str, int],
    ) -> MemoryUse:
        cache, rss, shmem, mapped, *refaults, swap = parser.counts("memory.stat", stat, MEMORY_KEYS)
        return MemoryUse(
            current_bytes=parser.number("memory.usage_in_bytes", usage),
            anon_bytes=rss,
            file_bytes=cache,
            shmem_bytes=shmem,
            kernel_bytes=parser.number("memory.kmem.usage_in_bytes", kernel),
            mapped_file_bytes=mapped,
            swap_bytes=swap,
            peak_bytes=parser.number("memory.max_usage_in_bytes", highest),
            limit_bytes=self._seldom.memory_limit,
            swap_limit_bytes=self._seldom.swap_limit,
            events=events,
            refaults=name_refaults(refaults),
            numa_bytes=self._seldom.numa_bytes,
        )

    def _parse_block(self, service_bytes: bytes, serviced: bytes) -> Mapping[str, BlockUse]:
        return parse_blkio(service_bytes, serviced) if service_bytes else {}

    def _read_seldom(self) -> _SeldomRead:
        for folder in self._folders.values():
            if folder.retry():
                self._batch.reset()
                self._batch_of_running.reset()
        memory, both = self._limit("memory.limit_in_bytes"), self._limit("memory.memsw.limit_in_bytes")
        cores = parse_cores(self._read("cpuset.effective_cpus")) or parse_cores(self._read("cpuset.cpus"))
        pages = parse_numa(self._read(NUMA_FILE), NUMA_KINDS)
        return _SeldomRead(
            cores=cores,
            memory_limit=memory,
            # v1 limits memory and swap together; the difference is what v2 calls the limit of swap.
            swap_limit=None if memory is None or both is None else max(0, both - memory),
            pids_limit=self._limit("pids.max"),
            numa_bytes=self._shared.split_memory({node: n * PAGE_BYTES for node, n in pages.items()}, cores),
        )

    def _read(self, name: str) -> bytes:
        file = self._seldom_files.get(name)
        return b"" if file is None else file.read()

    def _limit(self, name: str) -> int | None:
        own = self._read(name)
        if not own:
            return None
        controller = SELDOM_FILES[name]
        top = f"{self._hierarchies[controller]}/{self._job}"
        return self._shared.limits.effective(own, self._folders[controller].path, top, name)

    def _find_folders(self) -> None:
        new: dict[str, Folder] = {}
        for controller in (CONTROLLERS & self._hierarchies.keys()) - self._folders.keys():
            path = f"{self._hierarchies[controller]}/{self._relative}"
            folder = Folder(path, self._shared.budget, is_optional=self._is_optional)
            if not folder.is_gone:
                new[controller] = folder
        if new:
            self._open_files(new)

    def _open_files(self, new: Mapping[str, Folder]) -> None:
        self._folders.update(new)
        self._cpuset = self._folders.get("cpuset")
        for name, controller in (*FILES.items(), *FILES_OF_RUNNING.items()):
            if controller in new and name not in self._shared.unneeded:
                self._files[name] = new[controller].open_file(name)
        for name, controller in SELDOM_FILES.items():
            if controller in new:
                self._seldom_files[name] = new[controller].seldom_file(name)
        # Of steps and tasks it is not read.
        has_numa = self._shared.has_numa and self._relative == self._job
        if has_numa and "memory" in new:
            self._seldom_files[NUMA_FILE] = new["memory"].seldom_file(NUMA_FILE)
        self._batch = Batch(self._shared.budget, [self._files.get(name) for name in FILES])
        self._batch_of_running = Batch(self._shared.budget, [self._files.get(name) for name in FILES_OF_RUNNING])
        if "memory" in new:
            self._memory_cgroup = CgroupFolder(new["memory"].path, self._shared)
            self._events = MemoryEvents(self._memory_cgroup, self._shared.budget, self._shared.clock)
