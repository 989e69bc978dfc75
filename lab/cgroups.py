# SPDX-License-Identifier: Apache-2.0
"""Find and remove the cgroups of the lab's own nodes, and leave all others alone.

A slurmd that shares its machine with others keeps its jobs below ``slurm_<node>`` in each hierarchy of cgroup v1, and
below ``system.slice/<node>_slurmstepd.scope`` in the one tree of cgroup v2.
"""

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from lab.errors import LabError
from lab.processes import Process, identify
from lab.waiting import wait_until

CGROUP_ROOT = Path("/sys/fs/cgroup")
# What proctrack, jobacct_gather and task limits need.
NEEDED_CONTROLLERS = ("freezer", "memory", "cpuacct", "cpuset")
REMOVE_SECONDS = 10.0
V1_PLUGIN = "cgroup/v1"
V2_PLUGIN = "cgroup/v2"


def find_plugin() -> str | None:
    """Name the plugin by which Slurm can use the cgroups of this machine, or none."""
    if has_cgroup_v1():
        return V1_PLUGIN
    return V2_PLUGIN if has_cgroup_v2() else None


def has_cgroup_v1(root: Path = CGROUP_ROOT, mounts: Path = Path("/proc/mounts")) -> bool:
    """Tell whether all controllers that Slurm needs are mounted as version 1, each in its own folder."""
    mounted = {
        Path(fields[1])
        for line in mounts.read_text(encoding="utf-8").splitlines()
        if len(fields := line.split()) > 2 and fields[2] == "cgroup"
    }
    # "cpuacct" may be a link to "cpu,cpuacct".
    return all((root / controller).resolve() in mounted for controller in NEEDED_CONTROLLERS)


def has_cgroup_v2(root: Path = CGROUP_ROOT, systemd: Path = Path("/run/systemd/system")) -> bool:
    """Tell whether the machine has version 2 only and leaves it to us.

    Under systemd it is not ours: systemd wants to be asked for every cgroup, and takes controllers away from those it
    does not know.
    """
    return (root / "cgroup.controllers").is_file() and not systemd.is_dir()


def find_node_cgroups(nodes: Iterable[str], root: Path = CGROUP_ROOT) -> list[Path]:
    """List the top folders that belong to these nodes, in every hierarchy."""
    if not root.is_dir():
        return []
    hierarchies = {entry.resolve() for entry in root.iterdir() if entry.is_dir()}
    wanted = [name for node in nodes for name in (f"slurm_{node}", f"{node}_slurmstepd.scope")]
    return sorted(path for base in hierarchies for name in wanted if (path := base / name).is_dir())


def find_members(cgroups: Iterable[Path]) -> Iterator[Process]:
    """Find the processes that are still inside these cgroups."""
    for cgroup in cgroups:
        for folder, _, _ in os.walk(cgroup):
            yield from _members(Path(folder))


def remove_cgroups(cgroups: Iterable[Path]) -> None:
    """Remove these cgroups with all below them; their processes must have ended."""
    for cgroup in cgroups:
        # The kernel lets an emptied cgroup go a moment after its last process.
        wait_until(functools.partial(_try_remove, cgroup), f"the removal of {cgroup}", timeout_seconds=REMOVE_SECONDS)


def _try_remove(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not top.exists()


def _members(folder: Path) -> Iterator[Process]:
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
            with contextlib.suppress(LabError):
                yield identify(int(pid))
