# SPDX-License-Identifier: Apache-2.0
"""Every allocated hour has one outcome, and the outcomes add up to the allocation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurmscope.archive.job_columns import edge_seconds
from slurmscope.jobs.report import JobReport
from slurmscope.portal.hours import Goodput, TimeUse, make_goodput, split_hours
from tests.fakes.archive_backend import ArchiveBackend, open_archive_backend
from tests.fakes.browser import Page, open_portal
from tests.fakes.reports import make_record, make_report

HOUR = 3600.0
STATES = {
    "COMPLETED": "productive",
    "CANCELLED": "productive",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "out_of_memory",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "NODE_FAIL": "node_failed",
    "BOOT_FAIL": "node_failed",
    "PREEMPTED": "preempted",
    "REQUEUED": "requeued",
}


def ended(job_id: int, state: str, user: str = "ada", *, is_measured: bool = True) -> JobReport:
    """Make a job of two hours on four cores, of which two were busy, none in the first quarter and last half hour."""
    report = make_report(make_record(job_id, state=state, user=user))
    if is_measured:
        cpu = replace(report.summary.cpu, idle_start_seconds=HOUR / 4, idle_tail_seconds=HOUR / 2)
        return replace(report, summary=replace(report.summary, cpu=cpu))
    return replace(
        report, summary=replace(report.summary, cpu=replace(report.summary.cpu, time=type(report.summary.cpu.time)()))
    )


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[ArchiveBackend]:
    reports = [ended(job_id, state) for job_id, state in enumerate(STATES, 1)]
    with open_archive_backend(
        tmp_path, [*reports, ended(50, "COMPLETED", is_measured=False), ended(60, "FAILED", "bob")]
    ) as found:
        yield found


def hours(backend: ArchiveBackend, viewer: str, query: str = "") -> dict[str, float]:
    rows = open_portal(backend, viewer).get(f"/hours?format=json{query}").json()["rows"]
    return {row["outcome"]: row["core_seconds"] / HOUR for row in rows}


def test_outcomes_add_up_to_the_allocation(backend: ArchiveBackend) -> None:
    found = hours(backend, "ada")

    # Two jobs that did not fail kept half of eight core-hours busy; all hours of the others are lost. All four cores of
    # these two were idle for a quarter of an hour, and for half an hour.
    assert {
        "productive": 8.0,
        "startup": 2.0,
        "tail": 4.0,
        "idle": 2.0,
        "not_measured": 8.0,
        "failed": 8.0,
        "out_of_memory": 8.0,
        "time_limit": 16.0,
        "node_failed": 16.0,
        "preempted": 8.0,
        "requeued": 8.0,
    } == found
    assert 11 * 8.0 == sum(found.values())
    assert set(TimeUse) == set(found)


def test_page_and_waste_lose_the_same_hours(backend: ArchiveBackend) -> None:
    kept = {"productive", "startup", "tail", "idle", "not_measured"}
    lost = sum(amount for outcome, amount in hours(backend, "root").items() if outcome not in kept)
    users = open_portal(backend, "root").get("/waste?format=json").json()["rows"]

    assert 9 * 8.0 == lost == sum(row["failed_core_seconds"] + row["timeout_core_seconds"] for row in users) / HOUR


def test_users_see_their_own_hours_and_staff_those_of_all(backend: ArchiveBackend) -> None:
    assert {"failed": 8.0, **dict.fromkeys(("productive", "startup", "tail", "idle", "not_measured"), 0.0)} == hours(
        backend, "bob"
    )
    assert 0.0 == sum(hours(backend, "bob", "&user=ada").values())
    assert 12 * 8.0 == sum(hours(backend, "root").values())
    assert 8.0 == sum(hours(backend, "root", "&user=bob").values())


def test_page_names_the_productive_share(backend: ArchiveBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/hours").text)

    text = " ".join(page.text.split())
    assert "9.1 % of the core-hours were productive" in text
    assert "Lost: a node failed" in text


def test_goodput_of_the_cluster_counts_what_was_measured(backend: ArchiveBackend) -> None:
    page = " ".join(Page(open_portal(backend, "root").get("/cluster").text).text.split())

    # 8 productive core-hours of 12 jobs of 8, of which one was not measured.
    assert "Goodput 9.1 % of the core-hours of all jobs of the last 28 days were productive" in page
    bobs = " ".join(Page(open_portal(backend, "bob").get("/cluster").text).text.split())
    assert "Goodput 0 % of the core-hours of your jobs" in bobs
    assert "Goodput" not in Page(open_portal(backend, "eve").get("/cluster").text).text


def test_idle_time_at_the_ends_is_never_more_than_all_idle_time() -> None:
    report = ended(1, "COMPLETED")
    cpu = replace(report.summary.cpu, idle_start_seconds=1.5 * HOUR, idle_tail_seconds=0.75 * HOUR)
    edges = edge_seconds(replace(report, summary=replace(report.summary, cpu=cpu)))

    # Four of eight core-hours were idle.
    assert {
        "startup_core_seconds": HOUR,
        "tail_core_seconds": 3 * HOUR,
        "startup_gpu_seconds": None,
        "tail_gpu_seconds": None,
    } == edges
    unknown = replace(cpu, idle_start_seconds=None)
    assert {None} == set(edge_seconds(replace(report, summary=replace(report.summary, cpu=unknown))).values())


def test_goodput_without_gpus_is_unknown() -> None:
    assert Goodput(core_ratio=None, gpu_ratio=None) == make_goodput(split_hours(()))
