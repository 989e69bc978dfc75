# SPDX-License-Identifier: Apache-2.0
"""The owner of a stuck job gets one mail, and others none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path

import pytest
import yaml

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.errors import AmbiguousName, ArchiveError, OutputError, SourceError
from slurmscope.jobs.findings import RULES as ALL_RULES
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.mail.digest_delivery import MAX_FAILURES_IN_A_ROW
from slurmscope.mail.stuck_jobs import MOST_JOBS, RULES, StuckJob, StuckMails, find_runs, find_stuck
from slurmscope.prometheus.responses import FoundSeries, Reply
from slurmscope.prometheus.settings import Matcher
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


def mails_of(checkpoints: Checkpoints, send: Callable[[EmailMessage], None], now: int | None = START) -> StuckMails:
    return StuckMails(checkpoints=checkpoints, settings=SITE, send=send, now_seconds=now)


def sent(checkpoints: Checkpoints, report: JobReport | None, *, now: int | None = START) -> list[EmailMessage]:
    """Return the mails of one run about one job."""
    mails: list[EmailMessage] = []
    made = {JOB: report.record} if report and not report.record.has_ended else {}
    lines = [*mails_of(checkpoints, mails.append, now).deliver([JOB], lambda _: made, lambda _: report or STUCK)]
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


def stuck(count: int) -> dict[StuckJob, JobRecord | AmbiguousName]:
    """Return so many jobs that run."""
    return {StuckJob(str(number), RUNNING.cluster): replace(RUNNING, job_id=number) for number in range(1, count + 1)}


def of_users(count: int) -> dict[StuckJob, JobRecord | AmbiguousName]:
    return {
        job: replace(run, user=f"user{run.job_id}") for job, run in stuck(count).items() if isinstance(run, JobRecord)
    }


def report_of(record: JobRecord) -> JobReport:
    return make_report(record, findings=(HELD,))


def test_job_that_cannot_be_read_stops_no_other(checkpoints: Checkpoints) -> None:
    def make(record: JobRecord) -> JobReport:
        if record.job_id == 1:
            raise SourceError("Prometheus timed out after 8 s")
        return report_of(record)

    mails: list[EmailMessage] = []
    jobs = {**stuck(2), StuckJob("3", ""): AmbiguousName("job", "3", {"alpha", "beta"})}
    lines = [*mails_of(checkpoints, mails.append).deliver([*jobs], lambda _: jobs, make)]

    assert "job 1: not sent: Prometheus timed out after 8 s" == lines[0]
    assert "job 2: sent to ada@example.org: Title of process_held" == lines[1]
    assert lines[2].startswith("job 3: not sent: ")
    assert 1 == len(mails)


def test_mail_server_that_is_down_is_not_tried_for_every_job(checkpoints: Checkpoints) -> None:
    tried: list[EmailMessage] = []

    def refuse(mail: EmailMessage) -> None:
        tried.append(mail)
        raise OutputError("cannot connect to mail.example.org:25")

    jobs = of_users(50)
    lines = [*mails_of(checkpoints, refuse).deliver([*jobs], lambda _: jobs, report_of)]

    assert (MAX_FAILURES_IN_A_ROW, MAX_FAILURES_IN_A_ROW + 1) == (len(tried), len(lines))
    assert lines[-1].startswith("not sent: 10 jobs in a row failed")
    # They are still due.
    mails: list[EmailMessage] = []
    assert 50 == len([*mails_of(checkpoints, mails.append).deliver([*jobs], lambda _: jobs, report_of)])


def test_user_without_a_mailbox_is_tried_once_and_stops_no_other(checkpoints: Checkpoints) -> None:
    tried: list[str] = []

    def send(mail: EmailMessage) -> None:
        tried.append(mail["To"])
        if mail["To"] == "ada@example.org":
            raise OutputError("550 no such user")

    jobs = {**stuck(50), StuckJob("99", RUNNING.cluster): replace(RUNNING, job_id=99, user="bob")}
    lines = [*mails_of(checkpoints, send).deliver([*jobs], lambda _: jobs, report_of)]

    assert ["ada@example.org", "bob@example.org"] == tried
    assert ["job 1: not sent: 550 no such user", "job 99: sent to bob@example.org: Title of process_held"] == lines


def test_array_of_which_all_tasks_are_stuck_is_one_mail(checkpoints: Checkpoints) -> None:
    jobs = {
        job: replace(run, array_job_id=1, array_task_id=run.job_id)
        for job, run in stuck(30).items()
        if isinstance(run, JobRecord)
    }
    for expected in (["job 1: sent to ada@example.org: Title of process_held"], []):
        assert expected == [*mails_of(checkpoints, lambda _: None).deliver([*jobs], lambda _: jobs, report_of)]


def test_reports_of_one_run_are_bounded_and_jobs_that_were_mailed_hide_no_others(checkpoints: Checkpoints) -> None:
    jobs = stuck(MOST_JOBS + 9)
    made: list[int] = []

    def make(record: JobRecord) -> JobReport:
        made.append(record.job_id)
        return report_of(record)

    for expected in ([*range(1, MOST_JOBS + 1)], [*range(MOST_JOBS + 1, MOST_JOBS + 10)], []):
        made.clear()
        assert len(expected) == len([*mails_of(checkpoints, lambda _: None).deliver([*jobs], lambda _: jobs, make)])
        assert expected == made


def test_record_of_a_job_that_still_runs_is_kept_and_others_are_deleted(checkpoints: Checkpoints) -> None:
    checkpoints.record_mail("stuck alpha 5 5", "bob@example.org", START)
    assert 1 == len(sent(checkpoints, STUCK))
    for days in range(1, 100, 10):
        assert [] == sent(checkpoints, STUCK, now=START + days * 86_400)
    assert checkpoints.last_mail("stuck alpha 5 5", "bob@example.org") is None


def test_only_one_process_sends(checkpoints: Checkpoints) -> None:
    def taken() -> None:
        raise ArchiveError("another process is sending mails about stuck jobs")

    mails: list[EmailMessage] = []
    for now, count in ((START, 0), (None, 1)):  # a dry run needs no lock
        run = replace(mails_of(checkpoints, mails.append, now), require_lock=taken)
        with pytest.raises(ArchiveError) if now else nullcontext():
            list(run.deliver([JOB], lambda _: {JOB: RUNNING}, report_of))
        assert count == len(mails)


def find(*records: JobRecord, job: StuckJob) -> JobRecord | AmbiguousName | None:
    return find_runs(FakeAccounting([*records]), [job]).get(job)


def test_run_is_that_of_the_job_with_the_id_of_metrics() -> None:
    task = replace(RUNNING, job_id=15, array_job_id=15, array_task_id=7)
    other = replace(RUNNING, job_id=16, array_job_id=15, array_task_id=6)
    elsewhere = replace(RUNNING, job_id=15, cluster="beta", user="bob")

    assert task == find(task, other, elsewhere, job=StuckJob("15", RUNNING.cluster))
    assert isinstance(find(task, elsewhere, job=StuckJob("15", "")), AmbiguousName)


def test_only_the_newest_run_counts_and_only_while_it_runs() -> None:
    ended = make_record(RUNNING.job_id, state="COMPLETED")
    requeued = replace(ended, submit_seconds=RUNNING.submit_seconds + 60)

    assert find(ended, job=JOB) is None
    assert find(RUNNING, requeued, job=JOB) is None


def test_jobs_are_those_of_alerts_that_fire() -> None:
    client = Client(
        {"slurm_job": "12", "cluster": "Alpha"}, {"slurm_job": "12", "cluster": "Alpha"}, {"slurm_job": "7"}, {},
        {"slurm_job": "12; drop"}, {"slurm_job": "²"}, {"slurm_job": "9" * 5000},
    )  # fmt: skip
    found = find_stuck(client, START, [Matcher("site", 'a"b')])

    assert [StuckJob("7", ""), StuckJob("12", "alpha")] == found
    assert (
        'count by (cluster, slurm_job) (ALERTS{alertname=~"JobProcessHeld|JobPartStopped|JobGpuStuck",'
        'alertstate="firing",site="a\\"b"})'
    ) == client.query


def test_alerts_and_findings_exist() -> None:
    rules = yaml.safe_load(Path("deploy/rules/slurmscope.yml").read_text(encoding="utf-8"))
    alerts = {rule.get("alert") for group in rules["groups"] for rule in group["rules"]}

    assert alerts >= RULES.keys()
    assert {rule.id for rule in ALL_RULES} >= {*RULES.values()}
