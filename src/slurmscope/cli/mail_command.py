# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope mail``: mail a job report, also as Slurm's MailProg.

Slurm calls its mail program as ``PROGRAM -s SUBJECT RECIPIENT``; the subject contains the job ID and the event.
"""

from __future__ import annotations

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import option
from slurmscope.cli.report_command import cluster_option, find_report
from slurmscope.cli.roles import find_local_sections
from slurmscope.core.config import own_environment
from slurmscope.core.errors import ConfigError
from slurmscope.mail.mail import open_mail_server, write_report_mail
from slurmscope.mail.mail_program import run_mail_program
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import read_clusters


def make_command() -> click.Command:
    words = click.Argument(["words"], nargs=-1, required=True, metavar="JOBID | RECIPIENT")
    subject = option("--subject -s", None, "Subject line from Slurm (as MailProg).")
    to = option("--to", "ADDRESS", "Send to this address instead of the job owner.")
    waits = "Time to wait for the end of the job in accounting (as MailProg)."
    wait = option("--wait", "SECONDS", waits, click.FloatRange(0, 600), default=30.0)
    return SettingsCommand(
        "mail",
        callback=_run,
        params=[words, subject, to, wait, cluster_option(), *options_for(find_local_sections())],
        help="Mail the report of a job to its owner. As Slurm's MailProg, mail the report when a job ends, and forward "
        "other notifications unchanged.",
        examples=("slurmscope mail 1234", "slurmscope mail 1234 --to ada@example.org"),
        shown=("mail.server", "archive.url", "prometheus.url"),
    )


def _run(
    *,
    words: tuple[str, ...],
    subject: str | None,
    to: str | None,
    wait: float,
    cluster: str | None,
    **given: object,
) -> int:
    if len(words) != 1:
        raise ConfigError("expected one job ID, or -s SUBJECT and one recipient as Slurm calls its MailProg")
    if subject is not None:
        config = load_config("report", given)
        run_mail_program(config, own_environment(), subject=subject, recipients=to or words[0], wait_seconds=wait)
        return 0
    report, config = find_report(words[0], cluster, given)
    settings = config.of(MailSettings)
    mail = write_report_mail(report, settings, recipient=to or "", clusters=read_clusters(config))
    open_mail_server(settings).send(mail)
    click.echo(f"sent to {mail['To']}")
    return 0
