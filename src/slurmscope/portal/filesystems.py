# SPDX-License-Identifier: Apache-2.0
"""Show staff who uses each shared file system most."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.core.errors import ServerRefused, ServerTimedOut, SourceError
from slurmscope.exporter.reading import SharedReading
from slurmscope.lustre.feature import QUANTITIES
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient, TopClients
from slurmscope.portal.context import Context
from slurmscope.portal.queries import parse_format
from slurmscope.portal.waste import require_staff
from slurmscope.portal.web.tables import Table, make_table_response
from slurmscope.prometheus.promql import Matchers, quote, quote_regex
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.sources import Reporting

if TYPE_CHECKING:
    from slurmscope.prometheus.responses import Reply
    from slurmscope.prometheus.series import QueryClient

FILESYSTEMS_LIMIT = 50
ROWS_LIMIT = 10
INTERVAL_SECONDS = 60.0
WAIT_SECONDS = 10.0
"""How long a page waits for the first result."""
QUERY_KIND = "filesystems"
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


@dataclass(slots=True, kw_only=True)
class ClientRow:
    """One client: bytes and metadata operations, or those per second; None if it is not among those that use most."""

    name: str
    user: str
    account: str
    cluster: str = ""
    amounts: dict[Quantity, float] = field(default_factory=dict)

    @property
    def read(self) -> float | None:
        return self.amounts.get(Quantity.READ)

    @property
    def written(self) -> float | None:
        return self.amounts.get(Quantity.WRITE)

    @property
    def metadata(self) -> float | None:
        return self.amounts.get(Quantity.METADATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTable:
    """The clients of one kind that use a file system most."""

    kind: ClientKind
    period: Period
    rows: tuple[ClientRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemClients:
    """The tables of one file system."""

    name: str
    tables: tuple[ClientTable, ...]


def arrange_clients(clients: Iterable[TopClient]) -> tuple[FilesystemClients, ...]:
    """Return the tables of each file system: now before the last day, jobs before users before programs."""
    rows: dict[str, dict[tuple[Period, ClientKind], dict[tuple[str, ...], ClientRow]]] = {}
    for client in clients:
        table = rows.setdefault(client.filesystem, {}).setdefault((client.period, client.kind), {})
        name, user, account, cluster = client.name, client.user, client.account, client.cluster
        new = ClientRow(name=name, user=user, account=account, cluster=cluster)
        row = table.setdefault((name, user, account, cluster), new)
        row.amounts[client.quantity] = client.amount
    return tuple(
        FilesystemClients(
            name=name,
            tables=tuple(
                ClientTable(period=period, kind=kind, rows=_sorted(rows[name][period, kind].values()))
                for period in Period
                for kind in ClientKind
                if (period, kind) in rows[name]
            ),
        )
        for name in sorted(rows)[:FILESYSTEMS_LIMIT]
    )


def _sorted(rows: Iterable[ClientRow]) -> tuple[ClientRow, ...]:
    """Return the rows, those with the most bytes first, then those with the most operations."""

    def rank(row: ClientRow) -> tuple[float, float, str]:
        return -((row.read or 0.0) + (row.written or 0.0)), -(row.metadata or 0.0), row.name

    return tuple(sorted(rows, key=rank)[:ROWS_LIMIT])


def make_reading(reporting: Reporting, simulated: Callable[[], TopClients] | None = None) -> SharedReading | None:
    """Return a reading that queries Prometheus at most once a minute; None without Prometheus and in no demo."""
    if simulated is not None:
        return SharedReading("filesystems", simulated, interval_seconds=INTERVAL_SECONDS)
    client, settings = reporting.prometheus, reporting.config.of(PrometheusSettings)
    if client is None:
        return None

    def read() -> TopClients:
        until = time.monotonic() + settings.timeout
        return read_top_clients(client, settings.matchers, cluster_label=settings.cluster_label, until=until)

    return SharedReading("filesystems", read, interval_seconds=INTERVAL_SECONDS)


def find_top_clients(reading: SharedReading | None) -> TopClients | None:
    """Return the last result and request a new one; None without Prometheus."""
    if reading is None:
        return None
    reading.request()
    snapshot = reading.wait(0.0)
    if not snapshot.has_value:
        snapshot = reading.wait(time.monotonic() + WAIT_SECONDS)
    top = snapshot.value if isinstance(snapshot.value, TopClients) else TopClients()
    error = reading.last_error
    return top._replace(problems=(*top.problems, error)) if error else top


router = APIRouter(include_in_schema=False)


@router.get("/filesystems")
def show_filesystems(context: Context) -> Response:
    """Show the jobs, users and programs that use each file system most, now and in the last 24 hours."""
    require_staff(context)
    table_format = parse_format(context.query)
    context.audit("file systems of all users")
    top = find_top_clients(context.services.filesystems)
    if table_format != "html":
        rows = top.clients if top is not None else ()
        table = Table(columns=TopClient._fields, rows=tuple(tuple(row) for row in rows))
        return make_table_response(table, table_format, "filesystems")
    filesystems = arrange_clients(top.clients) if top is not None else None
    return context.page("filesystems.html", filesystems=filesystems, failures=top.problems if top else ())


def read_top_clients(client: QueryClient, matchers: Matchers, *, cluster_label: str = "", until: float) -> TopClients:
    """Query all lists; raise the error of the first query if the server does not answer.

    ``cluster_label`` is the label with the name of the cluster, if there is one: it distinguishes equal job IDs.
    """
    found: list[TopClient] = []
    problems: list[str] = []
    for period, kind, quantity in product(Period, ClientKind, Quantity):
        expression = top_expression(period, kind, quantity, matchers, cluster_label=cluster_label)
        try:
            reply = client.query_instant(expression, time.time(), kind=QUERY_KIND, until=until)
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
