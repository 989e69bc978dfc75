# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope mail``: the report of a job as a mail, also as Slurm's MailProg.

Slurm calls its mail program as ``PROGRAM -s SUBJECT RECIPIENT``; the subject tells the job and what happened to it.
"""

from __future__ import annotations

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.report_command import find_report
from slurmscope.cli.roles import find_sections
from slurmscope.config import own_environment
from slurmscope.errors import ConfigError
from slurmscope.services.mail.mail_program import run_mail_program
from slurmscope.services.mail.mailing import open_mail_server, write_report_mail


def make_command() -> click.Command:
    """Build the command."""
    words = click.Argument(["words"], nargs=-1, required=True, metavar="JOBID | RECIPIENT")
    subject = click.Option(["--subject", "-s"], help="Subject as Slurm gives it to its MailProg; tells job and event.")
    to = click.Option(["--to"], metavar="ADDRESS", help="Send to this address instead of the job's owner.")
    wait = click.Option(
        ["--wait"],
        type=click.FloatRange(0, 600),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="As MailProg: how long accounting is given to learn that the job has ended.",
    )
    return SettingsCommand(
        "mail",
        callback=_run,
        params=[words, subject, to, wait, *options_for(find_sections("report"))],
        help="Mail the report of a job to its owner. As Slurm's MailProg, it mails the report when a job has ended, "
        "and anything else as it came.",
    )


def _run(*, words: tuple[str, ...], subject: str | None, to: str | None, wait: float, **given: object) -> int:
    if len(words) != 1:
        raise ConfigError("give one job number, or, as Slurm does, -s SUBJECT and one recipient")
    if subject is not None:
        config = load_config("report", given)
        run_mail_program(config, own_environment(), subject=subject, recipients=to or words[0], wait_seconds=wait)
        return 0
    report, settings = find_report(words[0], given)
    mail = write_report_mail(report, settings, recipient=to or "")
    open_mail_server(settings).send(mail)
    click.echo(f"sent to {mail['To']}")
    return 0
