# SPDX-License-Identifier: Apache-2.0
"""Find the job whose cgroup a process is in, from ``/proc/PID/cgroup``.

A user may own cgroups with any names (systemd delegates some), so what is found here is a claim: the caller checks that
the job runs on this node and belongs to the user of the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.sources.cgroup.names import JobName, parse_job, parse_scope, parse_slurm_folder

_SIZE_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Membership:
    """Hold the name of a job's folder, and of its node if several slurmd run on one machine."""

    job: JobName
    node_name: str = ""


def read_membership(procfs_root: Path, pid: int) -> Membership | None:
    """Return the job whose cgroup a process is in; None if it is gone or in no job's cgroup."""
    try:
        with (procfs_root / str(pid) / "cgroup").open("rb", buffering=0) as file:
            text = file.read(_SIZE_LIMIT_BYTES) or b""
    except OSError:
        return None
    return parse_membership(text.decode("utf-8", "surrogateescape"))


def parse_membership(text: str) -> Membership | None:
    """Parse the lines ``HIERARCHY:CONTROLLERS:PATH``; the first that names a job decides."""
    for line in text.splitlines():
        if (found := _find_job(line.split(":", 2)[-1].split("/"))) is not None:
            return found
    return None


def _find_job(folders: list[str]) -> Membership | None:
    for index, folder in enumerate(folders):
        node_name = parse_scope(folder)
        if node_name is None:
            node_name = parse_slurm_folder(folder)
        if node_name is None:
            continue
        # In v1 the user's folder lies between.
        for candidate in folders[index + 1 : index + 3]:
            if (job := parse_job(candidate)) is not None:
                return Membership(job, node_name)
    return None
