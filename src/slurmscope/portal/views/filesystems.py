# SPDX-License-Identifier: Apache-2.0
"""Arrange the clients of each file system in tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from slurmscope.model.filesystem_use import ClientKind, Period, Quantity, TopClient

FILESYSTEMS_LIMIT = 50
ROWS_LIMIT = 40


@dataclass(slots=True, kw_only=True)
class ClientRow:
    """Hold one client; an amount is None where the client is not among those that use most of it."""

    name: str
    user: str
    account: str
    cluster: str = ""
    amounts: dict[Quantity, float] = field(default_factory=dict)

    @property
    def read(self) -> float | None:
        """Return what was read: bytes, or bytes per second."""
        return self.amounts.get(Quantity.READ)

    @property
    def written(self) -> float | None:
        """Return what was written: bytes, or bytes per second."""
        return self.amounts.get(Quantity.WRITE)

    @property
    def metadata(self) -> float | None:
        """Return metadata operations, or those per second."""
        return self.amounts.get(Quantity.METADATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTable:
    """Hold the clients of one kind that use a file system most."""

    kind: ClientKind
    period: Period
    rows: tuple[ClientRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemClients:
    """Hold the tables of one file system."""

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
