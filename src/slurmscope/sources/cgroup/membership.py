# SPDX-License-Identifier: Apache-2.0
"""Find the job whose cgroup a process is in, from ``/proc/PID/cgroup``.

A user may own cgroups with any names (systemd delegates some), so what is found here is a claim: the caller checks that
the job runs on this node and belongs to the user of the process.
"""

from __future__ import annotations

from pathlib import Path

from slurmscope.sources.cgroup.names import JobName, parse_job, parse_scope, parse_slurm_folder

_SIZE_LIMIT_BYTES = 64 * 1024


def read_job_name(procfs_root: Path, pid: int) -> JobName | None:
    """Return the name of the job's folder; None if the process is gone or in no job's cgroup."""
    try:
        with (procfs_root / str(pid) / "cgroup").open("rb", buffering=0) as file:
            text = file.read(_SIZE_LIMIT_BYTES) or b""
    except OSError:
        return None
    return parse_membership(text.decode("utf-8", "surrogateescape"))


def parse_membership(text: str) -> JobName | None:
    """Parse the lines ``HIERARCHY:CONTROLLERS:PATH``; the first that names a job decides."""
    for line in text.splitlines():
        if (name := _job_in(line.split(":", 2)[-1].split("/"))) is not None:
            return name
    return None


def _job_in(folders: list[str]) -> JobName | None:
    for index, folder in enumerate(folders):
        if parse_scope(folder) is None and parse_slurm_folder(folder) is None:
            continue
        # In v1 the user's folder lies between.
        for candidate in folders[index + 1 : index + 3]:
            if (name := parse_job(candidate)) is not None:
                return name
    return None
