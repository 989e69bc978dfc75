# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope digest``: weekly letters to users and accounts about what their jobs used."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import find_sections
from slurmscope.cli.terminal import write_text
from slurmscope.config import own_environment
from slurmscope.errors import ConfigError
from slurmscope.log import escape
from slurmscope.services.mail.digest_sending import Delivery, SendOutcome, run_digests, set_opt_outs
from slurmscope.services.mail.digests import DigestRequest


def make_command() -> click.Command:
    """Build the command."""
    return SettingsCommand(
        "digest",
        callback=_run,
        params=[*_options(), *options_for(find_sections("report"))],
        help="Mail users and accounts what their jobs of the last days asked for and used, which of them wasted most, "
        "and what to mend first. Nobody gets two letters about the same in one week. Ends with 1 when a letter "
        "could not be sent.",
    )


def _options() -> list[click.Parameter]:
    return [
        click.Option(["--user", "users"], multiple=True, metavar="NAME", help="Write to this user; repeatable."),
        click.Option(
            ["--account", "accounts"],
            multiple=True,
            metavar="NAME",
            help="Write to the coordinators of this account; repeatable.",
        ),
        click.Option(["--all-users"], is_flag=True, help="Write to every user whose jobs ended."),
        click.Option(["--all-accounts"], is_flag=True, help="Write to the coordinators of every such account."),
        click.Option(["--to"], default="", metavar="ADDRESS", help="Send letters about accounts to this address."),
        click.Option(
            ["--days"], type=click.IntRange(1, 366), default=7, show_default=True, help="How many days to look back."
        ),
        click.Option(["--dry-run", "is_dry_run"], is_flag=True, help="Show the letters and send nothing."),
        click.Option(
            ["--opt-out", "opt_outs"], multiple=True, metavar="USER", help="Send this user no letters from now on."
        ),
        click.Option(["--opt-in", "opt_ins"], multiple=True, metavar="USER", help="Send this user letters again."),
    ]


def _run(*, to: str, is_dry_run: bool, opt_outs: tuple[str, ...], opt_ins: tuple[str, ...], **given: object) -> int:
    config = load_config("report", given)
    wish = _wish(given)
    is_wanted = bool(wish.named or wish.all_users or wish.all_accounts)
    if to and not (wish.accounts or wish.all_accounts):
        raise ConfigError("--to is for letters about accounts: name them with --account or --all-accounts")
    if opt_outs or opt_ins:
        set_opt_outs(config, own_environment(), opt_outs, opt_ins)
        _tell_opt_outs(opt_outs, opt_ins)
    elif not is_wanted:
        raise ConfigError("say who shall get letters: --user NAME, --account NAME, --all-users or --all-accounts")
    if not is_wanted:
        return 0
    deliveries = run_digests(
        config, own_environment(), wish, to=to, now_seconds=int(time.time()), is_dry_run=is_dry_run
    )
    return _tell(deliveries)


def _wish(given: dict[str, object]) -> DigestRequest:
    """Take what is about letters out of what click gave."""
    names = ("users", "accounts", "all_users", "all_accounts", "days")
    return DigestRequest(**{name: given[name] for name in names})  # type: ignore[arg-type]


def _tell_opt_outs(opt_outs: Iterable[str], opt_ins: Iterable[str]) -> None:
    for user in opt_outs:
        write_text(f"{escape(user)} gets no more letters")
    for user in opt_ins:
        write_text(f"{escape(user)} gets letters again")


def _tell(deliveries: Iterable[Delivery]) -> int:
    """Write a line, or a letter, as it goes out; return the exit code."""
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


def _line(delivery: Delivery) -> str:
    kind = "account" if delivery.about.is_account else "user"
    reader = f" to {delivery.recipient}" if delivery.recipient else ""
    problem = f": {delivery.problem}" if delivery.problem else ""
    return escape(f"{kind} {delivery.about.name}{reader}: {delivery.outcome}{problem}", 1000)
