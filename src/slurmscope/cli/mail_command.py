# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope mail``: the report of a job as a mail, also as Slurm's MailProg.

Slurm calls its mail program as ``PROGRAM -s SUBJECT RECIPIENT``; the subject tells the job and what happened to it.
"""

from __future__ import annotations

import re

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.report_command import find_report
from slurmscope.cli.roles import find_sections
from slurmscope.errors import ConfigError, OutputError, SlurmscopeError
from slurmscope.services.mailing import send_notice, send_report
from slurmscope.services.report_settings import MailSettings

# "Slurm Job_id=12 Name=relax Ended, Run time 00:10:00, COMPLETED, ExitCode 0", or "Slurm Array Task Job_id=12_3 (14)".
_SUBJECT_JOB = re.compile(r"Job_id=([0-9]{1,10}(?:_[0-9]{1,9}|\+[0-9]{1,9})?)(?![0-9*])")
_END_WORDS = re.compile(r"\b(Ended|Failed|Requeued|TIMEOUT|COMPLETED|FAILED|CANCELLED|OUT_OF_MEMORY|NODE_FAIL)\b")


def make_command() -> click.Command:
    """Build the command."""
    words = click.Argument(["words"], nargs=-1, required=True, metavar="JOBID | RECIPIENT")
    subject = click.Option(["--subject", "-s"], help="Subject as Slurm gives it to its MailProg; tells job and event.")
    to = click.Option(["--to"], metavar="ADDRESS", help="Send to this address instead of the job's owner.")
    return SettingsCommand(
        "mail",
        callback=_run,
        params=[words, subject, to, *options_for(find_sections("report"))],
        help="Mail the report of a job to its owner. In slurm.conf, a MailProg may be a script that calls "
        '"slurmscope mail "$@"".',
    )


def _run(*, words: tuple[str, ...], subject: str | None, to: str | None, **given: object) -> int:
    if len(words) != 1:
        raise ConfigError("give one job number, or, as Slurm does, -s SUBJECT and one recipient")
    if subject is None:
        report, settings = find_report(words[0], given)
        click.echo(f"sent to {send_report(report, settings, recipient=to or '')}")
        return 0
    return _run_as_mail_program(subject, to or words[0], given)


def _run_as_mail_program(subject: str, recipient: str, given: dict[str, object]) -> int:
    """Send a report when a job ended; anything else Slurm wants to tell goes out as it came, and so does what fails."""
    settings = load_config("report", given).of(MailSettings)
    job = _SUBJECT_JOB.search(subject)
    problem = ""
    if job and _END_WORDS.search(subject):
        try:
            report, settings = find_report(job[1], given)
            send_report(report, settings, recipient=recipient)
        except OutputError:
            raise
        except SlurmscopeError as error:
            problem = str(error)
        else:
            return 0
    send_notice(subject, problem, settings, recipient=recipient)
    return 0
