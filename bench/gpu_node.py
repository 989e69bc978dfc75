# SPDX-License-Identifier: Apache-2.0
"""Measure the CPU time of a node agent with its GPU process, on a node with 8 simulated GPUs that 64 jobs share.

The agent reads the machine ``tests/fixtures/gpus/eight.txt`` through NVIDIA's binding, a library that answers from that
file, and the real child process. Each job is a cgroup in plain files with a sleeping process, which has a context on a
GPU. The page is scraped every 15 seconds. The driver's own work is not in the figures; that of the library, which reads
its file at each call, is. As root only: the agent sees a driver in a mount namespace of its own.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.cgroups import V2_FILES
from bench.measure import cpu_seconds_of, judge_ratio, resident_bytes_of, running_exporter, scrape
from tests.fakes.gpu_node import make_cgroups, with_driver
from tests.fakes.nvml.library import FakeNvml, build_library

JOBS = 64
GPUS = 8
GIBIBYTE = 1 << 30
SCRAPE_SECONDS = 15.0
SCRAPES = 4
SHARE_LIMIT = 0.01


def main() -> int:
    """Print the shares of a core and return 1 when they are too much."""
    if os.geteuid() != 0:
        print("GPUs and 64 jobs: not measured, this needs root")
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sleepers = [stack.enter_context(subprocess.Popen(["sleep", "900"])) for _ in range(JOBS)]
        for sleeper in sleepers:
            stack.callback(sleeper.kill)
        pids = [sleeper.pid for sleeper in sleepers]
        machine = FakeNvml(library=build_library(folder), folder=folder)
        machine.play("eight")
        machine.take_back("process")
        machine.say(*(line for n, pid in enumerate(pids) for line in _lines(n % GPUS, pid)))
        root = make_cgroups(folder / "cgroup", pids, V2_FILES)
        agent, child, memory = _measure(("--path.cgroup", str(root)), with_driver(folder))
    what = f"node agent with {GPUS} GPUs and {JOBS} jobs, scraped every {SCRAPE_SECONDS:g} s"
    figure = f"{agent:.3%} of a core, its GPU process {child:.3%}; {memory}; load {os.getloadavg()[0]:.0f}"
    return 0 if judge_ratio(what, figure, agent + child, SHARE_LIMIT, "a core") else 1


def _lines(gpu: int, pid: int) -> tuple[str, str]:
    return f"process {gpu} {pid} {GIBIBYTE}", f"share {gpu} {pid} 10"


def _measure(flags: tuple[str, ...], prefix: tuple[str, ...]) -> tuple[float, float, str]:
    """Return the shares of a core that the agent and its child take, and their memory in words."""
    with running_exporter(*flags, role="node", prefix=prefix) as (agent, address):
        scrape(address)
        time.sleep(SCRAPE_SECONDS)
        page = scrape(address)
        child = child_of(agent)
        _require_whole(page)
        before, began = [cpu_seconds_of(pid) for pid in (agent, child)], time.monotonic()
        for _ in range(SCRAPES):
            time.sleep(SCRAPE_SECONDS)
            scrape(address)
        after, elapsed = [cpu_seconds_of(pid) for pid in (agent, child)], time.monotonic() - began
        memory = " and ".join(f"{resident_bytes_of(pid) / 1e6:.0f} MB" for pid in (agent, child)) + " resident"
    shares = [(now - was) / elapsed for now, was in zip(after, before, strict=True)]
    return shares[0], shares[1], memory


def _require_whole(page: bytes) -> None:
    """Check that the page has what is measured: a figure of an agent that reads nothing would be worthless."""
    text = gzip.decompress(page).decode()
    pairs = text.count("\njobs_gpu_busy_seconds_total{")
    if pairs != JOBS:
        raise RuntimeError(f"{pairs} jobs have counters of a GPU, not {JOBS}")


def child_of(agent: int) -> int:
    found = [
        int(pid)
        for task in Path(f"/proc/{agent}/task").iterdir()
        for pid in (task / "children").read_text().split()
        if b"nvml_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    if len(found) != 1:
        raise RuntimeError(f"the agent has {len(found)} processes that read GPUs")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
