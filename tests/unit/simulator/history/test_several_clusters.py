# SPDX-License-Identifier: Apache-2.0
"""Two simulated clusters have equal nodes and job IDs, and still their own jobs and numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.series import JobSpan
from slurmscope.reports.make import ReportMaker, measure
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import answer
from slurmscope.simulator.history.accounting import JoinedAccounting, SimulatedAccounting
from slurmscope.simulator.history.history import History
from slurmscope.simulator.history.workload_series import SeriesByCluster, SimulatedSeries
from slurmscope.slurm.cluster_names import read_all_names, read_own_name

NOW = int(time.time())
SHAPE = Shape(jobs=200, nodes=8)
ALPHA, BETA = (simulate(SHAPE, now=NOW, name=name) for name in ("alpha", "beta"))
ACCOUNTS = {
    cluster.name: SimulatedAccounting(cluster, History(cluster, jobs=3000, seed=seed).make())
    for seed, cluster in enumerate((ALPHA, BETA))
}


def test_name_changes_nothing_else() -> None:
    assert (ALPHA.jobs, ALPHA.nodes, ALPHA.users) == (BETA.jobs, BETA.nodes, BETA.users)
    assert ("alpha", "beta") == (ALPHA.name, BETA.name)


def run(command: str, arguments: Sequence[str]) -> bytes:
    code, output, complaint = answer(BETA, command, arguments)
    assert 0 == code, complaint
    return output


def test_simulated_commands_name_their_cluster() -> None:
    assert ("beta", ("beta",)) == (read_own_name(run), read_all_names(run))
    for clusters in ((), ("beta",), ("all",)):
        assert {"beta"} == {record.cluster for record in SacctAccounting(run, clusters=clusters).read_current()}
    with pytest.raises(AssertionError, match="only the command lines that slurmscope sends"):
        list(SacctAccounting(run, clusters=["alpha"]).read_current())


def test_joined_accounting_has_the_jobs_of_all_clusters() -> None:
    joined = JoinedAccounting(ACCOUNTS)
    assert ("alpha", "beta") == joined.clusters()
    assert {"beta"} == {record.cluster for record in joined.of("beta").read_current()}
    job = next(record for record in joined.read_current() if record.is_running)
    twins = joined.read_jobs([job.job_id])
    assert {"alpha", "beta"} <= {record.cluster for record in twins}
    ended = [*joined.read_ended(0, NOW)]
    assert 6000 == len(ended)
    assert {"alpha", "beta"} == {record.cluster for record in joined.read_user(job.user, 0, NOW)}


def test_equal_jobs_have_the_numbers_of_their_own_cluster() -> None:
    sources = {name: SimulatedSeries(known.find_workload) for name, known in ACCOUNTS.items()}
    joined = SeriesByCluster(sources)
    ended = {name: {record.job_id: record for record in known.read_ended(0, NOW)} for name, known in ACCOUNTS.items()}
    common = sorted(ended["alpha"].keys() & ended["beta"].keys())
    assert common
    for job_id in common[:5]:
        pair = [ended[name][job_id] for name in ("alpha", "beta")]
        reports = ReportMaker(joined).make(pair)
        alone = [ReportMaker(sources[record.cluster]).make([record])[0] for record in pair]
        assert [report.summary for report in alone] == [report.summary for report in reports]
    first = ended["alpha"][common[0]]
    span = [JobSpan(first.job_id, 0.0, 1.0)]
    assert {} == joined.read_totals(TOTALS["cpu"], span, until=1e12).by_job
    assert {} == joined.read_curves(CURVES["cpu"], span, points=10, until=1e12).by_job
    assert measure(joined, [first], now_seconds=NOW, until=1e12).totals["cpu"]
