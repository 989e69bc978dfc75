# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope digest``: weekly usage digests for users and accounts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import flag, option, write_text
from slurmscope.cli.roles import find_local_sections
from slurmscope.core.config import own_environment
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.mail.digest import DigestRequest
from slurmscope.mail.digest_sending import DigestOutcome, SendOutcome, run_digests, set_opt_outs


def make_command() -> click.Command:
    return SettingsCommand(
        "digest",
        callback=_run,
        params=[*_options(), *options_for(find_local_sections())],
        help="Mail users and accounts what their jobs requested and used, which jobs wasted most, and what to change "
        "first. Each digest is sent at most once a week. Exits with 1 if a digest could not be sent.",
        examples=("slurmscope digest --user ada --dry-run", "slurmscope digest --all-users --all-accounts"),
    )


def _options() -> list[click.Parameter]:
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


def _run(*, to: str, is_dry_run: bool, opt_outs: tuple[str, ...], opt_ins: tuple[str, ...], **given: object) -> int:
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
            click.echo(_line(delivery), err=True)
        else:
            write_text(f"{_line(delivery)}\n\n{delivery.text}" if delivery.text else _line(delivery))
    write_text(
        ", ".join(f"{outcome.name.lower().replace('_', ' ')}: {counts[outcome]}" for outcome in counts) or "none"
    )
    return 1 if any(outcome.is_failure for outcome in counts) else 0


def _line(delivery: DigestOutcome) -> str:
    kind = "account" if delivery.about.is_account else "user"
    recipient = f" to {delivery.recipient}" if delivery.recipient else ""
    problem = f": {delivery.problem}" if delivery.problem else ""
    return escape(f"{kind} {delivery.about.name}{recipient}: {delivery.outcome}{problem}", 1000)
