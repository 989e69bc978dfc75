# SPDX-License-Identifier: Apache-2.0
"""Run a cluster whose steps are profiled, and compare their samples with the kernel and sstat."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.config import LabSettings
from tests.e2e import profiled_task
from tests.processes import Exporter, until, values

BUSY = "slurm_profile_task_busy_cores"
CPU, RESIDENT = "slurm_profile_task_cpu_seconds_total", "slurm_profile_task_resident_bytes"
PATIENCE_SECONDS = 180.0
TASKS = [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]


@dataclass(frozen=True, kw_only=True)
class ProfiledLab:
    """Hold a cluster that has loaded a plugin; ``socket`` is where that of slurmscope sends samples."""

    lab: SlurmLab
    socket: Path
    work: Path

    def submit(self, script: str, *arguments: str) -> int:
        """Submit a job of four CPUs on the first node."""
        node = f"--nodelist={self.lab.nodes[0]}"
        return self.lab.submit(ALICE, node, "--ntasks=4", "--mem=1500M", *arguments, script=script)

    def flags(self, *further: str) -> tuple[str, ...]:
        """Return flags of an agent that receives samples and soon drops ended steps.

        On a busy machine the end of a step may be lost: many kernels queue ten datagrams, and two steps send more.
        """
        return ("--profile.socket", str(self.socket), "--node.grace", "1s", *further)

    def empty_work(self) -> Path:
        """End all jobs, and return an empty folder that jobs may write to."""
        self.lab.reset()
        for file in self.work.glob("*[!y]"):
            file.unlink()
        return self.work


@contextmanager
def run_profiled_lab(configure: Callable[[Path], LabSettings]) -> Iterator[ProfiledLab]:
    """Start a cluster with settings that may use a folder of its own; jobs can read it."""
    folder = Path(tempfile.mkdtemp(prefix="profiled-"))
    folder.chmod(0o755)
    try:
        lab = SlurmLab(folder / "lab", configure(folder))
        try:
            lab.start()
            work = folder / "work"
            work.mkdir(mode=0o777)
            work.chmod(0o777)
            shutil.copy(profiled_task.__file__, work / "profiled_task.py")
            yield ProfiledLab(lab=lab, socket=folder / "agent.sock", work=work)
        finally:
            lab.destroy()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def two_steps(work: Path) -> str:
    """Return a script of two steps at once with two tasks each."""
    step = f"srun --exact --ntasks=2 --mem=600M python3 {work}/profiled_task.py {work} &\n"
    return f"{step}sleep 1\n{step}wait"


def of_tasks(agent: Exporter, name: str, job: int) -> dict[tuple[str, str], float]:
    """Return a metric by step and task, without the batch step."""
    found = values(agent.get()[1], name).items()
    return {(labels[2], labels[3]): n for labels, n in found if labels[0] == str(job) and labels[2] != "batch"}


def reports(work: Path, ending: str = "json") -> dict[tuple[str, str], dict[str, float]]:
    """Return what the tasks found out about themselves."""
    files = {task: work / f"{task[0]}.{task[1]}.{ending}" for task in TASKS}
    until(lambda: all(file.exists() for file in files.values()), PATIENCE_SECONDS)
    return {task: json.loads(file.read_text(encoding="utf-8")) for task, file in files.items()}


def left(agent: Exporter) -> list[str]:
    """Return the series of profiled steps on the page; between two pages the agent has time to receive."""
    time.sleep(0.2)
    return [line for line in agent.get()[1].splitlines() if line.startswith("slurm_profile_")]


def check_tasks(profiled: ProfiledLab, agent: Exporter, *arguments: str) -> None:
    """Run two profiled steps, and compare each task with what it found out about itself and with sstat."""
    work = profiled.work
    job = profiled.submit(two_steps(work), "--profile=task", *arguments)
    reported = reports(work)
    until(lambda: all(of_tasks(agent, CPU, job).get(t, 0) >= 0.9 * reported[t]["cpu"] for t in TASKS), PATIENCE_SECONDS)
    resident = of_tasks(agent, RESIDENT, job)
    # Slurm counts anonymous memory with jobacct_gather/cgroup, all resident memory with jobacct_gather/linux.
    for task, report in reported.items():
        assert 0.95 * report["anonymous"] <= resident[task] <= 1.05 * report["resident"]
    for step in ("0", "1"):
        out = profiled.lab.run("sstat", "-nP", "--noconvert", "-j", f"{job}.{step}", "-o", "MaxRSS,MaxRSSTask")
        size, largest = out.strip().split("|")
        assert pytest.approx(float(size), rel=0.1) == resident[step, largest]
    cpu = of_tasks(agent, CPU, job)
    (work / "end").touch()
    final, deadline = reports(work, "final.json"), time.monotonic() + PATIENCE_SECONDS
    while left(agent):
        cpu |= of_tasks(agent, CPU, job)
        assert time.monotonic() < deadline
    # Slurm's influxdb plugin writes each difference with two digits after the point.
    assert {task: pytest.approx(final[task]["cpu"], rel=0.1, abs=0.3) for task in TASKS} == cpu
    profiled.lab.wait_state(job, {"COMPLETED"})
