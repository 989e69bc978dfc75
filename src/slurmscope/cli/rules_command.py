# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope rules``: list them, and try them on the archive."""

from __future__ import annotations

import sys
import time

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import find_sections
from slurmscope.config import own_environment
from slurmscope.errors import ConfigError
from slurmscope.model.archive import JobFilter
from slurmscope.rules import rules_table
from slurmscope.services.reporting import open_reporting
from slurmscope.services.rule_settings import thresholds_of
from slurmscope.services.rule_trial import Trial, try_rules

DAY_SECONDS = 86400


def make_command() -> click.Command:
    """Build the group."""
    group = click.Group("rules", help="List the rules that jobs are judged by, and try them on the archive.")
    group.add_command(click.Command("list", callback=_list, help="List every rule with its thresholds."))
    days = click.Option(
        ["--days"], type=click.IntRange(1, 3650), default=7, show_default=True, help="How many days to look back."
    )
    trial = SettingsCommand(
        "test",
        callback=_test,
        params=[days, *options_for(find_sections("report"))],
        help="Say what each rule would have found in the archive, with the thresholds that are set now.",
    )
    group.add_command(trial)
    return group


def _list() -> None:
    for row in rules_table():
        click.echo(f"{row.id}  ({row.severity}, {row.subject})")
        click.echo(f"    {row.title}. Needs: {row.needs}")
        for threshold in row.thresholds:
            click.echo(f"    {threshold.replace('`', '')}")


def _test(*, days: int, **given: object) -> int:
    config = load_config("report", given)
    with open_reporting(config, own_environment()) as reporting:
        if reporting.archive is None:
            raise ConfigError("there is no archive to try rules on: name it with --archive.url")
        wanted = JobFilter(since_seconds=int(time.time()) - days * DAY_SECONDS, is_running=False)
        trial = try_rules(reporting.archive, wanted, thresholds_of(config), _tell)
    _show(trial, days)
    return 0


def _tell(jobs: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{jobs} jobs judged", nl=False, err=True)


def _show(trial: Trial, days: int) -> None:
    if sys.stderr.isatty():
        click.echo("\r", nl=False, err=True)
    click.echo(f"{trial.jobs} jobs of the last {days} days")
    click.echo(f"{'rule':28} {'jobs':>8} {'users':>6} {'idle core hours':>16} {'found then':>11}")
    for rule in trial.rules:
        hours = rule.wasted_core_seconds / 3600
        click.echo(f"{rule.rule:28} {rule.jobs:8} {rule.users:6} {hours:16.1f} {rule.was_found:11}")
