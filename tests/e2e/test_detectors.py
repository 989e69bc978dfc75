# SPDX-License-Identifier: Apache-2.0
"""Detectors name real jobs to which something is done, and no healthy ones; ``bench/detectors.py`` has more of both."""

from __future__ import annotations

from pathlib import Path

from lab import SlurmLab
from tests.e2e.detector_trial import FAULTS, HEALTHY, Tally, run_round, watched

# Of which none needs cores that other tests use at the same time.
NAMES = (
    "a task of an MPI job is stopped (SIGSTOP)",
    "a file of 200 MB is read again and again with 100 MB of memory",
    "MPI, tasks that wait at barriers",
    "a file is read again that fits into memory",
    "a task is stopped for 5 seconds",
    "the job is suspended by Slurm",
)


def test_jobs_that_are_stuck_or_slow_are_named_and_healthy_ones_are_not(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    slurm_lab.reset()
    kinds = [kind for kind in (*FAULTS, *HEALTHY) if kind.name in NAMES]
    tally = Tally()
    with watched(tmp_path / "prometheus") as server:
        run_round(slurm_lab, kinds, server, tally)

    assert dict.fromkeys(NAMES, 1) == tally.jobs
    assert dict.fromkeys(NAMES[:2], 1) == tally.named
    assert {} == tally.false, tally.alarms
