# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.sinfo import Node, NodeGres
from slurmscope.jobs.pending.queue import PendingJob
from slurmscope.jobs.pending.smaller_request import (
    FreeNode,
    PastRun,
    SmallerRequest,
    find_free,
    suggest_smaller,
    summarize_free,
)
from slurmscope.jobs.wait_times import WaitingTime
from tests.fakes.waiting import make_waiting

GIB = 1 << 30
JOB = make_waiting(1, cpus=8, memory_bytes=32 * GIB, time_limit_seconds=4 * 3600)


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


HOUR = 3600
PAST = (PastRun(0.4 * HOUR, 3.0 * GIB), PastRun(0.6 * HOUR, 5.0 * GIB))
FULL = (FreeNode(16, 8 * GIB, 0),)


def suggest(
    job: PendingJob = JOB, past: Sequence[PastRun] = PAST, free: tuple[FreeNode, ...] | None = FULL
) -> SmallerRequest | None:
    return suggest_smaller(job, past, free, {(2, 0): make_wait(2, 0, 40, 300.0)})


def test_request_is_what_past_runs_needed_with_a_margin() -> None:
    """0.6 h and a half more is 54 min, rounded up to 1 h; 5 GiB and a fifth more is 6 GiB, and fits into 8 GiB."""
    found = suggest()
    assert found is not None
    assert (2, HOUR, 6 * GIB, True) == (found.runs, found.time_limit_seconds, found.node_memory_bytes, found.fits_now)
    assert found.waited is not None
    assert 300.0 == found.waited.median_seconds


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (JOB, ()),
        (JOB._replace(reason="AssocGrpCpuLimit"), PAST),
        (JOB._replace(reason="JobHeldUser"), PAST),
        (JOB, (*PAST, PastRun(3.0 * HOUR, 30.0 * GIB))),
        (JOB._replace(time_limit_seconds=None, memory_bytes=None), PAST),
    ],
)
def test_nothing_smaller_without_past_runs_that_needed_less(job: PendingJob, past: Sequence[PastRun]) -> None:
    assert suggest(job, past) is None


def test_memory_is_kept_unless_every_past_run_was_measured() -> None:
    found = suggest(past=(*PAST, PastRun(60.0, None)))
    assert found is not None
    assert (HOUR, None, False) == (found.time_limit_seconds, found.node_memory_bytes, found.fits_now)


@pytest.mark.parametrize(
    ("state", "limit", "memory"),
    [("TIMEOUT", None, 6 * GIB), ("OUT_OF_MEMORY", HOUR, None), ("FAILED", HOUR, 6 * GIB)],
)
def test_runs_that_were_ended_at_a_limit_needed_more(state: str, limit: int | None, memory: int | None) -> None:
    found = suggest(past=(*PAST, PastRun(60.0, None, state)))
    assert found is not None
    assert (2, limit, memory) == (found.runs, found.time_limit_seconds, found.node_memory_bytes)
    assert suggest(past=(PastRun(60.0, None, state),)) is None


def test_memory_is_that_of_one_node() -> None:
    found = suggest(JOB._replace(nodes=2, memory_bytes=64 * GIB))
    assert found is not None
    assert 6 * GIB == found.node_memory_bytes


@given(st.floats(1, 1e6), st.floats(1, 1e12), st.integers(60, 10**7), st.integers(GIB, 10**13))
def test_suggestion_is_smaller_than_the_request_and_enough_for_every_past_run(
    run_seconds: float, used: float, limit: int, memory: int
) -> None:
    found = suggest(JOB._replace(time_limit_seconds=limit, memory_bytes=memory), (PastRun(run_seconds, used),), None)
    if found is not None and found.time_limit_seconds is not None:
        assert run_seconds < found.time_limit_seconds < limit
    if found is not None and found.node_memory_bytes is not None:
        assert used < found.node_memory_bytes < memory
