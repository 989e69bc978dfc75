# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope simulate``: write simulated Slurm commands."""

from __future__ import annotations

import time
from pathlib import Path

import click

from slurmscope.accounting.settings import parse_name
from slurmscope.cli.output import format_examples
from slurmscope.simulator.cluster.cluster import CLUSTER_NAME, simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands

CAN_BE_NONE = ("seed", "jobs", "gpus")


def make_command() -> click.Command:
    """Build the command; its defaults are those of the simulation."""
    output = click.Option(
        ["--output"],
        type=click.Path(file_okay=False, path_type=Path),
        required=True,
        metavar="DIR",
        help="Folder to write the commands to.",
    )
    cluster = click.Option(
        ["--cluster"],
        default=CLUSTER_NAME,
        show_default=True,
        callback=lambda _context, _option, given: _check_name(given),
        metavar="NAME",
        help="Name of the cluster; job IDs and node names do not depend on it.",
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
    counts = [
        ("seed", default.seed, "Seed of the simulation."),
        ("jobs", default.jobs, "Number of jobs."),
        ("nodes", default.nodes, "Number of nodes."),
        ("users", default.users, "Number of users."),
        ("accounts", default.accounts, "Number of accounts."),
        ("partitions", default.partitions, "Number of partitions."),
        ("gpus", default.gpus, "Number of GPUs."),
    ]
    return [
        click.Option([f"--{name}"], type=_range(name), default=value, show_default=True, metavar="N", help=text)
        for name, value, text in counts
    ]


def _range(name: str) -> click.IntRange:
    return click.IntRange(min=0 if name in CAN_BE_NONE else 1)


def _check_name(given: str) -> str:
    try:
        return parse_name(given).lower()
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _run(*, output: Path, cluster: str, **counts: int) -> None:
    write_fake_commands(simulate(Shape(**counts), now=int(time.time()), name=cluster), output)
    click.echo(f"Try it: slurmscope cluster --slurm.bin-path {output}")
