# SPDX-License-Identifier: Apache-2.0
"""Our job counts are those of Slurm's own commands, on a real cluster."""

from __future__ import annotations

from collections import Counter

from lab import ALICE, BOB, SlurmLab
from tests.processes import run_slurmscope, values


def squeue_counts(lab: SlurmLab, column: str) -> dict[tuple[str, ...], float]:
    """Count with another format than the one we parse."""
    rows = lab.run("squeue", "--noheader", "--all", "--array", "--states=all", f"--format={column} %T").splitlines()
    return dict(Counter(tuple(row.split()) for row in rows))


def test_counts_equal_those_of_squeue(clean_lab: SlurmLab) -> None:
    running = [clean_lab.submit(ALICE), clean_lab.submit(BOB), clean_lab.submit(BOB, "--partition=long")]
    clean_lab.submit(ALICE, "--hold", "--array=1-4")
    clean_lab.submit(BOB, "--hold")
    clean_lab.submit(BOB, f"--dependency=afterok:{running[0]}")
    ended = clean_lab.submit(ALICE, script="true")
    for job in running:
        clean_lab.wait_state(job, {"RUNNING"})
    clean_lab.wait_state(ended, {"COMPLETED"})

    done = run_slurmscope(
        "cluster", "--once", "--slurm.bin-path", str(clean_lab.bin_path), environment=clean_lab.environment
    )

    assert 0 == done.returncode, done.stderr
    assert squeue_counts(clean_lab, "%u") == values(done.stdout, "slurm_user_state_total")
    assert squeue_counts(clean_lab, "%a") == values(done.stdout, "slurm_account_job_state_total")
    assert squeue_counts(clean_lab, "%P") == values(done.stdout, "slurm_partition_job_state_total")
    # Jobs that ended in earlier tests are still remembered; what runs and waits is known by hand.
    by_user = values(done.stdout, "slurm_user_state_total")
    assert (1, 4) == tuple(by_user[ALICE, state] for state in ("RUNNING", "PENDING"))
    assert (2, 2) == tuple(by_user[BOB, state] for state in ("RUNNING", "PENDING"))


def test_job_in_two_partitions_counts_in_each_as_squeue_counts_it(clean_lab: SlurmLab) -> None:
    clean_lab.submit(ALICE, "--hold", "--partition=debug,long")
    clean_lab.submit(ALICE, "--hold", "--partition=debug")

    page = run_slurmscope(
        "cluster", "--once", "--slurm.bin-path", str(clean_lab.bin_path), environment=clean_lab.environment
    ).stdout

    served = values(page, "slurm_partition_job_state_total")
    for partition in ("debug", "long"):
        rows = clean_lab.run("squeue", "--noheader", f"--partition={partition}", "--states=PENDING").splitlines()
        assert len(rows) == served[partition, "PENDING"]
    assert 2 == values(page, "slurm_user_state_total")[ALICE, "PENDING"]
