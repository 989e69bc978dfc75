# SPDX-License-Identifier: Apache-2.0
"""Act as Slurm's MailProg: mail the report of a job that ended, and pass on every other mail.

::

    Slurm Job_id=12 Name=relax Ended, Run time 00:10:00, COMPLETED, ExitCode 0
    Slurm Array Task Job_id=12_3 (15) Name=relax Failed, Run time 00:10:00, FAILED, ExitCode 1
    Slurm Array Summary Job_id=12_* (12) Name=relax Ended, COMPLETED, ExitCode [0-0]
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from functools import partial

from slurmscope.core.config import Config
from slurmscope.core.errors import OutputError, SlurmscopeError
from slurmscope.jobs.report import JobReport
from slurmscope.mail.mail import open_mail_server, write_notice, write_report_mail
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.local_jobs import read_report
from slurmscope.reports.page_paths import shown_cluster
from slurmscope.reports.settings import MailSettings, link_to_array
from slurmscope.reports.sources import read_clusters

MAX_RECIPIENTS = 20
POLL_SECONDS = 2.0
SCRAPE_SECONDS = 5.0
"""How long a scrape may take until its samples can be queried."""

CLUSTER_VARIABLE = "SLURM_CLUSTER_NAME"

_JOB = re.compile(r"Slurm (?:Array Task |Array Summary )?Job_id=(?P<job>[0-9]{1,10}(?:_[0-9]{1,10}|_\*)?)(?= )")
# A job name may contain any of these words, but it precedes the event: the last match counts.
_EVENT = re.compile(
    r".* (?P<event>Began|Ended|Failed|Requeued|Invalid dependency|StageOut/Teardown|Reached [^,]*time limit)(?:,|\Z)",
    re.DOTALL,
)
# After a requeue the newest run is pending, and has nothing to report.
_ENDS = frozenset({"Ended", "Failed"})


@dataclass(frozen=True, slots=True)
class MailSubject:
    """A parsed subject: the job ID as users write it, and whether the job has ended."""

    job: str
    has_ended: bool

    @property
    def array(self) -> str:
        return self.job.removesuffix("_*") if self.job.endswith("_*") else ""


def parse_subject(subject: str) -> MailSubject | None:
    """Parse a subject of Slurm; None when it is not about a job, or in an unknown format."""
    job, event = _JOB.match(subject), _EVENT.match(subject)
    return MailSubject(job["job"], event["event"] in _ENDS) if job and event else None


def run_mail_program(
    config: Config,
    environment: Mapping[str, str],
    *,
    subject: str,
    recipients: str,
    wait_seconds: float,
    send: Callable[[EmailMessage], None] | None = None,
) -> None:
    """Send one mail to each recipient; without a report, send Slurm's notice and the reason.

    ``send`` is called instead of the mail server.

    Raises OutputError when a mail could not be sent, after trying all others.
    """
    settings = config.of(MailSettings)
    addresses = [address for address in re.split(r"[,\s]+", recipients) if address][:MAX_RECIPIENTS]
    parsed = parse_subject(subject)
    report, more = None, ""
    clusters = read_clusters(config) if settings.portal_url or (parsed and parsed.array) else ()
    if parsed and parsed.has_ended and parsed.array:
        cluster = shown_cluster(_cluster_of(environment), clusters)
        page = link_to_array(parsed.array, cluster, settings, clusters)
        more = f"Each task has its own report: {page or _report_command(f'{parsed.array}_1', cluster)}"
    elif parsed and parsed.has_ended:
        report, more = _try_report(config, environment, parsed.job, wait_seconds)
    write = partial(_write, subject=subject, report=report, more=more, settings=settings, clusters=clusters)
    problems = [_try_send(partial(write, address), send or open_mail_server(settings).send) for address in addresses]
    if any(problems):
        raise OutputError("\n".join(problem for problem in problems if problem))


def wait_for_end(
    find: Callable[[], JobReport | None],
    wait_seconds: float,
    *,
    settle_seconds: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> JobReport | None:
    """Poll until the whole record of the ended job is there: Slurm sends its mail before accounting is updated.

    What was measured at the end is in the time series only ``settle_seconds`` later: then the report is made again.
    """
    until = clock() + wait_seconds
    while True:
        report = find()
        left_seconds = until - clock()
        if report and report.record.has_ended and not report.record.is_partial:
            return _settle(report, find, settle_seconds, sleep)
        if left_seconds <= 0:
            return report
        sleep(min(POLL_SECONDS, left_seconds))


def _report_command(job: str, cluster: str) -> str:
    return f"slurmscope report {job} -M {cluster}" if cluster else f"slurmscope report {job}"


def _settle(
    report: JobReport, find: Callable[[], JobReport | None], seconds: float, sleep: Callable[[float], None]
) -> JobReport:
    early_seconds = (report.record.end_seconds or 0) + seconds - report.made_seconds
    if early_seconds <= 0:
        return report
    sleep(min(seconds, early_seconds))
    try:
        return find() or report
    except SlurmscopeError:
        return report


def _settle_seconds(config: Config) -> float:
    """Return when the last scrape of an ended job is in Prometheus: an interval later, and a moment to be stored."""
    settings = config.of(PrometheusSettings)
    return settings.scrape_interval + SCRAPE_SECONDS if settings.url else 0.0


def _try_report(
    config: Config, environment: Mapping[str, str], job: str, wait_seconds: float
) -> tuple[JobReport | None, str]:
    cluster = _cluster_of(environment)
    try:
        report = wait_for_end(
            lambda: read_report(config, environment, job, cluster=cluster),
            wait_seconds,
            settle_seconds=_settle_seconds(config),
        )
    except SlurmscopeError as error:
        return None, f"No report could be made: {error}"
    if report and report.record.is_partial:
        return None, f"No report could be made: accounting has only part of the record of job {job} so far."
    return report, "" if report else f"No report could be made: job {job} is not in accounting."


def _cluster_of(environment: Mapping[str, str]) -> str:
    """Return the cluster that slurmctld names: others may have a job of the same ID."""
    return environment.get(CLUSTER_VARIABLE, "").lower()


def _try_send(write: Callable[[], EmailMessage], send: Callable[[EmailMessage], None]) -> str:
    """Return what went wrong, or an empty text."""
    try:
        send(write())
    except SlurmscopeError as error:
        return str(error)
    return ""


def _write(
    address: str, *, subject: str, report: JobReport | None, more: str, settings: MailSettings, clusters: Sequence[str]
) -> EmailMessage:
    if report is not None:
        try:
            return write_report_mail(report, settings, recipient=address, clusters=clusters)
        except SlurmscopeError as error:
            more = f"No report could be made: {error}"
    return write_notice(subject, more, settings, recipient=address)
