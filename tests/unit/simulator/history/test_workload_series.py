# SPDX-License-Identifier: Apache-2.0
"""Check answers about simulated workloads against samples that are taken and added up one by one."""

import math
from collections import defaultdict
from itertools import pairwise

import pytest

from slurmscope.core.errors import ServerTimedOut
from slurmscope.core.tres import Gres
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.series import Aggregation, Curves, JobSpan, JobTotals, Series, SeriesQuery
from slurmscope.simulator.history.workload_kinds import WorkloadKind, make_workload
from slurmscope.simulator.history.workload_series import SimulatedSeries, SplitSeries, samples_at, step_ends
from slurmscope.simulator.history.workloads import Workload
from tests.fakes.reporting import FakeSeries
from tests.fakes.reports import START, make_record

END = START + 7200
SPAN = JobSpan(4711, START, END)
LIFE = make_workload(
    make_record(nodes=("n1", "n2"), node_count=2, cpus=8, gres=(Gres(name="gpu", count=4),)),
    WorkloadKind.GPU_HELD,
    length_seconds=7200,
)
ONE_NODE = make_workload(make_record(), WorkloadKind.CORE_IMBALANCE, length_seconds=7200)


def naive(wanted: SeriesQuery, workload: Workload, moment: float) -> dict[tuple[str, ...], float]:
    """Sample everything, keep what was asked for, and add it up."""
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for name, labels, number in samples_at([workload], moment):
        named = dict(labels)
        if name == wanted.metric and all(named.get(label) == value for label, value in wanted.where):
            sums[tuple(named[label] for label in wanted.by)] += number
    return sums


@pytest.mark.parametrize("workload", [LIFE, ONE_NODE], ids=["two nodes", "one node"])
@pytest.mark.parametrize("wanted", CURVES.values(), ids=CURVES.keys())
def test_curves_equal_naive_samples(wanted: SeriesQuery, workload: Workload) -> None:
    series = SimulatedSeries({4711: workload}.get)
    (found,) = [*series.read_curves(wanted, [SPAN], points=24, until=math.inf).by_job.values()] or [()]
    moments = [START + 300 * index for index in range(25)]
    sampled = [naive(wanted, workload, moment) for moment in moments]
    expected = {}
    for labels in sampled[0]:
        row = [sample[labels] for sample in sampled]
        rates = [(after - before) / 300 for before, after in pairwise(row)]
        expected[labels] = pytest.approx(rates if wanted.how is Aggregation.RATE else row[1:])
    assert expected == {curve.labels: list(curve.values) for curve in found}
    assert all(tuple(moments[1:]) == curve.times for curve in found)


@pytest.mark.parametrize("workload", [LIFE, ONE_NODE], ids=["two nodes", "one node"])
@pytest.mark.parametrize("wanted", TOTALS.values(), ids=TOTALS.keys())
def test_totals_equal_naive_samples(wanted: SeriesQuery, workload: Workload) -> None:
    found = SimulatedSeries({4711: workload}.get).read_totals(wanted, [SPAN], until=math.inf).by_job.get(4711, {})
    sampled = [naive(wanted, workload, START + 60 * index) for index in range(1, 121)]
    expected = {
        labels: pytest.approx(max(s[labels] for s in sampled))
        if wanted.how in {Aggregation.MAX, Aggregation.TOTAL}
        else pytest.approx(sum(s[labels] for s in sampled) / 120)
        for labels in sampled[0]
    }
    assert expected == dict(found)


def test_rate_of_a_whole_run_is_its_growth_over_its_time() -> None:
    wanted = SeriesQuery(metric="jobs_cpu_seconds_total", how=Aggregation.RATE, by=())
    totals = SimulatedSeries({4711: LIFE}.get).read_totals(wanted, [SPAN], until=math.inf)
    assert LIFE.cpu_seconds(7200) / 7200 == pytest.approx(totals.by_job[4711][()])


def test_unknown_jobs_and_metrics_have_no_answer() -> None:
    series = SimulatedSeries({4711: LIFE}.get)
    other = SeriesQuery(metric="node_load1", how=Aggregation.MAX)
    assert Curves() == series.read_curves(CURVES["cpu"], [JobSpan(1, START, END)], points=9, until=math.inf)
    assert JobTotals() == series.read_totals(other, [SPAN], until=math.inf)
    assert Curves() == series.read_curves(other, [SPAN], points=9, until=math.inf)


def test_a_question_that_comes_too_late_is_refused() -> None:
    series = SimulatedSeries({4711: LIFE}.get, clock=lambda: 10.0)
    with pytest.raises(ServerTimedOut):
        series.read_totals(TOTALS["cpu"], [SPAN], until=9.0)


@pytest.mark.parametrize(
    ("length", "points", "ends"),
    [(25, 100, (10, 20, 25)), (100, 3, (34, 68, 100)), (0, 9, ()), (10, 0, (10,))],
)
def test_steps_end_with_the_run(length: int, points: int, ends: tuple[int, ...]) -> None:
    assert ends == step_ends(JobSpan(1, 0, length), points)


def test_each_job_is_asked_of_its_own_source() -> None:
    one, other = FakeSeries(value=1.0), FakeSeries(value=2.0, is_partial=True)
    series = SplitSeries(one, lambda job_id: job_id == 1, other)
    spans = [JobSpan(1, 0, 60), JobSpan(2, 0, 60)]
    totals = series.read_totals(TOTALS["cpu"], spans, until=math.inf)
    curves = series.read_curves(CURVES["cpu"], spans, points=9, until=math.inf)
    assert [(1,), (1,)] == [jobs for _, jobs in one.queried]
    assert [(2,), (2,)] == [jobs for _, jobs in other.queried]
    assert {1, 2} == totals.by_job.keys() == curves.by_job.keys()
    assert (True, True) == (totals.is_partial, curves.is_partial)
    assert isinstance(curves.by_job[1][0], Series)


def test_a_source_without_jobs_is_not_asked() -> None:
    one, other = FakeSeries(), FakeSeries()
    SplitSeries(one, lambda _: False, other).read_totals(TOTALS["cpu"], [SPAN], until=math.inf)
    assert [] == one.queried
