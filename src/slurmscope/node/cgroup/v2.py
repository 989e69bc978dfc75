# SPDX-License-Identifier: Apache-2.0
"""Find the folders of jobs, and of their steps and tasks, in cgroup v2."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmscope.node.cgroup.files import (
    MICROSECONDS,
    CheckedParser,
    count_of,
    in_units,
    line_keys,
    name_refaults,
    parse_cores,
    parse_counts,
    parse_io,
    parse_numa,
    parse_pressure,
)
from slurmscope.node.cgroup.folders import (
    NUMA_FILE,
    CgroupFolder,
    Members,
    RereadTimer,
    SharedState,
    has_members,
    list_members,
    pick_by_folder,
)
from slurmscope.node.cgroup.job import (
    SEARCH_SECONDS,
    WAIT_SECONDS,
    CgroupReader,
    FoundJob,
    JobParent,
    KnownFolders,
    trusted_links,
)
from slurmscope.node.cgroup.kept_files import PAGE, Batch, Folder, Memo
from slurmscope.node.cgroup.names import USER_FOLDER, parse_scope
from slurmscope.node.job_use import CgroupUse, CpuUse, MemoryUse
from slurmscope.node.kernel_files import read_bytes

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
NUMA_KINDS = (b"anon ", b"file ")
SIZES = {"memory.stat": 2 * PAGE, "io.stat": 4 * PAGE}
CPU_KEYS = line_keys("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec")
MEMORY_KEYS = line_keys(
    "anon", "file", "kernel", "shmem", "file_mapped", "workingset_refault_anon", "workingset_refault_file"
)


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
        # Of steps and tasks it is not read.
        has_numa = shared.has_numa and folder.path == top
        self._numa_file = folder.seldom_file(NUMA_FILE) if has_numa else None
        self._numa_bytes: dict[str, int] = {}
        self._split_memory = shared.split_memory
        self._texts: list[bytes] = []
        self._last: CgroupUse | None = None

    def read(self) -> CgroupUse | None:
        if self._timer.is_due():
            self._read_seldom()
            self._last = None
        texts = self._batch.read()
        if self._folder.was_replaced() or self._folder.is_gone:
            return None
        if self._last is None or texts != self._texts or self._folder.unreadable or self._last.unreadable:
            self._texts, self._last = texts, self._parse(texts)
        return self._last

    def _parse(self, texts: list[bytes]) -> CgroupUse:
        cpu, current, stat, peak, swap, events, *pressures, io, pids = texts
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
        self._folder.release()

    def close(self) -> None:
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
        anon, file, kernel, shmem, mapped, *refaults = parser.counts("memory.stat", stat, MEMORY_KEYS)
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
            refaults=name_refaults(refaults),
            numa_bytes=self._numa_bytes,
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
        if self._numa_file is not None:
            self._numa_bytes = self._split_memory(parse_numa(self._numa_file.read(), NUMA_KINDS), self._cores)


def _parse_pressure(name: str, text: bytes) -> dict[tuple[str, str], float]:
    return {(name, kind): seconds for kind, seconds in parse_pressure(text).items()}


def _cpuset_names(path: str, top: str) -> list[str]:
    """Name the core sets of a folder and of those above it, up to its job's."""
    levels = path.removeprefix(top).count("/")
    return [f"{'../' * level}cpuset.cpus" for level in range(levels + 1)]


# slurmd in a container has its scope below that of the container, which may be below a pod's.
MOST_LEVELS = 7
MOST_FOLDERS = 5_000


class V2Finder:
    """Find jobs in cgroup v2: in scopes of slurmstepd, anywhere in the tree."""

    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        self.folders = KnownFolders()
        self._root = str(root)
        self._clock = clock
        self._search_at = -1.0
        self._scopes: dict[str, str] = {}

    @property
    def scopes(self) -> int:
        return len(self._scopes)

    def find(self) -> Iterator[FoundJob]:
        """Yield the folder of every job, ordered by path."""
        if self._clock() >= self._search_at:
            self._search()
        self.folders.begin()
        for scope, node_name in self._scopes.items():
            jobs = list(self.folders.jobs_in(self._parent(scope, node_name)))
            if not jobs and not trusted_links(scope):  # slurmd has left it
                self._search_at = -1.0
            yield from jobs

    def parents(self) -> list[Path]:
        return sorted({path for scope in self._scopes for path in (Path(scope), Path(scope).parent)})

    def measures(self) -> dict[str, bool]:
        enabled: set[str] = set()
        has_pressure = False
        for scope in map(Path, self._scopes):
            try:
                enabled.update((scope / "cgroup.subtree_control").read_text("ascii").split())
            except (OSError, UnicodeDecodeError):
                continue
            # With psi=0 the file may exist, but reading it fails.
            has_pressure = has_pressure or bool(parse_pressure(read_bytes(scope / "cpu.pressure", PAGE)))
        # The CPU time of v2 needs no controller.
        known = {name: name in enabled for name in ("cpuset", "memory", "io", "pids")}
        return {"cpu": bool(self._scopes), **known, "pressure": has_pressure}

    def _search(self) -> None:
        found: dict[str, str] = {}
        waiting = deque([(self._root, 0)])  # breadth first: the tree may have more folders than the limit
        for _ in range(MOST_FOLDERS):
            if not waiting:
                break
            path, level = waiting.popleft()
            for name in self.folders.list_folder(path):
                below = f"{path}/{name}"
                node_name = parse_scope(name)
                links = trusted_links(below)
                if node_name is not None and links:
                    found[below] = node_name
                elif links not in (0, 2) and level < MOST_LEVELS:  # 2: nothing is below
                    waiting.append((below, level + 1))
        self._scopes = dict(sorted(found.items()))
        self._search_at = self._clock() + (SEARCH_SECONDS if found else WAIT_SECONDS)

    def _parent(self, scope: str, node_name: str) -> JobParent:
        return JobParent(path=scope, relative=scope.removeprefix(f"{self._root}/"), node_name=node_name)


class V2JobFolders:
    """Access the folder of one job in cgroup v2."""

    def __init__(self, path: str, shared: SharedState) -> None:
        self._path = path
        self._shared = shared
        self._cgroup = CgroupFolder(path, shared)
        self._events = self._cgroup.folder.open_file("cgroup.events")
        self._stat = self._cgroup.folder.open_file("cgroup.stat")
        self._descendants: int | None = None

    def open_group(self, relative: str, *, is_optional: bool) -> CgroupReader:
        folder = Folder(f"{self._path}/{relative}".rstrip("/"), self._shared.budget, is_optional=is_optional)
        return V2Group(folder, self._path, self._shared)

    def steps(self) -> list[CgroupFolder]:
        self._follow()
        return self._cgroup.children() if self._cgroup.refresh() else []

    def tasks(self, step: CgroupFolder) -> tuple[str, list[CgroupFolder]]:
        user = step.child(USER_FOLDER)
        return f"{USER_FOLDER}/", user.children() if user else []

    def members(self) -> Members:
        self._follow()
        return list_members(self._cgroup, pick_by_folder, self._shared.shows_jobs)

    def _follow(self) -> None:
        """Look for new folders when the kernel counts others than before: a login adopted into a job gets its own."""
        descendants = count_of(self._stat.read(), b"nr_descendants")
        if descendants != self._descendants:
            self._descendants = descendants
            self._cgroup.look_again()

    def has_processes(self) -> bool:
        """Return whether there is any process; the kernel counts those of all folders below."""
        populated = count_of(self._events.read(), b"populated")
        return has_members(self._cgroup, self._shared.shows_jobs) if populated is None else populated > 0

    def release(self) -> None:
        self._cgroup.release()

    def close(self) -> None:
        self._cgroup.close()
