# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope rules``: list the rules, and test them on the archive."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import format_examples, option, write_text
from slurmscope.cli.roles import find_local_sections
from slurmscope.core.config import Config, ExtensionSettings, own_environment
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.findings import RULES
from slurmscope.reports.rule_trial import Trial, try_rules
from slurmscope.reports.settings import rule_section, thresholds_of
from slurmscope.reports.site_rules import site_rules
from slurmscope.reports.sources import no_archive, open_reporting


def make_rules_command() -> click.Command:
    settings = options_for(find_local_sections())
    list_rules = SettingsCommand(
        "list",
        callback=lambda **given: write_text("\n".join(_list(load_config("report", given)))),
        params=settings,
        help="List all rules with their current thresholds.",
        examples=("slurmscope rules list", "slurmscope rules list --config.file /etc/slurmscope/portal.toml"),
    )
    test = SettingsCommand(
        "test",
        callback=_test,
        params=[option("--days", "N", "Days to cover.", click.IntRange(1, 3650), default=7), *settings],
        help="Apply the rules with the current thresholds to recently ended jobs in the archive, and compare with "
        "the findings made when the jobs ended.",
        examples=("slurmscope rules test", "slurmscope rules test --days 30 --config.file changed.toml"),
        shown=("archive.url",),
    )
    return click.Group(
        "rules",
        commands=[list_rules, test],
        help="List the rules that check jobs, and test them on the archive.",
        epilog=format_examples("slurmscope rules list", "slurmscope rules test --days 30"),
    )


def _list(config: Config) -> Iterator[str]:
    for rule in (*RULES, *site_rules(config.of(ExtensionSettings).load)):
        yield f"{rule.id}  ({rule.severity}, {rule.subject})"
        yield f"    {rule.title}. Needs: {rule.needs}."
        yield from (f"    {line}" for line in _list_thresholds(config, rule.id))
    yield from ("For most rules:", *_list_thresholds(config, ""))


def _list_thresholds(config: Config, rule_id: str) -> Iterator[str]:
    section = rule_section(rule_id)
    for declared in section.settings() if section else ():
        yield f"{declared.key} = {declared.format(config.values[declared.key].value)}  {declared.help}"


def _test(*, days: int, **given: object) -> int:
    config = load_config("report", given)
    with open_reporting(config, own_environment()) as reporting:
        if reporting.archive is None:
            raise no_archive(config.of(ArchiveSettings))
        now_seconds = int(time.time())
        period = (now_seconds - days * DAY_SECONDS, now_seconds)
        trial = try_rules(reporting.archive, period, thresholds_of(config), _show_progress)
    write_text("\n".join(_show(trial, days)))
    return 0


def _show_progress(jobs: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{jobs} jobs checked\r", nl=False, err=True)


def _show(trial: Trial, days: int) -> Iterator[str]:
    yield f"{trial.jobs} jobs ended in the last {days} days"
    yield f"{'rule':28} {'jobs':>8} {'users':>6} {'idle core-hours':>16} {'found then':>11}"
    for rule in trial.rules:
        hours = rule.wasted_core_seconds / 3600
        yield f"{rule.rule:28} {rule.jobs:8} {rule.users:6} {hours:16.1f} {rule.was_found:11}"
