# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope top``: running jobs, live in the terminal."""

from __future__ import annotations

import sys

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import flag, option, page_width, wants_color, write_text
from slurmscope.cli.roles import find_sections
from slurmscope.core.config import Config, own_environment
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.settings import ClientSettings
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.config import find_own_user
from slurmscope.top.jobs import SORT_KEYS
from slurmscope.top.sources import KnownJobs, NodeSource, PortalSource, PrometheusSource, TopSource, parse_node
from slurmscope.top.view import TopChoices, draw, read_once, show_live


def make_top_command() -> click.Command:
    return SettingsCommand(
        "top",
        callback=_run,
        params=[
            option("--node", "HOST[:PORT]", "Read the page of this node's agent; also http[s]://HOST:PORT."),
            option("--user", "NAME", "Only jobs of this user; by default all of a node, else yours."),
            option(
                "--sort",
                "KEY",
                "cpu, memory, gpu, io, time or job.",
                click.Choice(list(SORT_KEYS)),
                default="cpu",
            ),
            option("--filter", "TEXT", "Only jobs with this text in ID, user, account, name or node.", default=""),
            option("--interval", "SECONDS", "Time between two polls.", click.FloatRange(1, 3600)),
            flag("--once", "Print the jobs once and exit."),
            *options_for(find_sections("report")),
        ],
        help="Show running jobs live: cores, memory, GPUs, I/O and time. They are read from --node, else from the "
        "portal or Prometheus if one is configured, else from the node agent of this host.",
        examples=("slurmscope top --node n17", "slurmscope top --once --sort memory"),
        shown=("portal.url",),
    )


def _run(
    *,
    node: str | None,
    user: str | None,
    sort: str,
    filter: str,
    interval: float | None,
    once: bool,
    **given: object,
) -> int:
    config = load_config("report", given)
    source = _open(config, node, user or "")
    is_live = not once and sys.stdout.isatty() and sys.stdin.isatty()
    choices = TopChoices(sort=sort, filter=filter, interval_seconds=interval, use_color=wants_color())
    if is_live:
        show_live(source, choices)
        return 0
    view = read_once(source, choices)
    write_text("\n".join(draw(view, page_width(), None, use_color=choices.use_color)))
    return 0


def _open(config: Config, node: str | None, user: str) -> TopSource:
    """Return the source that is named, or else the first that is configured."""
    environment = own_environment()
    known = KnownJobs(SlurmCommands(config.of(SlurmSettings), environment).run)
    client = config.of(ClientSettings)
    prometheus = config.of(PrometheusSettings)
    if node is None and client.url is not None:
        from slurmscope.reports.portal_jobs import PortalClient, PortalJobs

        jobs = PortalJobs(PortalClient(client.url, client, environment))
        return PortalSource(jobs, user=user)
    if node is None and prometheus.url is not None:
        return PrometheusSource(prometheus, known, labels={"user": user or find_own_user()})
    return NodeSource(parse_node(node or "localhost"), known, user=user)
