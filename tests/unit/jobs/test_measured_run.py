# SPDX-License-Identifier: Apache-2.0
"""Few points speak for a short run, and for no long one; every expected number is worked out by hand."""

from __future__ import annotations

import pytest

from slurmscope.jobs.measured_run import prepare_run
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import JobSummary
from tests.fakes.measured import curve
from tests.fakes.reports import START, make_record


def summed(record: JobRecord, measured: Measured) -> JobSummary:
    return summarize(record, measured, now_seconds=START + 7200.0)


def test_one_point_speaks_for_a_short_job_and_for_no_long_one() -> None:
    measured = Measured(totals={"cpu": {("n1",): 40.0}}, curves={"cpu": (Series(("n1",), (START + 15.0,), (2.0,)),)})

    assert summed(make_record(end_seconds=START + 20), measured).coverage.is_good
    # Half a minute before it and behind it, of two hours; before it are only 15 s.
    assert pytest.approx(45 / 7200) == summed(make_record(), measured).coverage.run_ratio


def test_points_close_together_speak_for_a_short_job() -> None:
    # Steps end every 15 s; the point behind the end of the run was moved there.
    times = (START + 19.0, START + 20.0)
    measured = Measured(totals={"cpu": {("n1",): 40.0}}, curves={"cpu": (Series(("n1",), times, (0.9, 0.8)),)})
    summary = summed(make_record(end_seconds=START + 20, cpu_seconds=None), measured)

    assert 1.0 == summary.coverage.run_ratio
    # 40 s of CPU time in 20 s; a peak cannot be below the mean.
    assert (2.0, 2.0) == (summary.cpu.mean_cores, summary.cpu.peak_cores)


def test_first_rate_of_a_job_speaks_from_its_start() -> None:
    rates = curve(("n1",), 2.0, first=45.0, last=60.0, step=15.0)
    measured = Measured(totals={"cpu": {("n1",): 120.0}}, curves={"cpu": (rates,)})

    assert 1.0 == summed(make_record(end_seconds=START + 60), measured).coverage.run_ratio
    # 60 s before the first point, 15 s to the second, 30 s behind it, of 2 hours.
    late = Measured(
        totals=measured.totals, curves={"cpu": (curve(("n1",), 2.0, first=1000.0, last=1015.0, step=15.0),)}
    )
    assert pytest.approx(105 / 7200) == summed(make_record(), late).coverage.run_ratio


@pytest.mark.parametrize("last_sample_seconds", [330.0, 300.0, 270.0])
def test_job_that_runs_is_not_less_busy_for_want_of_the_newest_sample(last_sample_seconds: float) -> None:
    # 7.44 of 8 cores busy all the time: 93 %.
    measured = Measured(
        totals={"cpu": {("n1",): 7.44 * last_sample_seconds}},
        curves={"cpu": (curve(("n1",), 7.44, first=30.0, last=330.0, step=60.0),)},
    )
    running = make_record(cpus=8, state="RUNNING", end_seconds=None, cpu_seconds=None)
    summary = summarize(running, measured, now_seconds=START + 330.0)

    assert pytest.approx(0.93) == summary.cpu.time.ratio
    assert 7.44 * last_sample_seconds == summary.cpu.time.used


def test_samples_that_are_missing_for_long_are_no_work() -> None:
    # Two steps of a minute at most are taken for a late sample, whatever the counter tells.
    measured = Measured(
        totals={"cpu": {("n1",): 8.0 * 60}},
        curves={"cpu": (curve(("n1",), 8.0, first=60.0, last=600.0, step=60.0),)},
    )
    running = make_record(cpus=8, state="RUNNING", end_seconds=None, cpu_seconds=None)

    ratio = summarize(running, measured, now_seconds=START + 600.0).cpu.time.ratio
    assert pytest.approx(60 / (600 - 120)) == ratio


@pytest.mark.parametrize(("last", "points"), [(7140.0, 238), (7110.0, 240)])
def test_node_whose_processes_ended_earlier_has_zeros_to_the_end(last: float, points: int) -> None:
    # Two steps of 30 s before the end the last values may only not be scraped yet.
    record = make_record(nodes=("n1", "n2"), node_count=2)
    curves = {
        "cpu": (curve(("n1",), 2.0), curve(("n2",), 2.0, last=last)),
        "ended": (curve(("n2",), 1.0, first=last, last=last),),
    }
    run = prepare_run(record, Measured(curves=curves), now_seconds=START + 7200.0)

    assert [240, points] == [len(series.times) for series in run.curves["cpu"]]
    assert 2.0 * last / 30.0 == sum(run.curves["cpu"][1].values)


def test_job_that_did_nothing_yet_has_counted_for_all_its_time() -> None:
    measured = Measured(
        totals={"cpu": {("n1",): 0.0}},
        curves={"cpu": (curve(("n1",), 0.0, first=60.0, last=600.0, step=60.0),)},
    )
    running = make_record(cpus=8, state="RUNNING", end_seconds=None, cpu_seconds=None)

    assert 8 * 600.0 == summarize(running, measured, now_seconds=START + 600.0).cpu.time.requested


@pytest.mark.parametrize(("end", "counted"), [(720.0, 720.0), (721.0, 600.0)])
def test_node_that_stopped_reporting_counts_to_its_last_point(end: float, counted: float) -> None:
    # Two steps of a minute behind the last point belong to it, later than that the node was silent.
    measured = Measured(
        totals={"cpu": {("n1",): 600.0}},
        curves={"cpu": (curve(("n1",), 1.0, first=60.0, last=600.0, step=60.0),)},
    )
    running = make_record(cpus=8, state="RUNNING", end_seconds=None, cpu_seconds=None)

    # One core was busy for all of the 600 s: in a run of 720 s the last minutes may only not be scraped yet.
    used = summarize(running, measured, now_seconds=START + end).cpu.time
    assert (600.0, 8 * min(counted, 600.0)) == (used.used, used.requested)
    ended = make_record(cpus=8, end_seconds=int(START + end), cpu_seconds=None)
    assert 8 * counted == summarize(ended, measured, now_seconds=START + end).cpu.time.requested
