# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope portal``: the web portal."""

from __future__ import annotations

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import find_sections
from slurmscope.core.config import Config, own_environment
from slurmscope.core.process import run_until_interrupted
from slurmscope.portal.run import run_portal


def make_command() -> click.Command:
    return SettingsCommand(
        "portal",
        callback=_run,
        params=options_for(find_sections("portal")),
        help="Run the web portal with job and cluster pages, and archive jobs when they end.",
        examples=(
            "slurmscope portal --config.file /etc/slurmscope/portal.toml",
            "slurmscope portal --portal.mode local",
        ),
        shown=("portal.listen-address", "portal.mode", "archive.url", "prometheus.url"),
    )


def _run(**given: object) -> int:
    def load() -> Config:
        return load_config("portal", given)

    config = load()
    return run_until_interrupted(lambda: run_portal(config, own_environment(), load=load))
