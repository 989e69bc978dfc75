# SPDX-License-Identifier: Apache-2.0
"""Attack: on a node without job cgroups, a user runs a setuid program under the title of another job's slurmstepd."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from tests.processes import Exporter, serving, until

FORGED_JOB = 4711
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that every user can read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def forging(folder: Path, job: int, program: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a setuid copy of timeout, with a child, as another user and under the title of a slurmstepd."""
    path = folder / f"{job}-{program}" / program
    path.parent.mkdir()
    shutil.copy("/usr/bin/timeout", path)
    path.chmod(0o4755)
    argv = [f"slurmstepd: [{job}.batch]", "600", "/bin/sleep", "600"]
    with subprocess.Popen(argv, executable=path, user=NOBODY) as forger:
        try:
            children = Path(f"/proc/{forger.pid}/task/{forger.pid}/children")
            until(lambda: children.read_text().split())
            # It runs as root; only its real user is different.
            assert ["Uid:", str(NOBODY), "0"] == _status(forger.pid, "Uid:")[:3]
            yield forger
        finally:
            for pid in children.read_text().split():
                subprocess.run(["kill", "-KILL", pid], check=False)
            forger.kill()


def _status(pid: int, name: str) -> list[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split() for line in lines if line.startswith(name))


def processes(agent: Exporter) -> dict[int, float]:
    """Return how many processes each job has."""
    return {int(labels[0]): value for labels, value in _by_job(agent).items()}


def _by_job(agent: Exporter) -> dict[tuple[str, ...], float]:
    return {(_job_of(labels),): value for labels, value in agent.values("jobs_processes").items()}


def _job_of(labels: tuple[str, ...]) -> str:
    return next(label for label in labels if label.isdecimal())


def test_setuid_program_adds_nothing_to_any_job(clean_lab: SlurmLab, folder: Path) -> None:
    victim = clean_lab.submit(ALICE, script="sleep 600 & sleep 601 & wait")
    clean_lab.wait_state(victim, {"RUNNING"})
    (folder / "no-cgroups").mkdir()
    with serving("node", "--path.cgroup", str(folder / "no-cgroups")) as agent:
        # The batch script and its two children.
        until(lambda: processes(agent).get(victim) == 3)

        with ExitStack() as stack:
            for job in (FORGED_JOB, victim):
                for program in ("tool", "slurmstepd"):
                    stack.enter_context(forging(folder, job, program))
            # A job that starts after the forgers is found: so they were seen, too.
            later = clean_lab.submit(ALICE, script="sleep 600 & wait")
            until(lambda: processes(agent).get(later) == 2)

            # Without cgroups the agent also finds the jobs of other clusters on this machine.
            known = {job: count for job, count in processes(agent).items() if job in (victim, later, FORGED_JOB)}
            assert {victim: 3, later: 2} == known
            assert f'"{FORGED_JOB}"' not in agent.get()[1]
