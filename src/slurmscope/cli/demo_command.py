# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope demo``: the cluster exporter over a simulated cluster."""

from __future__ import annotations

import socket
import tempfile
import time
from pathlib import Path

import click

from slurmscope.cli.exporter_command import run_exporter
from slurmscope.errors import ConfigError
from slurmscope.simulate.cluster import simulate
from slurmscope.simulate.records import Shape
from slurmscope.simulate.stand_in import write_stand_ins

FIRST_PORT = 9092
PORTS_TRIED = 20


def make_command() -> click.Command:
    """Build the command."""
    port = click.Option(
        ["--port"],
        type=click.IntRange(1, 65535),
        help=f"Port on 127.0.0.1; without it the first free one from {FIRST_PORT}.",
    )
    return click.Command(
        "demo", callback=_run, params=[port], help="Show slurmscope over a simulated cluster; no Slurm is needed."
    )


def _run(*, port: int | None) -> int:
    address = f"127.0.0.1:{port or _free_port()}"
    with tempfile.TemporaryDirectory(prefix="slurmscope-demo-") as folder:
        write_stand_ins(simulate(Shape(), now=int(time.time())), Path(folder))
        click.echo(f"A simulated cluster is served. Look at http://{address}/metrics, and press Ctrl-C to end.")
        return run_exporter(
            "cluster", {"web_listen_address": (address,), "slurm_bin_path": folder, "log_level": "warn"}
        )


def _free_port() -> int:
    for port in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ConfigError(
        f"every port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} is taken; choose one with --port"
    )
