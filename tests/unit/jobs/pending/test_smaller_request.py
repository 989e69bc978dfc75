# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.sinfo import Node, NodeGres
from slurmscope.jobs.pending.smaller_request import FreeNode, SmallerRequest, find_free, suggest_smaller, summarize_free
from slurmscope.jobs.wait_times import WaitingTime
from tests.fakes.waiting import NOW, make_queue, make_waiting

GIB = 1 << 30
JOB = make_waiting(1, cpus=8, memory_bytes=32 * GIB, time_limit_seconds=4 * 3600)
EMPTY = make_queue(JOB)


def make_node(name: str, *, idle: int = 4, partition: str = "batch", **values: object) -> Node:
    node = Node(
        name=name, base_state="mixed", flags=frozenset(), state_text="mixed", partitions=(partition,), cpus_total=16,
        cpus_allocated=16 - idle, cpus_idle=idle, memory_bytes=64 * GIB, allocated_memory_bytes=24 * GIB, weight=1,
        gres=(NodeGres(name="gpu", model="a100", total=4, used=1), NodeGres(name="shard", model="", total=9, used=0)),
    )  # fmt: skip
    return node._replace(**values)  # type: ignore[arg-type]


def make_wait(cores: int, limit: int, jobs: int, median: float) -> WaitingTime:
    return WaitingTime(
        partition="batch", cores_class=cores, limit_class=limit, jobs=jobs, median_seconds=median, p90_seconds=median
    )


def test_only_usable_nodes_of_the_partitions_count_as_free() -> None:
    nodes = (
        make_node("a"),
        make_node("b", partition="other"),
        make_node("c", base_state="down"),
        make_node("d", flags=frozenset({"drain"})),
        make_node("e", idle=0),
        make_node("f", gres=None),
    )
    assert (FreeNode(4, 40 * GIB, 3), FreeNode(4, 40 * GIB, 0)) == find_free(nodes, ("batch", "long"))


def test_free_resources_are_compared_with_the_request_of_one_node() -> None:
    job = make_waiting(1, nodes=2, cpus=8, memory_bytes=8 * GIB)
    free = (FreeNode(4, 8 * GIB, 0), FreeNode(3, 90 * GIB, 0), FreeNode(4, 4 * GIB, 1))
    found = summarize_free(job, free)
    assert (3, 11, 102 * GIB, 1, 2, True) == (
        found.nodes, found.cores, found.memory_bytes, found.gpus, found.fitting_nodes, found.is_enough,
    )  # fmt: skip
    assert not summarize_free(job, free[1:]).is_enough


@pytest.mark.parametrize(
    ("job", "free", "changes"),
    [
        (JOB, (FreeNode(6, 64 * GIB, 0), FreeNode(2, 64 * GIB, 0)), [SmallerRequest(cores=6, fits_now=True)]),
        (JOB, (FreeNode(16, 20 * GIB + 5, 0),), [SmallerRequest(memory_bytes=20 * GIB, fits_now=True)]),
        (
            JOB._replace(gpus=4),
            (FreeNode(16, 64 * GIB, 1), FreeNode(16, 64 * GIB, 2)),
            [SmallerRequest(gpus=2, fits_now=True)],
        ),
        (
            JOB._replace(nodes=4, cpus=16, memory_bytes=16 * GIB),
            (FreeNode(4, 4 * GIB, 0), FreeNode(9, 9 * GIB, 0), FreeNode(1, 9 * GIB, 0), FreeNode(1, 9 * GIB, 0)),
            [
                SmallerRequest(nodes=2, cores=8, memory_bytes=8 * GIB, fits_now=True),
                SmallerRequest(cores=4, fits_now=True),
            ],
        ),
        (
            JOB,
            (FreeNode(4, 16 * GIB, 0), FreeNode(2, 16 * GIB, 0)),
            [SmallerRequest(nodes=1, cores=4, memory_bytes=16 * GIB, fits_now=True)],
        ),
        (JOB, (), []),
        (JOB, (FreeNode(1, GIB // 2, 0),), []),
        (JOB._replace(reason="AssocGrpCpuLimit"), (FreeNode(6, 64 * GIB, 0),), []),
        (JOB._replace(reason="JobHeldUser"), (FreeNode(6, 64 * GIB, 0),), []),
    ],
)
def test_smaller_requests_fit_what_is_free_now(
    job: object, free: tuple[FreeNode, ...], changes: list[SmallerRequest]
) -> None:
    assert changes == list(suggest_smaller(job, free, EMPTY, {}, NOW))  # type: ignore[arg-type]


@given(
    st.lists(st.builds(FreeNode, st.integers(0, 9), st.integers(0, 9).map(lambda n: n * GIB), st.integers(0, 3))),
    st.integers(1, 3), st.integers(1, 9), st.integers(0, 9), st.integers(0, 3),
)  # fmt: skip
def test_every_suggestion_is_smaller_and_fits(
    free: list[FreeNode], nodes: int, cores: int, memory: int, gpus: int
) -> None:
    job = make_waiting(1, nodes=nodes, cpus=cores * nodes, memory_bytes=memory * nodes * GIB, gpus=gpus * nodes)
    for change in suggest_smaller(job, tuple(free), make_queue(job), {}, NOW):
        smaller = job._replace(
            nodes=change.nodes or job.nodes,
            cpus=change.cores or job.cpus,
            memory_bytes=change.memory_bytes or job.memory_bytes,
            gpus=change.gpus or job.gpus,
        )
        assert smaller != job
        assert summarize_free(smaller, tuple(free)).is_enough


ROOM = (FreeNode(16, 64 * GIB, 0),)


def test_time_limit_before_the_next_planned_start_can_be_backfilled() -> None:
    queue = make_queue(
        JOB,
        make_waiting(2, priority=2000, start_seconds=NOW + 1830),
        make_waiting(3, start_seconds=NOW - 60),
        make_waiting(4, partitions=("other",), start_seconds=NOW + 600),
    )
    wait = make_wait(2, 0, 50, 60.0)
    assert (SmallerRequest(time_limit_seconds=1800, fits_now=True, waited=wait),) == suggest_smaller(
        JOB, ROOM, queue, {(2, 0): wait}, NOW
    )
    assert () == suggest_smaller(JOB._replace(time_limit_seconds=600), ROOM, queue, {}, NOW)
    assert 1 == len(suggest_smaller(JOB._replace(time_limit_seconds=None), ROOM, queue, {}, NOW))
    assert () == suggest_smaller(JOB, ROOM, make_queue(JOB, make_waiting(2, start_seconds=NOW + 200)), {}, NOW)


def test_shorter_time_limit_is_suggested_where_such_jobs_waited_much_less() -> None:
    waits = {(2, 1): make_wait(2, 1, 30, 4000.0), (2, 0): make_wait(2, 0, 40, 300.0)}
    (change,) = suggest_smaller(JOB, (), EMPTY, waits, NOW)
    assert (3600, False, 300.0) == (
        change.time_limit_seconds, change.fits_now, change.waited.median_seconds if change.waited else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "waits",
    [
        {},
        {(2, 1): make_wait(2, 1, 30, 4000.0)},
        {(2, 1): make_wait(2, 1, 5, 4000.0), (2, 0): make_wait(2, 0, 40, 300.0)},
        {(2, 1): make_wait(2, 1, 30, 100.0), (2, 0): make_wait(2, 0, 40, 10.0)},
        {(2, 1): make_wait(2, 1, 30, 4000.0), (2, 0): make_wait(2, 0, 40, 3000.0)},
        {(2, 1): make_wait(2, 1, 30, 4000.0), (2, 0): make_wait(2, 0, 5, 10.0)},
    ],
)
def test_little_difference_and_few_jobs_are_no_suggestion(waits: dict[tuple[int, int], WaitingTime]) -> None:
    assert () == suggest_smaller(JOB, (), EMPTY, waits, NOW)
