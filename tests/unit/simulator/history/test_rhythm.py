# SPDX-License-Identifier: Apache-2.0
"""Simulated programs start up, iterate and write checkpoints; their sums agree with their load at every moment."""

from __future__ import annotations

import pytest

from slurmscope.simulator.history.workloads import CHECKPOINT_LOAD, STARTUP_LOAD, STEPS, Work, checkpoints

STEADY = Work(cores=(1.0,), dip_ratio=0.0, period_seconds=600.0)


@pytest.mark.parametrize("seed", [0, 41])
@pytest.mark.parametrize("until", [1.0, 59.0, 61.0, 599.0, 12_345.0, 70_001.0])
def test_done_seconds_are_the_integral_of_the_load(until: float, seed: int) -> None:
    work = Work(cores=(1.0,), dip_ratio=0.14, period_seconds=600.0, seed=seed)
    width = 0.5
    summed = sum(work.load((index + 0.5) * width) for index in range(round(until / width))) * width
    assert summed == pytest.approx(work.done_seconds(until), rel=1e-6)


def test_program_starts_up_computes_and_writes_a_checkpoint() -> None:
    # Tenths of an iteration of ten minutes: start-up, eight of computing, the checkpoint, then the next iteration.
    loads = [STEADY.load(60.0 * tenth + 30.0) for tenth in range(STEPS + 1)]
    assert [STARTUP_LOAD, *[1.0] * 8, CHECKPOINT_LOAD, 1.0] == loads


def test_nodes_differ_by_their_noise_and_agree_with_themselves() -> None:
    one, other = (Work(cores=(1.0,), seed=seed) for seed in (1, 2))
    moments = [60.0 * index for index in range(50)]
    assert [one.load(at) for at in moments] != [other.load(at) for at in moments]
    assert [one.load(at) for at in moments] == [Work(cores=(1.0,), seed=1).load(at) for at in moments]


@pytest.mark.parametrize(("at", "expected"), [(0.0, 0.0), (539.0, 0.0), (570.0, 0.5), (600.0, 1.0), (1170.0, 1.5)])
def test_checkpoints_are_written_in_the_last_tenth(at: float, expected: float) -> None:
    assert expected == pytest.approx(checkpoints(at, 600.0))
