# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient
from slurmscope.portal.filesystems import FILESYSTEMS_LIMIT, ROWS_LIMIT, arrange_clients


def client(
    name: str,
    amount: float,
    quantity: Quantity = Quantity.READ,
    *,
    filesystem: str = "work",
    period: Period = Period.NOW,
    kind: ClientKind = ClientKind.USER,
) -> TopClient:
    return TopClient(filesystem, period, kind, quantity, name, name, "", amount)


def test_jobs_of_two_clusters_with_the_same_id_are_two_rows() -> None:
    clients = [
        TopClient("work", Period.NOW, ClientKind.JOB, Quantity.READ, "12", "ada", "physics", amount, cluster)
        for cluster, amount in (("alpha", 2.0), ("beta", 1.0))
    ]
    (table,) = arrange_clients(clients)[0].tables
    assert [("alpha", 2.0), ("beta", 1.0)] == [(row.cluster, row.read) for row in table.rows]


def test_quantities_of_a_client_are_one_row_and_the_most_bytes_come_first() -> None:
    clients = [
        client("ada", 5.0),
        client("bob", 3.0),
        client("bob", 4.0, Quantity.WRITE),
        client("eve", 900.0, Quantity.METADATA),
        client("ada", 10.0, Quantity.METADATA),
    ]

    ((table,),) = (filesystem.tables for filesystem in arrange_clients(clients))

    assert [
        ("bob", 3.0, 4.0, None),
        ("ada", 5.0, None, 10.0),
        ("eve", None, None, 900.0),
    ] == [(row.name, row.read, row.written, row.metadata) for row in table.rows]


def test_tables_are_by_file_system_period_and_kind() -> None:
    clients = [
        client("cp", 1.0, kind=ClientKind.PROGRAM, period=Period.DAY),
        client("ada", 1.0, filesystem="home"),
        client("4711", 1.0, kind=ClientKind.JOB),
        client("ada", 1.0, period=Period.DAY),
    ]

    assert [
        ("home", [("now", "user")]),
        ("work", [("now", "job"), ("day", "user"), ("day", "program")]),
    ] == [
        (filesystem.name, [(str(table.period), str(table.kind)) for table in filesystem.tables])
        for filesystem in arrange_clients(clients)
    ]


def test_tables_are_bounded() -> None:
    many = [client(f"u{number}", float(number)) for number in range(200)]
    servers = [client("ada", 1.0, filesystem=f"fs{number}") for number in range(200)]

    ((table,),) = (filesystem.tables for filesystem in arrange_clients(many))

    assert (ROWS_LIMIT, "u199") == (len(table.rows), table.rows[0].name)
    assert FILESYSTEMS_LIMIT == len(arrange_clients(servers))
