# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope portal``: the web pages about jobs."""

from __future__ import annotations

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import find_sections
from slurmscope.config import own_environment
from slurmscope.services.portal.run import run_portal
from slurmscope.services.runtime.signals import run_until_interrupted


def make_command() -> click.Command:
    """Build the command."""
    return SettingsCommand(
        "portal",
        callback=_run,
        params=options_for(find_sections("portal")),
        help="Serve web pages about jobs, and archive jobs as they end. Run it on one host.",
    )


def _run(**given: object) -> int:
    config = load_config("portal", given)
    return run_until_interrupted(lambda: run_portal(config, own_environment()))
