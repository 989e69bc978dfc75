# SPDX-License-Identifier: Apache-2.0
"""Limits are shown where they are set, each with what is used of it."""

from __future__ import annotations

from pathlib import Path

from slurmscope.cluster.limits import (
    COLLECTOR,
    AssociationLimits,
    Limit,
    LimitKind,
    LimitOptions,
    Limits,
    Qos,
    parse_limits,
)
from slurmscope.metrics.family import Samples

REAL = parse_limits((Path(__file__).parents[2] / "fixtures" / "slurm-22.05" / "scontrol-assoc-mgr.txt").read_bytes())
GIB = 1024**3


def serve(limits: Limits, *, user: bool = True) -> dict[str, Samples]:
    """Return all samples by the name of their metric."""
    families = COLLECTOR.collect(LimitOptions(user=user), limits=limits)
    return {family.metric.name: family.samples for family in families}


def test_limit_and_use_have_the_same_labels() -> None:
    served = serve(REAL, user=False)

    assert {
        ("physics", "", "", "GrpTRES", "cpu"): 16,
        ("physics", "", "", "GrpTRES", "mem"): 8 * GIB,
        ("physics", "", "", "GrpTRES", "gres/gpu"): 4,
        ("physics", "", "", "MaxTRESPJ", "cpu"): 8,
        ("physics", "", "", "MaxTRESPJ", "mem"): 4 * GIB,
    } == served["slurm_association_limit_tres"]
    assert {
        ("physics", "", "", "GrpTRES", "cpu"): 3,
        ("physics", "", "", "GrpTRES", "mem"): 300 * 1024**2,
        ("physics", "", "", "GrpTRES", "gres/gpu"): 1,
    } == served["slurm_association_used_tres"]


def test_job_limits_of_users_are_shown_with_their_use() -> None:
    assert {
        ("physics", "", "", "GrpJobs"): 2,
        ("physics", "", "", "GrpSubmitJobs"): 2,
        ("physics", "labalice", "", "MaxJobs"): 1,
        ("physics", "labalice", "", "MaxSubmitJobs"): 1,
        ("physics", "labcarol", "", "MaxJobs"): 1,
        ("physics", "labcarol", "", "MaxSubmitJobs"): 1,
        ("optics", "labalice", "", "MaxJobs"): 0,
        ("optics", "labalice", "", "MaxSubmitJobs"): 0,
        ("chemistry", "labbob", "debug", "MaxJobs"): 1,
        ("odd acct|x", "", "", "GrpJobs"): 0,
    } == serve(REAL)["slurm_association_used_jobs"]


def test_a_limit_of_one_job_is_not_repeated_for_every_user() -> None:
    per_job = Limit(name="MaxWallPJ", kind=LimitKind.WALL_SECONDS, limit=7200)
    own = Limit(name="MaxWallPJ", kind=LimitKind.WALL_SECONDS, limit=60)
    limits = Limits(
        associations=(
            AssociationLimits(account="physics", user="early", limits=(per_job,)),
            AssociationLimits(account="physics", limits=(per_job,)),
            AssociationLimits(account="physics", user="alice", limits=(per_job,)),
            AssociationLimits(account="physics", user="bob", limits=(own,)),
        ),
        qos=(),
    )

    assert {("physics", "", "", "MaxWallPJ"): 7200, ("physics", "bob", "", "MaxWallPJ"): 60} == serve(limits)[
        "slurm_association_limit_wall_seconds"
    ]


def test_a_quality_of_service_is_shown_for_all_for_accounts_and_for_users() -> None:
    served = serve(REAL)

    assert {
        ("high", "", "", "GrpJobs"): 5,
        ("high", "", "", "GrpSubmitJobs"): 9,
        ("high", "physics", "", "MaxJobsPA"): 6,
        ("high", "physics", "", "MaxSubmitJobsPA"): 11,
        ("high", "", "labalice", "MaxJobsPU"): 4,
        ("high", "", "labalice", "MaxSubmitJobsPU"): 8,
    } == served["slurm_qos_limit_jobs"]
    assert {("normal",): 0, ("high",): 1000} == served["slurm_qos_priority"]
    assert {("normal",): 1087.660959, ("high",): 1359.576199} == served["slurm_qos_raw_usage_seconds"]


def test_unknown_values_of_a_qos_are_absent() -> None:
    served = serve(Limits(associations=(), qos=(Qos(name="odd"),)))

    assert ({}, {}) == (served["slurm_qos_priority"], served["slurm_qos_raw_usage_seconds"])


def test_users_can_be_left_out() -> None:
    served = serve(REAL, user=False)

    assert {("physics", ""), ("odd acct|x", "")} == {key[:2] for key in dict(served["slurm_association_limit_jobs"])}
    assert {""} == {key[2] for key in dict(served["slurm_qos_limit_jobs"])}


def test_older_names_hold_the_limits_of_accounts() -> None:
    served = serve(REAL)

    assert {("physics",): 16} == served["slurm_account_cpu_limit"]
    assert {("physics",): 8 * GIB} == served["slurm_account_mem_limit"]
    assert {("physics",): 20, ("odd acct|x",): 4} == served["slurm_account_job_alloc_limit"]
    assert {("physics",): 40} == served["slurm_account_job_limit"]


def test_every_declared_metric_is_served() -> None:
    assert {metric.name for metric in COLLECTOR.metrics} == {name for name, samples in serve(REAL).items() if samples}
