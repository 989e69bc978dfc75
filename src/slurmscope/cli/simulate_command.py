# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope simulate``: write simulated Slurm commands."""

from __future__ import annotations

import time
from pathlib import Path

import click

from slurmscope.accounting.settings import parse_name
from slurmscope.cli.output import format_examples, option
from slurmscope.simulator.cluster.cluster import CLUSTER_NAME, simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands

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
        callback=_run,
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


def _run(*, output: Path, cluster: str, **counts: int) -> None:
    write_fake_commands(simulate(Shape(**counts), now=int(time.time()), name=cluster), output)
    click.echo(f"Try it: slurmscope cluster --slurm.bin-path {output}")
