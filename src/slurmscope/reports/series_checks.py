# SPDX-License-Identifier: Apache-2.0
"""Check the time series behind reports: that Prometheus has them, under Slurm's node names, at the same time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from slurmscope.core.check import Check
from slurmscope.core.errors import ConfigError, MalformedAnswer, SlurmscopeError
from slurmscope.core.hostlist import expand_hosts
from slurmscope.core.log import escape
from slurmscope.jobs.pending.queue import parse_limit
from slurmscope.jobs.queries import CURVES
from slurmscope.jobs.series import NODE_LABEL
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.plan import RATE_SCRAPES
from slurmscope.prometheus.promql import quote
from slurmscope.prometheus.responses import Reply
from slurmscope.prometheus.settings import Matcher, PrometheusSettings
from slurmscope.slurm.command import RunCommand

SHOWN_NODES = 5
CPU_TIME = CURVES["cpu"].metric
JOBS = {"agents": "slurm-nodes", "cluster exporter": "slurm"}
MEASURED, RECORDED = "slurm_nodes", "instance:slurm_nodes:sum"
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
    "targets": "there: systemctl status slurmscope-node or slurmscope-cluster; the page /targets of Prometheus has "
    "the error; a firewall or IPAddressAllow= in the unit has to let Prometheus in",
    "jobs": "alerts about slurmscope itself select these names: docs/install.md; not needed by reports",
    "rules": "name rules/slurmscope.yml in rule_files of prometheus.yml, and reload it: without it no alert fires",
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
        yield Check(name="time series", is_good=True, message=message, is_note=True)
        return
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
    yield from _check_targets(settings)
    yield from _check_rules(settings)
    yield _check("Prometheus clock", lambda: _check_clock(settings))


def _check_targets(settings: PrometheusSettings) -> Iterator[Check]:
    """Check that Prometheus can scrape the exporters; other checks report that it does not answer."""
    with contextlib.suppress(SlurmscopeError):
        for name, job in JOBS.items():
            targets = find_targets(settings, job)
            down = [instance for instance, is_up in targets.items() if not is_up]
            if down:
                message = f"{len(down)} of {len(targets)} targets of {job} are down: {_list(down)}"
                yield Check(name=name, is_good=False, message=message, advice=ADVICE["targets"])
            elif targets:
                yield Check(name=name, is_good=True, message=f"all {len(targets)} targets of {job} are up")
            else:
                message = f"Prometheus has no scrape job {job}"
                yield Check(name=name, is_good=True, message=message, advice=ADVICE["jobs"])


def _check_rules(settings: PrometheusSettings) -> Iterator[Check]:
    """Check that rules are evaluated, by what they record of the cluster exporter."""
    with contextlib.suppress(SlurmscopeError):
        if not has_series(settings, MEASURED):
            return
        is_loaded = has_series(settings, RECORDED)
        message = "are evaluated" if is_loaded else f"are not loaded, or not evaluated yet: there is no {RECORDED}"
        yield Check(name="rules", is_good=True, message=message, advice="" if is_loaded else ADVICE["rules"])


def _check_labels(settings: PrometheusSettings) -> str:
    """Check whether the matchers hide all series, given that there are none with them."""
    wanted = escape(", ".join(map(str, settings.matchers)))
    if count := count_nodes(replace(settings, matchers=()), CPU_TIME):
        raise ConfigError(f"jobs on {count} nodes are measured now, but none of their series has {wanted}")
    return f"no job is measured now, neither with {wanted} nor without it"


def _check_nodes(settings: PrometheusSettings, run: RunCommand, count: int) -> Iterator[Check]:
    """Compare the nodes that are measured with those that Slurm knows, and those that run jobs."""
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
        if (parse_limit(elapsed) or 0) >= seconds:
            with contextlib.suppress(ValueError):  # not a list of nodes
                yield from expand_hosts(nodes)


def _check_interval(settings: PrometheusSettings) -> str:
    """Check that series have the two samples that a rate needs."""
    counts = count_rate_samples(settings, CPU_TIME)
    message = (
        f"{counts.series_with_rate} of {counts.series} series of jobs have two samples within "
        f"{counts.window_seconds:g} seconds"
    )
    if 2 * counts.series_with_rate < counts.series:
        raise ConfigError(message)
    return message


def _check_clock(settings: PrometheusSettings) -> str:
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


TIMEOUT_SECONDS = 30.0
KIND = "doctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSamples:
    """Count the series older than the window of a rate, and those of them that have enough samples for one."""

    series: int
    series_with_rate: int
    window_seconds: float


def count_nodes(settings: PrometheusSettings, metric: str) -> int:
    return _count(settings, metric, lambda selector: f"count by ({NODE_LABEL}) ({selector})")


def count_rate_samples(settings: PrometheusSettings, metric: str) -> RateSamples:
    """Count the series of this metric, and those with two samples within the window of a rate.

    Series of jobs that just started have one sample, and are not counted.
    """
    window_seconds = RATE_SCRAPES * settings.scrape_interval
    window = f"{round(1000 * window_seconds)}ms"

    def older(selector: str) -> str:
        return f"{selector} offset {window}"

    return RateSamples(
        series=_count(settings, metric, lambda selector: f"{selector} and {older(selector)}"),
        series_with_rate=_count(
            settings, metric, lambda selector: f"increase({selector}[{window}]) and {older(selector)}"
        ),
        window_seconds=window_seconds,
    )


def find_nodes(settings: PrometheusSettings, metric: str) -> frozenset[str]:
    """Return the names of the nodes that have this metric now."""
    reply = _query(settings, f"count by ({NODE_LABEL}) ({_selector(settings, metric)})")
    return frozenset(series.labels.get(NODE_LABEL, "") for series in reply.series) - {""}


def find_targets(settings: PrometheusSettings, job: str) -> dict[str, bool]:
    """Return whether each target of a scrape job is up, by instance."""
    of_job = replace(settings, matchers=(*settings.matchers, Matcher("job", job)))
    reply = _query(settings, f"min by (instance) ({_selector(of_job, 'up')})")
    return {series.labels.get("instance", ""): series.values[0] == 1 for series in reply.series}


def has_series(settings: PrometheusSettings, metric: str) -> bool:
    return _count(settings, metric, str) > 0


def read_clock_skew(settings: PrometheusSettings) -> float:
    """Return by how many seconds the server's clock is ahead of ours, at least; negative if it is behind."""
    before = time.time()
    until = time.monotonic() + TIMEOUT_SECONDS
    reply = Prometheus(settings).query_instant("vector(time())", None, kind=KIND, until=until)
    after = time.time()
    if not reply.points:
        raise MalformedAnswer(f"{settings.url} does not know its own time")
    server = reply.series[0].values[0]
    return server - after if server > after else min(0.0, server - before)


def _count(settings: PrometheusSettings, metric: str, expression: Callable[[str], str]) -> int:
    reply = _query(settings, f"count({expression(_selector(settings, metric))})")
    return int(reply.series[0].values[0]) if reply.points else 0


def _selector(settings: PrometheusSettings, metric: str) -> str:
    matchers = ",".join(f"{label}={quote(value)}" for label, value in settings.matchers)
    return f"{metric}{{{matchers}}}"


def _query(settings: PrometheusSettings, query: str) -> Reply:
    until = time.monotonic() + TIMEOUT_SECONDS
    return Prometheus(settings).query_instant(query, time.time(), kind=KIND, until=until)
