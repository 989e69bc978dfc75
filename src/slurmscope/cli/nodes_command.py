# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope nodes``: find nodes on which jobs fail or are slow."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from slurmscope.cli.options import SettingsCommand, archive_options, load_config
from slurmscope.cli.output import format_examples, option, write_text
from slurmscope.core.log import escape
from slurmscope.core.units import DAY_SECONDS
from slurmscope.reports.sources import open_existing_archive

if TYPE_CHECKING:
    from slurmscope.jobs.suspect_nodes import JudgedNode

_ROWS = 20


def make_nodes_command() -> click.Command:
    days = option("--days", "N", "Judge the jobs submitted within so many days.", click.IntRange(1, 365), default=30)
    all_nodes = click.Option(["--all", "shows_all"], is_flag=True, help="List all nodes, also those without suspicion.")
    as_json = click.Option(["--json", "is_json"], is_flag=True, help="Print all nodes as JSON.")
    suspects = SettingsCommand(
        "suspects",
        callback=_suspects,
        params=[days, all_nodes, as_json, *archive_options()],
        help="List nodes on which jobs failed more often, or took longer, than the same jobs on other nodes. Jobs are "
        "the same if user and name are; only jobs of one node count.",
        examples=("slurmscope nodes suspects", "slurmscope nodes suspects --days 90 --json"),
        shown=("archive.url",),
    )
    return click.Group(
        "nodes",
        commands=[suspects],
        help="Find nodes on which jobs fail or are slow.",
        epilog=format_examples("slurmscope nodes suspects", "slurmscope nodes suspects --all"),
    )


def _suspects(*, days: int, shows_all: bool, is_json: bool, **given: object) -> int:
    since_seconds = int(time.time()) // DAY_SECONDS * DAY_SECONDS - (days - 1) * DAY_SECONDS
    with closing(open_existing_archive(load_config("report", given))) as archive:
        nodes = archive.judge_nodes(since_seconds)
    if is_json:
        write_text(json.dumps([asdict(node) for node in nodes], indent=2))
        return 0
    write_text("\n".join(_lines(nodes, shows_all=shows_all)))
    return 0


def _lines(nodes: tuple[JudgedNode, ...], *, shows_all: bool) -> Iterator[str]:
    shown = nodes if shows_all else [node for node in nodes if node.verdict in ("suspect", "watch")][:_ROWS]
    if not shown:
        unknown = sum(node.verdict == "too little data" for node in nodes)
        yield f"No node of {len(nodes)} is suspect; of {unknown} there is too little data."
        return
    counts = f"{'jobs':>6} {'failed':>6} {'expected':>8} {'users':>5}"
    yield f"{'node':16} {'verdict':15} {counts} {'time':>6} {'GPU errors':>10}"
    yield from map(_line, shown)


def _line(node: JudgedNode) -> str:
    slow = "-" if node.slow_factor is None else f"x{node.slow_factor:.2f}"
    return (
        f"{escape(node.node):16} {node.verdict:15} {node.runs:6} {node.failed:6} {node.expected_failed:8.1f} "
        f"{node.failed_users:5} {slow:>6} {node.gpu_faults:10}"
    )
