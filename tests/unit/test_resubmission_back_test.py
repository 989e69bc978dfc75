# SPDX-License-Identifier: Apache-2.0
"""Headers for next runs hold on simulated jobs of every kind; the whole year is ``python -m bench resubmission``."""

from __future__ import annotations

import pytest

from bench.resubmission import Tally, back_test

FREEING = ("serial", "idle", "memory_over_requested", "gpu_held", "node_imbalance")
KILLED = ("out_of_memory", "timed_out")


@pytest.fixture(scope="module")
def tallies() -> dict[str, Tally]:
    return back_test(jobs=1, runs=5, seed=7)


def test_later_runs_complete_with_the_header(tallies: dict[str, Tally]) -> None:
    runs, completed = sum(each.runs for each in tallies.values()), sum(each.completed for each in tallies.values())
    assert completed >= 0.95 * runs
    assert runs == 26 * 4


@pytest.mark.parametrize("kind", FREEING)
def test_wasteful_jobs_free_what_was_promised(tallies: dict[str, Tally], kind: str) -> None:
    assert tallies[kind].changed
    assert (
        tallies[kind].promised_core_seconds + tallies[kind].promised_gpu_seconds + tallies[kind].promised_byte_seconds
    )
    # Run times vary by an eighth, and there are few runs.
    assert tallies[kind].freed_ratio > 0.7


@pytest.mark.parametrize("kind", KILLED)
def test_jobs_that_were_killed_complete_with_the_header(tallies: dict[str, Tally], kind: str) -> None:
    assert tallies[kind].completed_as_submitted < tallies[kind].runs
    assert tallies[kind].completed > tallies[kind].completed_as_submitted
