# SPDX-License-Identifier: Apache-2.0
"""Check the time series behind reports: that Prometheus has them, under Slurm's node names, at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from slurmscope.core.check import Check
from slurmscope.core.errors import ConfigError, SlurmscopeError
from slurmscope.core.hostlist import expand_hosts
from slurmscope.core.log import escape
from slurmscope.jobs.queries import CURVES
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.slurm.command import RunCommand

SHOWN_NODES = 5
CPU_TIME = CURVES["cpu"].metric
MIN_RUN_SECONDS = 180
"""How long a job has run when its series must have arrived, with a usual scrape interval."""
MOST_SKEW_SECONDS = 60.0
"""Some servers respond with data of half a minute ago, when they have all samples."""

ADVICE = {
    "time series": "check that Prometheus runs, and prometheus.url, its password or token, and its certificate",
    "partial": "check the storage or the servers that it queries; ended jobs wait for them: docs/scaling.md",
    "node agents": "let Prometheus scrape slurmscope node on every node; check prometheus.matchers",
    "node names": "start slurmscope node there with --node.name set to Slurm's NodeName, or check prometheus.matchers",
    "measured nodes": "check that slurmscope node runs there, that Prometheus scrapes it (see its page /targets), and "
    "that --node.name there is Slurm's NodeName",
    "labels": "let the scrape job add the label, or correct prometheus.matchers and prometheus.cluster-label; "
    "Prometheus itself does not add its external_labels to answers: docs/scaling.md",
    "scrape interval": "set prometheus.scrape-interval to how often Prometheus scrapes the agents; as it is, curves "
    "have gaps, and jobs count as not measured",
    "Prometheus clock": "synchronize the clocks of this host and of Prometheus (chrony): reports miss the end of jobs",
}


def check_series(settings: PrometheusSettings, run: RunCommand) -> Iterator[Check]:
    """Check one thing after the other; ``run`` runs a Slurm command."""
    if settings.url is None:
        message = (
            "prometheus.url is not set: slurmscope portal shows only accounting data, slurmscope up records itself"
        )
        yield Check(name="time series", is_good=True, message=message)
        return
    from slurmscope.prometheus.probe import count_nodes
    from slurmscope.prometheus.responses import PartialAnswer

    try:
        count = count_nodes(settings, CPU_TIME)
    except SlurmscopeError as error:
        advice = ADVICE["partial" if isinstance(error, PartialAnswer) else "time series"]
        yield Check(name="time series", is_good=False, message=str(error), advice=advice)
        return
    yield Check(name="time series", is_good=True, message=f"{settings.url} answers")
    if count:
        yield _check("scrape interval", lambda: _check_interval(settings))
    elif settings.matchers:
        yield _check("labels", lambda: _check_labels(settings))
    yield from _check_nodes(settings, run, count)
    yield _check("Prometheus clock", lambda: _check_clock(settings))


def _check_labels(settings: PrometheusSettings) -> str:
    """Check whether the matchers hide all series, given that there are none with them."""
    from slurmscope.prometheus.probe import count_nodes

    wanted = escape(", ".join(map(str, settings.matchers)))
    if count := count_nodes(replace(settings, matchers=()), CPU_TIME):
        raise ConfigError(f"jobs on {count} nodes are measured now, but none of their series has {wanted}")
    return f"no job is measured now, neither with {wanted} nor without it"


def _check_nodes(settings: PrometheusSettings, run: RunCommand, count: int) -> Iterator[Check]:
    """Compare the nodes that are measured with those that Slurm knows, and those that run jobs."""
    from slurmscope.prometheus.probe import find_nodes

    try:
        running = frozenset(_busy_nodes(run, max(MIN_RUN_SECONDS, 4 * settings.scrape_interval)))
        known = frozenset(run("sinfo", ("--noheader", "--Node", "--format=%N")).decode("utf-8", "replace").split())
        measured = find_nodes(settings, CPU_TIME) if count else frozenset()
    except SlurmscopeError:  # other checks report it
        message = f"jobs on {count} nodes are measured now" if count else "no job is measured now"
        yield Check(
            name="node agents", is_good=count > 0, message=message, advice="" if count else ADVICE["node agents"]
        )
        return
    if not count:
        message = (
            f"no job is measured now, but jobs run on {_list(running)}" if running else "no job has run for minutes"
        )
        yield _judge("node agents", is_good=not running, message=message)
        return
    yield Check(name="node agents", is_good=True, message=f"jobs on {count} nodes are measured now")
    unknown, unmeasured = measured - known, running - measured
    yield _judge(
        "node names",
        is_good=not unknown,
        message=f"Slurm does not know the measured nodes {_list(unknown)}"
        if unknown
        else "Slurm knows every measured node",
    )
    yield _judge(
        "measured nodes",
        is_good=not unmeasured,
        message=f"jobs run on {_list(unmeasured)}, which Prometheus does not know"
        if unmeasured
        else "Prometheus knows every node that runs jobs",
    )


def _busy_nodes(run: RunCommand, seconds: float) -> Iterator[str]:
    """Yield the nodes of jobs that have run for so long."""
    output = run("squeue", ("--noheader", "--states=RUNNING", "--format=%M %N"))
    for line in output.decode("utf-8", "replace").splitlines():
        elapsed, _, nodes = line.strip().partition(" ")
        if _elapsed_seconds(elapsed) >= seconds:
            with contextlib.suppress(ValueError):  # not a list of nodes
                yield from expand_hosts(nodes)


def _elapsed_seconds(text: str) -> int:
    """Parse 5:03, 1:05:03 or 2-01:05:03; 0 for anything else, such as INVALID."""
    days, _, rest = text.rpartition("-")
    parts = [days or "0", *rest.split(":")]
    if not all(part.isascii() and part.isdecimal() for part in parts) or len(parts) > 4:
        return 0
    seconds = 0
    for part in parts[1:]:
        seconds = 60 * seconds + int(part)
    return 86400 * int(parts[0]) + seconds


def _check_interval(settings: PrometheusSettings) -> str:
    """Check that series have the two samples that a rate needs."""
    from slurmscope.prometheus.probe import count_rate_samples

    counts = count_rate_samples(settings, CPU_TIME)
    message = (
        f"{counts.series_with_rate} of {counts.series} series of jobs have two samples within "
        f"{counts.window_seconds:g} seconds"
    )
    if 2 * counts.series_with_rate < counts.series:
        raise ConfigError(message)
    return message


def _check_clock(settings: PrometheusSettings) -> str:
    from slurmscope.prometheus.probe import read_clock_skew

    skew_seconds = read_clock_skew(settings)
    if abs(skew_seconds) > MOST_SKEW_SECONDS:
        direction = "behind" if skew_seconds > 0 else "ahead of"
        raise ConfigError(f"the clock of this host is {abs(skew_seconds):.0f} s {direction} that of Prometheus")
    return "the clocks of this host and of Prometheus agree"


def _check(name: str, run: Callable[[], str]) -> Check:
    try:
        return Check(name=name, is_good=True, message=run())
    except SlurmscopeError as error:
        return Check(name=name, is_good=False, message=str(error), advice=ADVICE[name])


def _judge(name: str, *, is_good: bool, message: str) -> Check:
    return Check(name=name, is_good=is_good, message=message, advice="" if is_good else ADVICE[name])


def _list(nodes: Iterable[str]) -> str:
    names = sorted(nodes)
    return escape(", ".join(names[:SHOWN_NODES])) + (" …" if len(names) > SHOWN_NODES else "")
