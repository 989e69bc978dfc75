# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope simulate``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from slurmscope.simulate.cluster.cluster import simulate
from slurmscope.simulate.cluster.records import Shape
from slurmscope.simulate.commands.executables import write_fake_commands

CAN_BE_NONE = ("seed", "jobs", "gpus")


def make_command() -> click.Command:
    """Build the command; its defaults are those of the simulation."""
    default = Shape()
    counts = [
        ("seed", default.seed, "Number that everything else follows from."),
        ("jobs", default.jobs, "Jobs the controller knows of."),
        ("nodes", default.nodes, "Nodes of the cluster."),
        ("users", default.users, "Users with jobs."),
        ("accounts", default.accounts, "Accounts the users belong to."),
        ("partitions", default.partitions, "Partitions of the cluster."),
        ("gpus", default.gpus, "GPUs of the cluster."),
    ]
    options = [
        click.Option(
            [f"--{name}"],
            type=_range(name),
            default=value,
            show_default=True,
            help=text,
        )
        for name, value, text in counts
    ]
    output = click.Option(
        ["--output"], type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for the commands."
    )
    return click.Command(
        "simulate",
        callback=_run,
        params=[output, *options],
        help="Write commands into a folder that answer like those of a Slurm cluster. "
        "The same numbers always give the same cluster.",
    )


def _range(name: str) -> click.IntRange:
    return click.IntRange(min=0 if name in CAN_BE_NONE else 1)


def _run(*, output: Path, **counts: int) -> None:
    write_fake_commands(simulate(Shape(**counts), now=int(time.time())), output)
    click.echo(f"Try it: slurmscope cluster --slurm.bin-path {output}")
