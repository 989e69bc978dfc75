# SPDX-License-Identifier: Apache-2.0
"""Jobs are counted by the same rule in every view."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.cluster.jobs import COLLECTOR, JobsOptions, reason_word
from slurmscope.cluster.squeue import WAIT_BUCKETS_SECONDS, JobGroup, Jobs, WaitTally
from slurmscope.core.tres import Gres
from slurmscope.metrics.family import Histogram

NOW = 10_000.0
GIB = 2**30
BLANK = JobGroup(
    account="physics",
    user="alice",
    partitions=("debug",),
    qos="normal",
    state="RUNNING",
    reason="None",
    features=(),
    jobs=1,
    nodes=1,
    cpus=1,
    memory_bytes=GIB,
    gres=(),
    first_submit_seconds=9_000,
)
GROUPS = (
    BLANK._replace(jobs=3, nodes=6, cpus=12, memory_bytes=3 * GIB, gres=(Gres(name="gpu", model="a100", count=6),)),
    BLANK._replace(user="bob", partitions=("gpus",), cpus=4, features=("ib", "avx")),
    BLANK._replace(user="bob", partitions=("debug", "long"), state="PENDING", reason="Priority", jobs=2, cpus=8,
                   nodes=2, memory_bytes=2 * GIB, first_submit_seconds=4_000),
    BLANK._replace(account="chemistry", user="bob", qos="high", state="PENDING", reason="JobHeldUser", jobs=5,
                   memory_bytes=None, first_submit_seconds=1_000),
    BLANK._replace(state="PENDING", reason="ReqNodeNotAvail, UnavailableNodes:n[1-9]",
                   gres=(Gres(name="gpu", count=2),)),
    BLANK._replace(state="COMPLETED", jobs=7, nodes=7, cpus=70),
)  # fmt: skip


def collect(options: JobsOptions | None = None, **changes: Any) -> dict[str, Any]:
    jobs = Jobs(**{"groups": GROUPS, "taken_at_seconds": NOW, **changes})
    families = COLLECTOR.collect(options or JobsOptions(), jobs=jobs)
    return {family.metric.name: dict(family.samples) for family in families}


def test_cluster_counts_every_job_once() -> None:
    served = collect()

    assert {("RUNNING",): 4, ("PENDING",): 8, ("COMPLETED",): 7} == served["slurm_jobs"]
    assert {("RUNNING",): 16, ("PENDING",): 10} == served["slurm_job_cpus"]
    assert {("RUNNING",): 7, ("PENDING",): 4} == served["slurm_job_nodes"]
    assert {("RUNNING",): 4 * GIB, ("PENDING",): 3 * GIB} == served["slurm_job_memory_bytes"]
    assert {("RUNNING", "gpu", "a100"): 6, ("PENDING", "gpu", ""): 2} == served["slurm_job_gres"]


def test_job_of_several_partitions_counts_in_each() -> None:
    assert {
        ("debug", "RUNNING"): 3,
        ("gpus", "RUNNING"): 1,
        ("debug", "PENDING"): 2 + 5 + 1,
        ("long", "PENDING"): 2,
        ("debug", "COMPLETED"): 7,
    } == collect()["slurm_partition_jobs"]


def test_views_agree_on_what_is_not_in_several_partitions() -> None:
    served = collect()

    for view in ("account", "user", "qos"):
        for quantity in ("jobs", "job_cpus", "job_nodes", "job_memory_bytes"):
            by_state: dict[str, float] = {}
            for labels, value in served[f"slurm_{view}_{quantity}"].items():
                by_state[labels[1]] = by_state.get(labels[1], 0) + value
            assert {labels[0]: value for labels, value in served[f"slurm_{quantity}"].items()} == by_state


def test_why_and_how_long_jobs_wait() -> None:
    served = collect()

    assert {
        ("debug", "Priority"): 2,
        ("long", "Priority"): 2,
        ("debug", "JobHeldUser"): 5,
        ("debug", "ReqNodeNotAvail"): 1,
    } == served["slurm_partition_pending_jobs"]
    assert {("debug", "user"): 5} == served["slurm_partition_held_jobs"]
    assert {("debug",): 6_000, ("long",): 6_000} == served["slurm_partition_oldest_pending_age_seconds"]


def test_waits_are_a_histogram() -> None:
    counts = tuple(range(len(WAIT_BUCKETS_SECONDS) + 1))

    served = collect(waits={("debug", "normal"): WaitTally(counts, 12.5)})

    assert {("debug", "normal"): Histogram(counts, 12.5)} == served["slurm_job_wait_seconds"]


def test_kept_names_have_the_right_values() -> None:
    served = collect()

    assert {("alice", "RUNNING"): 3, ("bob", "RUNNING"): 1, ("bob", "PENDING"): 7, ("alice", "PENDING"): 1,
            ("alice", "COMPLETED"): 7} == served["slurm_user_state_total"]  # fmt: skip
    assert 12 == served["slurm_user_cpu_alloc"]["alice", "RUNNING"]
    assert 2 * GIB == served["slurm_user_mem_alloc"]["bob", "PENDING"]
    assert {("physics",): 16} == served["slurm_account_cpu_alloc"]
    assert {("physics",): 4 * GIB} == served["slurm_account_mem_alloc"]
    assert 9 == served["slurm_account_job_state_cpu_alloc"]["physics", "PENDING"]
    assert {("Priority",): 2, ("JobHeldUser",): 5, ("(ReqNodeNotAvail, UnavailableNodes)",): 1} == served[
        "slurm_pending_reason_total"
    ]
    assert {("ib",): 1, ("avx",): 1, ("",): 18} == served["slurm_feature_total"]
    assert {("ib",): 4, ("avx",): 4, ("",): 12} == served["slurm_feature_cpu_alloc"]
    assert {("RUNNING",): 4, ("PENDING",): 8, ("COMPLETED",): 7} == served["slurm_job_count_per_state"]


def test_ncpus_counts_running_jobs_of_the_chosen_partitions() -> None:
    assert {("bob",): 4} == collect()["ncpus"]
    assert {("alice",): 12, ("bob",): 4} == collect(JobsOptions(ncpus_partitions=()))["ncpus"]


@pytest.mark.parametrize(
    ("options", "label"),
    [(JobsOptions(user=False), "user"), (JobsOptions(user=False), "username"), (JobsOptions(account=False), "account"),
     (JobsOptions(qos=False), "qos")],
)  # fmt: skip
def test_dimension_can_be_left_out(options: JobsOptions, label: str) -> None:
    labels = {metric.name: metric.labels for metric in COLLECTOR.metrics}
    served = collect(options)

    kept = {name for name in served if label in labels[name] and name != "slurm_job_wait_seconds"}

    assert set() == kept
    assert "slurm_partition_jobs" in served


def test_every_declared_metric_is_served() -> None:
    served = collect(waits={("debug", "normal"): WaitTally((1,) * (len(WAIT_BUCKETS_SECONDS) + 1), 1.0)})

    assert {metric.name for metric in COLLECTOR.metrics} == {name for name, samples in served.items() if samples}


def test_empty_cluster_has_no_series_but_the_count_of_odd_rows() -> None:
    served = collect(groups=())

    assert {"slurm_job_unreadable_rows": {(): 0}} == {name: samples for name, samples in served.items() if samples}


@pytest.mark.parametrize(
    ("reason", "word"),
    [("Priority", "Priority"), ("(Resources)", "Resources"),
     ("ReqNodeNotAvail, UnavailableNodes:n1", "ReqNodeNotAvail"), ("", "unknown"), ("\x1b[31m", "unknown"),
     ("job requeued in held state", "JobHeldUser"), ("(job requeued in special exit state)", "JobHeldUser"),
     ("launch failed requeued held", "JobHeldUser"), ("AssocGrpCpuLimit", "AssocGrpCpuLimit"),
     ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "Resources"),
     ("Nodes required for job are DOWN, DRAINED, REBOOTING or reserved for jobs", "Resources"),
     ("some new sentence of Slurm", "unknown"), ("Some new sentence", "unknown")],
)  # fmt: skip
def test_reason_is_one_word(reason: str, word: str) -> None:
    assert word == reason_word(reason)


@pytest.mark.parametrize("sentence", ["job requeued in held state", "launch failed requeued held"])
def test_job_that_was_requeued_and_held_is_held_and_does_not_age(sentence: str) -> None:
    held = BLANK._replace(state="PENDING", reason=sentence, partitions=("debug",), jobs=3)
    found = collect(groups=(held,))

    assert {("debug", "user"): 3} == found["slurm_partition_held_jobs"]
    assert {("debug", "JobHeldUser"): 3} == found["slurm_partition_pending_jobs"]
    assert {} == found.get("slurm_partition_oldest_pending_age_seconds", {})


def test_only_jobs_in_a_final_state_have_ended() -> None:
    assert [False, True, False] == [BLANK._replace(state=s).has_ended for s in ("RUNNING", "FAILED", "PENDING")]


@pytest.mark.parametrize(
    ("submitted", "expected"),
    # A controller whose clock is ahead of ours makes no negative age.
    [((9_000, 9_500), 1000.0), ((9_500, 9_000), 1000.0), ((10_000,), 0.0), ((10_005,), 0.0)],
)
def test_age_is_that_of_the_oldest_pending_job(submitted: tuple[int, ...], expected: float) -> None:
    groups = tuple(
        BLANK._replace(state="PENDING", reason=f"Reason{number}", first_submit_seconds=at)
        for number, at in enumerate(submitted)
    )

    assert {("debug",): expected} == collect(groups=groups)["slurm_partition_oldest_pending_age_seconds"]
