# SPDX-License-Identifier: Apache-2.0
"""What squeue prints becomes groups of jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.squeue import (
    ARGUMENTS,
    ARGUMENTS_WITH_IDS,
    JobGroup,
    JobOwner,
    Jobs,
    JobStart,
    StartWindow,
    parse_jobs,
)
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.tres import Gres

NOW = 1_794_732_600.0
NOTHING_NEW = StartWindow(0, 0)


def row(  # the columns of squeue
    *,
    account: str = "physics",
    user: str = "alice",
    partition: str = "debug",
    qos: str = "normal",
    state: str = "RUNNING",
    reason: str = "None",
    feature: str = "(null)",
    nodes: str = "1",
    cpus: str = "2",
    tres: str = "cpu=2,mem=200M,node=1,billing=2",
    submit: str = "1794732498",
    start: str = "1794732500",
) -> bytes:
    """Write a line as squeue 22.05 does with our arguments."""
    names = "\x1f".join((account, user, partition, qos, state, reason, feature))
    return f"{names}\x1e{nodes}\x1f{cpus}\x1f{tres}\x1e{submit}\x1f{start}\n".encode("utf-8", "surrogateescape")


def parse(answer: bytes, window: StartWindow = NOTHING_NEW) -> Jobs:
    return parse_jobs(answer, taken_at_seconds=NOW, window=window)


def test_one_call_asks_for_every_column() -> None:
    assert ("--noheader", "--all", "--array", "--states=all", "--local") == ARGUMENTS[:5]
    assert (
        "--Format=Account:\x1f,UserName:\x1f,Partition:\x1f,QOS:\x1f,State:\x1f,Reason:\x1f,Feature:\x1e,"
        "NumNodes:\x1f,NumCPUs:\x1f,tres-alloc:\x1e,SubmitTime:\x1f,StartTime:"
    ) == ARGUMENTS[5]


def test_like_jobs_are_one_group_with_their_sums() -> None:
    amounts = {"nodes": "2", "cpus": "8", "tres": "cpu=8,mem=1G,node=2,gres/gpu=4,gres/gpu:a100=3"}
    answer = row(**amounts) * 3 + row(**amounts, submit="1794732400")

    (group,) = parse(answer).groups

    assert (
        JobGroup(
            account="physics",
            user="alice",
            partitions=("debug",),
            qos="normal",
            state="RUNNING",
            reason="None",
            features=(),
            jobs=4,
            nodes=4 * 2,
            cpus=4 * 8,
            memory_bytes=4 * 2**30,
            gres=(Gres(name="gpu", model="a100", count=4 * 3), Gres(name="gpu", model="", count=4 * 1)),
            first_submit_seconds=1794732400,
        )
        == group
    )


def test_no_output_is_a_cluster_without_jobs() -> None:
    assert Jobs(groups=(), taken_at_seconds=NOW) == parse(b"")


@pytest.mark.parametrize(
    ("constraint", "features"),
    [
        # The forms of --constraint in the manual of sbatch.
        ("intel", ("intel",)),
        ("intel&gpu", ("intel", "gpu")),
        ("intel|amd", ("intel", "amd")),
        ("[rack1*2&rack2*4]", ("rack1", "rack2")),
        ("[rack1|rack2|rack3|rack4]", ("rack1", "rack2", "rack3", "rack4")),
        ("graphics*4", ("graphics",)),
        ("foo&[rack1*2&rack2*4]&foo", ("foo", "rack1", "rack2")),
        ("(knl&snc4&flat)|haswell", ("knl", "snc4", "flat", "haswell")),
        ("", ()),
    ],
)
def test_features_are_names_without_counts_and_brackets(constraint: str, features: tuple[str, ...]) -> None:
    (group,) = parse(row(feature=constraint)).groups

    assert features == group.features


def test_several_partitions_and_features_are_distinguished() -> None:
    (group,) = parse(row(partition="debug,long", feature="avx512&ib", state="PENDING", start="N/A")).groups

    assert (("debug", "long"), ("avx512", "ib")) == (group.partitions, group.features)


def test_memory_that_is_not_reported_is_not_0() -> None:
    (group,) = parse(row(tres="cpu=2,node=1")).groups

    assert group.memory_bytes is None


def test_starts_in_the_window_are_reported_with_their_waits() -> None:
    answer = (
        row(submit="1794732400", start="1794732499")
        + row(submit="1794732400", start="1794732500") * 2
        + row(submit="1794732300", start="1794732509", state="COMPLETED")
        + row(submit="1794732300", start="1794732510")
        + row(submit="1794732300", start="1794732505", state="PENDING")
        + row(submit="1794732300", start="N/A")
    )

    jobs = parse(answer, StartWindow(1794732500, 1794732510))

    assert {JobStart("debug", "normal", 100, 2), JobStart("debug", "normal", 209, 1)} == set(jobs.starts)


@pytest.mark.parametrize("answer", [row()[:-1], row() + b"phy"])
def test_answer_cut_in_a_line_is_no_answer(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="in the middle of a line"):
        parse(answer)


def test_odd_rows_cost_only_themselves() -> None:
    odd = [
        b"Welcome to the cluster!\n",
        b"\n",
        row(state=""),
        row(nodes="many"),
        row(tres="cpu"),
        row(user="carol", submit="soon"),
        row(tres="cpu=2\xa0"),
        row().replace(b"\x1e", b"\x1f"),
    ]

    jobs = parse(b"".join(odd) + row())

    assert ["alice"] == [group.user for group in jobs.groups]
    assert len(odd) == jobs.unreadable_rows


def test_names_that_are_no_utf8_are_kept_apart() -> None:
    jobs = parse(row(account="caf\udce9") + row(account="caf\udcea"))

    assert ["caf\udce9", "caf\udcea"] == [group.account for group in jobs.groups]


@given(st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"")) | st.just(row()[:-1])))
def test_every_row_is_counted_once_or_unreadable(lines: list[bytes]) -> None:
    jobs = parse(b"".join(line + b"\n" for line in lines))

    assert len(lines) == jobs.unreadable_rows + sum(group.jobs for group in jobs.groups)


def with_ids(job: str, array: str, **columns: str) -> bytes:
    return f"{job}\x1f{array}\x1e".encode() + row(**columns)


def test_owners_are_found_by_job_and_by_array() -> None:
    answer = (
        with_ids("7", "7")
        + with_ids("12", "10", user="bob", account="chemistry", partition="long,debug")
        + with_ids("10", "10", state="PENDING")
        + with_ids("13", "13", state="PENDING")
        + with_ids("6", "6", state="COMPLETED", user="eve")
    )

    jobs = parse_jobs(answer, taken_at_seconds=NOW, window=NOTHING_NEW, with_owners=True)

    bob = JobOwner("chemistry", "bob", "long")
    assert {
        7: JobOwner("physics", "alice", "debug"),
        12: bob,
        10: JobOwner("physics", "alice", "debug"),
        13: JobOwner("physics", "alice", "debug"),
        6: JobOwner("physics", "eve", "debug"),
    } == jobs.owners
    assert set(parse(b"".join(line.partition(b"\x1e")[2] + b"\n" for line in answer.splitlines())).groups) == set(
        jobs.groups
    )


def test_rows_without_ids_cost_only_themselves() -> None:
    answer = with_ids("x", "7") + with_ids("7", "7") + b"garbage\n" + with_ids("8", "y", user="bob")

    jobs = parse_jobs(answer, taken_at_seconds=NOW, window=NOTHING_NEW, with_owners=True)

    assert {7: "alice", 8: "bob"} == {job: owner.user for job, owner in jobs.owners.items()}
    assert 1 == jobs.unreadable_rows


def test_ids_are_requested_in_the_same_call() -> None:
    assert ARGUMENTS[:-1] == ARGUMENTS_WITH_IDS[:-1]
    assert ARGUMENTS[-1].replace("--Format=", "--Format=JobID:\x1f,ArrayJobID:\x1e,") == ARGUMENTS_WITH_IDS[-1]


def test_owners_are_empty_unless_they_are_requested() -> None:
    assert {} == parse(row()).owners
