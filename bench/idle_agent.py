# SPDX-License-Identifier: Apache-2.0
"""Measure the CPU time of a node agent on a machine without cgroups of Slurm and without jobs.

Such a machine has to be polled, since no event reports that a slurmstepd started. As root, the agent runs in a PID
namespace of its own, with a program called slurmd and a hundred others, all asleep: this machine is not idle. The agent
is compared with a scan of these processes at each poll. Its CPU time is that of the scheduler, in nanoseconds: clock
ticks are too coarse.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.measure import PATIENCE_SECONDS, judge_ratio, least_seconds, running_exporter
from slurmscope.services.node.job_tracker import POLL_SECONDS
from slurmscope.sources.procfs.reader import ProcessReader
from slurmscope.sources.procfs.stepd_jobs import StepdTree

SETTLE_SECONDS = 5.0
IDLE_SECONDS = 30.0
# The agent wakes up with cold caches, the scans that it is compared with run one after another.
RATIO_LIMIT = 1.0


SLEEPERS = 100
# Runs in the namespace: what is asleep there, and then the agent or a measurement instead of the shell.
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
SLEEP = 'cp /bin/sleep "$0/slurmd"; "$0/slurmd" 900 & for i in $(seq {count}); do sleep 900 & done; exec "$@"'


def main() -> int:
    """Print the share of a core and return 1 when it is too much."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = (*NAMESPACE, "sh", "-c", SLEEP.format(count=SLEEPERS), folder) if os.geteuid() == 0 else ()
        share = _share_of_agent(prefix, folder)
        command = [*prefix, sys.executable, "-m", "bench.idle_agent"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PATIENCE_SECONDS)
        polled = float(done.stdout) / POLL_SECONDS
    is_kept = judge_ratio(
        "idle node agent without cgroups and jobs",
        f"{share:.4%} of a core",
        share / polled,
        RATIO_LIMIT,
        f"a scan at each poll, {polled:.4%}",
    )
    return 0 if is_kept else 1


def _share_of_agent(prefix: Sequence[str], empty: str) -> float:
    flags = ("--path.cgroup", f"{empty}/none")
    with running_exporter(*flags, role="node", prefix=prefix) as (pid, _):
        agent = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]) if prefix else pid
        time.sleep(SETTLE_SECONDS)
        before, began = _scheduled_seconds(agent), time.monotonic()
        time.sleep(IDLE_SECONDS)
        spent, elapsed = _scheduled_seconds(agent) - before, time.monotonic() - began
        os.kill(agent, signal.SIGTERM)  # unshare does not pass it on
    return spent / elapsed


def _scheduled_seconds(pid: int) -> float:
    """Return the CPU time of all threads."""
    texts = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in texts) / 1e9


def _scan_seconds() -> float:
    """Return the CPU time of a scan of all processes, none of which is new."""
    tree = StepdTree(ProcessReader(Path("/proc")))
    tree.scan()
    return least_seconds(tree.scan, rounds=50)[0]


if __name__ == "__main__":
    print(_scan_seconds())
