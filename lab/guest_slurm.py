# SPDX-License-Identifier: Apache-2.0
"""Start Slurm inside the guest, where its jobs live in a tree of cgroup v2, and find them there.

    python -m lab.guest -- python3 -m lab.guest_slurm

shows the tree with one job. From a test, run a module of the repository in the guest that starts the lab by this one.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.cgroups import CGROUP_ROOT, V2_PLUGIN, find_plugin
from lab.config import LabSettings
from lab.errors import LabError
from lab.guest import GuestRun, run_in_guest
from lab.slurm import SlurmLab
from lab.users import ALICE

REPOSITORY = Path(__file__).resolve().parent.parent
# The guest's own, as fresh and as short-lived as itself.
FOLDER = Path("/run/lab")


def run_module_in_guest(module: str, *arguments: str, timeout: float, shared_folders: Sequence[Path] = ()) -> GuestRun:
    """Run a module of this repository in a guest, by the Python that runs us."""
    argv = [sys.executable, "-m", module, *arguments]
    return run_in_guest(argv, timeout=timeout, cwd=REPOSITORY, shared_folders=shared_folders)


def start_lab(node_count: int = 1) -> SlurmLab:
    """Start a cluster in the guest; nobody has to end it, it goes with the guest.

    There is no accounting: an emulated database alone would take half a minute to start.
    """
    if find_plugin() != V2_PLUGIN:
        raise LabError("this is not the guest: the machine has other cgroups than those of version 2, or systemd")
    lab = SlurmLab(FOLDER, LabSettings(node_count=node_count, has_accounting=False))
    lab.start()
    return lab


def job_folder(lab: SlurmLab, job: int, node: str | None = None) -> Path:
    """Give the cgroup of a job on a node, by default on the first one."""
    return CGROUP_ROOT / "system.slice" / f"{node or lab.nodes[0]}_slurmstepd.scope" / f"job_{job}"


def submit_and_wait(lab: SlurmLab, *sbatch_arguments: str, script: str) -> int:
    """Submit a job for the first node and wait until its batch script is in its cgroup."""
    job = lab.submit(ALICE, f"--nodelist={lab.nodes[0]}", *sbatch_arguments, script=script)
    members = job_folder(lab, job) / "step_batch/user/task_0/cgroup.procs"
    lab.wait_for(lambda: members.is_file() and members.read_text(encoding="ascii"), what=f"processes in {members}")
    return job


def main() -> int:
    """Show the cgroups of a small job."""
    lab = start_lab()
    top = job_folder(lab, submit_and_wait(lab, script="sleep 600")).parent
    for folder, _, _ in sorted(os.walk(top)):
        pids = (Path(folder) / "cgroup.procs").read_text(encoding="ascii").split()
        print(folder, *pids)
    return 0


if __name__ == "__main__":
    sys.exit(main())
