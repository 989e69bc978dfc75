# SPDX-License-Identifier: Apache-2.0
"""Start jobs that use a real GPU, scrape the agents that watch them, and read NVML as another program does."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import cpu_seconds_of, scrape

POINTS = 0.02
_SERIES = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Window = tuple[float, float]


@dataclass
class Table:
    """What was measured beside what it should be."""

    rows: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def add(self, what: str, found: str, expected: str, *, is_met: bool) -> None:
        self.rows.append((what, found, expected, is_met))
        print(f"{'PASS' if is_met else 'FAIL'}  {what}: {found} ({expected})", flush=True)

    def near(self, what: str, found: float | None, truth: float, most: float = POINTS) -> None:
        """Compare two shares."""
        text = "absent" if found is None else f"{found:.2%}"
        is_met = found is not None and abs(found - truth) <= most
        self.add(what, text, f"truth {truth:.2%}, within {most:.1%}", is_met=is_met)

    def note(self, text: str) -> None:
        print(f"      {text}", flush=True)


@dataclass(frozen=True)
class Page:
    """One scrape; ``at`` is the middle of its time."""

    at: float
    text: str

    def get(self, name: str, **labels: str) -> float | None:
        """Return the sum of a metric over all series with these labels; None without any."""
        found = [
            float(value)
            for metric, inside, value in _SERIES.findall(self.text)
            if metric == name and labels.items() <= dict(_LABEL.findall(inside)).items()
        ]
        return sum(found) if found else None


@dataclass(frozen=True)
class Agent:
    """A running agent that is scraped at an interval of its own."""

    interval: float
    pid: int
    child: int
    address: str

    def page(self) -> Page:
        began = time.monotonic()
        text = gzip.decompress(scrape(self.address)).decode()
        return Page((began + time.monotonic()) / 2, text)

    def watch(self, start: float, seconds: float) -> list[Page]:
        """Scrape at each interval from a moment on."""
        pages = []
        for number in range(int(seconds / self.interval) + 1):
            time.sleep(max(0.0, start + number * self.interval - time.monotonic()))
            pages.append(self.page())
        return pages

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.pid) + cpu_seconds_of(self.child)


def rate(pages: Sequence[Page], name: str, **labels: str) -> float | None:
    """Return how fast a counter grew from the first page to the last."""
    first, last = pages[0].get(name, **labels), pages[-1].get(name, **labels)
    return None if first is None or last is None else (last - first) / (pages[-1].at - pages[0].at)


class Jobs:
    """Start programs in the cgroups of jobs."""

    def __init__(self, root: Path, *, is_real: bool) -> None:
        self._root = root
        self._is_real = is_real
        self._number = 0

    def start(self, *commands: str, prefix: Sequence[str] = ()) -> Job:
        """Start a load in the cgroup of the next job; the words before it, such as slurmscope run, are part of it."""
        self._number += 1
        job = self._root / f"system.slice/slurmstepd.scope/job_{self._number}"
        task = job / "step_batch/user/task_0"
        task.mkdir(parents=True)
        argv = (*prefix, sys.executable, "-m", "bench.gpu_load", *commands)
        procs = task / "cgroup.procs"
        write = 'echo $$ > "$0"' if self._is_real else 'echo $$ >> "$0"'
        process = subprocess.Popen(
            ["sh", "-c", f'{write} && exec "$@"', str(procs), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "SLURM_JOB_ID": str(self._number)},
            text=True,
        )
        return Job(str(self._number), process)


class Job:
    """A load that runs as a job."""

    def __init__(self, number: str, process: subprocess.Popen[str]) -> None:
        self.number = number
        self.process = process

    def go(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def end(self) -> list[dict[str, Any]]:
        """Wait for the end, and return what it did."""
        out, _ = self.process.communicate(timeout=300)
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def share_of(bursts: Sequence[Window], window: Window) -> float:
    """Return the share of a window in which any of these loads was at work."""
    edge, busy = window[0], 0.0
    for began, ended in sorted(bursts):
        first, last = max(began, edge), min(ended, window[1])
        busy += max(0.0, last - first)
        edge = max(edge, last)
    return busy / (window[1] - window[0])


@contextlib.contextmanager
def job_tree() -> Iterator[tuple[Path, bool]]:
    """Give the root of a cgroup tree of v2, and whether it is a real one."""
    with ExitStack() as stack:
        root, is_real = Path("/sys/fs/cgroup"), True
        if not (root / "cgroup.controllers").exists():
            root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            is_real = subprocess.run(["mount", "-t", "cgroup2", "none", root], check=False).returncode == 0
            if is_real:
                stack.callback(lambda: subprocess.run(["umount", "--lazy", root], check=False))
        scope = root / "system.slice/slurmstepd.scope"
        try:
            scope.mkdir(parents=True)
        except OSError as error:
            print(f"      no real cgroups ({error}): plain files instead")
            root, is_real = Path(stack.enter_context(tempfile.TemporaryDirectory())), False
            scope = root / "system.slice/slurmstepd.scope"
            scope.mkdir(parents=True)
        if not is_real:
            (root / "cgroup.controllers").write_text("cpu memory\n")
        for folder in (root, root / "system.slice", scope):
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text("+cpu +memory")
        if is_real:
            stack.callback(_remove_jobs, scope)
        yield root, is_real


def _remove_jobs(scope: Path) -> None:
    for folder, _, _ in os.walk(scope, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


class Device:
    """NVML's own numbers, as another program reads them."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self.nvml: Any = pynvml
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def joules(self) -> float:
        return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000

    def gauge(self) -> float:
        return float(self.nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu) / 100

    def memory(self) -> dict[int, int]:
        listed = self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle)
        return {process.pid: process.usedGpuMemory for process in listed}

    def call(self, *refused: str) -> Callable[..., Any]:
        """Return what calls functions as the child process does, without those that older boards do not have."""

        def call(name: str, *arguments: Any) -> Any:
            if name in refused:
                return None
            try:
                return getattr(self.nvml, name)(*arguments)
            except self.nvml.NVMLError:
                return None

        return call
