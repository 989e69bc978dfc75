# SPDX-License-Identifier: Apache-2.0
"""Runs before and after advice are shown side by side, and what was saved is summed up."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.jobs.report import JobReport
from slurmscope.portal.web.templates import RULE_TITLES
from tests.fakes.archive_backend import ArchiveBackend, open_archive_backend
from tests.fakes.browser import Page, open_portal
from tests.fakes.reports import START, make_finding, make_record, make_report

DAY = 86400


def make_run(job_id: int, day: int, cpus: int, **changed: object) -> JobReport:
    start = START + day * DAY
    times = {"submit_seconds": start, "start_seconds": start, "end_seconds": start + 7200}
    finding = make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=4")
    return make_report(make_record(job_id, cpus=cpus, **times, **changed), findings=(finding,) if cpus > 4 else ())


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[ArchiveBackend]:
    runs = [make_run(1, 0, 16), make_run(2, 1, 4), make_run(3, 0, 16, user="bob"), make_run(4, 1, 16, user="bob")]
    with open_archive_backend(tmp_path, runs) as backend:
        yield backend


def test_both_runs_show_what_changed(backend: ArchiveBackend) -> None:
    browser = open_portal(backend, "ada")
    before, after = (Page(browser.get(f"/jobs/{job}").text) for job in (1, 2))

    title = RULE_TITLES["cpu_idle"]
    assert f"Of this advice, the next run, job 2 , followed: {title}." in " ".join(before.text.split())
    assert f"Of the advice to job 1 , this run followed: {title}." in " ".join(after.text.split())
    # 12 cores fewer for two hours.
    assert "It reserved 24 core-hours less." in " ".join(after.text.split())
    assert "/compare?job=1&job=2" in after.links


def test_advice_that_was_not_followed_is_shown_as_well(backend: ArchiveBackend) -> None:
    page = Page(open_portal(backend, "bob").get("/jobs/4").text)

    assert f"this run did not follow: {RULE_TITLES['cpu_idle']}." in " ".join(page.text.split())
    assert "less." not in page.text.partition("did not follow")[2].partition("Before")[0]


def test_savings_are_summed_up_and_each_user_sees_their_own(backend: ArchiveBackend) -> None:
    def read(name: str, table: str) -> list[dict[str, str]]:
        text = open_portal(backend, name).get(f"/savings?format=csv&table={table}").text
        return list(csv.DictReader(io.StringIO(text)))

    assert [("ada", "1", "0", "86400.0"), ("bob", "0", "1", "0.0")] == [
        (row["key"], row["followed"], row["ignored"], row["saved_core_seconds"]) for row in read("sue", "user")
    ]
    assert ["bob"] == [row["key"] for row in read("bob", "user")]
    assert ["2026-09"] == [row["key"] for row in read("sue", "month")]
    assert [("cpu_idle", "2")] == [(row["key"], row["advised"]) for row in read("sue", "rule")]
    assert "By user" in open_portal(backend, "sue").get("/savings").text
    assert "By user" not in open_portal(backend, "bob").get("/savings").text
    for query in ("", "?cluster=lab"):
        assert f"/users/ada{query}" in Page(open_portal(backend, "sue").get(f"/savings{query}").text).links
    assert 400 == open_portal(backend, "sue").get("/savings?format=csv&table=day").status_code
