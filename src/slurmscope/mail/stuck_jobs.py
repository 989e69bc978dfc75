# SPDX-License-Identifier: Apache-2.0
"""Mail the reports of running jobs that are stuck to their owners: once a job, and to none who opted out.

Which jobs these may be is known from the alerts of ``deploy/rules`` that fire in Prometheus: making the reports of all
running jobs again and again would cost the server too much. A job is mailed if its report names the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError, SlurmscopeError
from slurmscope.jobs.record import JobAccounting
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import newest_runs
from slurmscope.mail.mail import address_of, open_mail_server, write_report_mail
from slurmscope.prometheus.settings import Matcher, PrometheusSettings
from slurmscope.reports.find import require_unambiguous
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import no_archive, open_reporting

if TYPE_CHECKING:
    from slurmscope.archive.checkpoints import Checkpoints
    from slurmscope.prometheus.responses import Reply

RULES = {"JobProcessHeld": "process_held", "JobPartStopped": "part_stopped", "JobGpuStuck": "gpu_stuck"}
"""The finding that is expected, by alert."""
MOST_JOBS = 500
"""Of one run; more at once are no fault of theirs."""
QUERY_SECONDS = 30.0
_CLUSTER = "cluster"
"""The label of the rules in ``deploy/rules``."""


class StuckJob(NamedTuple):
    job_id: str
    cluster: str


class AlertClient(Protocol):
    """Query Prometheus."""

    def query_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply: ...


FindReport = Callable[[StuckJob], JobReport | None]


def mail_stuck_jobs(
    config: Config, environment: Mapping[str, str], *, now_seconds: int, send: Callable[[EmailMessage], None] | None
) -> Iterator[str]:
    """Mail each owner, and yield a line for each job; ``send`` is called instead, and then nothing is remembered."""
    with open_reporting(config, environment) as reporting:
        if reporting.archive is None:
            raise no_archive(config.of(ArchiveSettings))
        if reporting.prometheus is None:
            raise ConfigError("alerts are read from Prometheus: set prometheus.url")
        from slurmscope.archive.checkpoints import Checkpoints

        settings = config.of(MailSettings)
        mails = StuckMails(
            checkpoints=Checkpoints(reporting.archive.database),
            settings=settings,
            send=send or open_mail_server(settings).send,
            now_seconds=None if send else now_seconds,
            clusters=reporting.archive.clusters(),
        )
        jobs = find_stuck(reporting.prometheus, now_seconds, config.of(PrometheusSettings).matchers)
        yield from mails.deliver(jobs, lambda job: make_report(reporting.accounting, reporting.maker, job))


def find_stuck(client: AlertClient, now_seconds: int, matchers: Iterable[Matcher] = ()) -> list[StuckJob]:
    """Return the jobs about which an alert fires."""
    from slurmscope.prometheus.promql import quote, quote_regex

    labels = [f"alertname=~{quote_regex(RULES)}", 'alertstate="firing"']
    labels += [f"{name}={quote(value)}" for name, value in matchers]
    query = f"count by ({_CLUSTER}, slurm_job) (ALERTS{{{','.join(labels)}}})"
    reply = client.query_instant(query, now_seconds, kind="alerts", until=time.monotonic() + QUERY_SECONDS)
    found = {
        StuckJob(series.labels.get("slurm_job", ""), series.labels.get(_CLUSTER, "").lower()) for series in reply.series
    }
    return sorted(job for job in found if job.job_id.isdecimal())


def make_report(accounting: JobAccounting, maker: ReportMaker, job: StuckJob) -> JobReport | None:
    """Return the report of a job as it is now; None if it has ended. Raise AmbiguousName if several clusters have it.

    The ID is that of metrics: the task with the ID of its array is meant, not the array.
    """
    runs = newest_runs(accounting.read_jobs([int(job.job_id)]))
    found = [run for run in runs if str(run.job_id) == job.job_id and job.cluster in ("", run.cluster)]
    running = [run for run in found if not run.has_ended]
    require_unambiguous("job", job.job_id, {run.cluster for run in running})
    return maker.make(running)[0] if running else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckMails:
    """Send mails about stuck jobs, and remember them."""

    checkpoints: Checkpoints
    settings: MailSettings
    send: Callable[[EmailMessage], None]
    now_seconds: int | None
    """None remembers nothing."""
    clusters: tuple[str, ...] = ()

    def deliver(self, jobs: Iterable[StuckJob], find_report: FindReport) -> Iterator[str]:
        """Mail the owners of jobs that were not mailed yet, and yield a line for each, or for one that failed."""
        for job in islice(jobs, MOST_JOBS):
            try:
                report = find_report(job)
                line = self._deliver(report) if report else ""
            except SlurmscopeError as error:
                line = f"not sent: {error}"
            if line:
                yield f"job {job.job_id}: {line}"

    def _deliver(self, report: JobReport) -> str:
        """Return what was sent; empty if the job has ended, or its owner was mailed or opted out."""
        record = report.record
        every = (each for finding in report.findings for each in finding.with_consequences)
        finding = next((each for each in every if each.rule in RULES.values()), None)
        if record.has_ended or finding is None:
            return ""
        address = address_of(record.user, self.settings)
        subject = f"stuck {record.cluster} {record.job_id} {record.start_seconds}"
        if self.checkpoints.last_mail(subject, address) is not None or self.checkpoints.is_opted_out(record.user):
            return ""
        mail = write_report_mail(report, self.settings, clusters=self.clusters)
        mail.replace_header("Subject", f"{record.cluster} job {record.shown_id} may be stuck: {finding.title}")
        self.send(mail)
        if self.now_seconds is not None:
            self.checkpoints.record_mail(subject, address, self.now_seconds)
        return f"sent to {address}: {finding.title}"
