# SPDX-License-Identifier: Apache-2.0
"""Add up what the processes of one job have open and what their threads do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from slurmscope.sources.procfs.process import OpenFiles
from slurmscope.sources.procfs.stat import STATES, UNKNOWN_STATE, ProcessSample, ThreadSample

# What a descriptor may point at that has a path and is no file of anybody.
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:", "/anon_hugepage")
_SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - looked for, never written to


class ThreadTally:
    """Count threads by state and by program, and those that run by the core they run on."""

    def __init__(self) -> None:
        self.in_state: Counter[str] = Counter()
        self.of_program: Counter[str] = Counter()
        self.on_core: Counter[int] = Counter()

    def add(self, sample: ProcessSample, threads: Sequence[ThreadSample] | None = None) -> None:
        """Take one process, and its threads where they were read; those that were not are of unknown state."""
        self.of_program[sample.command] += sample.threads
        if threads is None and sample.threads <= 1:
            self._add_one(sample.state, sample.processor)
            return
        for thread in threads or ():
            self._add_one(thread.state, thread.processor)
        unread = sample.threads - len(threads or ())
        if unread > 0:
            self.in_state[UNKNOWN_STATE] += unread

    def _add_one(self, state: str, processor: int) -> None:
        self.in_state[STATES.get(state, UNKNOWN_STATE)] += 1
        # Where a sleeping thread ran last says nothing about the load of that core.
        if state == "R":
            self.on_core[processor] += 1


class FileTally:
    """Count descriptors and the different files behind them; no more than ``room`` of these are told apart."""

    def __init__(self, scratch_words: Iterable[str], room: int) -> None:
        self._scratch_words = tuple(scratch_words)
        self._targets: set[str] = set()
        self._has_targets = True
        self.processes = 0
        self.open_files = 0
        self.worst_ratio: float | None = None
        self.room = room

    def add(self, files: OpenFiles, limit: int | None) -> None:
        """Take one process with its limit of open files."""
        self.processes += 1
        self.open_files += files.number
        if limit:
            self.worst_ratio = max(files.number / limit, self.worst_ratio or 0.0)
        if files.targets is None:
            self._has_targets = False
        else:
            self._targets.update(files.targets)
            self.room = max(0, self.room - len(files.targets))

    @property
    def distinct_files(self) -> int | None:
        """Return how many different files are open, deleted ones too; devices, pipes and sockets are none.

        An open directory counts: telling it from a file would mean to touch it, and that may hang.
        """
        return sum(map(is_file, self._targets)) if self._has_targets else None

    @property
    def uses_scratch(self) -> bool | None:
        """Tell whether the path of an open file holds one of the words for scratch space."""
        if not self._has_targets:
            return None
        return any(word in target for target in self._targets if target[:1] == "/" for word in self._scratch_words)


def is_file(target: str) -> bool:
    """Tell by its path whether a descriptor's target is a file."""
    return target[:1] == "/" and (not target.startswith(_NO_FILES) or target.startswith(_SHARED_MEMORY))
