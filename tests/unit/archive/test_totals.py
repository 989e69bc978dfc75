# SPDX-License-Identifier: Apache-2.0
"""Totals and pages count every job once: a time is divided into whole units and the rest without gap or overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.settings import ArchiveSettings, parse_archive_url
from slurmscope.archive.totals import SubmitRange, split
from slurmscope.jobs.rule import Finding, Severity, Subject
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.reports.sources import open_archive
from tests.fakes.reports import START, make_record, make_report

BOUND = st.none() | st.integers(0, 60)


@given(since=BOUND, until=BOUND)
def test_every_second_is_in_exactly_one_part(since: int | None, until: int | None) -> None:
    whole, rest = split(SubmitRange(since, until), 10)

    seconds = [second for times in (*whole, *rest) for second in range(80) if _is_in(second, times)]

    assert [second for second in range(80) if _is_in(second, SubmitRange(since, until))] == sorted(seconds)


@given(since=BOUND, until=BOUND)
def test_whole_units_begin_and_end_at_units(since: int | None, until: int | None) -> None:
    whole, rest = split(SubmitRange(since, until), 10)

    assert all(bound is None or bound % 10 == 0 for times in whole for bound in times)
    assert all(len([second for second in range(80) if _is_in(second, times)]) < 20 for times in rest)


def _is_in(second: int, times: SubmitRange) -> bool:
    return (times.since is None or times.since <= second) and (times.until is None or second < times.until)


def _finding(rule: str) -> Finding:
    return Finding(rule=rule, severity=Severity.WARNING, subject=Subject.CPU, title="t", explanation="e.", advice="a.")


@pytest.mark.parametrize(
    "times",
    [
        {},
        # Less than a day is added up from the jobs, whole days from the sums by day.
        {"since_seconds": START - 601, "until_seconds": START - 599},
        {"since_seconds": START - 3 * 86400, "until_seconds": START + 3 * 86400},
    ],
)
def test_totals_of_a_rule_count_its_jobs_only(times: dict[str, Any], tmp_path: Path) -> None:
    findings = (("cpu_idle",), ("cpu_idle", "oom_kill"), ("oom_kill",), ())
    archive = open_archive(ArchiveSettings(url=parse_archive_url(str(tmp_path / "archive.db"))))
    archive.save([
        make_report(make_record(number), findings=tuple(map(_finding, rules)))
        for number, rules in enumerate(findings, start=1)
    ])  # fmt: skip

    def jobs(rule: str, by: GroupBy) -> dict[str, int]:
        return {total.key: total.jobs for total in archive.total(EVERYTHING, JobFilter(rule=rule, **times), by)}

    assert [{"ada": 4}, {"ada": 2}, {}] == [jobs(rule, GroupBy.USER) for rule in ("", "cpu_idle", "too_short")]
    assert {"cpu_idle": 2, "oom_kill": 2} == jobs("", GroupBy.RULE)
    archive.close()


def test_page_does_not_end_between_jobs_of_the_same_key(tmp_path: Path) -> None:
    archive = open_archive(ArchiveSettings(url=parse_archive_url(str(tmp_path / "archive.db"))))
    older = [make_report(make_record(number, submit_seconds=START - 1000 - number)) for number in (1, 2)]
    archive.save([*older, *(make_report(make_record(9, cluster=cluster)) for cluster in ("a", "b"))])

    first = archive.list_jobs(EVERYTHING, JobFilter(), limit=1)
    second = archive.list_jobs(EVERYTHING, JobFilter(), limit=1, after=first.next_key)
    last = archive.list_jobs(EVERYTHING, JobFilter(), limit=1, after=second.next_key)
    archive.close()

    assert [[9, 9], [1], [2]] == [[row.job_id for row in page.rows] for page in (first, second, last)]
    assert last.next_key is None
