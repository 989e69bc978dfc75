# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of a real GPU compares with is computed right, and without a GPU it says that it measured none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.gpu_device import main
from bench.gpu_jobs import Page, rate, share_of

PAGE = """# HELP jobs_gpu_busy_seconds_total Time.
jobs_gpu_busy_seconds_total{slurm_job="1",gpu="0",mig=""} 12.5
jobs_gpu_busy_seconds_total{slurm_job="2",gpu="0",mig=""} 3
gpu_busy_seconds_total{gpu="0",mig=""} 20
"""


def test_overlapping_loads_are_busy_once() -> None:
    # Of ten seconds: 1 to 4, and 8 to the end.
    bursts = [(11.0, 13.0), (12.0, 14.0), (12.5, 12.75), (18.0, 25.0), (1.0, 9.0)]

    assert 0.5 == pytest.approx(share_of(bursts, (10.0, 20.0)))
    assert 1.0 == share_of([(0.0, 100.0)], (10.0, 20.0))
    assert 0.0 == share_of([], (10.0, 20.0))


def test_series_are_chosen_by_their_labels() -> None:
    first, last = Page(100.0, PAGE), Page(110.0, PAGE.replace(" 3\n", " 8\n"))

    assert (15.5, 12.5, None) == (
        first.get("jobs_gpu_busy_seconds_total", gpu="0"),
        first.get("jobs_gpu_busy_seconds_total", slurm_job="1"),
        first.get("jobs_gpu_busy_seconds_total", slurm_job="3"),
    )
    assert 0.5 == rate([first, last], "jobs_gpu_busy_seconds_total", slurm_job="2")
    assert rate([first, last], "jobs_gpu_busy_seconds_total", slurm_job="3") is None


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main()
    assert "not measured" in capsys.readouterr().out
