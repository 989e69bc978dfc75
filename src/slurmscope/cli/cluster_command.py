# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope cluster``."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.config import Config, own_environment
from slurmscope.metrics.collector import Role
from slurmscope.services.cluster import cluster_sections, wire_cluster
from slurmscope.services.exporter import Exporter, run_forever, run_once
from slurmscope.services.wiring import Wiring


def make_command() -> click.Command:
    """Build the command with a flag for every setting."""
    once = click.Option(
        ["--once", "is_once"],
        is_flag=True,
        help="Write one page to standard output and end: with 0, or with 1 when a collector failed.",
    )
    return SettingsCommand(
        "cluster",
        callback=_run,
        params=[once, *options_for(cluster_sections())],
        help="Serve what the controller knows to Prometheus. Run it on one host that has Slurm's commands.",
    )


def run_cluster(given: Mapping[str, object], *, is_once: bool = False) -> int:
    """Run the exporter with the flags that were given, by their Python names."""
    exporter = Exporter(
        role=Role.CLUSTER,
        load=lambda: load_config(cluster_sections(), given),
        wire=_wire,
    )
    return run_once(exporter, sys.stdout.buffer) if is_once else run_forever(exporter)


def _run(*, is_once: bool, **given: object) -> int:
    return run_cluster(given, is_once=is_once)


def _wire(config: Config) -> Wiring:
    return wire_cluster(config, own_environment())
