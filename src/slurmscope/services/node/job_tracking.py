# SPDX-License-Identifier: Apache-2.0
"""Put together what tracks the jobs of this node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.services.node.cpu_budget import CpuBudget
from slurmscope.services.node.job_finding import JobFinder
from slurmscope.services.node.job_reading import JobMeter, ReadingOptions
from slurmscope.services.node.job_registry import JobRegistry
from slurmscope.services.node.job_tracker import STORM_BURST_SECONDS, STORM_SHARE, JobTracker
from slurmscope.sources.cgroup import CgroupTree, detect_layout
from slurmscope.sources.machine.changes import ChangeWatcher
from slurmscope.sources.procfs.reader import ProcessReader
from slurmscope.sources.procfs.stepd_jobs import StepdTree

# CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE: the two that reading the I/O of others needs.
NEEDED_CAPABILITIES = 1 << 2 | 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """Say where to look, what to read, and how long an ended job is served."""

    cgroup_root: Path = Path("/sys/fs/cgroup")
    procfs_root: Path = Path("/proc")
    grace_seconds: float = 60.0
    descriptors: int = 4096
    storm_share: float = STORM_SHARE
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@contextmanager
def open_job_tracker(options: TrackingOptions) -> Iterator[JobTracker]:
    """Track jobs until the end of the block."""
    with ExitStack() as stack:
        reader = ProcessReader(options.procfs_root)
        stack.callback(reader.close)
        layout = detect_layout(options.cgroup_root, options.procfs_root)
        tree = CgroupTree(layout, options.procfs_root, descriptors=options.descriptors)
        stack.callback(tree.close)
        finder = JobFinder(tree, StepdTree(reader))
        book = JobRegistry(finder, lambda: JobMeter(reader, options.reading), grace_seconds=options.grace_seconds)

        sources = ProcessSources(reader)

        def available() -> dict[str, bool]:
            measures = {f"cgroup_{name}": can for name, can in tree.measures().items()}
            return measures | sources.available(has_jobs=bool(book.live))

        credit = CpuBudget(options.storm_share, STORM_BURST_SECONDS)
        yield stack.enter_context(JobTracker(finder, book, ChangeWatcher(), available=available, credit=credit))


class ProcessSources:
    """Tell which files of other users' processes can be read."""

    def __init__(self, reader: ProcessReader) -> None:
        self._reader = reader
        self._counts: Counter[str] = Counter()
        self._refused = set() if has_capabilities(reader.root) else {"io", "fd", "environ"}

    def available(self, *, has_jobs: bool) -> dict[str, bool]:
        """Go by what was refused since the last time; without jobs, nothing was tried and the last answer stands."""
        counts = Counter(self._reader.denials.counts)
        if has_jobs:
            self._refused = set(counts - self._counts)
        self._counts = counts
        return {name: not self._refused & {"process", *files} for name, files in _FILES_OF.items()}


_FILES_OF = {
    "processes": ("stat",),
    "process_io": ("io",),
    "process_files": ("fd", "fd_target"),
    "process_environment": ("environ",),
}


def has_capabilities(procfs_root: Path) -> bool:
    """Tell whether this process may look into those of other users."""
    try:
        status = (procfs_root / "self" / "status").read_text("ascii", "replace")
    except OSError:
        return False
    match = re.search(r"(?m)^CapEff:\s*([0-9a-f]+)$", status)
    return match is not None and int(match[1], 16) & NEEDED_CAPABILITIES == NEEDED_CAPABILITIES
