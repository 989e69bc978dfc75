# SPDX-License-Identifier: Apache-2.0
"""Rules that are tried on an archive count what a person would count by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.jobs.findings import RULES
from slurmscope.jobs.report import JobReport
from slurmscope.reports.rule_trial import MAX_AGE_SECONDS, PROGRESS_JOBS, RuleTrial, read_ended, try_rules
from slurmscope.reports.sources import open_archive
from tests.fakes.archive import FakeArchive
from tests.fakes.job_summaries import GIB, make_summary
from tests.fakes.reports import START, make_finding, make_record, make_report, make_unmeasured_report

DAY = 86400
WEEK = (START, START + 7 * DAY)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[SqlArchive]:
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))
    yield archive
    archive.close()


def _report(job_id: int, *, peak_gib: float, found: tuple[str, ...] = (), **record: Any) -> JobReport:
    """Make a job of two hours that kept three of four cores busy: two core hours are left unused."""
    summary = make_summary(
        record={"job_id": job_id, **record}, busy=0.75, memory={"working_peak_bytes": peak_gib * GIB}
    )
    return JobReport(summary=summary, made_seconds=START, findings=tuple(make_finding(rule) for rule in found))


def _trial(archive: SqlArchive, rule: str, **thresholds: float) -> RuleTrial:
    given = {f"{rule}.{name}": value for name, value in thresholds.items()}
    return next(one for one in try_rules(archive, WEEK, given).rules if one.rule == rule)


def test_rule_counts_jobs_users_and_waste(archive: SqlArchive) -> None:
    # All asked for 8 GiB; by default less than half of it is too little used.
    archive.save(
        [
            _report(1, peak_gib=6.0, user="ada"),
            _report(2, peak_gib=3.0, user="ada", found=("memory_over_requested",)),
            _report(3, peak_gib=0.5, user="ada"),
            _report(4, peak_gib=0.5, user="bob"),
        ]
    )

    assert RuleTrial(
        rule="memory_over_requested", jobs=3, users=2, wasted_core_seconds=3 * 2 * 3600.0, was_found=1
    ) == _trial(archive, "memory_over_requested")


def test_thresholds_are_those_that_are_set_now(archive: SqlArchive) -> None:
    archive.save([_report(1, peak_gib=3.0), _report(2, peak_gib=0.5)])

    assert (2, 1, 0) == tuple(
        _trial(archive, "memory_over_requested", min_used_ratio=ratio).jobs for ratio in (0.5, 0.2, 0.05)
    )


def test_every_run_of_a_requeued_job_is_judged_by_itself(archive: SqlArchive) -> None:
    archive.save(
        [
            _report(1, peak_gib=0.5, submit_seconds=START - 600),
            _report(1, peak_gib=6.0, submit_seconds=START + 8000),
        ]
    )

    assert 1 == _trial(archive, "memory_over_requested").jobs
    assert 2 == try_rules(archive, WEEK, {}).jobs


def test_job_counts_by_when_it_ended(archive: SqlArchive) -> None:
    since, until = WEEK
    archive.save(
        [
            _report(1, peak_gib=0.5, submit_seconds=since - 30 * DAY, end_seconds=since),
            _report(2, peak_gib=0.5, submit_seconds=since - 30 * DAY, end_seconds=since - 1),
            _report(3, peak_gib=0.5, end_seconds=until - 1),
            _report(4, peak_gib=0.5, end_seconds=until),
            _report(5, peak_gib=0.5, state="RUNNING", end_seconds=None),
            _report(6, peak_gib=0.5, state="CANCELLED", start_seconds=None, end_seconds=since + 5),
        ]
    )

    assert {1, 3} == {row.job_id for row in read_ended(archive, since, until)}
    assert (2, 2) == (try_rules(archive, WEEK, {}).jobs, _trial(archive, "memory_over_requested").jobs)


def test_jobs_of_all_pages_are_read() -> None:
    archive, bare = FakeArchive(), make_unmeasured_report(make_record())
    # Its own way to save compares every report with every other.
    archive.reports = [
        replace(bare, summary=replace(bare.summary, record=make_record(number))) for number in range(2100, 0, -1)
    ]

    rows = list(read_ended(archive, *WEEK))

    assert set(range(1, 2101)) == {row.job_id for row in rows}
    assert 2100 == len(rows)


def test_search_goes_no_further_back_than_jobs_live(archive: SqlArchive) -> None:
    since, _ = WEEK
    archive.save(
        [
            _report(1, peak_gib=0.5, submit_seconds=since - MAX_AGE_SECONDS),
            _report(2, peak_gib=0.5, submit_seconds=since - MAX_AGE_SECONDS - 1),
        ]
    )

    assert [1] == [row.job_id for row in read_ended(archive, *WEEK)]


def test_rules_are_listed_most_jobs_first(archive: SqlArchive) -> None:
    archive.save([_report(1, peak_gib=0.5, state="TIMEOUT"), _report(2, peak_gib=0.5)])

    trial = try_rules(archive, WEEK, {})

    jobs = [rule.jobs for rule in trial.rules]
    assert {rule.id for rule in RULES} == {rule.rule for rule in trial.rules}
    assert sorted(jobs, reverse=True) == jobs
    assert 1 == _trial(archive, "timed_out").jobs


def test_empty_archive_has_nothing_to_judge(archive: SqlArchive) -> None:
    trial = try_rules(archive, WEEK, {})

    assert (0, {(0, 0, 0.0, 0)}) == (
        trial.jobs,
        {(rule.jobs, rule.users, rule.wasted_core_seconds, rule.was_found) for rule in trial.rules},
    )


def test_progress_is_reported() -> None:
    reports = [make_report(make_record(number)) for number in range(1, 2 * PROGRESS_JOBS + 2)]
    told: list[int] = []

    try_rules(FakeArchive(reports), WEEK, {}, told.append)

    assert [PROGRESS_JOBS, 2 * PROGRESS_JOBS] == told
