# SPDX-License-Identifier: Apache-2.0
"""Read the cgroup v2 folder of one job, step or task."""

from __future__ import annotations

import functools

from slurmscope.model.job_use import CgroupUse, CpuUse, MemoryUse
from slurmscope.sources.cgroup.batch import Batch, Memo
from slurmscope.sources.cgroup.files import (
    MICROSECONDS,
    CheckedParser,
    in_units,
    line_keys,
    parse_cores,
    parse_counts,
    parse_io,
    parse_pressure,
)
from slurmscope.sources.cgroup.folders import RereadTimer
from slurmscope.sources.cgroup.kept_files import PAGE, Folder
from slurmscope.sources.cgroup.shared import SharedState

PRESSURES = ("cpu", "memory", "io")
FILES = (
    "cpu.stat",
    "memory.current",
    "memory.stat",
    "memory.peak",
    "memory.swap.current",
    "memory.events",
    *(f"{name}.pressure" for name in PRESSURES),
    "io.stat",
    "pids.current",
)
SIZES = {"memory.stat": 2 * PAGE, "io.stat": 4 * PAGE}
CPU_KEYS = line_keys("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec")
MEMORY_KEYS = line_keys("anon", "file", "kernel", "shmem", "file_mapped")


class V2Group:
    """Read a job, a step or a task of cgroup v2."""

    def __init__(self, folder: Folder, top: str, shared: SharedState) -> None:
        """Set the folder, which this object closes, and the path of its job's folder."""
        self._folder = folder
        self._limits = shared.limits
        self._top = top
        self._timer = RereadTimer(shared.clock, folder.path)
        self._batch = Batch(
            shared.budget,
            [None if name in shared.unneeded else folder.open_file(name, SIZES.get(name, PAGE)) for name in FILES],
        )
        self._parse_events = Memo(parse_counts)
        self._parse_pressures = [Memo(functools.partial(_parse_pressure, name)) for name in PRESSURES]
        self._parse_io = Memo(parse_io)
        self._seldom = {name: folder.seldom_file(name) for name in ("memory.max", "memory.swap.max", "pids.max")}
        self._effective_cores = folder.seldom_file("cpuset.cpus.effective")
        self._own_cores = [folder.seldom_file(name) for name in _cpuset_names(folder.path, top)]
        self._limit_of: dict[str, int | None] = {}
        self._cores: tuple[int, ...] | None = None

    def read(self) -> CgroupUse | None:
        """Read everything now; None when the cgroup is gone."""
        if self._timer.is_due():
            self._read_seldom()
        cpu, current, stat, peak, swap, events, *pressures, io, pids = self._batch.read()
        if self._folder.was_replaced() or self._folder.is_gone:
            return None
        parser = CheckedParser()
        return CgroupUse(
            cpu=self._parse_cpu(parser, cpu),
            memory=self._parse_memory(parser, current, stat, peak, swap, events),
            pressure_seconds=self._join_pressures(pressures),
            block=self._parse_io(io),
            pids=parser.number("pids.current", pids),
            pids_limit=self._limit_of["pids.max"],
            unreadable={**self._folder.unreadable, **parser.malformed},
        )

    def release(self) -> None:
        """Close all descriptors; the files stay readable."""
        self._folder.release()

    def close(self) -> None:
        """Close all descriptors permanently."""
        self._folder.close()

    def _parse_cpu(self, parser: CheckedParser, text: bytes) -> CpuUse:
        counts = parser.counts("cpu.stat", text, CPU_KEYS)
        total, user, system, periods, throttled, throttled_time = counts
        return CpuUse(
            total_seconds=in_units(total, MICROSECONDS),
            user_seconds=in_units(user, MICROSECONDS),
            system_seconds=in_units(system, MICROSECONDS),
            cores=self._cores,
            periods=periods,
            throttled_periods=throttled,
            throttled_seconds=in_units(throttled_time, MICROSECONDS),
        )

    def _parse_memory(
        self, parser: CheckedParser, current: bytes, stat: bytes, peak: bytes, swap: bytes, events: bytes
    ) -> MemoryUse:
        anon, file, kernel, shmem, mapped = parser.counts("memory.stat", stat, MEMORY_KEYS)
        return MemoryUse(
            current_bytes=parser.number("memory.current", current),
            anon_bytes=anon,
            file_bytes=file,
            shmem_bytes=shmem,
            kernel_bytes=kernel,
            mapped_file_bytes=mapped,
            swap_bytes=parser.number("memory.swap.current", swap),
            peak_bytes=parser.number("memory.peak", peak),
            limit_bytes=self._limit_of["memory.max"],
            swap_limit_bytes=self._limit_of["memory.swap.max"],
            events=self._parse_events(events),
        )

    def _join_pressures(self, texts: list[bytes]) -> dict[tuple[str, str], float]:
        seconds: dict[tuple[str, str], float] = {}
        for parse, text in zip(self._parse_pressures, texts, strict=True):
            seconds.update(parse(text))
        return seconds

    def _read_seldom(self) -> None:
        if self._folder.retry():
            self._batch.reset()
        path = self._folder.path
        self._limit_of = {
            name: self._limits.effective(file.read(), path, self._top, name) for name, file in self._seldom.items()
        }
        # Without a set of its own, here or in a folder up to the job's, the cgroup may use every core of the node:
        # it has no allocation.
        is_bound = any(file.read().strip() for file in self._own_cores)
        self._cores = parse_cores(self._effective_cores.read()) if is_bound else None


def _parse_pressure(name: str, text: bytes) -> dict[tuple[str, str], float]:
    return {(name, kind): seconds for kind, seconds in parse_pressure(text).items()}


def _cpuset_names(path: str, top: str) -> list[str]:
    """Name the core sets of a folder and of those above it, up to its job's."""
    levels = path.removeprefix(top).count("/")
    return [f"{'../' * level}cpuset.cpus" for level in range(levels + 1)]
