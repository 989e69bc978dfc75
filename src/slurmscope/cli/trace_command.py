# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope trace``: create the keys and job tokens with which jobs send samples of their processes."""

from __future__ import annotations

import time
from pathlib import Path

import click

from slurmscope.cli.output import flag, format_examples, option
from slurmscope.core.errors import ConfigError
from slurmscope.core.units import DAY_SECONDS
from slurmscope.trace.tokens import JobToken, KeyFile, read_keys, rotate_keys

KEY_FILE = "/etc/slurmscope/trace.key"


def make_trace_command() -> click.Command:
    key = click.Command(
        "key",
        callback=_rotate,
        params=[_key_file(), flag("--if-missing", "Do nothing if the file has keys already.")],
        help="Add a new key to the key file, or create the file. The key before it stays valid, older ones are "
        "removed. Copy the file to all nodes and to the cluster exporter; both notice the change.",
        epilog=format_examples("slurmscope trace key", "slurmscope trace key --if-missing"),
    )
    return click.Group(
        "trace",
        commands=[key, _token_command()],
        help="Create the keys and job tokens with which jobs send samples of their processes.",
        epilog=format_examples(
            "slurmscope trace key", "slurmscope trace token --job 4711 --uid 1000 --node n1 --days 7"
        ),
    )


def _key_file() -> click.Option:
    text = "File with the keys of job tokens; only its owner may read it."
    return option("--trace.key-file key_file", "FILE", text, click.Path(path_type=Path), default=KEY_FILE)


def _token_command() -> click.Command:
    job = option("--job", "ID", "Job ID.", click.IntRange(1, 2**32 - 1), required=True)
    uid = option("--uid", "UID", "User ID of the job's owner.", click.IntRange(0, 2**32 - 1), required=True)
    node = option("--node", "NAME", "Slurm name of the node.", required=True)
    expiry = "Days until the token expires; it is also refused once the job has ended."
    days = option("--days", "N", expiry, click.IntRange(1, 365), default=14)
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


def _rotate(*, key_file: Path, if_missing: bool) -> int:
    # A file that is there but has no keys is an error, as it is for the exporter.
    if if_missing and key_file.exists() and read_keys(key_file):
        click.echo(f"{key_file} has keys already")
        return 0
    click.echo(f"new key {rotate_keys(key_file)} in {key_file}")
    return 0


def _create(*, job: int, uid: int, node: str, days: int, key_file: Path) -> int:
    expiry_seconds = int(time.time()) + days * DAY_SECONDS
    token = KeyFile(key_file).sign(JobToken(job_id=job, uid=uid, node=node, expiry_seconds=expiry_seconds))
    if token is None:
        raise ConfigError(f"{node!a} is not a node name")
    click.echo(token)
    return 0
