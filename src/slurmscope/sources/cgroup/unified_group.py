# SPDX-License-Identifier: Apache-2.0
"""Read all that one cgroup v2 folder tells."""

from __future__ import annotations

from slurmscope.model.job_use import CgroupUse, CpuUse, MemoryUse
from slurmscope.sources.cgroup.files import (
    MICROSECONDS,
    counts_of,
    in_units,
    line_keys,
    parse_cores,
    parse_counts,
    parse_io,
    parse_number,
    parse_pressure,
)
from slurmscope.sources.cgroup.kept import PAGE, Folder
from slurmscope.sources.cgroup.pace import Pace
from slurmscope.sources.cgroup.parsed import ParsedFile
from slurmscope.sources.cgroup.places import Tools

PRESSURES = ("cpu", "memory", "io")
CPU_KEYS = line_keys("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec")
MEMORY_KEYS = line_keys("anon", "file", "kernel", "shmem", "file_mapped")


class UnifiedGroup:
    """Read a job, a step or a task of cgroup v2."""

    def __init__(self, folder: Folder, top: str, tools: Tools) -> None:
        """Take the folder, which becomes ours, and its job's folder."""
        self._folder = folder
        self._limits = tools.limits
        self._top = top
        self._pace = Pace(tools.clock, folder.path)
        self._cpu_stat = folder.open_file("cpu.stat")
        self._current = folder.open_file("memory.current")
        self._stat = folder.open_file("memory.stat", 2 * PAGE)
        self._peak = folder.open_file("memory.peak")
        self._swap = folder.open_file("memory.swap.current")
        self._events = ParsedFile(folder.open_file("memory.events"), parse_counts)
        self._pressures = [_open_pressure(folder, name) for name in PRESSURES]
        self._io = ParsedFile(folder.open_file("io.stat", 4 * PAGE), parse_io)
        self._pids = folder.open_file("pids.current")
        self._rare = {name: folder.rare_file(name) for name in ("memory.max", "memory.swap.max", "pids.max")}
        self._effective_cores = folder.rare_file("cpuset.cpus.effective")
        self._own_cores = [folder.rare_file(name) for name in _cpuset_names(folder.path, top)]
        self._limit_of: dict[str, int | None] = {}
        self._cores: tuple[int, ...] | None = None

    def read(self) -> CgroupUse | None:
        """Read everything now; None when the cgroup is gone."""
        if self._pace.is_due():
            self._read_rare()
        cpu = self._read_cpu()
        memory = self._read_memory()
        pressure: dict[tuple[str, str], float] = {}
        for file in self._pressures:
            pressure.update(file.read())
        block = self._io.read()
        pids = parse_number(self._pids.read())
        if self._folder.was_replaced() or self._folder.is_gone:
            return None
        return CgroupUse(
            cpu=cpu,
            memory=memory,
            pressure_seconds=pressure,
            block=block,
            pids=pids,
            pids_limit=self._limit_of["pids.max"],
            unreadable=dict(self._folder.unreadable),
        )

    def release(self) -> None:
        """Close all descriptors; everything stays readable."""
        self._folder.release()

    def close(self) -> None:
        """Close all descriptors for good."""
        self._folder.close()

    def _read_cpu(self) -> CpuUse:
        total, user, system, periods, throttled, throttled_time = counts_of(self._cpu_stat.read(), CPU_KEYS)
        return CpuUse(
            total_seconds=in_units(total, MICROSECONDS),
            user_seconds=in_units(user, MICROSECONDS),
            system_seconds=in_units(system, MICROSECONDS),
            cores=self._cores,
            periods=periods,
            throttled_periods=throttled,
            throttled_seconds=in_units(throttled_time, MICROSECONDS),
        )

    def _read_memory(self) -> MemoryUse:
        anon, file, kernel, shmem, mapped = counts_of(self._stat.read(), MEMORY_KEYS)
        return MemoryUse(
            current_bytes=parse_number(self._current.read()),
            anon_bytes=anon,
            file_bytes=file,
            shmem_bytes=shmem,
            kernel_bytes=kernel,
            mapped_file_bytes=mapped,
            swap_bytes=parse_number(self._swap.read()),
            peak_bytes=parse_number(self._peak.read()),
            limit_bytes=self._limit_of["memory.max"],
            swap_limit_bytes=self._limit_of["memory.swap.max"],
            events=self._events.read(),
        )

    def _read_rare(self) -> None:
        self._folder.retry()
        path = self._folder.path
        self._limit_of = {
            name: self._limits.effective(file.read(), path, self._top, name) for name, file in self._rare.items()
        }
        # Without a set of its own, here or in a folder up to the job's, the cgroup may use every core of the node:
        # nothing was given to it.
        is_bound = any(file.read().strip() for file in self._own_cores)
        self._cores = parse_cores(self._effective_cores.read()) if is_bound else None


def _open_pressure(folder: Folder, name: str) -> ParsedFile[dict[tuple[str, str], float]]:
    def parse(data: bytes) -> dict[tuple[str, str], float]:
        return {(name, kind): seconds for kind, seconds in parse_pressure(data).items()}

    return ParsedFile(folder.open_file(f"{name}.pressure"), parse)


def _cpuset_names(path: str, top: str) -> list[str]:
    """Name the core sets of a folder and of those above it, up to its job's."""
    levels = path.removeprefix(top).count("/")
    return [f"{'../' * level}cpuset.cpus" for level in range(levels + 1)]
