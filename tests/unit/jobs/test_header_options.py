# SPDX-License-Identifier: Apache-2.0
"""The size that changed options request is worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.header_options import (
    RequestedAmount,
    change_memory,
    change_size,
    freed_resources,
    submitted_size,
    suggested_bytes,
)
from slurmscope.jobs.report import FreedResources, JobReport, RequestedSize
from slurmscope.jobs.summary import JobSummary
from tests.fakes.job_summaries import GIB, HOUR, make_summary
from tests.fakes.resubmission import RUN, SIZE, found, submitted

GPUS = (Gres(name="gpu", count=4),)


def on_four_nodes(options: str, **memory: Any) -> JobSummary:
    """Make a job with 4 cores, 8 GiB and a GPU on each of four nodes."""
    record = submitted(options, node_count=4, cpus=16, gres=GPUS)
    return make_summary(record=record, memory={"requested_bytes": 32 * GIB} | memory)


def size_with(line: str, summary: JobSummary, **run: Any) -> RequestedSize:
    report = JobReport(summary=summary, made_seconds=0, findings=(found(line),))
    return change_size(report, [replace(RUN, **run)] if run else []).size


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH --mem=3G", 3.0),
        # One GPU and four cores on each node.
        ("#SBATCH --mem-per-gpu=3G", 3.0),
        ("#SBATCH --mem-per-cpu=3G", 12.0),
        ("#SBATCH --ntasks=2 --mem-per-cpu=3G", 6.0),
        ("#SBATCH --time=01:00:00", None),
    ],
)
def test_suggested_memory_is_that_of_a_node(line: str, expected: float | None) -> None:
    assert (expected and expected * GIB) == suggested_bytes(on_four_nodes("-N4"), found(line))


def test_unknown_cores_are_none() -> None:
    assert 0 == submitted_size(make_summary(record={"cpus": None})).cpus


@pytest.mark.parametrize(("requested", "expected"), [(32 * GIB, "8G"), (None, "")])
def test_memory_that_was_not_typed_is_shown_as_each_node_had_it(requested: float | None, expected: str) -> None:
    summary = on_four_nodes("-N4", requested_bytes=requested)
    change = change_memory(summary, RequestedAmount(6 * GIB, "why"), submitted_size(summary))

    assert change is not None
    assert (expected, "6G") == (change.submitted, change.suggested)


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        # Each node takes its cores and memory with it; the GPUs are not counted by node.
        ("#SBATCH --nodes=3", "-N4", (3, 12, 24.0)),
        ("#SBATCH --nodes=2", "-N4", (2, 8, 16.0)),
        # Memory follows what it was requested for.
        ("#SBATCH --gpus=2", "-G4 --mem-per-gpu=8G", (4, 16, 16.0)),
        ("#SBATCH --gpus=2", "-G4 --mem=8G", (4, 16, 32.0)),
        ("#SBATCH --ntasks=4", "-n16 --mem=8G", (4, 4, 32.0)),
        ("#SBATCH --ntasks=4", "-n16 --mem-per-cpu=2G", (4, 4, 8.0)),
    ],
)
def test_memory_follows_what_it_was_requested_for(line: str, options: str, expected: tuple[int, int, float]) -> None:
    size = size_with(line, on_four_nodes(options))

    assert (*expected[:2], expected[2] * GIB) == (size.nodes, size.cpus, size.memory_bytes)


def test_unknown_memory_stays_unknown_with_fewer_cores() -> None:
    size = size_with("#SBATCH --ntasks=4", on_four_nodes("-n16", requested_bytes=None))

    assert (4, None) == (size.cpus, size.memory_bytes)


@pytest.mark.parametrize(("mean_cores", "cpus"), [(None, 1), (1.5, 1), (1.6, 4)])
def test_half_a_core_more_in_another_run_is_enough(mean_cores: float | None, cpus: int) -> None:
    assert cpus == size_with("#SBATCH --cpus-per-task=1", make_summary(), mean_cores=mean_cores).cpus


def test_gpus_that_another_run_used_are_kept() -> None:
    summary = on_four_nodes("-G4")

    assert 2 == size_with("#SBATCH --gpus=2", summary, mean_cores=None, mean_gpus=2.0).gpus
    assert 4 == size_with("#SBATCH --gpus=2", summary, mean_cores=None, mean_gpus=2.1).gpus


@pytest.mark.parametrize(
    ("before", "after", "run_seconds", "expected"),
    [
        (SIZE, replace(SIZE, cpus=1), 1.0, FreedResources(core_seconds=3.0)),
        (SIZE, replace(SIZE, cpus=1), 0.0, FreedResources()),
        (SIZE, replace(SIZE, memory_bytes=2 * GIB), HOUR, FreedResources(memory_byte_seconds=6 * GIB * HOUR)),
        (SIZE, replace(SIZE, memory_bytes=None), HOUR, FreedResources()),
        (replace(SIZE, memory_bytes=None), SIZE, HOUR, FreedResources()),
        (replace(SIZE, gpus=2), SIZE, HOUR, FreedResources(gpu_seconds=2 * HOUR)),
    ],
)
def test_freed_amounts_are_those_that_are_known_and_fewer(
    before: RequestedSize, after: RequestedSize, run_seconds: float, expected: FreedResources
) -> None:
    assert expected == freed_resources(before, after, run_seconds)
