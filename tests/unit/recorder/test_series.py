# SPDX-License-Identifier: Apache-2.0
"""Answers from the recorder equal those that are read off the samples by hand."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmscope.core.errors import ServerTimedOut, SourceError
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.series import Aggregation, JobSpan, Series, SeriesQuery
from slurmscope.recorder.series import RecorderSeries
from slurmscope.recorder.settings import RECORDED_METRICS
from tests.fakes.recorded_samples import (
    CPU,
    INTERVAL,
    JOB,
    MEMORY,
    START,
    Answer,
    Points,
    make_recorder,
    naive_curves,
    naive_totals,
    sample,
)

RATE = SeriesQuery(metric=CPU, how=Aggregation.RATE)


def span(seconds: float, start: float = START) -> JobSpan:
    return JobSpan(JOB, start, start + seconds)


def curves_of(series: RecorderSeries, wanted: SeriesQuery, asked: JobSpan, points: int = 300) -> tuple[Series, ...]:
    return series.read_curves(wanted, [asked], points=points, until=math.inf).by_job.get(JOB, ())


def totals_of(series: RecorderSeries, wanted: SeriesQuery, asked: JobSpan) -> Mapping[tuple[str, ...], float]:
    return series.read_totals(wanted, [asked], until=math.inf).by_job.get(JOB, {})


def test_steady_counter_has_a_steady_rate(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        for turn in range(5):
            recorder.record(START + 15 * turn, [sample(30.0 * turn)])
        (curve,) = curves_of(recorder.series(), RATE, span(60))
    assert Series(("n1",), tuple(START + end for end in (15, 30, 45, 60)), (2.0, 2.0, 2.0, 2.0)) == curve


def test_counter_that_begins_again_grows_by_its_new_value(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        for at, value in ((0, 100.0), (15, 130.0), (30, 15.0), (45, 45.0)):
            recorder.record(START + at, [sample(value)])
        series = recorder.series()
        # 30 before the reset, 15 and 30 after it, in 45 seconds.
        assert {("n1",): 75 / 45} == totals_of(series, RATE, span(45))
        assert 75 / 45 == curves_of(series, RATE, span(45), points=1)[0].values[0]


def test_counter_that_begins_again_where_a_period_ends_never_shrinks(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        for at, value in ((0, 0.0), (3585, 100.0), (3600, 5.0), (3615, 35.0)):
            recorder.record(START + at, [sample(value)])
        (curve,) = curves_of(recorder.series(), RATE, span(3615))
        assert {("n1",): 135 / 3615} == totals_of(recorder.series(), RATE, span(3615))
    assert [(3600.0, 5 / 15), (3615.0, 35 / 30)] == [
        (time - START, value) for time, value in zip(curve.times, curve.values, strict=True)
    ]


def test_long_silence_is_a_gap_in_the_curve(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        for at in (0, 15, 30, 3000, 3015):
            recorder.record(START + at, [sample(float(at))])
        (curve,) = curves_of(recorder.series(), RATE, span(3015), points=201)
    assert [15, 30, 45, 60, 3015] == [time - START for time in curve.times]
    assert {1.0} == set(curve.values)


def test_other_run_of_the_same_job_is_left_out(tmp_path: Path) -> None:
    highest = SeriesQuery(metric=MEMORY, how=Aggregation.MAX)
    with make_recorder(tmp_path) as recorder:
        for at, value in ((570, 9.0), (585, 9.0), (600, 1.0), (615, 2.0)):
            recorder.record(START + at, [sample(value, MEMORY)])
        second = span(15, START + 600)
        assert {("n1",): 2.0} == totals_of(recorder.series(), highest, second)
        assert (2.0,) == curves_of(recorder.series(), highest, second)[0].values


def test_last_numbers_that_come_after_the_end_count_for_the_highest_only(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        for at, value in ((0, 1.0), (10, 3.0), (30, 8.0), (41, 50.0)):
            recorder.record(START + at, [sample(value)])
        series = recorder.series()
        assert {("n1",): 8.0} == totals_of(series, SeriesQuery(metric=CPU, how=Aggregation.MAX), span(10))
        assert {("n1",): 2.0} == totals_of(series, SeriesQuery(metric=CPU, how=Aggregation.MEAN), span(10))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        # The agent was started anew after 900: all processes had ended, or one of them goes on.
        (((0, 0.0), (600, 900.0), (615, 0.0), (1200, 800.0)), 1700.0),
        (((0, 0.0), (600, 900.0), (615, 899.5), (1200, 1699.5)), 1700.0),
        # At the end of a period, where samples are packed.
        (((0, 0.0), (3585, 900.0), (3600, 100.0), (3700, 900.0)), 1700.0),
        (((0, 300.0), (600, 900.0)), 900.0),
        # The run before, and what comes too late.
        (((-15, 5000.0), (0, 1.0), (600, 3.0), (610, 2.0), (1225, 4.0), (9000, 70.0)), 5.0),
    ],
)
def test_total_goes_on_where_an_agent_was_started_again(
    tmp_path: Path, seen: tuple[tuple[int, float], ...], expected: float
) -> None:
    last = max(1200, *(at for at, _ in seen if at < 9000)) - 30
    with make_recorder(tmp_path) as recorder:
        for at, value in seen:
            recorder.record(START + at, [sample(value)])
        assert {("n1",): expected} == totals_of(
            recorder.series(), SeriesQuery(metric=CPU, how=Aggregation.TOTAL), span(last)
        )


def test_copies_count_once_and_parts_are_summed_up(tmp_path: Path) -> None:
    wanted = SeriesQuery(metric="jobs_threads", how=Aggregation.MAX, each=("slurm_node", "state"), by=("slurm_node",))
    running = SeriesQuery(
        metric="jobs_threads", how=Aggregation.MAX, each=wanted.each, by=(), where=(("state", "running"),)
    )
    with make_recorder(tmp_path) as recorder:
        recorder.record(
            START,
            [
                sample(3.0, "jobs_threads", state="running", replica="a"),
                sample(4.0, "jobs_threads", state="running", replica="b"),
                sample(10.0, "jobs_threads", state="sleeping", replica="a"),
                sample(100.0, "jobs_threads", node="n2", state="running", replica="a"),
            ],
        )
        assert {("n1",): 14.0, ("n2",): 100.0} == totals_of(recorder.series(), wanted, span(60))
        assert {(): 104.0} == totals_of(recorder.series(), running, span(60))


def test_job_of_which_nothing_is_known_is_not_answered_for(tmp_path: Path) -> None:
    spans = [JobSpan(JOB, START, START + 60), JobSpan(1, START, START + 60), JobSpan(JOB + 1, START - 99, START - 1)]
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0), sample(1.0, job=JOB + 1)])
        totals = recorder.series().read_totals(SeriesQuery(metric=CPU, how=Aggregation.MEAN), spans, until=math.inf)
        curves = recorder.series().read_curves(RATE, spans, points=10, until=math.inf)
    assert {JOB} == set(totals.by_job)
    assert {} == curves.by_job


def test_span_of_no_length_has_no_curve(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0)])
        assert () == curves_of(recorder.series(), SeriesQuery(metric=CPU, how=Aggregation.MAX), span(0))


def test_metric_of_the_cluster_is_read_without_a_job(tmp_path: Path) -> None:
    wanted = SeriesQuery(metric="slurm_cpus", how=Aggregation.MAX, each=("state",), by=("state",))
    with make_recorder(tmp_path) as recorder:
        recorder.record(START + 5, [("slurm_cpus", {"state": "idle"}, 7.0)])
        found = recorder.series().read_cluster(wanted, START, START + 15, points=300, until=math.inf)
    assert (Series(("idle",), (START + 15,), (7.0,)),) == found


def test_cluster_is_read_in_steps_of_a_minute_however_often_jobs_are_recorded(tmp_path: Path) -> None:
    wanted = SeriesQuery(metric="slurm_cpus", how=Aggregation.MEAN, each=("state",), by=("state",))
    with make_recorder(tmp_path) as recorder:
        for minute, value in ((0, 6.0), (1, 12.0), (3, 18.0)):
            recorder.record(START + 60 * minute + 5, [("slurm_cpus", {"state": "idle"}, value)])
        (found,) = recorder.series().read_cluster(wanted, START, START + 300, points=300, until=math.inf)
    # Windows are three minutes long, so the one that was missed leaves no hole.
    assert tuple(START + 60 * minute for minute in (1, 2, 3, 4, 5)) == found.times
    assert (6.0, 9.0, 9.0, 15.0, 18.0) == found.values


def test_query_past_its_time_limit_is_abandoned(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0)])
        with pytest.raises(ServerTimedOut, match=r"reading recorded samples from .* timed out"):
            recorder.series().read_curves(RATE, [span(60)], points=10, until=-1.0)


def test_database_that_takes_too_long_is_interrupted(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        for turn in range(300):  # each is a period of its own
            recorder.record(START + 3600 * turn, [sample(float(turn))])
        times = iter([0.0])
        series = RecorderSeries(
            tmp_path / "recorder.db", interval_seconds=INTERVAL, heads=None, clock=lambda: next(times, 2.0)
        )
        with pytest.raises(ServerTimedOut):
            series.read_totals(SeriesQuery(metric=CPU, how=Aggregation.MAX), [span(2e6)], until=1.0)


def test_missing_file_is_a_source_error(tmp_path: Path) -> None:
    series = RecorderSeries(tmp_path / "absent.db", interval_seconds=INTERVAL)
    with pytest.raises(SourceError, match=r"cannot read recorded samples from .*absent\.db"):
        series.read_totals(RATE, [span(60)], until=math.inf)


GAPS = st.lists(st.sampled_from([1, 14, 15, 16, 45, 46, 300, 3500]), min_size=1, max_size=40)
VALUES = st.integers(0, 5).flatmap(lambda low: st.integers(low, low + 3))
WANTED = st.builds(
    SeriesQuery,
    metric=st.just(CPU),
    how=st.sampled_from(Aggregation),
    each=st.just(("slurm_node", "core")),
    by=st.sampled_from([(), ("slurm_node",), ("slurm_node", "core")]),
)
LABELS = [
    {"slurm_job": str(JOB), "slurm_node": node, "core": core, "replica": replica}
    for node, core, replica in (("n1", "0", "a"), ("n1", "0", "b"), ("n1", "1", "a"), ("n2", "0", "a"))
]


def rounded(answer: Answer) -> Answer:
    return {labels: [(time, round(value, 6)) for time, value in points] for labels, points in answer.items()}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data(), gaps=GAPS, wanted=WANTED, points=st.integers(1, 40))
def test_answers_equal_those_of_a_plain_look_at_all_samples(
    data: st.DataObject, gaps: list[int], wanted: SeriesQuery, points: int
) -> None:
    recorded: list[tuple[Mapping[str, str], Points]] = [(labels, []) for labels in LABELS]
    ats = [START + sum(gaps[: index + 1]) for index in range(len(gaps))]
    asked = JobSpan(
        JOB, START + data.draw(st.integers(-50, sum(gaps))), START + data.draw(st.integers(0, sum(gaps) + 200))
    )
    with tempfile.TemporaryDirectory() as folder:
        with make_recorder(Path(folder)) as recorder:
            for at in ats:
                chosen = data.draw(st.lists(st.sampled_from(recorded), unique_by=id, max_size=len(recorded)))
                values = [data.draw(VALUES) for _ in chosen]
                recorder.record(at, [(CPU, labels, value) for (labels, _), value in zip(chosen, values, strict=True)])
                for (_, kept), value in zip(chosen, values, strict=True):
                    kept.append((at, float(value)))
            within = recorder.series()
            outside = RecorderSeries(Path(folder) / "recorder.db", interval_seconds=INTERVAL)
            answers = [_answers(series, wanted, asked, points) for series in (within, outside)]
        answers.append(_answers(outside, wanted, asked, points))  # all is packed now
    curves = rounded(naive_curves(recorded, wanted, asked, points)) if asked.end_seconds > asked.start_seconds else {}
    totals = {labels: round(value, 6) for labels, value in naive_totals(recorded, wanted, asked).items()}
    assert [(curves, totals)] * 3 == answers


def _answers(
    series: RecorderSeries, wanted: SeriesQuery, asked: JobSpan, points: int
) -> tuple[Answer, dict[tuple[str, ...], float]]:
    found = curves_of(series, wanted, asked, points)
    curves = {curve.labels: list(zip(curve.times, curve.values, strict=True)) for curve in found}
    totals = totals_of(series, wanted, asked)
    return rounded(curves), {labels: round(value, 6) for labels, value in totals.items()}


@pytest.mark.parametrize("wanted", [CURVES["filesystem_read"], TOTALS["filesystem_metadata"]])
def test_metrics_of_exporters_of_others_are_not_recorded(tmp_path: Path, wanted: SeriesQuery) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(30.0)])
        series = recorder.series()
        assert () == curves_of(series, wanted, span(60.0))
        assert {} == totals_of(series, wanted, span(60.0))
    assert wanted.metric not in RECORDED_METRICS


def test_counter_that_lost_ended_processes_has_no_peak(tmp_path: Path) -> None:
    wanted = SeriesQuery(metric=CPU, how=Aggregation.RATE, may_fall=True)
    with make_recorder(tmp_path) as recorder:
        # 2 a second throughout; at 45 the restarted agent no longer counts 85 of an ended process.
        for at, value in ((0, 100.0), (15, 130.0), (30, 160.0), (45, 75.0), (60, 105.0), (75, 135.0)):
            recorder.record(START + at, [sample(value)])
        (curve,) = curves_of(recorder.series(), wanted, span(75))
    assert 2.0 == max(curve.values)
    assert 2.0 == curve.values[0]
