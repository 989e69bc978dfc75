# SPDX-License-Identifier: Apache-2.0
"""Run jobs in the guest, and print as JSON what the kernel and slurmscope say about them.

First come short jobs, then one of known behaviour. It fills some memory, keeps a core busy for a while, writes its
process id and what it used by its own account, and then sleeps: from there on its numbers all but stand still. The
kernel is asked before and after our reader.
"""

import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab import ALICE, SlurmLab
from lab.cgroups import CGROUP_ROOT
from lab.guest_slurm import job_folder, start_lab, submit_and_wait
from slurmscope.node.cgroup.tree import CgroupTree, detect_layout
from slurmscope.node.job_use import CgroupUse, GroupKey
from tests.e2e.guest_short_jobs import run_short_jobs

MEBIBYTE = 1024 * 1024
MEMORY_BYTES = 100 * MEBIBYTE
LIMIT_BYTES = 300 * MEBIBYTE
BUSY_SECONDS = 3.0
# An emulated processor, on a machine that has more to do.
JOB_SECONDS = 90.0
PROGRAM = f"""
import os, time
begin = time.process_time()
filled = b"x" * {MEMORY_BYTES}
while time.process_time() - begin < {BUSY_SECONDS}:
    pass
end = time.process_time()
print(os.getpid(), end - begin, end, flush=True)
time.sleep(600)
"""
PROCFS = Path("/proc")
FILES = ("cgroup.procs", "cpu.stat", "memory.current", "memory.events", "memory.max", "memory.peak", "memory.stat")


def main() -> int:
    """Start Slurm, run the jobs and print what is to be seen."""
    lab = start_lab()
    short_jobs = run_short_jobs(lab)
    script = f"exec python3 -c {shlex.quote(PROGRAM)}"
    job = submit_and_wait(lab, f"--mem={LIMIT_BYTES // MEBIBYTE}M", "--output=said", script=script)
    pid, busy_seconds, whole_seconds = wait_until_told(lab)
    folder = job_folder(lab, job)
    seen = {
        "short_jobs": short_jobs,
        "job": job,
        "node": lab.nodes[0],
        "pid": pid,
        "busy_seconds": busy_seconds,
        "whole_seconds": whole_seconds,
        "mounts": (PROCFS / "self/mounts").read_text(),
        "status": (PROCFS / str(pid) / "status").read_text(),
        "cgroup": (PROCFS / str(pid) / "cgroup").read_text(),
        "names": sorted(path.name for path in folder.iterdir()),
        "before": read_kernel(folder),
        "ours": read_ours(),
        "after": read_kernel(folder),
    }
    lab.stop()
    seen["left"] = sorted(path.name for path in (CGROUP_ROOT / "system.slice").iterdir() if path.is_dir())
    print(json.dumps(seen))
    return 0


def wait_until_told(lab: SlurmLab) -> tuple[int, float, float]:
    """Wait for the line that the job writes when it is done: its process id, its busy time, all its processor time."""
    said = lab.layout.users / ALICE / "said"
    lab.wait_for(lambda: said.read_text().endswith("\n"), timeout=JOB_SECONDS, what="the job to tell its numbers")
    pid, busy_seconds, whole_seconds = said.read_text().split()
    return int(pid), float(busy_seconds), float(whole_seconds)


def read_kernel(top: Path) -> dict[str, dict[str, str]]:
    """Read the files of a cgroup and of all below it, by the path from the top."""
    folders = sorted(Path(folder) for folder, _, _ in os.walk(top))
    return {str(folder.relative_to(top)): {name: (folder / name).read_text() for name in FILES} for folder in folders}


def read_ours() -> dict[str, Any]:
    """Read the one job of this machine by slurmscope."""
    layout = detect_layout(CGROUP_ROOT, PROCFS)
    tree = CgroupTree(layout, PROCFS)
    try:
        [job] = tree.scan().values()
        task = job.read_groups(steps=False, tasks=True)[GroupKey(step="batch", task="0")]
        return {
            "layout": layout.kind.value,
            "job": job.key.job_id,
            "node": job.key.node_name,
            "uid": job.uid,
            "user_pids": list(job.members().user),
            "stepd_pids": list(job.members().stepd),
            "measures": tree.measures(),
            "whole": numbers_of(job.read()),
            "task": numbers_of(task),
        }
    finally:
        tree.close()


def numbers_of(use: CgroupUse | None) -> dict[str, Any]:
    """Give what JSON can hold of a cgroup's numbers."""
    return {} if use is None else {"cpu": asdict(use.cpu), "memory": asdict(use.memory)}


if __name__ == "__main__":
    sys.exit(main())
