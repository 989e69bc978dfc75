# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope demo``, a simulated cluster in one process, and ``slurmscope simulate``, its commands."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from slurmscope.accounting.settings import parse_name
from slurmscope.cli.options import load_config
from slurmscope.cli.output import format_examples, option
from slurmscope.cli.portal_command import make_exporters
from slurmscope.core.config import own_environment
from slurmscope.core.errors import ConfigError
from slurmscope.core.process import run_until_interrupted
from slurmscope.simulator.cluster.busy_day import fill
from slurmscope.simulator.cluster.cluster import CLUSTER_NAME, calm, simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.call import OTHER_CLUSTERS
from slurmscope.simulator.commands.executables import write_fake_commands
from slurmscope.up.demo import Demo, run_demo

FIRST_PORT = 8080
PORTS_TRIED = 20
CLUSTERS = (CLUSTER_NAME, "second", "third", "fourth")


def make_demo_command() -> click.Command:
    first = f"Port on 127.0.0.1; default is the first free port from {FIRST_PORT}."
    port = option("--port", None, first, click.IntRange(1, 65535))
    same = "Seed of the simulation; the same seed gives the same cluster."
    seed = option("--seed", None, same, click.IntRange(min=0), default=1)
    equal = "Number of clusters. Their nodes have equal names, and some of their jobs equal IDs."
    clusters = option("--clusters", None, equal, click.IntRange(1, len(CLUSTERS)), default=1)
    return click.Command(
        "demo",
        callback=_run,
        params=[port, seed, clusters],
        help="Run slurmscope on a simulated cluster, without Slurm. "
        "A bar on each page switches between the views of staff, a coordinator and a user. "
        "All data is in a temporary folder, which is removed on exit.",
        epilog=format_examples(
            "slurmscope demo", "slurmscope demo --port 9000 --seed 7", "slurmscope demo --clusters 2"
        ),
    )


def _run(*, port: int | None, seed: int, clusters: int) -> int:
    return run_until_interrupted(lambda: _show(_choose_port(port), seed, CLUSTERS[:clusters]))


def _show(port: int, seed: int, names: Sequence[str]) -> int:
    # A simulated command that is still running may write into the folder while it is removed.
    with tempfile.TemporaryDirectory(prefix="slurmscope-demo-", ignore_cleanup_errors=True) as folder:
        now = int(time.time())
        cluster, *others = (
            fill(calm(simulate(Shape(seed=seed + number), now=now, name=name))) for number, name in enumerate(names)
        )
        commands = Path(folder) / "bin"
        write_fake_commands(cluster, commands)
        for other in others:
            write_fake_commands(other, commands / OTHER_CLUSTERS / other.name)
        given = {
            "config_file": Path(os.devnull),
            "portal_listen_address": f"127.0.0.1:{port}",
            "portal_mode": "local",
            "portal_local_user": cluster.users[0].name,
            "portal_title": "slurmscope demo",
            "portal_scripts": "staff",
            "archive_url": f"sqlite:///{folder}/archive.db",
            "energy_price": "0.28",
            "energy_carbon": "350",
            "energy_pue": "1.3",
            "recorder_file": f"{folder}/recorder.db",
            "recorder_interval": "60",
            "slurm_bin_path": str(commands),
            "log_level": "warn",
        }
        return run_demo(
            Demo(cluster=cluster, others=tuple(others), seed=seed),
            load_config("up", given),
            own_environment(),
            make_exporters(given),
            ready=_announce,
        )


def _announce(address: str) -> None:
    click.echo(f"The demo is running at {address} - press Ctrl-C to stop.")


def _choose_port(wanted: int | None) -> int:
    """Return a free port, or raise a ConfigError at once."""
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
        raise ConfigError(f"127.0.0.1:{wanted} is already in use; choose another port with --port")
    raise ConfigError(f"ports {FIRST_PORT} to {ports[-1]} of 127.0.0.1 are all in use; choose another port with --port")


CAN_BE_NONE = ("seed", "jobs", "gpus")


def make_simulate_command() -> click.Command:
    """Build the command; its defaults are those of the simulation."""
    folder = click.Path(file_okay=False, path_type=Path)
    output = option("--output", "DIR", "Folder to write the commands to.", folder, required=True)
    cluster = option(
        "--cluster",
        "NAME",
        "Name of the cluster; job IDs and node names do not depend on it.",
        default=CLUSTER_NAME,
        callback=lambda _context, _option, given: _check_name(given),
    )
    return click.Command(
        "simulate",
        callback=_simulate,
        params=[output, cluster, *_count_options(Shape())],
        help="Write simulated Slurm commands (squeue, sinfo, ...) to a folder, for testing slurmscope "
        "without Slurm; they answer only its command lines. The same options always give the same cluster.",
        epilog=format_examples(
            "slurmscope simulate --output /tmp/slurm",
            "slurmscope simulate --output /tmp/slurm --nodes 5000 --jobs 100000",
            "slurmscope simulate --output /tmp/second --cluster second",
        ),
    )


def _count_options(default: Shape) -> list[click.Option]:
    texts = {name: f"Number of {name}." for name in ("jobs", "nodes", "users", "accounts", "partitions")}
    return [
        option(f"--{name}", "N", text, click.IntRange(int(name not in CAN_BE_NONE)), default=getattr(default, name))
        for name, text in {"seed": "Seed of the simulation.", **texts, "gpus": "Number of GPUs."}.items()
    ]


def _check_name(given: str) -> str:
    try:
        return parse_name(given).lower()
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _simulate(*, output: Path, cluster: str, **counts: int) -> None:
    write_fake_commands(simulate(Shape(**counts), now=int(time.time()), name=cluster), output)
    click.echo(f"Try it: slurmscope cluster --slurm.bin-path {output}")
