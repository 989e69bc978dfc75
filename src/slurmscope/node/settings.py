# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of the node agent itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import folder_path
from slurmscope.core.settings import choice, duration, setting
from slurmscope.core.units import parse_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Where the kernel file systems are mounted; a container may have those of the host elsewhere."""

    rootfs: Path = folder_path(Path("/"), "Mount point of the host's root file system.")
    cgroup: Path = folder_path(
        Path("/sys/fs/cgroup"), "Mount point of the cgroup file system, relative to path.rootfs."
    )
    procfs: Path = folder_path(Path("/proc"), "Mount point of procfs, relative to path.rootfs.")

    def below_root(self, path: Path) -> Path:
        """Return a path of the host as this process sees it."""
        return self.rootfs / path.relative_to("/") if path.is_absolute() else path


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySettings:
    """Who sees the jobs of others."""

    private_data: str = choice(
        "respect",
        ("respect", "ignore"),
        "PrivateData of slurm.conf: respect hides series by user, job or account that it hides from clients without a "
        "password or certificate; ignore exposes them.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """How jobs are tracked."""

    name: str = setting(
        "", "Slurm name of this node, for the label slurm_node; default is the short host name.", metavar="NAME"
    )
    interval: float = duration(
        1.0, "Minimum interval between readings of all jobs, regardless of the number of scrapes.", parse=parse_seconds
    )
    grace: float = duration(60.0, "How long the last values of an ended job are still exposed.", parse=parse_seconds)
    processes: bool = setting(True, "Read the processes of jobs: I/O, open files, threads and programs.")
    scratch: tuple[str, ...] = setting(
        ("scratch",), "Part of a path that identifies scratch file systems; repeatable.", metavar="WORD"
    )
