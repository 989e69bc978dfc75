# SPDX-License-Identifier: Apache-2.0
"""A real job that was OOM-killed completes when it is submitted again with the header of its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.cgroups import has_cgroup_v1
from tests.processes import get_as, run_slurmscope, running, until

needs_cgroups = pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers")

WORK = "exec python3 -c 'import time; held = bytearray(150 << 20); time.sleep(1)'"


def is_accounted(lab: SlurmLab, job: int, state: str) -> bool:
    """Return whether slurmdbd knows the end of a job, and its submission, which may arrive after the end."""
    found, _, folder = (
        lab.run("sacct", "-n", "-X", "-P", "-j", str(job), "--format=State,WorkDir").strip().partition("|")
    )
    return found == state and bool(folder)


@needs_cgroups
def test_oom_killed_job_completes_with_the_suggested_header_and_the_advice_counts_as_followed(
    clean_lab: SlurmLab, tmp_path: Path
) -> None:
    lab = clean_lab
    killed = lab.submit(ALICE, "--job-name=holder", script=f"#SBATCH --mem=60M --time=10\n{WORK}")
    lab.wait_state(killed, {"OUT_OF_MEMORY"})
    until(lambda: is_accounted(lab, killed, "OUT_OF_MEMORY"))
    no_archive = ("--archive.url", str(tmp_path / "none.db"))
    done = run_slurmscope("report", str(killed), "--format", "json", *no_archive, environment=lab.environment)
    assert (0, "") == (done.returncode, done.stderr)
    made = json.loads(done.stdout)["resubmission"]
    assert ["-#SBATCH --mem=60M", "+#SBATCH --mem=512M"] == made["diff"]
    header = "\n".join(made["lines"])
    again = lab.submit(ALICE, "--job-name=holder", script=f"#SBATCH --time=10\n{header}\n{WORK}")
    lab.wait_state(again, {"COMPLETED"})
    until(lambda: is_accounted(lab, again, "COMPLETED"))
    with running(
        "portal",
        *("--portal.listen-address", "127.0.0.1:0", "--portal.mode", "proxy", "--portal.proxy-peers", "127.0.0.1"),
        *("--archive.url", str(tmp_path / "archive.db"), "--slurm.bin-path", str(lab.bin_path)),
        *("--reporter.interval", "1s"),
        environment=lab.environment,
        wait_for="msg=listening",
    ) as portal:
        followed = f'the next run, <a href="/jobs/{again}">job {again}</a>, followed: '
        until(lambda: followed in get_as(portal, ALICE, f"/jobs/{killed}")[1])
        assert (
            f'Of the advice to <a href="/jobs/{killed}">job {killed}</a>, this run followed: '
            in get_as(portal, ALICE, f"/jobs/{again}")[1]
        )
