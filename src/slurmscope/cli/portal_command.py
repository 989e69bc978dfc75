# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope portal`` and ``slurmscope up``: the web portal, alone or with all else in one process."""

from __future__ import annotations

from collections.abc import Mapping

import click

from slurmscope.cli.options import SettingsCommand, load_config, make_exporter, options_for
from slurmscope.cli.roles import ROLE_NAMES, find_sections
from slurmscope.core.config import Config, own_environment
from slurmscope.core.process import run_until_interrupted
from slurmscope.exporter.exporter import Exporter
from slurmscope.portal.run import run_portal
from slurmscope.up.up import run_up


def make_portal_command() -> click.Command:
    return SettingsCommand(
        "portal",
        callback=_run_portal,
        params=options_for(find_sections("portal")),
        help="Run the web portal with job and cluster pages, and archive jobs when they end.",
        examples=(
            "slurmscope portal --config.file /etc/slurmscope/portal.toml",
            "slurmscope portal --portal.mode local",
        ),
        shown=("portal.listen-address", "portal.mode", "archive.url", "prometheus.url"),
    )


def _run_portal(**given: object) -> int:
    def load() -> Config:
        return load_config("portal", given)

    config = load()
    return run_until_interrupted(lambda: run_portal(config, own_environment(), load=load))


def make_up_command() -> click.Command:
    return SettingsCommand(
        "up",
        callback=lambda **given: run_up(load_config("up", given), own_environment(), make_exporters(given)),
        params=options_for(find_sections("up")),
        help="Run exporters, recorder and portal in one process, without Prometheus. "
        "Set collectors in the file or the environment, as for the exporters.",
        examples=(
            "slurmscope up --archive.url /tmp/archive.db --recorder.file /tmp/recorder.db",
            "slurmscope up --up.targets http://n1:9798/metrics",
        ),
        shown=("portal.listen-address", "archive.url", "recorder.file", "up.targets"),
    )


def make_exporters(given: Mapping[str, object]) -> list[Exporter]:
    """Return the exporters of both roles; flags that they have too apply to them."""
    return [make_exporter(name, given, file_of="up") for name in ROLE_NAMES]
