# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope mail`` and ``slurmscope digest``: mail a job report, also as MailProg, and weekly digests.

Slurm calls its mail program as ``PROGRAM -s SUBJECT RECIPIENT``; the subject contains the job ID and the event.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from email.message import EmailMessage

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import flag, option, write_text
from slurmscope.cli.report_command import cluster_option, find_report
from slurmscope.cli.roles import find_local_sections
from slurmscope.core.config import Config, own_environment
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.mail.digest import DigestRequest
from slurmscope.mail.digest_delivery import DigestOutcome, SendOutcome, run_digests, set_opt_outs
from slurmscope.mail.mail import describe_mail, open_mail_server, write_report_mail
from slurmscope.mail.mail_program import run_mail_program
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import read_clusters


def make_mail_command() -> click.Command:
    words = click.Argument(["words"], nargs=-1, metavar="JOBID | RECIPIENT")
    subject = option("--subject -s", None, "Subject line from Slurm (as MailProg).")
    to = option("--to", "ADDRESS", "Send to this address instead of the job owner.")
    waits = "Wait for accounting."
    wait = option("--wait", "SECONDS", waits, click.FloatRange(0, 600), default=30.0)
    dry_run = flag("--dry-run is_dry_run", "Print the mail, and send nothing.")
    stuck = flag("--stuck is_stuck", "Mail owners of jobs that alerts call stuck.")
    return SettingsCommand(
        "mail",
        callback=_run_mail,
        params=[words, stuck, subject, to, wait, dry_run, cluster_option(), *options_for(find_local_sections())],
        help="Mail the report of a job to its owner. As Slurm's MailProg, mail the report when a job ends, and forward "
        "other notifications unchanged.",
        examples=(
            "slurmscope mail 1234 --dry-run",
            "slurmscope mail 1234 --to ada@example.org",
        ),
        shown=("mail.server", "archive.url"),
    )


def _run_mail(  # noqa: PLR0913 - one per option
    *,
    words: tuple[str, ...],
    subject: str | None,
    to: str | None,
    wait: float,
    is_dry_run: bool,
    cluster: str | None,
    is_stuck: bool,
    **given: object,
) -> int:
    if is_stuck and not (words or subject or to or cluster):
        return _mail_stuck(load_config("report", given), is_dry_run=is_dry_run)
    if is_stuck:
        raise ConfigError("--stuck mails the owners of all stuck jobs: it takes no job, --subject, --to or --clusters")
    if len(words) != 1:
        raise ConfigError("expected one job ID, --stuck, or -s SUBJECT and one recipient as Slurm calls its MailProg")
    if subject is not None:
        config = load_config("report", given)
        run_mail_program(
            config,
            own_environment(),
            subject=subject,
            recipients=to or words[0],
            wait_seconds=wait,
            send=_print_mail if is_dry_run else None,
        )
        return 0
    report, config = find_report(words[0], cluster, given)
    settings = config.of(MailSettings)
    mail = write_report_mail(report, settings, recipient=to or "", clusters=read_clusters(config))
    if is_dry_run:
        _print_mail(mail)
        return 0
    open_mail_server(settings).send(mail)
    click.echo(f"sent to {mail['To']}")
    return 0


def _mail_stuck(config: Config, *, is_dry_run: bool) -> int:
    from slurmscope.mail.stuck_jobs import mail_stuck_jobs

    send = _print_mail if is_dry_run else None
    is_complete = True
    for line in mail_stuck_jobs(config, own_environment(), now_seconds=int(time.time()), send=send):
        if "not sent" in line:
            is_complete = False
            click.echo(escape(line), err=True)
        elif not is_dry_run:
            write_text(escape(line))
    return 0 if is_complete else 1


def _print_mail(mail: EmailMessage) -> None:
    write_text(f"{describe_mail(mail)}\nNothing was sent.")


def make_digest_command() -> click.Command:
    return SettingsCommand(
        "digest",
        callback=_run_digest,
        params=[*_digest_options(), *options_for(find_local_sections())],
        help="Mail users and accounts what their jobs requested and used, which jobs wasted most, and what to change "
        "first. Each digest is sent at most once a week. Exits with 1 if a digest could not be sent.",
        examples=("slurmscope digest --user ada --dry-run", "slurmscope digest --all-users --all-accounts"),
    )


def _digest_options() -> list[click.Parameter]:
    return [
        option("--user users", "NAME", "Send to this user; repeatable.", multiple=True),
        option("--account accounts", "NAME", "Send to the coordinators of this account; repeatable.", multiple=True),
        flag("--all-users", "Send to every user whose jobs ended."),
        flag("--all-accounts", "Send to the coordinators of all accounts."),
        option("--to", "ADDRESS", "Send account digests to this address.", default=""),
        option("--days", "N", "Days to cover.", click.IntRange(1, 366), default=7),
        flag("--dry-run is_dry_run", "Print the digests without sending them."),
        option("--opt-out opt_outs", "USER", "Stop digests for this user.", multiple=True),
        option("--opt-in opt_ins", "USER", "Resume digests for this user.", multiple=True),
    ]


def _run_digest(
    *, to: str, is_dry_run: bool, opt_outs: tuple[str, ...], opt_ins: tuple[str, ...], **given: object
) -> int:
    config = load_config("report", given)
    request = _make_request(given)
    has_recipients = bool(request.named or request.all_users or request.all_accounts)
    if to and not (request.accounts or request.all_accounts):
        raise ConfigError("--to applies only to account digests; add --account NAME or --all-accounts")
    if opt_outs or opt_ins:
        set_opt_outs(config, own_environment(), opt_outs, opt_ins)
        _print_opt_outs(opt_outs, opt_ins)
    elif not has_recipients:
        raise ConfigError("no recipients given; use --user NAME, --account NAME, --all-users or --all-accounts")
    if not has_recipients:
        return 0
    deliveries = run_digests(
        config, own_environment(), request, to=to, now_seconds=int(time.time()), is_dry_run=is_dry_run
    )
    return _print_deliveries(deliveries)


def _make_request(given: dict[str, object]) -> DigestRequest:
    """Return the options that select digests."""
    names = ("users", "accounts", "all_users", "all_accounts", "days")
    return DigestRequest(**{name: given[name] for name in names})  # type: ignore[arg-type]


def _print_opt_outs(opt_outs: Iterable[str], opt_ins: Iterable[str]) -> None:
    for user in opt_outs:
        write_text(f"{escape(user)} no longer gets digests")
    for user in opt_ins:
        write_text(f"{escape(user)} gets digests again")


def _print_deliveries(deliveries: Iterable[DigestOutcome]) -> int:
    """Print a line, or the text of a dry run, for each digest as it is sent; return the exit code."""
    counts = Counter[SendOutcome]()
    for delivery in deliveries:
        counts[delivery.outcome] += 1
        if delivery.outcome.is_failure:
            click.echo(_delivery_line(delivery), err=True)
        else:
            write_text(f"{_delivery_line(delivery)}\n\n{delivery.text}" if delivery.text else _delivery_line(delivery))
    write_text(
        ", ".join(f"{outcome.name.lower().replace('_', ' ')}: {counts[outcome]}" for outcome in counts) or "none"
    )
    return 1 if any(outcome.is_failure for outcome in counts) else 0


def _delivery_line(delivery: DigestOutcome) -> str:
    kind = "account" if delivery.about.is_account else "user"
    recipient = f" to {delivery.recipient}" if delivery.recipient else ""
    problem = f": {delivery.problem}" if delivery.problem else ""
    return escape(f"{kind} {delivery.about.name}{recipient}: {delivery.outcome}{problem}", 1000)
