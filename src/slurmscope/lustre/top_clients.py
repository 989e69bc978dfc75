# SPDX-License-Identifier: Apache-2.0
"""Query who uses each file system most, from the metrics of the collector ``lustre`` in Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from slurmscope.core.errors import ServerRefused, ServerTimedOut, SourceError
from slurmscope.lustre.collector import QUANTITIES
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient, TopClients
from slurmscope.prometheus.promql import Matchers, quote, quote_regex

if TYPE_CHECKING:
    from slurmscope.prometheus.responses import Reply
    from slurmscope.prometheus.series import QueryClient


KIND = "filesystems"
CLIENTS_LIMIT = 20
"""Number of clients of each file system, per quantity."""
STEP_SECONDS = 300
"""Interval at which the rates of a day are added up."""

_ALL = "filesystem, account, user, partition, jobid, program, group, class"
_LABELS = {
    ClientKind.JOB: ("filesystem", "jobid", "user", "account"),
    ClientKind.USER: ("filesystem", "user"),
    ClientKind.PROGRAM: ("filesystem", "program", "user"),
}
_NAMES = {ClientKind.JOB: "jobid", ClientKind.USER: "user", ClientKind.PROGRAM: "program"}


def read_top_clients(client: QueryClient, matchers: Matchers, *, cluster_label: str = "", until: float) -> TopClients:
    """Query all lists; raise the error of the first query if the server does not answer.

    ``cluster_label`` is the label with the name of the cluster, if there is one: it distinguishes equal job IDs.
    """
    found: list[TopClient] = []
    problems: list[str] = []
    for period, kind, quantity in product(Period, ClientKind, Quantity):
        expression = top_expression(period, kind, quantity, matchers, cluster_label=cluster_label)
        try:
            reply = client.query_instant(expression, time.time(), kind=KIND, until=until)
        except (ServerRefused, ServerTimedOut):
            raise
        except SourceError as error:
            problems.append(str(error))
            continue
        found += _clients(reply, period, kind, quantity, cluster_label)
    return TopClients(tuple(found), tuple(dict.fromkeys(problems)))


def top_expression(
    period: Period, kind: ClientKind, quantity: Quantity, matchers: Matchers = (), *, cluster_label: str = ""
) -> str:
    """Return the expression for one list; where two servers have the same series, the higher value counts."""
    metrics = QUANTITIES[quantity]
    names = {
        ClientKind.JOB: [metrics.top_jobs.name],
        ClientKind.USER: [metrics.jobs.name, metrics.programs.name],
        ClientKind.PROGRAM: [metrics.programs.name],
    }
    conditions = [f"__name__=~{quote_regex(names[kind])}", *(f"{label}={quote(value)}" for label, value in matchers)]
    cluster = f", {cluster_label}" if cluster_label else ""
    rates = f"max by ({_ALL}{cluster}) ({{{','.join(conditions)}}})"
    if period is Period.DAY:
        rates = f"sum_over_time(({rates})[1d:{STEP_SECONDS}s]) * {STEP_SECONDS}"
    kept = ", ".join(_LABELS[kind]) + (cluster if kind is ClientKind.JOB else "")
    return f"topk by (filesystem) ({CLIENTS_LIMIT}, sum by ({kept}) ({rates}) > 0)"


def _clients(
    reply: Reply, period: Period, kind: ClientKind, quantity: Quantity, cluster_label: str
) -> Iterator[TopClient]:
    for series in reply.series:
        labels = series.labels
        for amount in series.values[-1:]:
            yield TopClient(
                labels.get("filesystem", ""),
                period,
                kind,
                quantity,
                labels.get(_NAMES[kind], ""),
                labels.get("user", ""),
                labels.get("account", ""),
                amount,
                labels.get(cluster_label, "") if cluster_label else "",
            )
