# SPDX-License-Identifier: Apache-2.0
"""Provide captured cgroup trees and a clock that stands still."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmscope.node.cgroup.job import JobCgroup
from slurmscope.node.cgroup.tree import CgroupTree, detect_layout
from slurmscope.node.job_use import JobKey
from tests.fixtures.cgroup.make import unpack

N1 = JobKey(1, "n1")
N2 = JobKey(1, "n2")


class Clock:
    """Fake a monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Machine:
    """Provide the captured folders of a machine, and the tree that reads them."""

    def __init__(self, root: Path, descriptors: int) -> None:
        self.cgroups = root / "sys" / "fs" / "cgroup"
        self.procfs = root / "proc"
        self.clock = Clock()
        self.descriptors = descriptors
        self._trees: list[CgroupTree] = []

    @property
    def tree(self) -> CgroupTree:
        """Open the tree at first use, so that a test can change files before."""
        if not self._trees:
            layout = detect_layout(self.cgroups, self.procfs)
            self._trees.append(
                CgroupTree(layout, self.procfs, descriptors=self.descriptors, clock=self.clock),
            )
        return self._trees[0]

    def job(self, key: JobKey = N1) -> JobCgroup:
        """Return one of the current jobs."""
        return self.tree.scan()[key]

    def write(self, path: str, text: str) -> None:
        """Write a file below the cgroup root, with the folders that lead to it."""
        target = self.cgroups / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def lines(self, path: str) -> dict[str, int]:
        """Read a file of "key number" lines, by other means than the code under test."""
        words = (self.cgroups / path).read_text().split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))

    def number(self, path: str) -> int:
        """Read a file with one number."""
        return int((self.cgroups / path).read_text())

    def close(self) -> None:
        """Close what was opened."""
        for tree in self._trees:
            tree.close()


def count_descriptors() -> int:
    """Count the open descriptors of this process."""
    return len([*Path("/proc/self/fd").iterdir()])


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Lower the limit so that no further descriptor can be opened."""
    lowest_free = os.dup(0)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


MakeMachine = Callable[[str, int], Machine]


@pytest.fixture
def make_machine(tmp_path: Path) -> Iterator[MakeMachine]:
    """Unpack a capture; the second argument is how many descriptors may stay open."""
    machines: list[Machine] = []

    def make(name: str, descriptors: int) -> Machine:
        machines.append(Machine(unpack(name, tmp_path / str(len(machines))), descriptors))
        return machines[-1]

    yield make
    for machine in machines:
        machine.close()


@pytest.fixture
def v1(make_machine: MakeMachine) -> Machine:
    """Return a node with cgroup v1 and one job with steps batch, extern and 0; no file stays open."""
    return make_machine("v1-slurm-22.05", 0)


@pytest.fixture
def v2(make_machine: MakeMachine) -> Machine:
    """Return a node with cgroup v2, two slurmd daemons and one job on both; no file stays open."""
    return make_machine("v2-slurm-22.05", 0)
