# SPDX-License-Identifier: Apache-2.0
"""Headers for next runs hold on simulated jobs of every kind; the whole year is ``python -m bench resubmission``."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bench.resubmission import BEGIN_SECONDS, Tally, back_test, find_violations
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.jobs.header_options import freed_resources
from slurmscope.jobs.report import JobReport, OptionChange, RequestedSize, Resubmission
from slurmscope.jobs.summary import NodeSummary
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.resubmission import NodeSizes, add_resubmission
from slurmscope.reports.sources import open_archive
from slurmscope.simulator.cluster.busy_day import fill
from slurmscope.simulator.cluster.cluster import calm, simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedNode
from slurmscope.simulator.history.accounting import SimulatedAccounting
from slurmscope.simulator.history.history import History
from slurmscope.simulator.history.workload_series import SimulatedSeries
from slurmscope.up.demo import Demo
from tests.fakes.job_summaries import GIB, HOUR, make_summary

pytestmark = pytest.mark.no_cover

BATCH = 500
FREEING = ("serial", "idle", "memory_over_requested", "gpu_held", "node_imbalance")
KILLED = ("out_of_memory", "timed_out")


@pytest.fixture(scope="module")
def tallies() -> dict[str, Tally]:
    return back_test(jobs=1, runs=5, seed=7)


def test_later_runs_complete_with_the_header(tallies: dict[str, Tally]) -> None:
    runs, completed = sum(each.runs for each in tallies.values()), sum(each.completed for each in tallies.values())
    assert completed >= 0.95 * runs
    assert runs == 26 * 4


def test_no_header_is_against_what_was_measured(tallies: dict[str, Tally]) -> None:
    assert [] == [violation for tally in tallies.values() for violation in tally.violations]


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


def test_wrong_headers_are_noticed() -> None:
    summary = make_summary(nodes=(NodeSummary(node="n1", working_peak_bytes=6 * GIB),))
    size = RequestedSize(nodes=1, cpus=4, gpus=0, memory_bytes=8 * GIB, limit_seconds=3 * HOUR)
    change = OptionChange(option="mem", submitted="8G", suggested="", reason="")

    def violations(**suggested: float) -> list[str]:
        after = replace(size, **suggested)  # type: ignore[arg-type]
        freed = freed_resources(size, after, 2 * HOUR)
        made = Resubmission(changes=(change,), other_runs=0, submitted=size, suggested=after, freed=freed)
        found = find_violations(JobReport(summary=summary, made_seconds=0, resubmission=made))
        return [text.partition(": ")[2] for text in found]

    assert [] == violations(memory_bytes=7 * GIB, limit_seconds=2.5 * HOUR)
    assert ["memory below the measured or extrapolated need"] == violations(memory_bytes=5 * GIB)
    costs = "costs more than it frees"
    assert ["more memory where it was not short", costs] == violations(memory_bytes=9 * GIB)
    assert ["more time where it was not short", costs] == violations(limit_seconds=4 * HOUR)
    assert ["less time than the run took"] == violations(limit_seconds=HOUR)
    assert ["more cores, GPUs or nodes", costs] == violations(cpus=5)
    assert ["more cores, GPUs or nodes"] == violations(cpus=3, gpus=1)
    assert "memory above that of a node" in violations(memory_bytes=33 * GIB)
    summary = make_summary(record={"state": "OUT_OF_MEMORY"})
    assert ["no more memory after an OOM kill"] == violations(limit_seconds=2.5 * HOUR)
    assert [] == violations(memory_bytes=16 * GIB)


def test_no_header_of_the_demo_is_against_what_was_measured(tmp_path: Path) -> None:
    cluster = fill(calm(simulate(Shape(seed=1), now=BEGIN_SECONDS, name="demo")))
    demo = Demo(cluster=cluster)
    accounting = SimulatedAccounting(cluster, History(cluster, jobs=demo.past_jobs, seed=demo.seed).make())
    sizes = NodeSizes(lambda _command, _arguments: "\n".join(map(_size, cluster.nodes)).encode())
    # A busy machine must not leave jobs unmeasured.
    maker = ReportMaker(
        SimulatedSeries(accounting.find_workload),
        node_sizes=sizes,
        timeout_seconds=3600.0,
        wall_clock=lambda: float(BEGIN_SECONDS),
    )
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path / 'archive.db'}"))
    changed, violations, walked = Counter[str](), list[str](), 0
    with closing(archive):
        ended = list(accounting.read_ended(0, BEGIN_SECONDS))
        # Curves of all of them at once would take a gigabyte.
        for begin in range(0, len(ended), BATCH):
            reports = maker.make(ended[begin : begin + BATCH])
            archive.save(reports)
            waiting = WaitingTimesCache(archive)
            for report in (add_resubmission(archive, waiting, EVERYTHING, each) for each in reports):
                walked += 1
                violations += find_violations(report)
                changed[report.record.state] += bool(report.resubmission and report.resubmission.changes)

    assert [] == violations
    # Enough of each to notice something.
    assert demo.past_jobs == walked >= 3000
    assert changed["OUT_OF_MEMORY"] >= 25
    assert changed["COMPLETED"] >= 250


def _size(node: SimulatedNode) -> str:
    return f"{node.name} {node.cpus} {node.memory_bytes >> 20}"
