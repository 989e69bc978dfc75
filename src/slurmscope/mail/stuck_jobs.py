# SPDX-License-Identifier: Apache-2.0
"""Mail the reports of running jobs that are stuck to their owners: once a job, and to none who opted out.

Which jobs these may be is known from the alerts of ``deploy/rules`` that fire in Prometheus: making the reports of all
running jobs again and again would cost the server too much. A job is mailed if its report names the same.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import TYPE_CHECKING, NamedTuple, Protocol

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.config import Config
from slurmscope.core.errors import AmbiguousName, ConfigError, OutputError, SourceError
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import newest_runs
from slurmscope.mail.digest_delivery import MAX_FAILURES_IN_A_ROW, SENT_KEPT_SECONDS, open_lock, require_lock
from slurmscope.mail.mail import address_of, open_mail_server, write_report_mail
from slurmscope.prometheus.settings import Matcher, PrometheusSettings
from slurmscope.reporter.reporters import STUCK_MAILS
from slurmscope.reports.find import require_unambiguous
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import no_archive, open_reporting

if TYPE_CHECKING:
    from slurmscope.archive.checkpoints import Checkpoints
    from slurmscope.prometheus.responses import Reply

RULES = {"JobProcessHeld": "process_held", "JobPartStopped": "part_stopped", "JobGpuStuck": "gpu_stuck"}
"""The finding that is expected, by alert."""
MOST_JOBS = 500
"""Reports of one run; more at once are no fault of theirs."""
JOBS_AT_ONCE = 1000
"""In one query of accounting."""
MOST_DIGITS = 12
RENEWED_SECONDS = SENT_KEPT_SECONDS // 2
"""How old the record of a sent mail becomes before it is renewed."""
QUERY_SECONDS = 30.0
_CLUSTER = "cluster"
"""The label of the rules in ``deploy/rules``."""


class StuckJob(NamedTuple):
    job_id: str
    cluster: str


class AlertClient(Protocol):
    """Query Prometheus."""

    def query_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply: ...


FindRuns = Callable[[Sequence[StuckJob]], Mapping[StuckJob, JobRecord | AmbiguousName]]
MakeReport = Callable[[JobRecord], JobReport]


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

        settings, accounting, maker = config.of(MailSettings), reporting.accounting, reporting.maker
        with open_lock(reporting.archive, STUCK_MAILS) as lock:
            mails = StuckMails(
                checkpoints=Checkpoints(reporting.archive.database),
                settings=settings,
                send=send or open_mail_server(settings).send,
                now_seconds=None if send else now_seconds,
                clusters=reporting.archive.clusters(),
                require_lock=lambda: require_lock(lock, "mails about stuck jobs"),
            )
            jobs = find_stuck(reporting.prometheus, now_seconds, config.of(PrometheusSettings).matchers)
            yield from mails.deliver(
                jobs, lambda some: find_runs(accounting, some), lambda record: maker.make([record])[0]
            )


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
    known = (job for job in found if job.job_id.isascii() and job.job_id.isdecimal() and len(job.job_id) < MOST_DIGITS)
    return sorted(known, key=lambda job: (int(job.job_id), job.cluster))


def find_runs(accounting: JobAccounting, jobs: Sequence[StuckJob]) -> dict[StuckJob, JobRecord | AmbiguousName]:
    """Return the runs of jobs that have not ended; an error for an ID that several clusters have.

    The ID is that of metrics: the task with the ID of its array is meant, not the array.
    """
    running: defaultdict[str, list[JobRecord]] = defaultdict(list)
    for run in newest_runs(accounting.read_jobs(sorted({int(job.job_id) for job in jobs}))):
        if not run.has_ended:
            running[str(run.job_id)].append(run)
    found: dict[StuckJob, JobRecord | AmbiguousName] = {}
    for job in jobs:
        runs = [run for run in running[job.job_id] if job.cluster in ("", run.cluster)]
        try:
            require_unambiguous("job", job.job_id, {run.cluster for run in runs})
        except AmbiguousName as error:
            found[job] = error
            continue
        if runs:
            found[job] = runs[0]
    return found


@dataclass(kw_only=True)
class StuckMails:
    """Send mails about stuck jobs, and remember them."""

    checkpoints: Checkpoints
    settings: MailSettings
    send: Callable[[EmailMessage], None]
    now_seconds: int | None
    """None remembers nothing."""
    clusters: tuple[str, ...] = ()
    require_lock: Callable[[], None] = lambda: None
    """Raise ArchiveError while another process sends these mails."""
    _failures_in_a_row: int = 0
    _failed: set[str] = field(default_factory=set)
    """Addresses that are not tried again: all jobs of a user without a mailbox are one failure."""

    def deliver(self, jobs: Sequence[StuckJob], find_runs: FindRuns, make_report: MakeReport) -> Iterator[str]:
        """Mail the owners of jobs that were not mailed yet, and yield a line for each, or for one that failed."""
        if self.now_seconds is not None:
            self.require_lock()
            self.checkpoints.delete_mails(self.now_seconds - SENT_KEPT_SECONDS)
        room = MOST_JOBS
        try:
            for job, run in self._find(jobs, find_runs):
                if isinstance(run, AmbiguousName):
                    yield f"job {job.job_id}: not sent: {run}"
                elif room > 0 and self._is_due(run):
                    room -= 1
                    if line := self._try(run, make_report):
                        yield f"job {job.job_id}: {line}"
                if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                    yield f"not sent: {MAX_FAILURES_IN_A_ROW} jobs in a row failed; the rest is tried the next time"
                    return
        except SourceError as error:
            yield f"not sent: {error}"

    def _find(
        self, jobs: Sequence[StuckJob], find_runs: FindRuns
    ) -> Iterator[tuple[StuckJob, JobRecord | AmbiguousName]]:
        for first in range(0, len(jobs), JOBS_AT_ONCE):
            yield from find_runs(jobs[first : first + JOBS_AT_ONCE]).items()

    def _try(self, run: JobRecord, make_report: MakeReport) -> str:
        try:
            line = self._deliver(run, make_report)
        except (OutputError, SourceError) as error:
            self._failures_in_a_row += 1
            if isinstance(error, OutputError):
                self._failed.add(address_of(run.user, self.settings))
            return f"not sent: {error}"
        self._failures_in_a_row = 0
        return line

    def _is_due(self, record: JobRecord) -> bool:
        """Return whether the owner was not mailed yet, and did not opt out."""
        address, subject = address_of(record.user, self.settings), _subject(record)
        if address in self._failed:
            return False
        sent = self.checkpoints.last_mail(subject, address)
        if sent is None:
            return not self.checkpoints.is_opted_out(record.user)
        # Old records are deleted: that of a job that still runs must stay.
        if self.now_seconds is not None and self.now_seconds - sent > RENEWED_SECONDS:
            self.checkpoints.record_mail(subject, address, self.now_seconds)
        return False

    def _deliver(self, record: JobRecord, make_report: MakeReport) -> str:
        """Return what was sent; empty if the report does not call the job stuck."""
        report = make_report(record)
        every = (each for finding in report.findings for each in finding.with_consequences)
        finding = next((each for each in every if each.rule in RULES.values()), None)
        if finding is None:
            return ""
        address = address_of(record.user, self.settings)
        mail = write_report_mail(report, self.settings, clusters=self.clusters)
        mail.replace_header("Subject", f"{record.cluster} job {record.shown_id} may be stuck: {finding.title}")
        if self.now_seconds is not None:
            self.require_lock()
        self.send(mail)
        if self.now_seconds is not None:
            self.checkpoints.record_mail(_subject(record), address, self.now_seconds)
        return f"sent to {address}: {finding.title}"


def _subject(record: JobRecord) -> str:
    """Return what is mailed once: a run of a job, or an array, whose tasks may all wait for the same."""
    if record.array_job_id is not None:
        return f"stuck {record.cluster} array {record.array_job_id}"
    return f"stuck {record.cluster} {record.job_id} {record.start_seconds}"
