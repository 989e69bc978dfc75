# SPDX-License-Identifier: Apache-2.0
"""Detect which cgroup hierarchies this machine has, and where they are mounted."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

STANDARD_ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = frozenset({"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"})
# Controllers that a hierarchy needs for jobs; on a hybrid machine the v2 one usually has no controller at all.
MAIN_CONTROLLERS = frozenset({"cpu", "memory"})
MOST_MOUNT_BYTES = 4 << 20


class LayoutKind(enum.Enum):
    """Name the cgroup version that contains the jobs; the values are those of ``NodeJobs.layout``."""

    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLayout:
    """Hold the trees that may contain jobs: ``unified`` is the v2 tree, ``hierarchies`` the v1 trees by controller.

    On a hybrid machine jobs are in the v1 trees, since Slurm's v2 plugin does not start there.
    """

    kind: LayoutKind
    unified: Path | None = None
    hierarchies: Mapping[str, Path] = field(default_factory=dict)


def detect_layout(cgroup_root: Path, procfs_root: Path) -> CgroupLayout:
    """Detect the layout from the mount table or, where it does not list this root, from the names of its folders."""
    hierarchies = dict(_mounted_hierarchies(cgroup_root, procfs_root)) or dict(_named_hierarchies(cgroup_root))
    for unified in (cgroup_root, cgroup_root / "unified"):
        controllers = _read(unified / "cgroup.controllers")
        if controllers is None:
            continue
        # A v2 tree that has the controllers is used, whatever else is mounted.
        if unified == cgroup_root or MAIN_CONTROLLERS.issubset(controllers.split()):
            return CgroupLayout(kind=LayoutKind.V2, unified=unified)
        if hierarchies:
            return CgroupLayout(kind=LayoutKind.HYBRID, unified=unified, hierarchies=hierarchies)
        return CgroupLayout(kind=LayoutKind.UNSUPPORTED, unified=unified)
    if hierarchies:
        return CgroupLayout(kind=LayoutKind.V1, hierarchies=hierarchies)
    return CgroupLayout(kind=LayoutKind.UNSUPPORTED)


def _mounted_hierarchies(cgroup_root: Path, procfs_root: Path) -> Iterator[tuple[str, Path]]:
    # Not "mounts": that is a link to "self", which a copied or a foreign /proc may lack.
    table = _read(procfs_root / "self" / "mounts") or _read(procfs_root / "mounts") or ""
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 4 or fields[2] != "cgroup":
            continue
        folder = _moved(Path(fields[1].replace("\\040", " ")), cgroup_root)
        if folder is not None and folder.is_dir():
            yield from ((controller, folder) for controller in CONTROLLERS.intersection(fields[3].split(",")))


def _moved(mounted: Path, cgroup_root: Path) -> Path | None:
    """Return a mount point below our root, which may be a copy or another mount of the standard one."""
    if mounted.is_relative_to(cgroup_root):
        return mounted
    if mounted.is_relative_to(STANDARD_ROOT):
        return cgroup_root / mounted.relative_to(STANDARD_ROOT)
    return None


def _named_hierarchies(cgroup_root: Path) -> Iterator[tuple[str, Path]]:
    try:
        folders = sorted(path for path in cgroup_root.iterdir() if (path / "cgroup.procs").exists())
    except OSError:
        return
    for folder in folders:
        # Mounted together: "cpu,cpuacct", often with a link for each name.
        yield from ((controller, folder) for controller in CONTROLLERS.intersection(folder.name.split(",")))


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(MOST_MOUNT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
