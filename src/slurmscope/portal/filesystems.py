# SPDX-License-Identifier: Apache-2.0
"""Show staff who uses each shared file system most."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.exporter.reading import SharedReading
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient, TopClients
from slurmscope.portal.context import Context
from slurmscope.portal.queries import parse_format
from slurmscope.portal.waste import require_staff
from slurmscope.portal.web.tables import Table, make_table_response
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.sources import Reporting

FILESYSTEMS_LIMIT = 50
ROWS_LIMIT = 40
INTERVAL_SECONDS = 60.0
WAIT_SECONDS = 10.0
"""How long a page waits for the first result."""


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


def make_reading(reporting: Reporting) -> SharedReading | None:
    """Return a reading that queries Prometheus at most once a minute; None without Prometheus."""
    client, settings = reporting.prometheus, reporting.config.of(PrometheusSettings)
    if client is None:
        return None
    from slurmscope.lustre.top_clients import read_top_clients

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
