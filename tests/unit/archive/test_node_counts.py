# SPDX-License-Identifier: Apache-2.0
"""Jobs of one node are counted by node, user and name."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from slurmscope.archive.totals import count_gpu_faults, count_runs
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.suspect_nodes import NodeRuns
from slurmscope.jobs.viewer import Viewer, ViewerRole
from tests.fakes.archive import FakeArchive
from tests.fakes.archive_backend import open_archive_backend
from tests.fakes.reports import START, make_finding, make_record, make_report


def ended(job_id: int, node: str, state: str = "COMPLETED", *, rule: str = "cpu_idle", **changed: object) -> JobReport:
    record = make_record(job_id, state=state, nodes=(node,), **changed)
    return make_report(record, findings=(make_finding(rule),))


REPORTS = (
    ended(1, "n1"),
    ended(2, "n1", "FAILED"),
    ended(3, "n1", "NODE_FAIL"),
    # Memory and time are no fault of the node.
    ended(4, "n1", "OUT_OF_MEMORY"),
    ended(5, "n1", "TIMEOUT", user="bob"),
    ended(6, "n2", rule="gpu_fault"),
    ended(7, "n2", submit_seconds=START - 90_000),
    ended(8, "n2", "RUNNING", end_seconds=None),
    # The program read memory that is not its own, as on any node.
    make_report(
        make_record(10, nodes=("n1",)), findings=(replace(make_finding("gpu_fault"), severity=Severity.WARNING),)
    ),
    make_report(make_record(9, nodes=("n1", "n2"), node_count=2), findings=(make_finding("gpu_fault"),)),
)


def test_runs_are_counted_by_outcome(tmp_path: Path) -> None:
    with open_archive_backend(tmp_path, REPORTS) as backend, backend.archive.database.reading() as connection:
        assert {
            NodeRuns("lab", "n1", "ada", "relax", 5, 2, 2, 14_400.0, 2 * 7200.0**2),
            NodeRuns("lab", "n1", "bob", "relax", 1, 0, 0, 0.0, 0.0),
            NodeRuns("lab", "n2", "ada", "relax", 1, 0, 1, 7200.0, 7200.0**2),
        } == set(count_runs(connection, START - 3600))
        assert {("lab", "n2"): 1} == count_gpu_faults(connection, START - 3600)


def test_running_jobs_of_a_node_are_counted_for_those_who_may_see_them(tmp_path: Path) -> None:
    running = [
        make_report(make_record(number, state="RUNNING", end_seconds=None, nodes=nodes, user=user, cluster=cluster))
        for number, nodes, user, cluster in (
            (11, ("n1", "n2"), "ada", "lab"), (12, ("n1",), "bob", "lab"), (13, ("n1",), "ada", "other"),
        )
    ]  # fmt: skip
    suspended = make_report(make_record(14, state="SUSPENDED", end_seconds=None, nodes=("n3",)))
    reports = (*REPORTS, *running, suspended)
    with open_archive_backend(tmp_path, reports) as backend:
        for archive in (backend.archive, FakeArchive(reports)):
            staff, bob = Viewer(name="sue", role=ViewerRole.SUPPORT), Viewer(name="bob")
            # Job 8 of REPORTS runs on n2.
            assert {"n1": 2, "n2": 2, "n3": 1} == archive.count_running(staff, "lab")
            assert {"n1": 3, "n2": 2, "n3": 1} == archive.count_running(staff)
            assert {"n1": 1} == archive.count_running(bob, "lab")


def test_user_who_names_each_job_differently_leaves_room_for_others(tmp_path: Path) -> None:
    hostile = [ended(100 + number, "n1", user="mallory", name=f"job {number}") for number in range(9)]
    often = ended(200, "n1", user="mallory", name="job 4")
    reports = [*REPORTS, *hostile, often]
    with open_archive_backend(tmp_path, reports) as backend, backend.archive.database.reading() as connection:
        found = count_runs(connection, START - 3600, rows_of_user=2)

    users = [runs.user for runs in found]
    assert (2, 2, 1) == (users.count("mallory"), users.count("ada"), users.count("bob"))
    assert ("job 4", 2) in {(runs.name, runs.runs) for runs in found}, "those with the most runs are kept"


def test_ranking_is_that_of_a_plain_list(tmp_path: Path) -> None:
    states = ["FAILED" if number % 3 == 0 and number % 2 else "COMPLETED" for number in range(150)]
    reports = [ended(number + 1, f"n{number % 3}", state, user=f"u{number % 4}") for number, state in enumerate(states)]
    with open_archive_backend(tmp_path, reports) as backend:
        found = backend.archive.judge_nodes(0)

    assert [pytest.approx(asdict(record)) for record in FakeArchive(reports).judge_nodes(0)] == list(map(asdict, found))
    assert ("n0", "suspect") == (found[0].node, found[0].verdict)
