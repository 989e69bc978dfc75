# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope trace``: create the keys and job tokens with which jobs send samples of their processes."""

from __future__ import annotations

import time
from pathlib import Path

import click

from slurmscope.cli.output import format_examples
from slurmscope.core.errors import ConfigError
from slurmscope.core.units import DAY_SECONDS
from slurmscope.trace.tokens import JobToken, KeyFile, rotate_keys

KEY_FILE = "/etc/slurmscope/trace.key"


def make_command() -> click.Command:
    """Build the group."""
    group = click.Group(
        "trace",
        help="Create the keys and job tokens with which jobs send samples of their processes.",
        epilog=format_examples(
            "slurmscope trace key", "slurmscope trace token --job 4711 --uid 1000 --node n1 --days 7"
        ),
    )
    group.add_command(
        click.Command(
            "key",
            callback=_rotate,
            params=[_key_file()],
            help="Add a new key to the key file, or create the file. The key before it stays valid, older ones are "
            "removed. Copy the file to all nodes and to the cluster exporter; both notice the change.",
            epilog=format_examples("slurmscope trace key", "slurmscope trace key --trace.key-file /tmp/trace.key"),
        )
    )
    group.add_command(_token_command())
    return group


def _key_file() -> click.Option:
    return click.Option(
        ["--trace.key-file", "key_file"],
        type=click.Path(path_type=Path),
        default=KEY_FILE,
        show_default=True,
        metavar="FILE",
        help="File with the keys of job tokens; only its owner may read it.",
    )


def _token_command() -> click.Command:
    job = click.Option(["--job"], type=click.IntRange(1, 2**32 - 1), required=True, metavar="ID", help="Job ID.")
    uid = click.Option(
        ["--uid"], type=click.IntRange(0, 2**32 - 1), required=True, metavar="UID", help="User ID of the job's owner."
    )
    node = click.Option(["--node"], required=True, metavar="NAME", help="Slurm name of the node.")
    days = click.Option(
        ["--days"],
        type=click.IntRange(1, 365),
        default=14,
        show_default=True,
        metavar="N",
        help="Days until the token expires; it is also refused once the job has ended.",
    )
    return click.Command(
        "token",
        callback=_create,
        params=[job, uid, node, days, _key_file()],
        help="Print a token with which one job may send samples from one node. Run it in Prolog, as root.",
        epilog=format_examples(
            "slurmscope trace token --job 4711 --uid 1000 --node n1",
            "slurmscope trace token --job 4711 --uid 1000 --node n1 --days 2",
        ),
    )


def _rotate(*, key_file: Path) -> int:
    click.echo(f"new key {rotate_keys(key_file)} in {key_file}")
    return 0


def _create(*, job: int, uid: int, node: str, days: int, key_file: Path) -> int:
    expiry_seconds = int(time.time()) + days * DAY_SECONDS
    token = KeyFile(key_file).sign(JobToken(job_id=job, uid=uid, node=node, expiry_seconds=expiry_seconds))
    if token is None:
        raise ConfigError(f"{node!a} is not a node name")
    click.echo(token)
    return 0
