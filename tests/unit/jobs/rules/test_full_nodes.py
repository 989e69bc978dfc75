# SPDX-License-Identifier: Apache-2.0
"""No line requests more memory than a node has, and memory by core is what Slurm makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.rule import Finding
from slurmscope.jobs.summary import GpuSummary, JobSummary, NodeSummary
from tests.fakes.job_summaries import GIB, all_findings, covered, make_summary
from tests.fakes.resubmission import header, submitted, suggest


def on_a_node(peak: float, requested: float, options: str = "", **changed: Any) -> JobSummary:
    """Make a job that needed so many GiB of its request on a node with 32 GiB."""
    node = NodeSummary(node="n1", cpus=4.0, limit_bytes=requested * GIB, working_peak_bytes=peak * GIB)
    memory = {"requested_bytes": requested * GIB, "working_peak_bytes": peak * GIB}
    record = submitted(options, **changed.pop("record", {}))
    return make_summary(record=record, memory=memory, nodes=(node,), **changed)


def found(summary: JobSummary, rule: str) -> Finding | None:
    return next((each for each in all_findings(summary) if each.rule == rule), None)


@pytest.mark.parametrize(
    ("requested", "line"),
    [
        # 31 GiB x 1.2 = 37.2 GiB: a node has 32.
        (31.5, "#SBATCH --mem=32G"),
        (32.0, ""),
    ],
)
def test_memory_that_was_nearly_exhausted_is_raised_up_to_that_of_a_node(requested: float, line: str) -> None:
    near = found(on_a_node(31.0, requested), "memory_near_limit")
    assert near is not None
    assert line == near.suggestion
    assert ("use nodes with more memory" in near.advice) is (not line)


def test_full_node_is_named_with_its_size() -> None:
    near = found(on_a_node(31.0, 32.0), "memory_near_limit")
    assert near is not None
    assert "A node has 32 GiB: use nodes with more memory, or divide the work between more nodes." == near.advice


@pytest.mark.parametrize(
    ("peak", "cores", "line"),
    [
        # 28 GiB x 1.2 = 33.6: one core can have 32 GiB at most.
        (28.0, 1, "--mem-per-cpu=32G"),
        (20.0, 1, "--mem-per-cpu=24G"),
        # A third of 32 GiB is 10,922.7 MiB.
        (28.0, 3, "--mem-per-cpu=10922M"),
        # 24 GiB for three: 8 GiB.
        (20.0, 3, "--mem-per-cpu=8G"),
    ],
)
def test_memory_of_fewer_cores_fits_on_the_node(peak: float, cores: int, line: str) -> None:
    summary = on_a_node(
        peak, 30.0, "-c8 --mem-per-cpu=3840M", record={"cpus": 8}, busy=cores / 8, cpu={"peak_cores": float(cores)}
    )
    assert (f"#SBATCH --cpus-per-task={cores}", f"#SBATCH {line}") == header(summary)


def test_memory_that_fits_exactly_is_rounded_up_for_each_core() -> None:
    # 10 GiB x 1.2 = 12 GiB for five cores: 2457.6 MiB, in steps of 64 MiB.
    summary = on_a_node(10.0, 30.0, "-c8 --mem-per-cpu=3840M", record={"cpus": 8}, busy=5 / 8, cpu={"peak_cores": 5.0})
    assert ("#SBATCH --cpus-per-task=5", "#SBATCH --mem-per-cpu=2496M") == header(summary)


def test_promised_memory_is_what_slurm_makes_of_the_line() -> None:
    # 1 GiB x 1.2 = 1,280 MiB: 426.7 MiB for each of three cores, up to 448 MiB.
    summary = on_a_node(1.0, 12.0, "-c3 --mem-per-cpu=4G", record={"cpus": 3})
    made = suggest(summary)
    assert made is not None
    assert ("#SBATCH --mem-per-cpu=448M",) == made.lines
    assert 3 * 448 * 2**20 == made.suggested.memory_bytes
    assert (12 * GIB - 3 * 448 * 2**20) * 7200 == made.freed.memory_byte_seconds


def test_promised_memory_of_gpus_is_what_slurm_makes_of_the_line() -> None:
    gpus = (Gres(name="gpu", count=3),)
    summary = on_a_node(
        1.0, 12.0, "--gpus=3 --mem-per-gpu=4G", record={"gres": gpus},
        gpu=GpuSummary(requested=3, mean_utilization=0.9, coverage=covered()),
    )  # fmt: skip
    made = suggest(summary)
    assert made is not None
    assert ("#SBATCH --mem-per-gpu=448M",) == made.lines
    assert 3 * 448 * 2**20 == made.suggested.memory_bytes


@pytest.mark.parametrize(("options", "is_found"), [("--exclusive", False), ("--exclusive=user", True), ("", True)])
def test_memory_of_a_whole_node_is_kept_from_nobody(options: str, is_found: bool) -> None:
    assert is_found is (found(on_a_node(2.0, 30.0, options), "memory_over_requested") is not None)
