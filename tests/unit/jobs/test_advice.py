# SPDX-License-Identifier: Apache-2.0
"""Shares are of what can be compared."""

from __future__ import annotations

import pytest

from slurmscope.jobs.advice import AdviceTotal


@pytest.mark.parametrize(("followed", "ignored", "expected"), [(1, 3, 0.25), (0, 2, 0.0), (0, 0, None)])
def test_share_is_of_the_suggestions_that_can_be_compared(followed: int, ignored: int, expected: float | None) -> None:
    total = AdviceTotal(
        key="cpu_idle", advised=9, followed=followed, ignored=ignored, gone=0, completed=0, saving_runs=0,
        saved_core_seconds=0.0, saved_gpu_seconds=0.0, saved_memory_byte_seconds=0.0,
    )  # fmt: skip

    assert expected == total.followed_ratio
