# SPDX-License-Identifier: Apache-2.0
"""Measure the CPU time of a node agent on a machine without cgroups of Slurm and without jobs.

The kernel reports when slurmstepd is executed; little is polled beside that. As root, the agent runs in a PID
namespace of its own, with a program called slurmd and some hundred others, all asleep: this machine is not idle. At the
same time a bare process does what polling takes at least, which is to read one file of procfs: other programs evict the
caches of both. CPU time is that of the scheduler, in nanoseconds: clock ticks are too coarse.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.measure import judge_ratio, running_exporter
from slurmscope.node.tracker import QUIET_POLL_SECONDS, QUIET_SCAN_SECONDS

SETTLE_SECONDS = 5.0
# One scan of all processes is among it.
IDLE_SECONDS = QUIET_SCAN_SECONDS
RATIO_LIMIT = 1.0

SLEEPERS = 300
# Runs in the namespace: what is asleep there, and then the agent instead of the shell.
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
SLEEP = """
for name in slurmd slurmstepd; do cp /bin/sleep "$0/$name"; done
"$0/slurmd" 900 &
for i in $(seq {count}); do sleep 900 & done
exec "$@"
"""


def main() -> int:
    """Print the share of a core and return 1 when it is too much."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = (*NAMESPACE, "sh", "-c", SLEEP.format(count=SLEEPERS), folder) if os.geteuid() == 0 else ()
        share, bare = _shares(prefix, folder)
    is_met = judge_ratio(
        "idle node agent without cgroups and jobs",
        f"{share:.4%} of a core at a load of {os.getloadavg()[0]:.1f}",
        share / bare,
        RATIO_LIMIT,
        f"a bare process that polls every {QUIET_POLL_SECONDS} s, {bare:.4%}",
    )
    return 0 if is_met else 1


def _shares(prefix: Sequence[str], empty: str) -> tuple[float, float]:
    """Return the shares of a core that the agent and a bare process take at the same time."""
    flags = ("--path.cgroup", f"{empty}/none")
    with (
        running_exporter(*flags, role="node", prefix=prefix) as (pid, _),
        subprocess.Popen([sys.executable, "-m", "bench.idle_agent"]) as bare,
    ):
        agent = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]) if prefix else pid
        time.sleep(SETTLE_SECONDS)
        before, began = [_scheduled_seconds(each) for each in (agent, bare.pid)], time.monotonic()
        time.sleep(IDLE_SECONDS)
        after, elapsed = [_scheduled_seconds(each) for each in (agent, bare.pid)], time.monotonic() - began
        bare.kill()
        os.kill(agent, signal.SIGTERM)  # unshare does not pass it on
    return (after[0] - before[0]) / elapsed, (after[1] - before[1]) / elapsed


def _scheduled_seconds(pid: int) -> float:
    """Return the CPU time of all threads."""
    texts = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in texts) / 1e9


def _wake_up_often() -> None:
    """Do the least that a poll takes, until killed."""
    events = select.epoll()
    file = os.open("/proc/self/stat", os.O_RDONLY)
    while True:
        events.poll(QUIET_POLL_SECONDS)
        os.pread(file, 2048, 0)


if __name__ == "__main__":
    _wake_up_often()
