# SPDX-License-Identifier: Apache-2.0
"""Define what the tables of the archive have in common, and make texts fit for them.

PostgreSQL refuses NUL, MariaDB refuses texts longer than their column, all of them refuse halves of surrogate pairs,
which stand for bytes of a name that were not UTF-8. All three get the same text.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, LargeBinary, MetaData, String, Table, event, text
from sqlalchemy.dialects.mysql import LONGBLOB

from slurmscope.archive.texts import NAME_LENGTH

# Names differ by upper and lower case and by blanks at their end, on every server.
TABLE_OPTIONS: dict[str, Any] = {
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
    "mariadb_engine": "InnoDB",
}
# Retention drops partitions.
PARTITION_OPTIONS: dict[str, Any] = {
    "mariadb_partition_by": "RANGE (run_id) (PARTITION rest VALUES LESS THAN MAXVALUE)",
    "postgresql_partition_by": "RANGE (run_id)",
}
RUN_TYPE = BigInteger().with_variant(Integer, "sqlite")
BODY_TYPE = LargeBinary().with_variant(LONGBLOB, "mysql", "mariadb")

METADATA = MetaData()


def name_type(length: int = NAME_LENGTH) -> String:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def make_table(name: str, *parts: Column[Any] | Index, **options: Any) -> Table:
    """Declare a table; of one with partitions, PostgreSQL creates that for all rows that have no other with it."""
    made = Table(f"slurmscope_{name}", METADATA, *parts, **TABLE_OPTIONS, **options)
    if "postgresql_partition_by" in options:
        event.listen(made, "after_create", _create_rest)
    return made


def _create_rest(table: Table, connection: Connection, **_: object) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"CREATE TABLE {table.name}_rest PARTITION OF {table.name} DEFAULT"))
