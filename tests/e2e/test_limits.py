# SPDX-License-Identifier: Apache-2.0
"""Limits are those of Slurm's accounting database, their use is that of the queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import ALICE, CAROL, SlurmLab
from tests.e2e.scrape import scrape

ACCOUNT = "bounded"
QOS = "narrow"
MIB = 1024**2


@pytest.fixture
def bounded_lab(clean_lab: SlurmLab) -> Iterator[SlurmLab]:
    """Give a cluster with an account and a quality of service that have limits."""

    def set_up(*words: str) -> None:
        clean_lab.run("sacctmgr", "-i", *words)

    set_up("add", "qos", QOS, "priority=77", "GrpTRES=cpu=10,mem=3G", "MaxJobsPerUser=4", "MaxTRESPerAccount=cpu=9")
    set_up("add", "account", ACCOUNT, "GrpTRES=cpu=16,mem=8G,gres/gpu=4", "GrpJobs=20", "GrpSubmit=40", "GrpWall=1000")
    set_up("add", "user", f"{ALICE},{CAROL}", f"account={ACCOUNT}", "MaxJobs=5", f"qos=normal,{QOS}")
    # The database sends them to the controller one by one: the account and its two users.
    clean_lab.wait_for(
        lambda: clean_lab.run("scontrol", "show", "assoc_mgr", "flags=assoc").count(f" Account={ACCOUNT} ") == 3,
        what="the limits",
    )
    yield clean_lab
    clean_lab.cancel_all()
    set_up("delete", "user", f"{ALICE},{CAROL}", f"account={ACCOUNT}")
    set_up("delete", "account", ACCOUNT)
    set_up("delete", "qos", QOS)


def test_limits_are_those_of_the_database(bounded_lab: SlurmLab) -> None:
    columns = "format=GrpTRES,GrpJobs,GrpSubmit,GrpWall,MaxJobs"
    where = ("where", f"account={ACCOUNT}", "user=")
    shown = bounded_lab.run("sacctmgr", "--noheader", "--parsable2", "show", "association", *where, columns)
    tres, jobs, submit, wall, _ = shown.strip().split("|")

    served = scrape(bounded_lab, "limits")

    assert ("cpu=16,gres/gpu=4,mem=8G", "20", "40", "16:40:00") == (tres, jobs, submit, wall)
    own = (ACCOUNT, "", "")
    assert 16 == served["slurm_association_limit_tres"][*own, "GrpTRES", "cpu"]
    assert 4 == served["slurm_association_limit_tres"][*own, "GrpTRES", "gres/gpu"]
    assert 8192 * MIB == served["slurm_association_limit_tres"][*own, "GrpTRES", "mem"]
    assert (16 * 60 + 40) * 60 == served["slurm_association_limit_wall_seconds"][*own, "GrpWall"]
    assert {
        (ACCOUNT, "", "", "GrpJobs"): 20,
        (ACCOUNT, "", "", "GrpSubmitJobs"): 40,
        (ACCOUNT, ALICE, "", "MaxJobs"): 5,
        (ACCOUNT, CAROL, "", "MaxJobs"): 5,
    } == {key: limit for key, limit in served["slurm_association_limit_jobs"].items() if key[0] == ACCOUNT}
    assert (16, 8192 * MIB, 20, 40) == tuple(
        served[f"slurm_account_{name}"][ACCOUNT,] for name in ("cpu_limit", "mem_limit", "job_alloc_limit", "job_limit")
    )
    assert 77 == served["slurm_qos_priority"][QOS,]


def test_use_is_that_of_the_queue(bounded_lab: SlurmLab) -> None:
    running = [
        bounded_lab.submit(ALICE, f"--account={ACCOUNT}", f"--qos={QOS}", "--ntasks=3", "--mem=200M"),
        bounded_lab.submit(CAROL, f"--account={ACCOUNT}", "--partition=gpus", "--gres=gpu:1", "--mem=100M"),
    ]
    bounded_lab.submit(CAROL, f"--account={ACCOUNT}", "--hold")
    for job in running:
        bounded_lab.wait_state(job, {"RUNNING"})
    shown = bounded_lab.run("squeue", "--noheader", f"--account={ACCOUNT}", "--format=%T %C", "--states=all").split()

    served = scrape(bounded_lab, "limits")

    cpus = sum(int(count) for state, count in zip(shown[::2], shown[1::2], strict=True) if state == "RUNNING")
    used = served["slurm_association_used_tres"]
    assert cpus == used[ACCOUNT, "", "", "GrpTRES", "cpu"] == 4
    assert 300 * MIB == used[ACCOUNT, "", "", "GrpTRES", "mem"]
    assert 1 == used[ACCOUNT, "", "", "GrpTRES", "gres/gpu"]
    assert shown[::2].count("RUNNING") == served["slurm_association_used_jobs"][ACCOUNT, "", "", "GrpJobs"] == 2
    assert len(shown[::2]) == served["slurm_association_used_jobs"][ACCOUNT, "", "", "GrpSubmitJobs"] == 3
    assert 1 == served["slurm_association_used_jobs"][ACCOUNT, CAROL, "", "MaxJobs"]
    assert 3 == served["slurm_qos_used_tres"][QOS, "", "", "GrpTRES", "cpu"]
    assert (4, 1) == tuple(served[f"slurm_qos_{what}_jobs"][QOS, "", ALICE, "MaxJobsPU"] for what in ("limit", "used"))
    assert 3 == served["slurm_qos_used_tres"][QOS, ACCOUNT, "", "MaxTRESPA", "cpu"]
