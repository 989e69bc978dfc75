# SPDX-License-Identifier: Apache-2.0
"""The owner of a stuck job gets one mail, and others none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path

import pytest
import yaml

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.errors import AmbiguousName, SourceError
from slurmscope.jobs.findings import RULES as ALL_RULES
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.mail.stuck_jobs import MOST_JOBS, RULES, StuckJob, StuckMails, find_stuck
from slurmscope.mail.stuck_jobs import make_report as make_stuck_report
from slurmscope.prometheus.responses import FoundSeries, Reply
from slurmscope.prometheus.settings import Matcher
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import open_archive
from tests.fakes.mail_server import body_of
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import START, make_finding, make_record, make_report

SITE = MailSettings(domain="example.org", portal_url="https://jobs.example.org", sender="robot@example.org")
RUNNING = make_record(state="RUNNING", end_seconds=None)
HELD = make_finding("process_held")
STUCK = make_report(RUNNING, findings=(HELD,))
JOB = StuckJob(str(RUNNING.job_id), RUNNING.cluster)


class Client:
    """Give what Prometheus would, and keep the query."""

    def __init__(self, *labels: dict[str, str]) -> None:
        self.series = tuple(FoundSeries(each, (0.0,), (1.0,)) for each in labels)
        self.query = ""

    def query_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply:
        assert (0.0 < at_seconds, "alerts", 0.0 < until) == (True, kind, True)
        self.query = query
        return Reply(series=self.series)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Iterator[Checkpoints]:
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))
    yield Checkpoints(archive.database)
    archive.close()


def sent(checkpoints: Checkpoints, report: JobReport | None, *, now: int | None = START) -> list[EmailMessage]:
    """Return the mails of one run about one job."""
    mails: list[EmailMessage] = []
    run = StuckMails(checkpoints=checkpoints, settings=SITE, send=mails.append, now_seconds=now)
    lines = list(run.deliver([JOB], lambda job: report if job == JOB else None))
    assert len(mails) == len(lines)
    return mails


def test_owner_is_mailed_once_a_run_of_the_job(checkpoints: Checkpoints) -> None:
    (mail,) = sent(checkpoints, STUCK)

    assert ("ada@example.org", "robot@example.org") == (mail["To"], mail["From"])
    assert f"{RUNNING.cluster} job {RUNNING.job_id} may be stuck: Title of process_held" == mail["Subject"]
    assert f"https://jobs.example.org/jobs/{RUNNING.job_id}" in body_of(mail)
    assert [] == sent(checkpoints, STUCK, now=START + 86400)
    requeued = make_report(replace(RUNNING, start_seconds=START + 90_000), findings=(HELD,))
    assert 1 == len(sent(checkpoints, requeued))


@pytest.mark.parametrize(
    "report",
    [
        None,
        make_report(RUNNING, findings=()),
        make_report(RUNNING, findings=(make_finding("cpu_idle"),)),
        make_report(make_record(), findings=(HELD,)),
    ],
)
def test_job_that_ended_or_is_not_stuck_is_not_mailed(checkpoints: Checkpoints, report: JobReport | None) -> None:
    assert [] == sent(checkpoints, report)


def test_finding_below_another_one_counts(checkpoints: Checkpoints) -> None:
    folded = make_report(RUNNING, findings=(replace(make_finding("cpu_idle"), consequences=(HELD,)),))

    assert 1 == len(sent(checkpoints, folded))


def test_owner_who_opted_out_is_not_mailed(checkpoints: Checkpoints) -> None:
    checkpoints.set_opt_out("ada", is_opted_out=True)

    assert [] == sent(checkpoints, STUCK)


def test_dry_run_is_not_remembered(checkpoints: Checkpoints) -> None:
    assert [1, 1] == [len(sent(checkpoints, STUCK, now=None)) for _ in range(2)]


def test_job_that_cannot_be_read_stops_no_other(checkpoints: Checkpoints) -> None:
    def find(job: StuckJob) -> JobReport:
        if job != JOB:
            raise SourceError("sacct timed out after 8 s")
        return STUCK

    mails: list[EmailMessage] = []
    run = StuckMails(checkpoints=checkpoints, settings=SITE, send=mails.append, now_seconds=START)
    lines = [*run.deliver([StuckJob("5", ""), JOB], find)]

    assert "job 5: not sent: sacct timed out after 8 s" == lines[0]
    assert [f"job {RUNNING.job_id}: sent to ada@example.org: Title of process_held"] == lines[1:]
    assert 1 == len(mails)


def test_alerts_of_one_run_are_bounded(checkpoints: Checkpoints) -> None:
    asked: list[StuckJob] = []
    run = StuckMails(checkpoints=checkpoints, settings=SITE, send=lambda _: None, now_seconds=START)
    assert [] == [*run.deliver([StuckJob(str(n), "") for n in range(MOST_JOBS + 9)], asked.append)]
    assert MOST_JOBS == len(asked)


def find(*records: JobRecord, job: StuckJob) -> JobReport | None:
    return make_stuck_report(FakeAccounting([*records]), ReportMaker(None, wall_clock=lambda: START + 7200.0), job)


def test_report_is_that_of_the_job_with_the_id_of_metrics() -> None:
    task = replace(RUNNING, job_id=15, array_job_id=15, array_task_id=7)
    other = replace(RUNNING, job_id=16, array_job_id=15, array_task_id=6)
    elsewhere = replace(RUNNING, job_id=15, cluster="beta", user="bob")

    report = find(task, other, elsewhere, job=StuckJob("15", RUNNING.cluster))

    assert report is not None
    assert ("15_7", "ada") == (report.record.shown_id, report.record.user)
    with pytest.raises(AmbiguousName):
        find(task, elsewhere, job=StuckJob("15", ""))


def test_only_the_newest_run_counts_and_only_while_it_runs() -> None:
    ended = make_record(RUNNING.job_id, state="COMPLETED")
    requeued = replace(ended, submit_seconds=RUNNING.submit_seconds + 60)

    assert find(ended, job=JOB) is None
    assert find(RUNNING, requeued, job=JOB) is None


def test_jobs_are_those_of_alerts_that_fire() -> None:
    client = Client(
        {"slurm_job": "12", "cluster": "Alpha"}, {"slurm_job": "12", "cluster": "Alpha"}, {"slurm_job": "7"}, {},
        {"slurm_job": "12; drop"},
    )  # fmt: skip
    found = find_stuck(client, START, [Matcher("site", 'a"b')])

    assert [StuckJob("12", "alpha"), StuckJob("7", "")] == found
    assert (
        'count by (cluster, slurm_job) (ALERTS{alertname=~"JobProcessHeld|JobPartStopped|JobGpuStuck",'
        'alertstate="firing",site="a\\"b"})'
    ) == client.query


def test_alerts_and_findings_exist() -> None:
    rules = yaml.safe_load(Path("deploy/rules/slurmscope.yml").read_text(encoding="utf-8"))
    alerts = {rule.get("alert") for group in rules["groups"] for rule in group["rules"]}

    assert alerts >= RULES.keys()
    assert {rule.id for rule in ALL_RULES} >= {*RULES.values()}
