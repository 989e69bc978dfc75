# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope demo``: everything in one process, over a simulated cluster."""

from __future__ import annotations

import socket
import tempfile
import time
from pathlib import Path

import click

from slurmscope.cli.options import load_config
from slurmscope.cli.up_command import make_exporters
from slurmscope.config import own_environment
from slurmscope.errors import ConfigError
from slurmscope.services.runtime.signals import run_until_interrupted
from slurmscope.services.up.demo import Demo, run_demo
from slurmscope.simulate.cluster.cluster import simulate
from slurmscope.simulate.cluster.ordinary_day import calm
from slurmscope.simulate.cluster.records import Shape
from slurmscope.simulate.commands.executables import write_fake_commands

FIRST_PORT = 8080
PORTS_TRIED = 20


def make_command() -> click.Command:
    """Build the command."""
    port = click.Option(
        ["--port"],
        type=click.IntRange(1, 65535),
        help=f"Port on 127.0.0.1; without it the first free one from {FIRST_PORT}.",
    )
    seed = click.Option(
        ["--seed"],
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="Number that the cluster and its jobs follow from.",
    )
    return click.Command(
        "demo",
        callback=_run,
        params=[port, seed],
        help="Show slurmscope over a simulated cluster; no Slurm is needed. "
        "Everything is kept in a temporary folder, which is removed at the end.",
    )


def _run(*, port: int | None, seed: int) -> int:
    return run_until_interrupted(lambda: _show(_choose_port(port), seed))


def _show(port: int, seed: int) -> int:
    # A stand-in that still answers may write into the folder while it is removed.
    with tempfile.TemporaryDirectory(prefix="slurmscope-demo-", ignore_cleanup_errors=True) as folder:
        cluster = calm(simulate(Shape(seed=seed), now=int(time.time())))
        stand_ins = Path(folder) / "bin"
        write_fake_commands(cluster, stand_ins)
        given = {
            "portal_listen_address": f"127.0.0.1:{port}",
            "portal_mode": "local",
            "portal_local_user": cluster.users[0].name,
            "portal_title": "slurmscope demo",
            "archive_url": f"sqlite:///{folder}/archive.db",
            "recorder_file": f"{folder}/recorder.db",
            "recorder_interval": "60",
            "slurm_bin_path": str(stand_ins),
            "log_level": "warn",
        }
        return run_demo(
            Demo(cluster=cluster, seed=seed),
            load_config("up", given),
            own_environment(),
            make_exporters(given),
            ready=_tell,
        )


def _tell(address: str) -> None:
    click.echo(f"A simulated cluster is shown at {address} - press Ctrl-C to end.")


def _choose_port(wanted: int | None) -> int:
    """Return a free port, or say at once that there is none."""
    ports = [wanted] if wanted else range(FIRST_PORT, FIRST_PORT + PORTS_TRIED)
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    if wanted:
        raise ConfigError(f"port {wanted} of 127.0.0.1 cannot be had; choose another with --port")
    raise ConfigError(f"every port from {FIRST_PORT} to {ports[-1]} is taken; choose one with --port")
