# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope cluster``."""

from __future__ import annotations

import click

from slurmscope.cli.exporter_command import make_exporter_command


def make_command() -> click.Command:
    return make_exporter_command("cluster")
