# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope up``: exporters, recorder and portal in one process."""

from __future__ import annotations

from collections.abc import Mapping

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import ROLE_NAMES, find_role, find_sections
from slurmscope.core.config import own_environment
from slurmscope.exporter.exporter import Exporter
from slurmscope.up.up import run_up


def make_command() -> click.Command:
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
    return [_exporter(name, given) for name in ROLE_NAMES]


def _exporter(name: str, given: Mapping[str, object]) -> Exporter:
    return find_role(name).make_exporter(lambda: load_config(name, given))
