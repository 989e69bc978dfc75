# SPDX-License-Identifier: Apache-2.0
"""Check that the recorder of a demo has what the workloads of running jobs define."""

import math
import signal
import threading
import time
from pathlib import Path

import pytest

from slurmscope.core.process import run_until_interrupted
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.series import JobSpan
from slurmscope.recorder.recorder import Recorder
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.simulator.history.workload_kinds import WorkloadKind, make_workload
from slurmscope.simulator.history.workload_series import SimulatedSeries
from slurmscope.up.demo import backfill
from tests.fakes.reports import make_record


def test_the_past_of_running_jobs_is_recorded_without_holes(tmp_path: Path) -> None:
    now = time.time()
    records = {
        number: make_record(number, state="RUNNING", end_seconds=None, start_seconds=int(now) - age)
        for number, age in ((1, 20_000), (2, 700))
    }
    lives = [make_workload(record, WorkloadKind.BURSTY, length_seconds=20_000) for record in records.values()]
    computed = SimulatedSeries({life.job_id: life for life in lives}.get)
    is_recorded = threading.Event()
    with Recorder(RecorderSettings(file=tmp_path / "recorder.db", interval=60.0)) as recorder:
        backfill(lives, recorder, is_recorded, threading.Event())
        series = recorder.series()
        for number, record in records.items():
            span = JobSpan(number, float(record.start_seconds or 0), time.time())
            (curve,) = series.read_curves(CURVES["cpu"], [span], points=300, until=math.inf).by_job[number]
            # A series begins within a step after the start of its job, and has a point for each step from then on.
            assert max(b - a for a, b in zip(curve.times, curve.times[1:], strict=False)) <= 121
            (recorded,) = series.read_totals(TOTALS["cpu"], [span], until=math.inf).by_job[number].values()
            (expected,) = computed.read_totals(TOTALS["cpu"], [span], until=math.inf).by_job[number].values()
            assert expected == pytest.approx(recorded, rel=0.02)
    assert is_recorded.is_set()


def test_nothing_runs_and_nothing_is_recorded(tmp_path: Path) -> None:
    is_recorded = threading.Event()
    with Recorder(RecorderSettings(file=tmp_path / "recorder.db")) as recorder:
        backfill([], recorder, is_recorded, threading.Event())
        assert 0 == recorder.recorded
    assert is_recorded.is_set()


def test_the_past_is_left_half_done_at_the_end(tmp_path: Path) -> None:
    record = make_record(1, state="RUNNING", end_seconds=None, start_seconds=int(time.time()) - 20_000)
    is_recorded, stopping = threading.Event(), threading.Event()
    stopping.set()
    with Recorder(RecorderSettings(file=tmp_path / "recorder.db")) as recorder:
        backfill([make_workload(record, WorkloadKind.BURSTY, length_seconds=20_000)], recorder, is_recorded, stopping)
        assert (0, False) == (recorder.recorded, is_recorded.is_set())


def test_an_interruption_is_a_good_end() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def serve() -> int:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("not reached")

    assert 0 == run_until_interrupted(serve)
    assert before == signal.getsignal(signal.SIGTERM)


def test_the_exit_code_of_what_is_served_is_kept() -> None:
    assert 3 == run_until_interrupted(lambda: 3)
