# SPDX-License-Identifier: Apache-2.0
"""Let an agent see a node with simulated GPUs: a driver in a namespace of its own, and jobs as files of cgroup v2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

# A folder that the driver makes is the sign that it is loaded.
_DRIVER = 'mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia && export LD_LIBRARY_PATH="$0" && exec "$@"'


def with_driver(library: Path) -> tuple[str, ...]:
    """Return the prefix of a command that sees NVIDIA's driver with this library; only root may run it."""
    return ("unshare", "--mount", "--", "sh", "-c", _DRIVER, str(library))


def make_cgroups(root: Path, pids: Sequence[int], files: Mapping[str, str]) -> Path:
    """Make jobs 1, 2, ... with one process each, and a step and a task; ``files`` are in all of their groups."""
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory\n")
    for number, pid in enumerate(pids, 1):
        top = root / f"system.slice/slurmstepd.scope/job_{number}"
        for group in (top, *(top / below for below in ("step_batch", "step_batch/user", "step_batch/user/task_0"))):
            group.mkdir(parents=True)
            for name, text in files.items():
                (group / name).write_text(text)
        (top / "step_batch/user/task_0/cgroup.procs").write_text(f"{pid}\n")
    return root
