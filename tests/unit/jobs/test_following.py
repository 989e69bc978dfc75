# SPDX-License-Identifier: Apache-2.0
"""A request follows a suggestion if it moved at least half of the way to it; savings are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.advice import (
    MEMORY,
    ComparedRun,
    Savings,
    compute_savings,
    find_resources,
    find_targets,
    is_followed,
)

GIB = 1 << 30
BEFORE = ComparedRun(
    shown_id="1", state="COMPLETED", submit_seconds=0, run_seconds=3600.0, nodes=2, cpus=16, gpus=4,
    memory_bytes=64.0 * GIB, time_limit_seconds=86400.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("suggestion", "changed", "expected"),
    [
        ("#SBATCH --cpus-per-task=4", {"cpus": 4}, True),
        ("#SBATCH --cpus-per-task=4", {"cpus": 10}, True),  # half of the way
        ("#SBATCH --cpus-per-task=4", {"cpus": 11}, False),
        ("#SBATCH --cpus-per-task=4", {}, False),
        ("#SBATCH --ntasks=4", {"cpus": 32}, False),
        ("#SBATCH --cpus-per-task=4", {"cpus": None}, None),
        ("#SBATCH --nodes=1 --ntasks-per-node=16 --mem=32G", {"nodes": 1, "memory_bytes": 32.0 * GIB}, True),
        ("#SBATCH --nodes=1", {"nodes": 1}, True),
        ("#SBATCH --mem=8G", {"memory_bytes": 16.0 * GIB}, True),  # 8 GiB on each of two nodes
        ("#SBATCH --mem=8G", {"memory_bytes": 60.0 * GIB}, False),
        ("#SBATCH --mem=8G", {"memory_bytes": None}, None),
        ("#SBATCH --mem-per-cpu=1G", {"memory_bytes": 16.0 * GIB}, True),
        ("#SBATCH --mem=48G", {"memory_bytes": 96.0 * GIB}, True),  # more, after an OOM kill
        ("#SBATCH --mem=48G", {"memory_bytes": 64.0 * GIB}, False),
        ("#SBATCH --cpus-per-task=4 --mem=8G", {"cpus": 4}, False),  # only one of the two
        ("#SBATCH --gpus=a100:1", {"gpus": 1}, True),
        ("#SBATCH --gpus=1", {"gpus": 4}, False),
        ("#SBATCH --gres=tmpfs:9G,gpu:a100:1", {"gpus": 1}, True),
        ("#SBATCH --gres=gpu:1,tmpfs:9G", {"gpus": 4}, False),
        ("#SBATCH --gpus-per-node=1", {"gpus": 1}, True),
        ("#SBATCH --time=02:00:00", {"time_limit_seconds": 7200.0}, True),
        ("#SBATCH --time=02:00:00", {}, False),
        ("#SBATCH --cpus-per-task=16", {}, None),  # no change was suggested
        ("", {"cpus": 4}, None),
        ("#SBATCH --mem=much", {"memory_bytes": 1.0}, None),
    ],
)
def test_request_is_compared_with_the_suggestion(
    suggestion: str, changed: dict[str, float | None], expected: bool | None
) -> None:
    assert expected is is_followed(suggestion, BEFORE, replace(BEFORE, **changed))  # type: ignore[arg-type]


def test_memory_per_core_without_known_cores_is_not_compared() -> None:
    assert {} == find_targets("#SBATCH --mem-per-cpu=1G", replace(BEFORE, cpus=None))


def test_memory_per_core_is_that_of_all_cores() -> None:
    assert {MEMORY: 16.0 * GIB} == find_targets("#SBATCH --mem-per-cpu=1G", BEFORE)


@pytest.mark.parametrize(("nodes", "expected"), [(0, 8.0), (1, 8.0), (2, 16.0)])
def test_memory_per_node_is_that_of_one_node_at_least(nodes: int, expected: float) -> None:
    assert {MEMORY: expected * GIB} == find_targets("#SBATCH --mem=8G", replace(BEFORE, nodes=nodes))


def test_memory_per_gpu_is_that_of_all_gpus() -> None:
    two, none = replace(BEFORE, gpus=2), replace(BEFORE, gpus=0)

    assert {MEMORY: 6.0 * GIB} == find_targets("#SBATCH --mem-per-gpu=3G", two)
    assert {} == find_targets("#SBATCH --mem-per-gpu=3G", none)


@pytest.mark.parametrize(
    ("run_seconds", "cpus", "saved"),
    [
        (3600.0, 4, 12 * 3600.0),  # as long, with 12 cores fewer
        (7200.0, 4, (16 - 8) * 3600.0),  # twice as long: 16 against 8 core-hours
        (1800.0, 4, 12 * 1800.0),  # a smaller problem: only its own time counts
        (36000.0, 4, -24 * 3600.0),  # so slow that it cost more
    ],
)
def test_savings_are_what_was_reserved_less(run_seconds: float, cpus: int, saved: float) -> None:
    later = replace(BEFORE, run_seconds=run_seconds, cpus=cpus)

    assert Savings(core_seconds=saved) == compute_savings(BEFORE, later, {"cpus", "time_limit_seconds"})


def test_savings_of_unknown_amounts_and_of_failed_runs_are_unknown() -> None:
    later = replace(BEFORE, memory_bytes=None, gpus=2)

    assert Savings(gpu_seconds=2 * 3600.0) == compute_savings(BEFORE, later, {"memory_bytes", "gpus"})
    for pair in ((replace(BEFORE, state="FAILED"), later), (BEFORE, replace(later, state="TIMEOUT"))):
        assert Savings() == compute_savings(*pair, {"gpus"})


def test_fewer_nodes_save_everything_and_other_lines_what_they_name() -> None:
    assert {"nodes", "cpus", "gpus", "memory_bytes"} == find_resources("#SBATCH --nodes=1", BEFORE)
    assert {"memory_bytes"} == find_resources("#SBATCH --mem=8G", BEFORE)
    # More memory after an OOM kill saves nothing, and is no negative saving.
    assert set() == find_resources("#SBATCH --mem=48G", BEFORE)
    assert set() == find_resources("#SBATCH --mem=8G", replace(BEFORE, memory_bytes=None))
    # 32 GiB on each of two nodes are what the run had.
    assert set() == find_resources("#SBATCH --mem=32G", BEFORE)
