# SPDX-License-Identifier: Apache-2.0
"""What the controller prints of its associations becomes limits with their use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.cluster.limits import AssociationLimits, Limit, LimitKind, Limits, Qos, QosLimits, parse_limits
from slurmscope.core.errors import MalformedAnswer

FIXTURES = Path(__file__).parents[2] / "fixtures"
REAL = (FIXTURES / "slurm-22.05" / "scontrol-assoc-mgr.txt").read_bytes()
NEWER = (FIXTURES / "slurm-23.02" / "scontrol-assoc-mgr.hand-made.txt").read_bytes()
TITLE = b"Current Association Manager state\n"
MIB = 1024**2


def jobs(name: str, limit: int, used: int | None) -> Limit:
    """Make a limit on jobs."""
    return Limit(name=name, kind=LimitKind.JOBS, limit=limit, used=used)


def wall(name: str, limit: int, used: float | None = None) -> Limit:
    """Make a limit on wall time, in seconds."""
    return Limit(name=name, kind=LimitKind.WALL_SECONDS, limit=limit, used=used)


def tres(name: str, resource: str, limit: int, used: int | None = None) -> Limit:
    """Make a limit on a resource."""
    return Limit(name=name, kind=LimitKind.TRES, tres=resource, limit=limit, used=used)


def tres_seconds(name: str, resource: str, limit: int, used: int | None = None) -> Limit:
    """Make a limit on a resource times seconds."""
    return Limit(name=name, kind=LimitKind.TRES_SECONDS, tres=resource, limit=limit, used=used)


def association(account: str, user: str = "", partition: str = "") -> tuple[Limit, ...]:
    """Return the limits of one association of the real answer."""
    return next(
        found.limits
        for found in parse_limits(REAL).associations
        if (account, user, partition) == (found.account, found.user, found.partition)
    )


def test_an_account_of_a_real_cluster_is_read_whole() -> None:
    assert (
        jobs("GrpJobs", 20, 2),
        jobs("GrpSubmitJobs", 40, 2),
        wall("GrpWall", 1000 * 60, 951.6),  # 15.86 minutes
        tres("GrpTRES", "cpu", 16, 3),
        tres("GrpTRES", "mem", 8192 * MIB, 300 * MIB),
        tres("GrpTRES", "gres/gpu", 4, 1),
        tres_seconds("GrpTRESMins", "cpu", 10_000 * 60, 27 * 60),
        tres_seconds("GrpTRESMins", "mem", 5_000_000 * 60 * MIB, 2719 * 60 * MIB),
        tres_seconds("GrpTRESRunMins", "cpu", 600 * 60, 32 * 60),
        jobs("MaxJobs", 10, None),
        jobs("MaxSubmitJobs", 15, None),
        wall("MaxWallPJ", 120 * 60),
        tres("MaxTRESPJ", "cpu", 8),
        tres("MaxTRESPJ", "mem", 4096 * MIB),
    ) == association("physics")


def test_a_user_has_the_use_of_his_own_limits() -> None:
    assert (
        jobs("MaxJobs", 3, 1),
        jobs("MaxSubmitJobs", 7, 1),
        wall("MaxWallPJ", 120 * 60),
        tres("MaxTRESPJ", "cpu", 8),
        tres("MaxTRESPJ", "mem", 4096 * MIB),
        tres("MaxTRESPN", "cpu", 4),
        tres_seconds("MaxTRESMinsPJ", "cpu", 500 * 60),
    ) == association("physics", "labalice")


def test_an_association_of_a_partition_is_distinguished() -> None:
    assert (jobs("MaxJobs", 2, 1),) == association("chemistry", "labbob", "debug")


def test_an_account_may_have_an_odd_name() -> None:
    assert (jobs("GrpJobs", 4, 0),) == association("odd acct|x")


def test_associations_without_a_limit_are_left_out() -> None:
    limits = parse_limits(REAL)

    assert [
        ("chemistry", "labbob"),
        ("odd acct|x", ""),
        ("physics", ""),
        ("physics", "labalice"),
        ("physics", "labcarol"),
        ("optics", "labalice"),
    ] == [(found.account, found.user) for found in limits.associations]
    assert 0 == limits.unreadable_rows


HIGH = Qos(
    name="high",
    priority=1000,
    raw_usage_seconds=1359.576199,
    limits=(
        QosLimits(
            limits=(
                jobs("GrpJobs", 5, 1),
                jobs("GrpSubmitJobs", 9, 1),
                wall("GrpWall", 777 * 60, 679.8),  # 11.33 minutes
                tres("GrpTRES", "cpu", 12, 2),
                tres("GrpTRES", "mem", 6144 * MIB, 200 * MIB),
                tres("GrpTRES", "node", 2, 1),
                tres_seconds("GrpTRESMins", "cpu", 9999 * 60, 22 * 60),
                tres_seconds("GrpTRESRunMins", "cpu", 300 * 60, 27 * 60),
                wall("MaxWallPJ", 30 * 60),
                tres_seconds("MaxTRESMinsPJ", "cpu", 88 * 60),
                tres("MinTRESPJ", "cpu", 1),
            )
        ),
        QosLimits(
            account="physics",
            limits=(
                jobs("MaxJobsPA", 6, 1),
                jobs("MaxSubmitJobsPA", 11, 1),
                tres("MaxTRESPA", "cpu", 10, 2),
            ),
        ),
        QosLimits(
            user="labalice",
            limits=(
                jobs("MaxJobsPU", 4, 1),
                jobs("MaxSubmitJobsPU", 8, 1),
                tres("MaxTRESPU", "cpu", 6, 2),
                tres("MaxTRESPU", "gres/gpu", 2, 0),
            ),
        ),
    ),
)


def test_a_quality_of_service_of_a_real_cluster_is_read_whole() -> None:
    normal, high = parse_limits(REAL).qos

    assert Qos(name="normal", priority=0, raw_usage_seconds=1087.660959) == normal
    assert HIGH == high


def test_comments_of_newer_releases_forge_no_limit() -> None:
    assert (
        AssociationLimits(
            account="physics",
            limits=(jobs("GrpJobs", 20, 2), tres("GrpTRES", "bb/datawarp", 1024 * MIB, 512 * MIB)),
        ),
        AssociationLimits(account="physics", user="alice", limits=(jobs("MaxJobs", 3, 1),)),
    ) == parse_limits(NEWER).associations


def test_users_have_the_name_of_their_association_before_that_of_the_host() -> None:
    (normal,) = parse_limits(NEWER).qos

    assert (
        QosLimits(user="alice", limits=(jobs("MaxJobsPU", 6, 1),)),
        QosLimits(user="carol", limits=(jobs("MaxJobsPU", 6, 2),)),
    ) == normal.limits
    assert normal.priority is None


def test_a_user_whom_no_association_names_is_a_number() -> None:
    answer = TITLE + b"QOS Records\nQOS=q(1) UsageRaw=0.0 Account Limits= User Limits= 1002={MaxJobsPU=6(1)}\n"

    assert (QosLimits(user="1002", limits=(jobs("MaxJobsPU", 6, 1),)),) == parse_limits(answer).qos[0].limits


def test_a_controller_without_accounting_has_no_limits() -> None:
    answer = TITLE + b"No associations currently cached in Slurm.\nNo QOS currently cached in Slurm.\n"

    assert Limits(associations=(), qos=()) == parse_limits(answer)


@pytest.mark.parametrize(
    "odd", [b"GrpJobs=many", b"GrpJobs=3(x)", b"GrpTRES=cpu", b"GrpTRES=cpu=4G(1)", b"GrpWall=1-0"]
)
def test_a_limit_in_another_shape_costs_only_its_record(odd: bytes) -> None:
    record = b"ClusterName=lab Account=a UserName= Partition= Priority=0 " + odd + b"\n"

    limits = parse_limits(REAL + record + b"\n")

    assert parse_limits(REAL).associations == limits.associations
    assert 2 == limits.unreadable_rows


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        REAL[:-1],
        REAL[: REAL.index(b"QOS Records")],
        REAL.removeprefix(TITLE),
        b"slurm_load_assoc_mgr_info error\n",
        TITLE + b"QOS Records\nsomething else\n",
    ],
)
def test_an_answer_that_is_cut_or_strange_is_no_answer(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="scontrol show assoc_mgr"):
        parse_limits(answer)


_pieces = st.sampled_from(
    ["ClusterName=", " Account=", " UserName=", " Partition=", " Priority=", "QOS=", " UsageRaw=", " Account Limits=",
     " User Limits=", "={", "}", "GrpJobs=", "GrpTRES=cpu=", "N", "1", "(1)", "(", ",", "\n", " "]
)  # fmt: skip


@settings(deadline=None)
@given(st.binary(max_size=100) | st.lists(_pieces, max_size=40).map(lambda pieces: "".join(pieces).encode()))
def test_any_records_are_read_or_rejected(records: bytes) -> None:
    answer = TITLE + b"QOS Records\n" + records
    try:
        limits = parse_limits(answer)
    except MalformedAnswer:
        return
    assert limits.unreadable_rows + len(limits.associations) + len(limits.qos) <= records.count(b"\n")
