# SPDX-License-Identifier: Apache-2.0
"""Digests sum up the archive; the numbers are worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import JOBS, REPORTS
from slurmscope.jobs.render.brief import render_brief
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.summary import UsedShare
from slurmscope.jobs.viewer import Viewer
from slurmscope.mail.digest import Digest, DigestRequest, DigestSubject, Use, add_headers, add_up, write_digests
from slurmscope.mail.digest_mail import render_digest_html, render_digest_text
from slurmscope.mail.mail import make_mail
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.resubmission import add_resubmission
from slurmscope.reports.sources import open_archive
from tests.fakes.archive import make_row
from tests.fakes.reports import START, make_finding, make_gpu_report, make_record, make_report, make_unmeasured_report

DAY = 86400
NOW = START + 7 * DAY
ADA = DigestSubject("ada", is_account=False)
BOB = DigestSubject("bob", is_account=False)
PHYSICS = DigestSubject("physics", is_account=True)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[SqlArchive]:
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))
    yield archive
    archive.close()


def _job(job_id: int, days: float = 0.0, **record: Any) -> JobReport:
    """Make a job of eight core hours, four of them used, that began so many days after the first."""
    start = START + int(days * DAY)
    times = {"submit_seconds": start - 600, "start_seconds": start, "end_seconds": start + 7200}
    return make_report(make_record(job_id, **(times | record)))


def _short_job(job_id: int, seconds: float, **changed: Any) -> JobReport:
    """Make a job of four cores that ran for a short time, half of them busy."""
    report = make_report(make_record(job_id, end_seconds=START + int(seconds)), **({"findings": ()} | changed))
    cpu = replace(report.summary.cpu, time=UsedShare(requested=4 * seconds, used=2 * seconds))
    return replace(report, summary=replace(report.summary, run_seconds=seconds, cpu=cpu))


def _digests(archive: SqlArchive, **request: Any) -> dict[DigestSubject, Digest | None]:
    return {
        about: add_headers(archive, about, digest) if digest else None
        for about, digest in write_digests(archive, DigestRequest(**request), NOW)
    }


def _digest(archive: SqlArchive, **request: Any) -> Digest:
    (digest,) = _digests(archive, **request).values()
    assert digest is not None
    return digest


def test_hours_are_those_of_the_jobs_that_ended(archive: SqlArchive) -> None:
    unmeasured = make_unmeasured_report(make_record(3, cpus=120))
    archive.save([_job(1), _job(2, days=3), unmeasured, _job(4, user="bob")])

    digest = _digest(archive, users=("ada",))

    # 120 cores for 30 seconds are one hour; nobody knows how much of it was used.
    assert Use(allocated_hours=17.0, measured_hours=16.0, used_hours=8.0) == digest.cores
    assert (3, 2) == (digest.jobs, digest.jobs_with_findings)
    assert (NOW - 7 * DAY, NOW) == (digest.since_seconds, digest.until_seconds)


def test_hours_of_gpus_are_counted_where_they_were_measured(archive: SqlArchive) -> None:
    gpu_report = make_gpu_report(1)
    blind = replace(gpu_report, summary=replace(gpu_report.summary, record=replace(gpu_report.record, job_id=2)))
    blind = replace(blind, summary=replace(blind.summary, gpu=replace(blind.summary.gpu, mean_utilization=None)))
    archive.save([gpu_report, blind])

    gpus = _digest(archive, users=("bob",)).gpus

    # Twice two GPUs for two hours; one pair was at 1 %.
    assert (8.0, 4.0) == (gpus.allocated_hours, gpus.measured_hours)
    assert pytest.approx(0.04) == gpus.used_hours


def test_jobs_below_the_minimal_run_time_are_counted_as_too_short(archive: SqlArchive) -> None:
    archive.save([_short_job(1, 60.0), make_report(make_record(2)), _short_job(3, 300.0)])

    digest = _digest(archive, users=("ada",))

    # Four cores for a minute; one of five minutes is not short.
    assert (3, 1) == (digest.jobs, digest.short_jobs)
    assert pytest.approx(4 / 60) == digest.short_cores.allocated_hours


def test_report_mail_and_digest_agree_that_a_job_of_a_minute_is_too_short(archive: SqlArchive) -> None:
    report = _short_job(1, 60.0)
    archive.save([report])
    mail = make_mail(report, sender="slurm@example.org", recipient="ada@example.org")
    (mailed,) = (part for part in mail.walk() if part.get_content_type() == "text/plain")

    texts = [render_text(report), mailed.get_content(), render_digest_text(_digest(archive, users=("ada",)))]

    assert [True] * 3 == ["Too short to judge: " in text for text in texts]
    assert [True] * 3 == ["CPU 50 %" in " ".join(text.split()) for text in texts]


def test_short_job_with_findings_was_judged(archive: SqlArchive) -> None:
    archive.save([_short_job(1, 60.0, findings=make_report().findings)])

    assert 0 == _digest(archive, users=("ada",)).short_jobs


def test_trend_compares_with_the_period_before(archive: SqlArchive) -> None:
    archive.save([_job(1), _job(2, days=-1), _job(3, days=-2), _job(4, days=-7.5), _job(5, days=7)])

    digest = _digest(archive, users=("ada",))

    assert (8.0, 16.0) == (digest.cores.allocated_hours, digest.cores_before.allocated_hours)
    assert (0.5, 0.5) == (digest.cores.ratio, digest.cores_before.ratio)


def test_period_is_as_long_as_requested(archive: SqlArchive) -> None:
    archive.save([_job(1, days=6.5), _job(2, days=5.5), _job(3, days=4.5)])

    digest = _digest(archive, users=("ada",), days=1)

    assert (1, 8.0, 8.0) == (digest.jobs, digest.cores.allocated_hours, digest.cores_before.allocated_hours)


def test_job_that_ran_for_weeks_is_in_the_digest_of_the_week_it_ended(archive: SqlArchive) -> None:
    archive.save([_job(1, submit_seconds=START - 40 * DAY, start_seconds=START - 30 * DAY)])

    assert 1 == _digest(archive, users=("ada",)).jobs


def test_worst_jobs_come_first_and_are_ten(archive: SqlArchive) -> None:
    jobs = [_job(number, cpus=4 + number) for number in range(1, 151)]
    archive.save(jobs)

    digest = _digest(archive, users=("ada",))

    # Each kept two cores busy for two hours, so the one with most cores left most of them idle.
    assert list(range(150, 140, -1)) == [row.job_id for row in digest.worst_jobs]
    assert 150 == digest.jobs


def test_fixes_are_three_with_the_titles_of_the_rules(archive: SqlArchive) -> None:
    archive.save([_job(1), _job(2)])

    digest = _digest(archive, users=("ada",))

    # Both findings of both jobs, which together left eight core hours unused.
    assert {"cpu_idle": (2, 8.0), "memory_over_requested": (2, 8.0)} == {
        fix.rule: (fix.jobs, fix.lost_core_hours) for fix in digest.fixes
    }
    assert "Much of the requested memory was not needed" in {fix.title for fix in digest.fixes}


def test_failures_are_counted_with_all_of_their_hours(archive: SqlArchive) -> None:
    archive.save([_job(1, state="OUT_OF_MEMORY"), _job(2, state="TIMEOUT"), _job(3), _job(4, days=-3, state="FAILED")])

    digest = _digest(archive, users=("ada",))

    # Eight core hours each, of which four were idle. The failure of the week before does not count.
    losses = {loss.cause: (loss.jobs, loss.core_hours, loss.gpu_hours) for loss in digest.losses}
    assert {"failed": (1, 8.0, 0.0), "timeout": (1, 8.0, 0.0)} == losses
    assert {"cpu_idle": 20.0, "memory_over_requested": 20.0} == {fix.rule: fix.lost_core_hours for fix in digest.fixes}


def test_all_users_with_jobs_get_a_digest_and_no_others(archive: SqlArchive) -> None:
    archive.save([_job(1), _job(2, user="bob"), _job(3, user="carol", days=-3), _job(4, state="RUNNING", user="dan")])

    assert [ADA, BOB] == list(_digests(archive, all_users=True))
    assert [PHYSICS] == list(_digests(archive, all_accounts=True))
    assert [ADA, BOB, PHYSICS] == list(_digests(archive, all_users=True, all_accounts=True, users=("ada",)))


def test_account_sums_up_its_users(archive: SqlArchive) -> None:
    archive.save([_job(1), _job(2, user="bob"), _job(3, account="chemistry")])

    named = _digest(archive, accounts=("physics",))
    general = _digests(archive, all_accounts=True)[PHYSICS]

    assert (2, 16.0, True) == (named.jobs, named.cores.allocated_hours, named.is_account)
    assert named == general


def test_accounts_of_other_sites_are_in_no_digest(archive: SqlArchive) -> None:
    archive.save([_job(1), _job(2, cluster="theirs"), _job(3, cluster="theirs", account="chemistry")])

    for request in ({"accounts": ("physics",)}, {"all_accounts": True}, {"users": ("ada",)}):
        digests = dict(write_digests(archive, DigestRequest(**request), NOW, {"lab"}))
        jobs = {about.name: digest.jobs for about, digest in digests.items() if digest}
        assert ({"ada": 3} if "users" in request else {"physics": 1}) == jobs


def test_named_without_jobs_gets_no_digest(archive: SqlArchive) -> None:
    archive.save([_job(1)])

    assert {BOB: None} == _digests(archive, users=("bob", "bob"))


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#SBATCH ")]


@pytest.mark.parametrize("request_of", [{"users": ("ada",)}, {"accounts": ("physics",)}])
def test_lines_of_listed_jobs_are_those_of_their_reports(archive: SqlArchive, request_of: dict[str, Any]) -> None:
    long = make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=2")
    reports = [
        replace(_job(number, name=name), findings=(long,)) for number, name in ((1, "relax"), (2, "relax"), (3, "scan"))
    ]
    archive.save([*reports, replace(_job(4, name="other"), findings=())])
    report = add_resubmission(archive, WaitingTimesCache(archive), Viewer(name="ada"), reports[0])

    digest = _digest(archive, **request_of)
    text, html = render_digest_text(digest), render_digest_html(digest)

    assert "#SBATCH --cpus-per-task=2" in _lines(text)
    assert _lines(render_brief(report)) == _lines(text)
    assert "\n".join(_lines(text)) in html
    assert "Header for the next run of 3 scan, 2 relax, 1 relax" in text
    assert "Header for the next run of 3 scan, 2 relax, 1 relax" in html


def test_digest_without_headers_has_no_lines(archive: SqlArchive) -> None:
    archive.save([replace(_job(1, state="FAILED"), findings=())])
    digest = _digest(archive, users=("ada",))

    assert 1 == len(digest.worst_jobs)
    assert () == digest.headers
    assert "SBATCH" not in render_digest_text(digest) + render_digest_html(digest)


def test_damaged_report_costs_its_header_only(archive: SqlArchive) -> None:
    long = make_finding("cpu_idle", suggestion="#SBATCH --cpus-per-task=2")
    archive.save([replace(_job(1, cpus=6), findings=(long,)), replace(_job(2, user="bob"), findings=(long,))])
    damaged = REPORTS.c.run_id.in_(select(JOBS.c.run_id).where(JOBS.c.job_id == 1))
    archive.database.write(lambda connection: connection.execute(update(REPORTS).where(damaged).values(body=b"x")))
    digests = _digests(archive, all_users=True)

    assert {ADA: 0, BOB: 1} == {about: len(digest.headers) for about, digest in digests.items() if digest}


def test_header_of_an_account_is_based_on_runs_that_its_coordinators_see(archive: SqlArchive) -> None:
    # Six completed runs prove that less is enough: those in another account are of no use to a coordinator.
    others = [
        replace(_job(number, days=number / 10, account="other", time_limit_seconds=86_400), findings=())
        for number in range(2, 8)
    ]
    archive.save([replace(_job(1, time_limit_seconds=86_400), findings=()), *others])

    assert ["mem", "time"] == _options(_digest(archive, users=("ada",)))
    assert [] == _options(_digest(archive, accounts=("physics",)))


def _options(digest: Digest) -> list[str]:
    return [line.removeprefix("#SBATCH --").partition("=")[0] for each in digest.headers for line in each.lines]


def test_job_without_account_is_in_no_digest_to_accounts() -> None:
    row = make_row(make_report(make_record(account="")))

    assert [ADA] == list(add_up([row], START))
