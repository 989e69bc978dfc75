# SPDX-License-Identifier: Apache-2.0
"""Memory that a job requested and did not need blocks cores for others."""

from __future__ import annotations

import pytest

from slurmscope.jobs.findings import blocked_core_seconds
from slurmscope.jobs.summary import Coverage, JobSummary, MemorySummary
from tests.fakes.reports import GIB, make_record

COVERED = Coverage(nodes=1, nodes_measured=1, run_ratio=1.0)


def make_summary(
    asked_gib: float | None,
    needed_gib: float | None,
    *,
    cpus: int | None = 4,
    node_cpus: float | None = 16,
    state: str = "COMPLETED",
) -> JobSummary:
    """Make an hour on a node of 16 cores and 64 GiB: 4 GiB stand for a core."""
    return JobSummary(
        record=make_record(cpus=cpus, state=state),
        run_seconds=3600.0,
        memory=MemorySummary(
            requested_bytes=None if asked_gib is None else asked_gib * GIB,
            working_peak_bytes=None if needed_gib is None else needed_gib * GIB,
            coverage=COVERED,
        ),
        node_cpus=node_cpus,
        node_memory_bytes=64.0 * GIB,
    )


@pytest.mark.parametrize(
    ("asked_gib", "needed_gib", "cpus", "blocked_cores"),
    [
        (64, 4, 4, 12),  # the whole node for 4 cores
        (64, 32, 4, 8),  # half of the memory was needed
        (64, 64, 1, 0),  # all of it was needed
        (16, 1, 4, 0),  # the share that goes with its cores
        (8, 1, 4, 0),
    ],
)
def test_memory_beyond_the_cores_and_the_need_blocks_cores(
    asked_gib: float, needed_gib: float, cpus: int, blocked_cores: float
) -> None:
    assert pytest.approx(blocked_cores * 3600) == blocked_core_seconds(make_summary(asked_gib, needed_gib, cpus=cpus))


@pytest.mark.parametrize(
    "summary",
    [
        make_summary(None, 4),
        make_summary(64, None),
        make_summary(64, 4, node_cpus=None),
        make_summary(64, 4, state="OUT_OF_MEMORY"),
        make_summary(64, 4, cpus=None),
    ],
)
def test_blocked_cores_are_unknown_where_a_number_is(summary: JobSummary) -> None:
    assert blocked_core_seconds(summary) is None
